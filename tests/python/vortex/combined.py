"""Arrays that vortex-data rarely creates: values of every type in the encodings that accept every type, short
sequences of narrow integers, and empty lists and structs. `arrays(group)` yields (name, array) for each whole
array, and for a slice from its middle."""

import datetime
import decimal

import dtypes
import numpy as np
import proto
import pyarrow as pa
import trees
import vortex as vx
from craft import primitive
from flat import Tree
from ipc import build

LONG = "a text of more than twelve bytes"
DAY = datetime.date(2020, 2, 29)
TENTH = decimal.Decimal("0.1")
CODES = ["u1", "u2", "u4", "u8"]

# The three values of each type. The second value is null.
VALUES = {
    "booleans": pa.array([True, None, False]),
    "u1": pa.array([1, None, 255], pa.uint8()),
    "i2": pa.array([-(2**15), None, 3], pa.int16()),
    "u8": pa.array([1, None, 2**64 - 1], pa.uint64()),
    "f2": pa.array([np.float16(1.5), None, np.float16("inf")], pa.float16()),
    "f4": pa.array([-0.0, None, 3e38], pa.float32()),
    "f8": pa.array([0.1, None, float("nan")]),
    "dates": pa.array([DAY, None, DAY], pa.date32()),
    "dates in ms": pa.array([DAY, None, DAY], pa.date64()),
    "times in s": pa.array([1, None, 86_399], pa.time32("s")),
    "times in ns": pa.array([1000, None, 86_399 * 10**9], pa.time64("ns")),
    "instants": pa.array([1, None, -(10**15)], pa.timestamp("us", "Europe/Berlin")),
    "decimals of 32 bits": pa.array([TENTH, None, -TENTH], pa.decimal32(5, 2)),
    "decimals of 64 bits": pa.array([TENTH, None, -TENTH], pa.decimal64(15, 2)),
    "decimals of 128 bits": pa.array([decimal.Decimal(10**37), None, decimal.Decimal(-3)], pa.decimal128(38, 0)),
    "decimals of 256 bits": pa.array([decimal.Decimal(10**70), None, decimal.Decimal(-3)], pa.decimal256(76, 0)),
    "text": pa.array(["a", None, LONG]),
    "binary": pa.array([b"\xff\x00", None, LONG.encode()]),
    "views of text": pa.array(["a", None, LONG], pa.string_view()),
    "nulls": pa.nulls(3),
    "lists": pa.array([[1, None], None, []]),
    "large list views": pa.array([[1, None], None, [3]], pa.large_list_view(pa.int8())),
    "lists of a size": pa.array([[1.5, None], None, [3, 4]], pa.list_(pa.float32(), 2)),
    "lists of no size": pa.array([[], None, []], pa.list_(pa.int8(), 0)),
    "maps": pa.array([[("k", 1), (LONG, None)], None, []], pa.map_(pa.string(), pa.int32())),
    "maps of decimals": pa.array([[(1, TENTH)], None, [(2, None)]], pa.map_(pa.int64(), pa.decimal128(10, 2))),
    "structs": pa.array([{"a": TENTH, "b": "x"}, None, {"a": None, "b": LONG}]),
    "structs of nothing": pa.array([{}, None, {}], pa.struct([])),
}


def dictionaries(rows):
    """Yields dictionaries whose codes have each width in turn. Each dictionary is yielded without null codes,
    and with some null codes."""
    for i, (name, values) in enumerate(VALUES.items()):
        tree, kind = Tree.of(vx.array(values)), CODES[i % 4]
        codes = (np.arange(rows) % len(values)).astype(kind)
        meta = proto.write({1: len(values), 2: dtypes.NUMPY.index(kind)})
        for suffix, valid in {"": None, ", some null": np.arange(rows) % 7 != 2}.items():
            children = [primitive(codes, valid), tree]
            yield f"{name}, codes of {kind}{suffix}", Tree("vortex.dict", tree.dtype, rows, meta, [], children)


def runs(rows):
    """Yields run-end arrays whose first run begins three rows before the array."""
    for i, (name, values) in enumerate(VALUES.items()):
        tree, kind = Tree.of(vx.array(values)), CODES[1:][i % 3]
        ends = primitive(np.array([4, rows // 2 + 4, rows + 3], kind))
        meta = proto.write({1: dtypes.NUMPY.index(kind), 2: 3, 3: 3})
        yield f"{name}, ends of {kind}", Tree("vortex.runend", tree.dtype, rows, meta, [], [ends, tree])


def mostly_null(rows):
    for i, (name, values) in enumerate(VALUES.items()):
        tree, kind = Tree.of(vx.array(values)), CODES[1:][i % 3]
        indices = primitive(np.array([0, rows // 2, rows - 1], kind))
        meta = proto.write({1: proto.write({1: 3, 3: dtypes.NUMPY.index(kind)})})
        yield (
            f"{name}, indices of {kind}",
            Tree("vortex.sparse", tree.dtype, rows, meta, [b"\x08\x00"], [indices, tree]),
        )


def from_arrow(rows):
    """Yields arrays that Vortex creates from Arrow's dictionary and run-end arrays. Codes and run ends have
    every type that Arrow supports."""
    values = pa.array([1.5, None, -2.5])
    for type in [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]:
        codes = pa.array([i % 3 if i % 7 != 2 else None for i in range(rows)], type)
        yield f"codes of {type}", vx.array(pa.DictionaryArray.from_arrays(codes, values))
    for type in [pa.int16(), pa.int32(), pa.int64()]:
        ends = pa.array([1, rows // 2 + 1, rows], type)
        yield f"ends of {type}", vx.array(pa.RunEndEncodedArray.from_arrays(ends, values))


def sequences(rows):
    """Yields sequences of the maximum length for each integer width, and shorter sequences."""
    for bits, sign in [(8, False), (8, True), (16, False), (16, True)]:
        type = (vx.int_ if sign else vx.uint)(bits)
        first, last = (-(1 << bits - 1), (1 << bits - 1) - 1) if sign else (0, (1 << bits) - 1)
        for step in [1, 2, 7]:
            n = min(rows, (last - first) // step + 1)
            yield f"{type}, {n} by {step}", vx.Array.from_range(range(first, first + n * step, step), dtype=type)
            if sign:
                falling = range(last, last - n * step, -step)
                yield f"{type}, {n} by -{step}", vx.Array.from_range(falling, dtype=type)


def of_nothing(rows):
    """Yields empty and short lists and structs, uncompressed and compressed."""
    row_numbers = range(rows)
    for type, values in {
        pa.list_(pa.int8(), 0): [[] if i % 3 else None for i in row_numbers],
        pa.struct([]): [{} if i % 3 else None for i in row_numbers],
        pa.large_list_view(pa.int8()): [[i % 7] * (i % 3) if i % 5 else None for i in row_numbers],
        pa.list_(pa.list_(pa.int8(), 2), 2): [[[1, None], [3, 4]] if i % 3 else None for i in row_numbers],
        pa.list_(pa.bool_(), 3): [[True, None, False] if i % 3 else None for i in row_numbers],
        pa.list_(pa.null()): [[None] * (i % 3) if i % 5 else None for i in row_numbers],
        pa.list_(pa.date32()): [[i] * (i % 3) if i % 5 else None for i in row_numbers],
        pa.list_(pa.decimal128(10, 2)): [[TENTH * (i % 100)] * (i % 3) if i % 5 else None for i in row_numbers],
        pa.list_(pa.struct([])): [[{}] * (i % 3) if i % 5 else None for i in row_numbers],
        pa.map_(pa.int16(), pa.list_(pa.int8(), 0)): [[(i % 99, [])] * (i % 2) if i % 5 else None for i in row_numbers],
    }.items():
        whole = vx.array(pa.array(values, type))
        yield f"{type}", whole
        yield f"{type}, compressed", vx.compress(whole)


# Maps a group to (function, number of rows).
GROUPS = {
    "dict": (dictionaries, (3, 1025)),
    "runend": (runs, (3, 1025)),
    "sparse": (mostly_null, (3, 1025)),
    "from Arrow": (from_arrow, (3, 1025)),
    "sequence": (sequences, (3, 1025)),
    "of nothing": (of_nothing, (1, 1025)),
}


def arrays(group):
    generate, sizes = GROUPS[group]
    for rows in sizes:
        for name, array_or_tree in generate(rows):
            yield (
                f"{group}, {name}, {rows} rows",
                build(array_or_tree) if isinstance(array_or_tree, Tree) else array_or_tree,
            )
            if rows > 2:
                n = array_or_tree.length if isinstance(array_or_tree, Tree) else len(array_or_tree)
                yield f"{group}, {name}, {rows} rows, sliced", trees.sliced(array_or_tree, n // 3 + 1, n - n // 7)
