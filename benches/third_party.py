"""Compares an encoding of a third-party plugin with an equivalent built-in one.

The host runs the program of each encoding in one pass with the unpacking of its child, which contains packed integers.

    PYTHONPATH=$(cargo xtask python --release) python benches/third_party.py PLUGIN [--device cuda:0] [--json FILE]

PLUGIN is the library of examples/rust-plugin. The packed integers are on the device, where they are decoded."""

import argparse
import gc
import json
import statistics
import sys
import time
from pathlib import Path

import crossdock as cd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/python/vortex"))

import capsules
import dtypes
import numpy as np
import proto
from flat import Tree

BITS, WARM, RUNS = 6, 3, 25


def exports(device, packed):
    """Returns a function that exports the packed bytes as a buffer on the device."""
    if device == "cpu":
        return lambda: capsules.capsule_of(packed.tobytes())
    number = int(device.split(":")[1])
    buffer = cd.cuda.Context(number).buffer_from_data(packed)
    return lambda: capsules.capsule_of(b"", kind=1, ptr=buffer.address, len=buffer.size, device_id=number)


class Chain:
    """A node with packed integers as its child."""

    def __init__(self, node, values, buffer):
        dtype = dtypes.primitive(dtypes.NUMPY.index("u4"), False)
        self.node = Tree(node[0], dtype, values, node[1], [], [])
        self.packed = Tree("fastlanes.bitpacked", dtype, values, proto.write({1: BITS}), [], [])
        self.buffer = buffer

    def __len__(self):
        return self.node.length

    def __vortex_array_metadata__(self):
        nodes = [(tree.id, tree.dtype, tree.length, tree.metadata) for tree in (self.node, self.packed)]
        return (*nodes[0], [], [(*nodes[1], [self.buffer()], [])])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plugin", help="library of examples/rust-plugin")
    parser.add_argument("--device", default="cuda:0", help="device of the decoded values: cpu, cuda:N")
    parser.add_argument("--values", type=int, default=1 << 30, metavar="N", help="number of values (default 2^30)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    arguments = parser.parse_args()
    values, blocks = arguments.values, -(-arguments.values // 1024)
    packed = np.random.default_rng(1).integers(0, 256, blocks * 128 * BITS, dtype="u1")
    buffer = exports(arguments.device, packed)
    chains = {
        "built-in: fastlanes.for": Chain(("fastlanes.for", proto.write_uint(1000)), values, buffer),
        "third party: example.xor": Chain(("example.xor", (1000).to_bytes(4, "little")), values, buffer),
    }
    times = {what: [] for what in chains}
    gc.disable()
    with cd.Session(arguments.device, plugins=[arguments.plugin]) as session:
        for run in range(WARM + RUNS):
            for what, chain in chains.items():
                session.synchronize()
                start = time.perf_counter_ns()
                column = session.from_vortex(chain)
                session.synchronize()
                if run >= WARM:
                    times[what].append(time.perf_counter_ns() - start)
                assert len(column) == values
                del column
    rows = {what: 4 * values / statistics.median(durations) for what, durations in times.items()}
    print(f"| {BITS} bits of u32 on {arguments.device}, decoded | GB/s |\n|---|---|")
    for what, rate in rows.items():
        print(f"| {what} | {rate:,.0f} |")
    built_in, third_party = rows.values()
    print(f"| third party, of the built-in one | {third_party / built_in:.0%} |")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
