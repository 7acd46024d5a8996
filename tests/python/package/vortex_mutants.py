"""Imports small trees of every kind with a few bytes, numbers or children changed: `vortex_mutants.py SEED FIRST COUNT PLACE [DEVICE]`.

Each is refused by an error of the package, or decodes to what pyarrow finds valid. PLACE is a file that says which one is under
way, for whoever watches a process that may be brought down."""

import os
import random
import resource
import sys

import crossdock as cd
import pyarrow as pa
import trees
from capsules import LIVE, Exporter
from conftest import assert_nothing_held
from flat import Tree

BUDGET = "64MiB"
# Beside the budget: what the interpreter and the libraries take for themselves from now on.
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
# What pyarrow says of decimals beyond their precision, of dates that are no whole days, of times beyond a day.
KEPT = ["does not fit in precision", "does not represent a whole number of days", "is not within the acceptable range"]
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
    """A few small trees of each kind."""
    found = []
    for kind in trees.KINDS:
        for rows, most in ((40, 10), (1100, 3)):
            made = [array for _, array in trees.arrays(kind, (rows,))]
            found += map(Tree.of, made[:: max(1, len(made) // most)])
    return found


def nodes(tree):
    """All nodes, the root first."""
    found = [tree]
    for node in found:
        found.extend(node.children)
    return found


def copy(tree):
    return Tree(tree.id, tree.dtype, tree.length, tree.metadata, tree.buffers, [copy(child) for child in tree.children])


def changed(data, rng):
    """Bytes with one thing changed."""
    at = rng.randrange(len(data) + 1)
    some = bytes([rng.randrange(256)])
    if data and at < len(data):
        flipped = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        ways = [flipped] * 4 + [data[:at] + some + data[at + 1 :], data[:at], data[:at] + data[at + 1 :]]
        return rng.choice([*ways, data[:at] + rng.choice(VARINTS) + data[at + 1 :]])
    return rng.choice([data + some, data + rng.choice(VARINTS), data + data])


def mutate(tree, rng, others):
    """Changes one thing somewhere in the tree, and says what."""
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
    """(the tree, what was done to it): the same ones for the same numbers."""
    rng = random.Random(f"{seed} {number}")
    tree = copy(rng.choice(all_samples))
    return tree, [mutate(tree, rng, all_samples) for _ in range(rng.choice([1, 1, 2, 4]))]


def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def check(session, tree):
    """Whether it decodes."""
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
                # Numbers that their types do not have are nobody's danger, and kept as they are.
                if not any(words in str(error) for words in KEPT):
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


def main(seed, first, count, place, device="cpu"):
    all_samples = samples()
    with open("/proc/self/statm") as statm:
        addresses = int(statm.read().split()[0]) * resource.getpagesize()
    if device == "cpu":
        # A driver takes addresses as it likes.
        resource.setrlimit(resource.RLIMIT_AS, (addresses + ADDRESSES, addresses + ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before, decoded = resident(), 0
    file = os.open(place, os.O_WRONLY | os.O_CREAT)
    with cd.Session(device, memory=BUDGET) as session:
        for number in range(first, first + count):
            os.pwrite(file, f"{number:12}".encode(), 0)
            tree, ways = mutant(seed, number, all_samples)
            try:
                decoded += check(session, tree)
            except BaseException:
                print(f"mutant {seed} {number}: {ways}", file=sys.stderr)
                show(tree)
                raise
            assert resident() - before < RESIDENT, f"mutant {seed} {number}, {ways}, took {resident() - before} bytes"
        assert_nothing_held(session)
        assert not LIVE
    print(f"{count} mutants, {decoded} of them decode; {resident() - before} bytes at most")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:])
