"""Decodes arrays, texts and long decimals in the encodings that accept every type. The results on the host and
on a device are equal."""

import decimal

import crossdock as cd
import numpy as np
import proto
import pyarrow as pa
import pytest
import vortex as vx
import vortex_huge
from capsules import Exporter
from craft import boolean
from flat import Tree
from vortex_nodes import I1, U1, U2, U4, constant, dtype_of, node, number, of, patch_metadata

LONG = "a text of more than twelve bytes"
ROW = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string())), ("c", pa.bool_())])
ROWS = [
    {"a": 1, "b": ["x", LONG, None], "c": True},
    None,
    {"a": None, "b": [], "c": None},
    {"a": 4, "b": None, "c": False},
    {"a": 5, "b": [LONG + "!"] * 3, "c": True},
]
# Five values of each type, with nulls at each level.
VALUES = {
    "lists": (pa.list_(pa.int64()), [[1, 2], None, [], [3, None, 5], [6]]),
    "lists of bits": (pa.list_(pa.bool_()), [[True] * 9, None, [False, None], [], [True]]),
    "lists of texts": (pa.list_(pa.string()), [[LONG, "b"], [], None, [None, LONG * 2], [""]]),
    "lists of lists": (pa.list_(pa.list_(pa.int8())), [[[1], None, []], None, [], [[2, None], [3]], [[4, 5, 6]]]),
    "lists of rows": (pa.list_(ROW), [ROWS[:3], None, [], ROWS[3:], [None, ROWS[4]]]),
    "lists of nulls": (pa.list_(pa.null()), [[None], None, [], [None] * 3, []]),
    "rows": (ROW, ROWS),
    "pairs": (pa.list_(pa.int16(), 2), [[1, 2], None, [3, None], [5, 6], [None, None]]),
    "pairs of lists": (
        pa.list_(pa.list_(pa.int32()), 2),
        [[[1, 2], None], None, [[], [3]], [[4, 5, 6], [None]], [[7], [8]]],
    ),
    "maps": (
        pa.map_(pa.string(), pa.list_(pa.int32())),
        [[("k", [1, None])], None, [], [("l", None), (LONG, [2])], [("m", [])]],
    ),
    "nulls": (pa.null(), [None] * 5),
    "texts": (pa.string(), ["x", None, LONG, "", LONG * 3]),
    "bytes": (pa.binary(), [b"x", None, LONG.encode(), b"", b"\xff" * 30]),
    "decimals": (
        pa.decimal128(30, 2),
        [decimal.Decimal("1.25"), None, decimal.Decimal("-3.5"), decimal.Decimal(10**20), decimal.Decimal(0)],
    ),
    "wide decimals": (
        pa.decimal256(60, 0),
        [decimal.Decimal(-(10**50)), None, decimal.Decimal(3), decimal.Decimal(10**40), decimal.Decimal(0)],
    ),
}
SIZES = [0, 1, 9, 200]


def values(name):
    """Returns a tree of the five values, and the values."""
    type, rows = VALUES[name]
    return Tree.of(vx.array(pa.array(rows, type))), rows


def assert_decodes_to(session, tree, expected):
    column = session.from_vortex(Exporter(tree))
    got = column.to_pyarrow()
    got.validate(full=True)
    assert got.to_pylist() == expected
    assert column.null_count == expected.count(None)


def dictionary(name, n):
    tree, rows = values(name)
    codes = [None if i % 6 == 4 else i * 7 % 5 for i in range(n)]
    stored_codes = of(
        "u2", *[77 if code is None else code for code in codes], valid=[code is not None for code in codes]
    )
    dictionary_tree = node("vortex.dict", tree.dtype, n, {1: 5, 2: U2}, [], [stored_codes, tree])
    yield dictionary_tree, [None if code is None else rows[code] for code in codes]


def runs(name, n):
    tree, rows = values(name)
    offset = 3
    ends = [4, 5, 9, n // 2 + 10, n + 20]
    run_tree = node("vortex.runend", tree.dtype, n, {1: U4, 2: 5, 3: offset}, [], [of("u4", *ends), tree])
    yield run_tree, [rows[int(np.searchsorted(ends, i + offset, side="right"))] for i in range(n)]


def scalar(value, type):
    """Returns a value as Vortex serialises it."""
    if value is None:
        return b"\x08\x00"
    if pa.types.is_boolean(type):
        return bytes([0x10, value])
    if pa.types.is_integer(type):
        return proto.write({3: value << 1}) if value else b"\x18\x00"
    if pa.types.is_string(type):
        return proto.write({7: value.encode()})
    if pa.types.is_binary(type):
        return proto.write({8: value})
    if pa.types.is_struct(type):
        parts = [scalar(value[field.name], field.type) for field in type]
    elif pa.types.is_map(type):
        entries = [(scalar(key, type.key_type), scalar(item, type.item_type)) for key, item in value]
        parts = [proto.write({9: b"".join(proto.write({1: part}) for part in entry)}) for entry in entries]
    else:
        parts = [scalar(part, type.value_type) for part in value]
    return proto.write({9: b"".join(proto.write({1: part}) for part in parts)})


def scalars(name):
    """Returns (value, serialized value) for null, and for two of the values if the type has scalars."""
    type, rows = VALUES[name]
    has_no_scalar = pa.types.is_null(type) or pa.types.is_decimal(type)
    return [(None, b"\x08\x00")] + ([] if has_no_scalar else [(row, scalar(row, type)) for row in (rows[0], rows[3])])


def constants(name, n):
    tree, _ = values(name)
    for value, serialized in scalars(name):
        yield Tree("vortex.constant", tree.dtype, n, b"", [serialized]), [value] * n


def sparse(name, n):
    # Patches must not be empty.
    if n == 0:
        return
    tree, rows = values(name)
    places = sorted({n * i // 5 for i in range(5)})
    offset = 7
    indices = of("u4", *[place + offset for place in places])
    few = Tree.of(vx.array(pa.array(rows[: len(places)], VALUES[name][0])))
    for value, serialized in scalars(name):
        sparse_tree = node(
            "vortex.sparse", tree.dtype, n, {1: patch_metadata(indices, offset=offset)}, [serialized], [indices, few]
        )
        expected = [value] * n
        for place, row in zip(places, rows):
            expected[place] = row
        yield sparse_tree, expected


def list_views(name, n):
    """Yields lists of the five values, with some null lists: overlapping lists in any order, and consecutive
    lists."""
    anywhere = [i * 3 % 6 for i in range(n)]
    for begins, sizes in [(anywhere, [i % 4 % (6 - begin) for i, begin in enumerate(anywhere)]), IN_ORDER]:
        tree, rows = values(name)
        valid = [i % 4 != 1 for i in range(len(begins))]
        children = [tree, of("u8", *begins), of("i2", *sizes), boolean(valid)]
        dtype = dtype_of(pa.list_(VALUES[name][0]))
        view_tree = node("vortex.listview", dtype, len(begins), {1: 5, 2: 3, 3: 5}, [], children)
        lists = [rows[begin : begin + size] for begin, size in zip(begins, sizes)]
        yield view_tree, [row if is_valid else None for row, is_valid in zip(lists, valid)]


IN_ORDER = [0, 5, 2, 3, 0], [2, 0, 1, 2, 0]
GENERATORS = [dictionary, runs, constants, sparse, list_views]


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("generate", GENERATORS, ids=lambda generate: generate.__name__)
def test_nested_tree_decodes(session, generate, name):
    for n in SIZES:
        for tree, expected in generate(name, n):
            assert_decodes_to(session, tree, expected)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("generate", GENERATORS, ids=lambda generate: generate.__name__)
def test_nested_tree_decodes_on_a_device(cuda_session, generate, name):
    for n in SIZES:
        for tree, expected in generate(name, n):
            assert_decodes_to(cuda_session, tree, expected)


def long_lists(rows, many):
    """Returns trees of `rows` rows by name. Each tree repeats one list of `many` elements."""
    lists = dtype_of(pa.list_(pa.uint8()))
    elements = node("vortex.primitive", number("u1", True), many, b"", [bytes(many)])
    one = node("vortex.list", lists, 1, {1: many, 2: U4}, [], [elements, of("u4", 0, many)])
    zeros = constant("u1", rows, b"\x20\x00")
    sizes = constant("u4", rows, b"\x20" + proto.varint(many))
    return {
        "named": node("vortex.dict", lists, rows, {1: 1, 2: U1}, [], [zeros, one]),
        "repeated": node("vortex.runend", lists, rows, {1: U4, 2: 1}, [], [of("u4", rows), one]),
        "viewed": node("vortex.listview", lists, rows, {1: many, 2: U1, 3: U4}, [], [elements, zeros, sizes]),
    }


@pytest.mark.parametrize("name", ["named", "repeated", "viewed"])
def test_repeated_list_respects_the_budget(cuda, name):
    """The tree is rejected before its elements are allocated."""
    with cd.Session(cuda, memory=16 << 20) as session:
        # The first number of rows exceeds the budget, the second exceeds the range of an offset,
        # and the third is within the budget.
        for rows, message in [(1 << 12, "bytes"), (1 << 16, "32-bit offsets|31 bits"), (4, None)]:
            tree = long_lists(rows, 1 << 16)[name]
            if message:
                with pytest.raises((cd.OutOfMemoryError, cd.UnsupportedError, cd.DataError), match=message) as raised:
                    session.from_vortex(Exporter(tree))
                assert tree.id in str(raised.value)
                continue
            assert session.from_vortex(Exporter(tree)).to_pyarrow().to_pylist() == [[0] * (1 << 16)] * rows


def test_rejects_excessive_declared_lengths(cuda):
    with cd.Session(cuda, memory=16 << 20) as session:
        for name, tree in vortex_huge.multiplied().items():
            with pytest.raises((cd.OutOfMemoryError, cd.DataError, cd.UnsupportedError)) as raised:
                session.from_vortex(Exporter(tree))
            assert "vortex." in str(raised.value), name


def negative(code, name):
    """A dictionary with more values than a signed code can represent."""
    many = of("u4", *range(300))
    tree = many if name == "numbers" else Tree.of(vx.array(pa.array(VALUES[name][1] * 60, VALUES[name][0])))
    return node("vortex.dict", tree.dtype, 2, {1: 300, 2: I1}, [], [of("i1", 0, code), tree])


@pytest.mark.parametrize("name", ["numbers", "lists", "texts", "rows"])
@pytest.mark.parametrize("code", [-1, -128])
def test_rejects_negative_codes(session, cuda_session, name, code):
    for decoder in (session, cuda_session):
        with pytest.raises(cd.DataError, match="vortex.dict"):
            decoder.from_vortex(Exporter(negative(code, name)))
