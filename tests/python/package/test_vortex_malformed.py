"""Malformed trees. Each tree is rejected with an error that names the node, or decodes correctly. No tree
crashes the process."""

import struct

import crossdock as cd
import dtypes
import numpy as np
import pyarrow as pa
import pytest
from capsules import Exporter, capsule_of
from craft import alp, boolean, byte_bool
from flat import Tree
from flatbuffer import Table, Vector, write
from vortex_nodes import (
    ENTRY,
    LONG,
    MOST,
    U1,
    U4,
    alp_rd,
    chunks,
    date_time,
    date_times,
    decimal,
    decimals,
    dictionary,
    frame,
    fsst,
    in_runs,
    map_of,
    node,
    number,
    of,
    onpair,
    plain_packed,
    runs,
    sequence,
    patch_metadata,
    varbin,
    view,
    views,
    with_validity,
)
from vortex_malformed_numbers import NUMBERS
from vortex_malformed_others import BAD_TEXT, OTHERS

BYTES = dtypes.binary(False)
ENDS = [(0, 32), (32, 36), (36, 48), (48, 64)]
ZERO = dictionary(of("u1", 0, 9, valid=[1, 0]), of("u4", 5, 6), nullable=True)
# Unusual but valid trees, and their values.
VALID = {
    "dict: a null code that is out of range": (ZERO, [5, None]),
    "dict: no values, and all codes are null": (
        dictionary(of("u1", 7, 9, valid=[0, 0]), of("u4"), nullable=True),
        [None, None],
    ),
    "dict: a null code that is negative": (
        dictionary(of("i1", 0, -1, valid=[1, 0]), of("u4", 5), nullable=True),
        [5, None],
    ),
    "dict: codes in runs, with an offset": (
        dictionary(runs(of("u4", 3, 4, 9), of("u1", 1, 0, 1), 5, 2), of("u4", 5, 6)),
        [6, 5, 6, 6, 6],
    ),
    "dict: null codes in runs": (
        dictionary(runs(of("u1", 2, 3), of("u1", 9, 0, valid=[0, 1]), 3), of("u4", 5), nullable=True),
        [None, None, 5],
    ),
    "dict: codes in runs, and null values": (
        dictionary(runs(of("u2", 1, 3), of("u2", 0, 1), 3), of("u4", 5, 6, valid=[1, 0]), nullable=True),
        [5, None, None],
    ),
    "dict: codes in runs without rows": (dictionary(runs(of("u4"), of("u1"), 0), of("u4", 5)), []),
    "runend: the last run ends after the last row": (runs(of("u4", 2, 99), of("u4", 1, 2), 4), [1, 1, 2, 2]),
    "runend: several runs end after the last row": (runs(of("u4", 2, 50, 99), of("u4", 1, 2, 3), 4), [1, 1, 2, 2]),
    "runend: no rows": (runs(of("u4", 2, 5), of("u4", 1, 2), 0), []),
    "runend: neither rows nor runs": (runs(of("u4"), of("u4"), 0), []),
    "bitpacked: 0 bits": (plain_packed(3, 0), [0, 0, 0]),
    "bitpacked: 64 bits": (plain_packed(3, 64, kind="u8"), [0, 0, 0]),
    "bitpacked: 8 bits": (plain_packed(3, 8, kind="u1"), [0, 0, 0]),
    "bitpacked: an offset of 1023": (plain_packed(3, 1, 1023), [0, 0, 0]),
    "bitpacked: no rows": (plain_packed(0, 7), []),
    "bitpacked: the patches have the same offset as the values": (
        node(
            "fastlanes.bitpacked",
            number("u4"),
            10,
            {1: 1, 2: 15, 3: patch_metadata(of("u4", 15, 24), offset=15)},
            [bytes(128)],
            [of("u4", 15, 24), of("u4", 7, 8)],
        ),
        [7, *[0] * 8, 8],
    ),
    "fsst: codes before the first row and after the last row": (
        fsst(b"\xff\0\1\0\xff\xff\xff\xff", [2, 3, 4, 6], [1, 2, 1], dtype=BYTES),
        [b"c", b"ab", b"\xff"],
    ),
    "fsst: no rows": (fsst(b"\0", [0], []), []),
    "fsst: no codes": (fsst(b"", [0, 0, 0], [0, 0]), ["", ""]),
    "fsst: null rows and empty rows": (
        fsst(b"\0\1", [0, 1, 1, 2, 2], [2, 0, 1, 0], valid=[True, False, True, True]),
        ["ab", None, "c", ""],
    ),
    "fsst: invalid text in a null row": (
        fsst(b"\0\1", [0, 1, 2], [4, 1], symbols=[BAD_TEXT, b"c"], valid=[False, True]),
        [None, "c"],
    ),
    # A thread of the kernel searches backwards for escapes, up to a limit. This data has more
    # consecutive escapes than the limit. The number of escapes is odd both before and after the
    # point where a thread starts.
    "fsst: only escapes": (
        fsst(b"\1" + b"\xff" * 40_000 + b"\1", [0, 1, 40_001, 40_002], [1, 20_000, 1], dtype=BYTES),
        [b"c", b"\xff" * 20_000, b"c"],
    ),
    "fsst: escapes in short rows": (
        fsst(b"\xff\xff\1\xff\0" * 3000, range(0, 15_001, 5), [3] * 3000, dtype=BYTES),
        [b"\xffc\0"] * 3000,
    ),
    "onpair: no rows": (onpair(codes=(0,), offsets=(0,), lengths=()), []),
    "onpair: no codes": (onpair(codes=(), offsets=(0, 0), lengths=(0,)), [""]),
    "onpair: codes before the first row and after the last row": (
        onpair(codes=(9, 0, 1, 9), offsets=(1, 2, 3)),
        ["ab", "c"],
    ),
    "varbin: no rows": (varbin(b"abc", 2), []),
    "varbin: long and short texts": (varbin(LONG * 2, 0, 32, 36, 48, 64), [(LONG * 2).decode()[a:b] for a, b in ENDS]),
    # The decoder does not read beyond the tokens.
    "onpair: no padding": (onpair(data=b"abc"), ["ab", "c"]),
    "alp: exponent f is greater than e": (alp(np.array([3], "i8"), 5, 2), [3000.0]),
    "alprd: a null code that is out of range": (
        alp_rd(of("u2", 0, 9, valid=[1, 0]), nullable=True),
        [struct.unpack("<d", struct.pack("<Q", 1 << 60))[0], None],
    ),
    "alprd: a right part with bits beyond its width": (
        alp_rd(of("u2", 0), right=MOST),
        [struct.unpack("<d", struct.pack("<Q", (1 << 61) - 1))[0]],
    ),
    "decimals: more than 128 bits in a null row": (
        decimals([1 << 200, -5], pa.decimal128(38, 0), 32, valid=[False, True]),
        [None, -5],
    ),
    "decimals: values of 128 bits for a type of 256 bits": (
        decimals([-(10**30), 10**30, -1], pa.decimal256(40, 0), 16),
        [-(10**30), 10**30, -1],
    ),
    "decimals: values of 8 bits for a type of 256 bits": (
        decimals([-128, 127, 0], pa.decimal256(40, 0), 1),
        [-128, 127, 0],
    ),
    "times in parts: the sum overflows in a null row": (
        date_times([1 << 62, 1], [7, 0], [7, 1000], valid=[0, 1]),
        [None, pa.scalar(86_400 * 10**9 + 1000, pa.timestamp("ns")).as_py()],
    ),
    "times in parts: large parts with a small sum": (
        date_times([-106_751_000], [86_400 * 106_751_000], [5000]),
        [pa.scalar(5000, pa.timestamp("ns")).as_py()],
    ),
    "frame: a bitpacked child without rows": (frame(b"\x20\x05", plain_packed(0, 3)), []),
    "frame: the sum wraps": (frame(b"\x20\xff\x01", of("u1", 1, 2)), [0, 1]),
    "sequence: no rows": (sequence(b"\x20\x05", b"\x18\x02", 0), []),
    "sequence: the last value is the maximum": (sequence(b"\x20\xfd\x01", b"\x18\x02", 3), [253, 254, 255]),
    "view: an invalid view in a null row": (
        views(view(2**32 - 1, b"nope", 77, 2**32 - 1), view(3, b"abc"), valid=[False, True]),
        [None, "abc"],
    ),
    "varbin: bytes before the first row and after the last row": (varbin(b"abcdef", 1, 3, 5), ["bc", "de"]),
    "bool: more bytes than needed": (node("vortex.bool", dtypes.boolean(), 2, {1: 1}, [b"\2\xff\xff"]), [True, False]),
    "chunks: no chunks": (chunks([0], dtype=number("u4")), []),
    "chunks: only empty chunks": (chunks([0, 0, 0], of("u4"), of("u4")), []),
    "map: nullable entries without nulls": (map_of([ENTRY], [], [ENTRY]), [[("k", 1)], [], [("k", 1)]]),
    "map: a null map of a nullable type": (map_of([ENTRY], None, nullable=True), [[("k", 1)], None]),
    "metadata: an unknown field": (
        node("vortex.dict", number("u4"), 1, b"\x08\1\xf8\1\7\xf9\1" + bytes(8), [], [of("u1", 0), of("u4", 3)]),
        [3],
    ),
    "metadata: a repeated field, of which the last value counts": (
        node("vortex.dict", number("u4"), 1, b"\x08\x63\x08\1", [], [of("u1", 0), of("u4", 3)]),
        [3],
    ),
    "rle: indices do not matter in a block of one value": (
        in_runs([7] * 1024, values=1, length=2),
        [0.0, 0.0],
    ),
}


def validities():
    """Returns the booleans true, false, true in each encoding of booleans."""
    bits = np.array([True, False, True])
    two = dtypes.boolean()
    return {
        "bool": boolean(bits),
        "bool, skipping bits": node("vortex.bool", two, 3, {1: 5}, [b"\xbf"]),
        "bytebool": byte_bool(bits),
        "runend": node("vortex.runend", two, 3, {1: U4, 2: 3}, [], [of("u4", 1, 2, 3), boolean(bits)]),
        "sparse": node(
            "vortex.sparse", two, 3, {1: patch_metadata(of("u4", 1))}, [b"\x10\x01"], [of("u4", 1), boolean([False])]
        ),
        "dict": node("vortex.dict", two, 3, {1: 2, 2: U1}, [], [of("u1", 1, 0, 1), boolean([False, True])]),
        "chunked": chunks([0, 1, 3], boolean(bits[:1]), boolean(bits[1:])),
    }


@pytest.mark.parametrize("kind", validities())
def test_validity_may_have_any_encoding(session, kind):
    assert session.from_vortex(Exporter(with_validity(validities()[kind]))).to_pyarrow().to_pylist() == [97, None, 99]


@pytest.mark.parametrize("bit", [False, True])
def test_validity_may_be_constant(session, bit):
    tree = with_validity(node("vortex.constant", dtypes.boolean(), 3, b"", [bytes([16, bit])]))
    column = session.from_vortex(Exporter(tree))
    assert column.to_pyarrow().to_pylist() == ([97, 98, 99] if bit else [None] * 3)
    assert column.null_count == (0 if bit else 3)


MALFORMED = NUMBERS | OTHERS
CASES = [(group, name) for group, cases in MALFORMED.items() for name in cases]


@pytest.mark.parametrize("group, name", CASES, ids=lambda part: part)
def test_malformed_tree_is_rejected(session, group, name):
    assert_rejected(session, MALFORMED[group][name])


@pytest.mark.parametrize("name", [name for name in OTHERS["nested"] if "null among" in name])
def test_error_for_null_map_entry_says_so(session, name):
    with pytest.raises(cd.DataError, match=r"vortex\.map.*decoded 1 nulls in its '\.entries', expected none"):
        session.from_vortex(Exporter(OTHERS["nested"][name]))


def assert_rejected(session, tree, capsule_of=capsule_of):
    with pytest.raises(cd.Error) as raised:
        column = session.from_vortex(Exporter(tree, capsule_of))
        raise AssertionError(f"it decodes to {column.to_pyarrow().to_pylist()[:20]}")
    message = str(raised.value)
    assert isinstance(raised.value, (cd.DataError, cd.UnsupportedError, cd.OutOfMemoryError)), repr(raised.value)
    assert tree.id in message or "node 0" in message, message
    assert "\n" not in message and len(message) < 1500


@pytest.mark.parametrize("name", VALID)
def test_valid_tree_decodes(session, name):
    assert_decodes(session, *VALID[name])


def assert_decodes(session, tree, expected):
    column = session.from_vortex(Exporter(tree)).to_pyarrow()
    column.validate(full=True)
    assert column.to_pylist() == expected


def shared_type(depth, back=None):
    """Returns a type of `depth` nested structs. Each struct has two fields, which refer to the same inner
    struct. The innermost fields are bools. With `back`, the innermost fields refer to the struct at level
    `back`, so the type is recursive."""
    out = bytearray(struct.pack("<I", 12))
    tables, positions = [], []
    for _ in range(depth):
        # Appends the vtable and the table of a DType. The table has the kind and the reference to
        # the struct.
        out += struct.pack("<4H", 8, 12, 8, 4)
        tables.append(len(out))
        out += struct.pack("<iIB3x", 8, 16, dtypes.STRUCT)
        # Appends the vtable and the table of a struct. The table has the references to the names
        # and types.
        out += struct.pack("<4H", 8, 12, 4, 8) + struct.pack("<iII", 8, 8, 24)
        out += struct.pack("<3I", 2, 8, 4) + struct.pack("<I4s", 1, b"a") + struct.pack("<I", 2)
        positions.append(len(out))
        out += bytes(8)
    end = len(out) + 8
    out += struct.pack("<4H", 8, 12, 8, 4) + struct.pack("<iIB3x", 8, 12, dtypes.BOOL) + struct.pack("<2H", 4, 4)
    out += struct.pack("<i", 4)
    for position, target in zip(positions, [*tables[1:], end if back is None else tables[back]]):
        struct.pack_into("<2I", out, position, (target - position) % (1 << 32), (target - position - 4) % (1 << 32))
    return bytes(out)


def test_reads_type_with_shared_parts():
    type = dtypes.arrow_type(dtypes.read(shared_type(1)))
    assert type == pa.struct([pa.field("a", pa.bool_(), False)] * 2)


@pytest.mark.parametrize(
    "dtype",
    [shared_type(30), shared_type(60), shared_type(63), shared_type(5, 0), shared_type(40, 39), shared_type(1, 0)],
    ids=range(6),
)
def test_rejects_types_that_expand_or_loop(session, dtype):
    """If no nodes were shared, the type would have 2^depth nodes, or infinitely many nodes."""
    with pytest.raises(cd.Error, match="vortex.null: the type: "):
        session.from_vortex(Exporter(Tree("vortex.null", dtype, 1)))


def nested_lists(depth):
    table = Table({0: ("B", dtypes.BOOL), 1: Table({})})
    for _ in range(depth):
        table = Table({0: ("B", dtypes.LIST), 1: Table({0: table})})
    return write(table)


@pytest.mark.parametrize("depth", [64, 65, 1000, 10_000])
def test_rejects_types_that_are_too_deep(session, depth):
    with pytest.raises(cd.UnsupportedError, match="vortex.null: .*64 levels deep"):
        session.from_vortex(Exporter(Tree("vortex.null", nested_lists(depth), 1)))


def test_many_fields_and_chunks_take_linear_time(session):
    """If the decoder took quadratic time, the test would take an hour."""
    n = 30_000
    field, bool_ = boolean([]), Table({0: ("B", dtypes.BOOL), 1: Table({})})
    names = Vector([f"f{i}" for i in range(n)])
    dtype = write(Table({0: ("B", dtypes.STRUCT), 1: Table({0: names, 1: Vector([bool_] * n)})}))
    column = session.from_vortex(Exporter(node("vortex.struct", dtype, 0, b"", [], [field] * n)))
    assert len(column) == 0 and column.to_pyarrow().type.num_fields == n
    column = session.from_vortex(Exporter(chunks([0] * (n + 1), *[field] * n)))
    assert len(column) == 0


@pytest.mark.parametrize("value, width", [(10**5, 16), (10**18, 16), (-(10**30), 16), (100_000, 8)])
def test_keeps_decimals_beyond_their_precision(session, value, width):
    column = session.from_vortex(Exporter(decimal(value, 5, width))).to_pyarrow()
    assert int.from_bytes(column.chunk(0).buffers()[1].to_pybytes()[:16], "little", signed=True) == value


@pytest.mark.parametrize("parts", [(1 << 62, 0, 0), (1, 1 << 62, 1), ((1 << 63) - 1,) * 3, (-(1 << 63),) * 3])
def test_overflowing_times_are_rejected_or_wrap(session, parts):
    days, seconds, rest = parts
    wrapped = (days * 86400 * 10**9 + seconds * 10**9 + rest + (1 << 63)) % (1 << 64) - (1 << 63)
    try:
        column = session.from_vortex(Exporter(date_time(*parts)))
    except cd.DataError as error:
        assert "vortex.datetimeparts" in str(error)
    else:
        assert column.to_pyarrow().cast(pa.int64()).to_pylist() == [wrapped]
