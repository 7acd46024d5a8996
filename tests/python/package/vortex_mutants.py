"""Imports small trees of every kind with changed bytes, numbers or children:
`vortex_mutants.py SEED FIRST COUNT FILE [DEVICE]`.

Each import must raise an error of the package, or decode to an array that pyarrow finds valid. The program
writes the number of the current tree to FILE, so that the tree can be repeated after a crash."""

import os
import random
import resource
import sys

import crossdock as cd
import pyarrow as pa
import trees
from capsules import LIVE, Exporter
from conftest import assert_all_memory_freed
from flat import Tree

BUDGET = "64MiB"
# Memory for the interpreter and the libraries, in addition to the budget.
ADDRESSES = 3 << 30
RESIDENT = 512 << 20
LENGTHS = [
    0,
    1,
    2,
    1023,
    1024,
    1 << 16,
    1 << 31,
    (1 << 31) - 1,
    1 << 32,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
]
# pyarrow's messages for invalid values that the decoder does not reject: decimals with more digits
# than their precision, dates with a fraction of a day, and times of more than a day.
PYARROW_ERRORS = [
    "does not fit in precision",
    "does not represent a whole number of days",
    "is not within the acceptable range",
]
VARINTS = [
    b"\x00",
    b"\x01",
    b"\x40",
    b"\xff\x07",
    b"\x80\x08",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
    b"\x80" * 9 + b"\x01",
]


def samples():
    """Returns a few small trees of each kind."""
    trees_of_kinds = []
    for kind in trees.KINDS:
        for rows, most in ((40, 10), (1100, 3)):
            arrays = [array for _, array in trees.arrays(kind, (rows,))]
            trees_of_kinds += map(Tree.of, arrays[:: max(1, len(arrays) // most)])
    return trees_of_kinds


def nodes(tree):
    """Returns all nodes, the root first."""
    all_nodes = [tree]
    for node in all_nodes:
        all_nodes.extend(node.children)
    return all_nodes


def copy(tree):
    return Tree(tree.id, tree.dtype, tree.length, tree.metadata, tree.buffers, [copy(child) for child in tree.children])


def changed(data, rng):
    """Returns the bytes with one change."""
    at = rng.randrange(len(data) + 1)
    byte = bytes([rng.randrange(256)])
    if data and at < len(data):
        flipped = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        changes = [flipped] * 4 + [data[:at] + byte + data[at + 1 :], data[:at], data[:at] + data[at + 1 :]]
        return rng.choice([*changes, data[:at] + rng.choice(VARINTS) + data[at + 1 :]])
    return rng.choice([data + byte, data + rng.choice(VARINTS), data + data])


def mutate(tree, rng, others):
    """Changes one value in the tree, and returns a description."""
    node = rng.choice(nodes(tree))
    way = rng.choice(
        ["metadata", "metadata", "dtype", "buffer", "buffer", "length", "length", "child", "children", "id"]
    )
    if way == "metadata":
        node.metadata = changed(node.metadata, rng)
    elif way == "dtype":
        node.dtype = rng.choice([changed(node.dtype, rng), rng.choice(nodes(rng.choice(others))).dtype])
    elif way == "buffer" and node.buffers:
        at = rng.randrange(len(node.buffers))
        node.buffers[at] = changed(node.buffers[at], rng)
    elif way == "length":
        node.length = rng.choice([*LENGTHS, max(node.length - 1, 0), min(node.length + 1, (1 << 64) - 1)])
    elif way == "child" and node.children:
        at = rng.randrange(len(node.children))
        child = node.children[at]
        scalar = rng.choice([b"\x08\x00", b"\x10\x01", b"\x18\x02", b"\x20\x01", b"\x20\xff\x01", b"\x3a\x01a"])
        length = rng.choice([child.length, child.length, *LENGTHS])
        constant = Tree("vortex.constant", child.dtype, length, b"", [scalar])
        node.children[at] = rng.choice([constant, constant, copy(rng.choice(nodes(rng.choice(others))))])
    elif way == "children":
        moved = node.children or node.buffers
        if moved:
            at, to = rng.randrange(len(moved)), rng.randrange(len(moved))
            rng.choice(
                [lambda: moved.pop(at), lambda: moved.insert(to, moved[at]), lambda: moved.insert(0, moved.pop(at))]
            )()
    else:
        node.id = rng.choice(nodes(rng.choice(others))).id
    return f"{way} of {node.id}"


def mutant(seed, number, all_samples):
    """Returns (tree, description). The result depends only on the seed and the number."""
    rng = random.Random(f"{seed} {number}")
    tree = copy(rng.choice(all_samples))
    return tree, [mutate(tree, rng, all_samples) for _ in range(rng.choice([1, 1, 2, 4]))]


def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def check(session, tree):
    """Returns whether the tree decodes."""
    try:
        column = session.from_vortex(Exporter(tree))
    except (cd.Error, TypeError) as error:
        assert not isinstance(error, (cd.PluginError, cd.DeviceError)), repr(error)
        assert str(error) and len(str(error)) < 4000
        return False
    assert len(column) == tree.length
    if tree.length < 1 << 24:
        for chunk in column.to_pyarrow().chunks:
            try:
                chunk.validate(full=True)
            except pa.ArrowInvalid as error:
                # Numbers that are out of the range of their type are harmless, so the decoder does
                # not reject them.
                if not any(message in str(error) for message in PYARROW_ERRORS):
                    raise
                chunk.validate()
            assert pa.types.is_null(chunk.type) or chunk.null_count <= len(chunk)
    return True


def show(tree, depth=0):
    dots = "  " * depth
    print(f"{dots}{tree.id} {tree.length} dtype {tree.dtype.hex()} metadata {tree.metadata.hex()}", file=sys.stderr)
    for data in tree.buffers:
        print(f"{dots}  buffer of {len(data)}: {data[:64].hex()}", file=sys.stderr)
    for child in tree.children:
        show(child, depth + 1)


def main(seed, first, count, path, device="cpu"):
    all_samples = samples()
    with open("/proc/self/statm") as statm:
        addresses = int(statm.read().split()[0]) * resource.getpagesize()
    if device == "cpu":
        # The limit applies only on the CPU, because a CUDA driver reserves much address space.
        resource.setrlimit(resource.RLIMIT_AS, (addresses + ADDRESSES, addresses + ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before, decoded = resident(), 0
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    with cd.Session(device, memory=BUDGET) as session:
        for number in range(first, first + count):
            os.pwrite(file, f"{number:12}".encode(), 0)
            tree, descriptions = mutant(seed, number, all_samples)
            try:
                decoded += check(session, tree)
            except BaseException:
                print(f"mutant {seed} {number}: {descriptions}", file=sys.stderr)
                show(tree)
                raise
            assert resident() - before < RESIDENT, (
                f"mutant {seed} {number}, {descriptions}, took {resident() - before} bytes"
            )
        assert_all_memory_freed(session)
        assert not LIVE
    print(f"{count} mutants, {decoded} of them decode; {resident() - before} bytes at most")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:])
