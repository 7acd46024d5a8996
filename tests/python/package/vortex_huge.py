"""Imports small trees that declare very large sizes, with a limit on the process's memory:
`vortex_huge.py [BUDGET [DEVICE]]`.

Each import must raise an error of the package. If there is a budget, no import may allocate much memory."""

import resource
import sys

import crossdock as cd
import dtypes
import numpy as np
import proto
import pyarrow as pa
from capsules import LIVE, Exporter
from conftest import assert_all_memory_freed
from craft import boolean
from flatbuffer import Table, write
from vortex_nodes import I8, U1, U2, U4, constant, dtype_of, node, number, of, patch_metadata

ADDRESSES = 1 << 30
RESIDENT = 192 << 20
ONE = b"\x20\x01"
ZERO = b"\x20\x00"


def declared_patches(length, kind="u4"):
    return proto.write({1: length, 3: dtypes.NUMPY.index(kind)})


def huge(n):
    """Returns trees by name. Each declares `n` elements, nodes or bytes."""
    u1, u4, zeros = constant("u1", n), constant("u4", n), constant("u1", n, ZERO)
    i8, few = constant("i8", n, b"\x18\x02"), of("u4", 1, 2, 3)
    text = node("vortex.constant", dtypes.text(), n, b"", [b"\x3a\x01a"])
    bits = node("vortex.constant", dtypes.boolean(), n, b"", [b"\x10\x01"])
    lists = dtype_of(pa.list_(pa.uint8()))
    trees = {
        "a constant": u4,
        "a constant text": text,
        "a constant list": node("vortex.constant", lists, n, b"", [b"\x4a\x04\x0a\x02\x20\x01"]),
        "a null constant": node("vortex.constant", number("u4", True), n, b"", [b"\x08\x00"]),
        "a null constant text": node("vortex.constant", dtypes.text(True), n, b"", [b"\x08\x00"]),
        "a sequence": node("vortex.sequence", number("u8"), n, {1: ONE, 2: b"\x18\x00"}),
        "a bitpacked width of 0 bits": node("fastlanes.bitpacked", number("u4"), n, {1: 0}, [b""]),
        "a frame of reference": node("fastlanes.for", number("u4"), n, ONE, [], [u4]),
        "zigzag": node("vortex.zigzag", number("i4"), n, b"", [], [u4]),
        "alp": node("vortex.alp", number("f8"), n, {}, [], [i8]),
        "alprd": node(
            "vortex.alprd", number("f8"), n, {1: 60, 2: 1, 3: b"\1", 4: U2}, [], [constant("u2", n), constant("u8", n)]
        ),
        "dictionary codes": node("vortex.dict", number("u4"), n, {1: 3, 2: U1}, [], [zeros, few]),
        "dictionary codes of text": node(
            "vortex.dict",
            dtypes.text(),
            n,
            {1: 1, 2: U1},
            [],
            [zeros, node("vortex.constant", dtypes.text(), 1, b"", [b"\x3a\x01a"])],
        ),
        "dictionary values": node("vortex.dict", number("u4"), 3, {1: n, 2: U4}, [], [few, u4]),
        "one run": node("vortex.runend", number("u4"), n, {1: U4, 2: 1}, [], [of("u8", n), of("u4", 1)]),
        "one run with an end of 64 bits": node(
            "vortex.runend", number("u4"), n, {1: 3, 2: 1}, [], [of("u8", n), of("u4", 1)]
        ),
        "run ends": node("vortex.runend", number("u4"), 3, {1: U4, 2: n}, [], [u4, u4]),
        "run values": node("vortex.runend", number("u4"), 3, {1: U4, 2: 1}, [], [of("u4", 3), u4]),
        "one patch": node(
            "vortex.sparse", number("u4"), n, {1: patch_metadata(of("u4", 1))}, [ONE], [of("u4", 1), of("u4", 1)]
        ),
        "patches": node("vortex.sparse", number("u4"), n, {1: declared_patches(n)}, [ONE], [u4, u4]),
        "patches of few rows": node("vortex.sparse", number("u4"), 3, {1: declared_patches(n)}, [ONE], [u4, u4]),
        "patches of bitpacked values": node(
            "fastlanes.bitpacked", number("u4"), n, {1: 0, 3: declared_patches(n)}, [b""], [u4, u4]
        ),
        "masked": node("vortex.masked", number("u4", True), n, b"", [], [u4, bits]),
        "a mask of one row": node("vortex.masked", number("u4", True), n, b"", [], [u4, boolean([True])]),
        "delta differences of one row": node(
            "fastlanes.delta", number("u4"), 1, {1: n}, [], [constant("u4", n // 32), u4]
        ),
        "delta differences of all rows": node(
            "fastlanes.delta", number("u4"), n, {1: n}, [], [constant("u4", n // 32), u4]
        ),
        "rle indices": node(
            "fastlanes.rle",
            number("f8"),
            n,
            {1: 1, 2: n, 3: U2, 4: n // 1024, 5: U4},
            [],
            [of("f8", 1), constant("u2", n, ZERO), constant("u4", n // 1024, ZERO)],
        ),
        "rle values": node(
            "fastlanes.rle",
            number("u4"),
            3,
            {1: n, 2: 1024, 3: U2, 4: 1, 5: U4},
            [],
            [u4, constant("u2", 1024, ZERO), of("u4", 0)],
        ),
        "decimals in parts": node(
            "vortex.decimal_byte_parts", dtype_of(pa.decimal256(60), False), n, {1: I8}, [], [i8]
        ),
        "times in parts": node(
            "vortex.datetimeparts", dtype_of(pa.timestamp("s"), False), n, {1: I8, 2: I8, 3: I8}, [], [i8, i8, i8]
        ),
        "dates": node("vortex.ext", dtype_of(pa.date64(), False), n, b"", [], [i8]),
        "offsets of text": node("vortex.varbin", dtypes.text(), n, {1: U1}, [b"a"], [constant("u1", n + 1, ZERO)]),
        "fsst rows": node(
            "vortex.fsst",
            dtypes.text(),
            n,
            {1: U1, 2: U1},
            [b"a" * 8, b"\1", b""],
            [constant("u1", n, ZERO), constant("u1", n + 1, ZERO)],
        ),
        "fsst lengths": node(
            "vortex.fsst", dtypes.text(), 1, {1: 3, 2: U1}, [b"a" * 8, b"\1", b"\0"], [of("u8", n), of("u1", 0, 1)]
        ),
        "onpair rows": node(
            "vortex.onpair",
            dtypes.text(),
            n,
            {1: U1, 3: 1, 4: 1, 5: U1, 6: U2, 7: U1},
            [b"a" + bytes(16)],
            [of("u1", 0, 1), of("u2", 0), constant("u1", n + 1, ZERO), constant("u1", n, ZERO)],
        ),
        "onpair codes": node(
            "vortex.onpair",
            dtypes.text(),
            1,
            {1: U1, 3: 1, 4: n, 5: U1, 6: U2, 7: U1},
            [b"a" + bytes(16)],
            [of("u1", 0, 1), constant("u2", n, ZERO), of("u1", 0, 1), of("u1", 1)],
        ),
        "onpair tokens": node(
            "vortex.onpair",
            dtypes.text(),
            1,
            {1: U1, 3: n, 4: 1, 5: U1, 6: U2, 7: U1},
            [b"a" + bytes(16)],
            [constant("u1", n + 1), of("u2", 0), of("u1", 0, 1), of("u1", 1)],
        ),
        "chunks": node("vortex.chunked", number("u1"), 2 * n, b"", [], [of("u8", 0, n, 2 * n), u1, u1]),
        "a field": node(
            "vortex.struct", dtype_of(pa.struct([pa.field("a", pa.uint32(), False)]), False), n, b"", [], [u4]
        ),
        "empty lists": node(
            "vortex.list", lists, n, {1: 1, 2: U1}, [], [of("u1", 1, valid=[1]), constant("u1", n + 1, ZERO)]
        ),
        "elements of one list": node(
            "vortex.list", lists, 1, {1: n, 2: 3}, [], [constant("u1", n, nullable=True), of("u8", 0, n)]
        ),
        "elements outside all lists": node(
            "vortex.list", lists, 0, {1: n, 2: U1}, [], [constant("u1", n, nullable=True), of("u1", 0)]
        ),
        "views of one list": node(
            "vortex.listview", lists, n, {1: 1, 2: U1, 3: U1}, [], [of("u1", 1, valid=[1]), zeros, u1]
        ),
        "lists of fixed size": node(
            "vortex.fixed_size_list",
            dtype_of(pa.list_(pa.uint8(), 4)),
            n,
            b"",
            [],
            [constant("u1", 4 * n % (1 << 64), nullable=True)],
        ),
        "lists of fixed size 0": node(
            "vortex.fixed_size_list",
            dtype_of(pa.list_(pa.uint8(), 0)),
            n,
            b"",
            [],
            [constant("u1", 0, nullable=True), bits],
        ),
    }
    # The declaration of this tree is wrong for every size, so the tree is removed.
    assert trees.pop("one run")
    return trees


def multiplied():
    """Returns trees with a few large values and many references to them. The decoded size is the product of both."""
    many, rows = 1 << 16, 1 << 16
    lists = dtype_of(pa.list_(pa.uint8()))
    elements = node("vortex.primitive", number("u1", True), many, b"", [bytes(many)])
    one = node("vortex.list", lists, 1, {1: many, 2: U4}, [], [elements, of("u4", 0, many)])
    lengths = constant("u4", rows, b"\x20" + proto.varint(many))
    short = node("vortex.list", lists, many, {1: many, 2: U4}, [], [elements, of("u4", *[0] * many, many)])
    # The types are written as bytes, because no library creates arrays of these types.
    byte = Table({0: ("B", dtypes.PRIMITIVE), 1: Table({0: ("B", U1), 1: ("B", 1)})})
    wide = write(of_a_size(byte, 2**31 - 1))
    deep = write(of_a_size(of_a_size(of_a_size(byte, 1 << 20), 1 << 20), 1 << 20))
    one_null = [b"\x08\x00"]
    return {
        "one long list among short lists, with many codes": node(
            "vortex.dict",
            lists,
            rows,
            {1: many, 2: U4},
            [],
            [constant("u4", rows, b"\x20" + proto.varint(many - 1)), short],
        ),
        "a null of a wide type": node("vortex.constant", wide, 1, b"", one_null),
        "a null of a wide and deep type": node("vortex.constant", deep, 1, b"", one_null),
        "nulls of a wide type": node(
            "vortex.dict",
            wide,
            1,
            {1: 0, 2: U1},
            [],
            [of("u1", 0, valid=[0]), node("vortex.constant", wide, 0, b"", one_null)],
        ),
        "one list with many codes": node(
            "vortex.dict", lists, rows, {1: 1, 2: U1}, [], [constant("u1", rows, ZERO), one]
        ),
        "one list in a long run": node("vortex.runend", lists, rows, {1: U4, 2: 1}, [], [of("u4", rows), one]),
        "one list with many views": node(
            "vortex.listview", lists, rows, {1: many, 2: U1, 3: U4}, [], [elements, constant("u1", rows, ZERO), lengths]
        ),
        "a constant long list": node(
            "vortex.constant", lists, rows, b"", [proto.write({9: proto.write({1: ONE}) * many})]
        ),
        "one list as the fill value": node(
            "vortex.sparse",
            lists,
            rows,
            {1: patch_metadata(of("u4", 1))},
            [proto.write({9: proto.write({1: ONE}) * many})],
            [of("u4", 1), one],
        ),
        "chunks of a constant": node(
            "vortex.chunked",
            number("u1"),
            1 << 34,
            b"",
            [],
            [
                node("vortex.primitive", number("u8"), 1025, b"", [np.arange(0, 1025 << 24, 1 << 24, "u8").tobytes()]),
                *[constant("u1", 1 << 24)] * 1024,
            ],
        ),
    }


def of_a_size(element, size):
    """Returns the type of lists of a fixed size."""
    return Table({0: ("B", dtypes.FIXED_SIZE_LIST), 1: Table({0: element, 1: ("I", size), 2: ("B", 1)})})


def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main(budget=None, device="cpu"):
    sizes = (1 << 31, 1 << 40, 1 << 62)
    cases = {f"{name}, 2^{n.bit_length() - 1}": tree for n in sizes for name, tree in huge(n).items()}
    cases |= multiplied()
    with open("/proc/self/statm") as statm:
        addresses = int(statm.read().split()[0]) * resource.getpagesize()
    if device == "cpu":
        # The limit applies only on the CPU, because a CUDA driver reserves much address space.
        resource.setrlimit(resource.RLIMIT_AS, (addresses + ADDRESSES, addresses + ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before, wrong = resident(), []
    with cd.Session(device, memory=budget) as session:
        for name, tree in cases.items():
            print(name, file=sys.stderr, flush=True)
            before_case = resident()
            try:
                column = session.from_vortex(Exporter(tree))
                # Without a budget, a tree may decode within the limit on the process.
                if budget:
                    wrong.append(f"{name}: decodes to {len(column)} of {column.type}")
                del column
            except (cd.OutOfMemoryError, cd.DataError, cd.UnsupportedError) as error:
                if "vortex." not in str(error) and "fastlanes." not in str(error):
                    wrong.append(f"{name}: {error}")
            if budget and resident() - before_case > RESIDENT:
                wrong.append(f"{name}: took {resident() - before_case} bytes")
        assert_all_memory_freed(session)
        assert not LIVE
    print(f"{len(cases)} declarations, {resident() - before} bytes at most")
    for line in wrong:
        print(line)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
