"""Malformed trees of texts, lists and structs, and malformed messages. Each must be rejected."""

import dtypes
import proto
import pyarrow as pa
from vortex_nodes import (
    U1,
    I4,
    I8,
    F8,
    BAD_TEXT,
    ENTRY,
    LONG,
    MOST,
    chunks,
    constant,
    dtype_of,
    fsst,
    list_of,
    list_view,
    map_of,
    node,
    number,
    of,
    onpair,
    row_of,
    patch_metadata,
    varbin,
    view,
    views,
)

OTHERS = {
    "fsst": {
        "a code that has no symbol": fsst(b"\0\2", [0, 2], [3]),
        "an escape at the end": fsst(b"\0\xff", [0, 2], [3]),
        "an escape that crosses two rows": fsst(b"\0\xffa\1", [0, 2, 4], [2, 2]),
        "lengths shifted between rows": fsst(b"\0\1\0", [0, 1, 3], [3, 2]),
        "offsets descend": fsst(b"\0\1\0", [0, 2, 1, 3], [2, 0, 2]),
        "offsets are negative": fsst(b"\0\1\0", [-1, 2], [3]),
        "offsets are past the end": fsst(b"\0\1\0", [0, 4], [5]),
        "a length that is too large": fsst(b"\0", [0, 1], [3]),
        "a length that is too small": fsst(b"\0", [0, 1], [1]),
        "a negative length": fsst(b"\0", [0, 1], [-1]),
        "lengths of 2^31 - 1": fsst(b"\0", [0, 1, 1, 1], [2**31 - 1] * 3),
        "a symbol of 0 bytes": fsst(b"\0", [0, 1], [0], sizes=b"\0\1"),
        "a symbol of 9 bytes": fsst(b"\0", [0, 1], [9], sizes=b"\x09\1"),
        "one symbol size is missing": fsst(b"\0", [0, 1], [2], sizes=b"\2"),
        "256 symbols": fsst(b"\0", [0, 1], [2], symbols=[b"ab"] * 256),
        "half a symbol": node(
            "vortex.fsst", dtypes.text(), 1, {1: I4, 2: I4}, [bytes(12), b"\1", b"\0"], [of("i4", 1), of("i4", 0, 1)]
        ),
        "invalid text": fsst(b"\0", [0, 1], [4], symbols=[BAD_TEXT]),
        "half a letter in each row": fsst(b"\0\1", [0, 1, 2], [1, 1], symbols=[b"\xc3", b"\xa9"]),
        "a numeric type": fsst(b"\0", [0, 1], [2], dtype=number("u4")),
        "one buffer": node("vortex.fsst", dtypes.text(), 0, {1: I4, 2: I4}, [b""], [of("i4"), of("i4", 0)]),
    },
    "onpair": {
        "a code out of range": onpair(codes=(0, 2)),
        "dictionary offsets descend": onpair(tokens=(0, 3, 2)),
        "dictionary offsets repeat": onpair(tokens=(0, 0, 3)),
        "dictionary offsets past the end": onpair(tokens=(0, 2, 99)),
        "a token of 17 bytes": onpair(tokens=(0, 17, 18), data=bytes(18 + 16), lengths=(17, 1)),
        "code offsets descend": onpair(offsets=(0, 2, 1), lengths=(3, 0)),
        "code offsets past the end": onpair(offsets=(0, 1, 3)),
        "lengths shifted between rows": onpair(lengths=(1, 2)),
        "a length that is too large": onpair(lengths=(2, 2)),
        "a negative length": onpair(lengths=(2, -1)),
        "invalid text": onpair(data=BAD_TEXT[:3] + bytes(16)),
        "more tokens declared": onpair(size=3),
        "2^32 - 1 tokens declared": onpair(size=2**32 - 1),
        "2^64 - 1 tokens declared": onpair(size=MOST),
        "no tokens": onpair(tokens=(0,), data=bytes(16)),
        "a numeric type": onpair(dtype=number("u4")),
    },
    "text": {
        "varbin: offsets descend": varbin(b"abcdef", 0, 4, 2),
        "varbin: an offset past the end": varbin(b"abcdef", 0, 7),
        "varbin: a negative offset": varbin(b"abcdef", -1, 3),
        "varbin: an offset far past the end": varbin(b"abcdef", 0, MOST, kind="u8"),
        "varbin: a negative i64 offset": varbin(b"abcdef", -(2**63), 3, kind="i8"),
        "varbin: invalid text": varbin(BAD_TEXT, 0, 4),
        "varbin: half a letter in each row": varbin(b"\xc3\xa9", 0, 1, 2),
        "varbin: null offsets": node(
            "vortex.varbin", dtypes.text(), 1, {1: I4}, [b"abc"], [of("i4", 0, 3, valid=[1, 0])]
        ),
        "varbin: one offset is missing": node("vortex.varbin", dtypes.text(), 2, {1: I4}, [b"abc"], [of("i4", 0, 3)]),
        "varbin: offsets are floats": node("vortex.varbin", dtypes.text(), 1, {1: F8}, [b"abc"], [of("f8", 0, 3)]),
        "varbin: the offsets do not have the declared type": node(
            "vortex.varbin", dtypes.text(), 1, {1: I8}, [b"a"], [of("i4", 0, 1)]
        ),
        "varbin: 2^64 - 1 rows": node("vortex.varbin", dtypes.text(), MOST, {1: I4}, [b"a"], [of("i4")]),
        "varbin: 2^63 - 1 rows": node("vortex.varbin", dtypes.text(), (1 << 63) - 1, {1: I4}, [b"a"], [of("i4")]),
        "varbin: a numeric type": varbin(b"abc", 0, 3, dtype=number("u4")),
        "view: the buffer does not exist": views(view(32, LONG[:4], 1)),
        "view: a negative buffer index": views(view(32, LONG[:4], 2**32 - 1)),
        "view: a text past the end of the buffer": views(view(32, LONG[1:5], 0, 1)),
        "view: a text far past the end of the buffer": views(view(32, LONG[:4], 0, 2**31 - 1)),
        "view: a size of 2^32 - 1": views(view(2**32 - 1, LONG[:4])),
        "view: a size of 2^31": views(view(2**31, LONG[:4])),
        "view: another prefix": views(view(32, b"nope")),
        "view: invalid text": views(view(4, BAD_TEXT)),
        "view: invalid long text": views(view(16, BAD_TEXT), data=[BAD_TEXT * 4]),
        "view: no buffer": node("vortex.varbinview", dtypes.text(), 0),
        "view: one byte is missing": views(view(3, b"abc")[:15], dtype=dtypes.text()),
        "view: one view is missing": node("vortex.varbinview", dtypes.text(), 2, b"", [view(3, b"abc")]),
        "view: no data": views(view(32, LONG[:4]), data=[]),
        "dict: invalid text in values": node(
            "vortex.dict", dtypes.text(), 1, {1: 1, 2: U1}, [], [of("u1", 0), varbin(BAD_TEXT, 0, 4)]
        ),
    },
    "nested": {
        "struct: a field of another type": node(
            "vortex.struct", row_of(of("u4", 1, 2, 3)).dtype, 3, b"", [], [of("u8", 1, 2, 3)]
        ),
        "struct: a field that is too long": row_of(of("u4", 1, 2, 3), of("u4", 1, 2, 3, 4)),
        "struct: one field is missing": node("vortex.struct", row_of(of("u4"), of("u4")).dtype, 0, b"", [], [of("u4")]),
        "struct: one field too many": node("vortex.struct", row_of(of("u4")).dtype, 0, b"", [], [of("u4")] * 2),
        "struct: one name is missing": row_of(of("u4", 1, 2, 3), of("u4", 1, 2, 3), names=["a"]),
        "struct: a numeric type": node("vortex.struct", number("u4"), 3, b"", [], [of("u4", 1, 2, 3)]),
        "struct: null fields of a non-nullable type": node(
            "vortex.struct", row_of(of("u4", 1, 2)).dtype, 2, b"", [], [of("u4", 1, 2, valid=[1, 0])]
        ),
        "struct: 2^64 - 1 rows": node("vortex.struct", row_of().dtype, MOST),
        "chunks: offsets descend": chunks([0, 3, 2], of("u4", 1, 2, 3), of("u4", 4)),
        "chunks: the first offset is not 0": chunks([1, 4, 5], of("u4", 1, 2, 3), of("u4", 4)),
        "chunks: other lengths": chunks([0, 2, 4], of("u4", 1, 2, 3), of("u4", 4)),
        "chunks: the last offset is wrong": chunks([0, 3, 5], of("u4", 1, 2, 3), of("u4", 4)),
        "chunks: one offset is missing": chunks([0, 3], of("u4", 1, 2, 3), of("u4", 4)),
        "chunks: another type": chunks([0, 3, 4], of("u4", 1, 2, 3), of("u8", 4)),
        "chunks: another length": chunks([0, 3, 4], of("u4", 1, 2, 3), of("u4", 4), length=5),
        "chunks: no children": node("vortex.chunked", number("u4"), 0),
        "chunks: lengths overflow": chunks([0, 1 << 63, 0], constant("u4", 1 << 63), constant("u4", 1 << 63), length=0),
        "chunks: lengths overflow i64": chunks(
            [0, 1 << 62, 1 << 63], constant("u4", 1 << 62), constant("u4", 1 << 62), length=1 << 63
        ),
        "chunks: nulls of a non-nullable type": chunks([0, 2], of("u4", 1, 2, valid=[1, 0]), dtype=number("u4")),
        "list: offsets descend": list_of([0, 3, 2]),
        "list: an offset past the end": list_of([0, 5]),
        "list: a negative offset": list_of([-1, 2]),
        "list: more elements declared": node(
            "vortex.list", dtype_of(pa.list_(pa.uint8())), 1, {1: 5, 2: I4}, [], list_of([0, 4]).children
        ),
        "listview: a list past the end": list_view([2], [3]),
        "listview: a negative offset": list_view([-1], [1]),
        "listview: a negative size": list_view([1], [-1]),
        "listview: offset and size overflow": list_view([2**31 - 1], [2**31 - 1]),
        "map: a null among its entries": map_of([ENTRY, None]),
        "map: a null among entries in views": map_of([ENTRY, None], [ENTRY], type=pa.list_view),
        "map: a null among entries, in the last row": map_of(*[[ENTRY]] * 1024, [None]),
        "map: all entries are null": map_of([None], nullable=True),
        "map: a null among dictionary-encoded entries": node(
            "vortex.dict", map_of().dtype, 2, {1: 2, 2: U1}, [], [of("u1", 0, 1), map_of([ENTRY], [None])]
        ),
        "map: a null key": map_of([{"key": None, "value": 1}], key_nullable=True),
        "map: a null map of a non-nullable type": map_of([ENTRY], None),
        "map: the declared length is too large": map_of([ENTRY], length=2),
        "map: of lists of numbers": node("vortex.map", map_of().dtype, 1, b"", [], [list_of([0, 1])]),
        "map: no lists": node("vortex.map", map_of().dtype, 0),
        "fixed-size list: 2^33 elements": node(
            "vortex.fixed_size_list",
            dtype_of(pa.list_(pa.uint8(), 4)),
            1 << 62,
            b"",
            [],
            [constant("u1", 0, nullable=True)],
        ),
    },
    "messages": {
        "truncated metadata": node("vortex.dict", number("u4"), 1, b"\x08", [], [of("u1", 0), of("u4", 1)]),
        "a varint of eleven bytes": node(
            "vortex.dict", number("u4"), 1, b"\x08" + b"\xff" * 10 + b"\1", [], [of("u1", 0), of("u4", 1)]
        ),
        "field 0": node("vortex.dict", number("u4"), 1, b"\x08\1\0\0", [], [of("u1", 0), of("u4", 1)]),
        "a group": node("vortex.dict", number("u4"), 1, b"\x08\1\x1b\x1c", [], [of("u1", 0), of("u4", 1)]),
        "wire type 7": node("vortex.dict", number("u4"), 1, b"\x08\1\x1f\1", [], [of("u1", 0), of("u4", 1)]),
        "a number field that is encoded as bytes": node(
            "vortex.dict", number("u4"), 1, b"\x0a\1\1", [], [of("u1", 0), of("u4", 1)]
        ),
        "a bytes field that is encoded as a number": node(
            "fastlanes.bitpacked", number("u4"), 10, b"\x08\1\x18\1", [bytes(128)]
        ),
        "an unknown primitive type (11)": node(
            "vortex.dict", number("u4"), 1, b"\x08\1\x10\x0b", [], [of("u1", 0), of("u4", 1)]
        ),
        "two patches fields": node(
            "fastlanes.bitpacked",
            number("u4"),
            10,
            b"\x08\1" + 2 * proto.write({3: patch_metadata(of("u4", 1))}),
            [bytes(128)],
            [of("u4", 1), of("u4", 1)],
        ),
        "a length beyond the end": node("fastlanes.bitpacked", number("u4"), 10, b"\x08\1\x1a\x7f\x08", [bytes(128)]),
        "a length of 2^64 - 1": node(
            "fastlanes.bitpacked", number("u4"), 10, b"\x08\1\x1a" + proto.varint(MOST), [bytes(128)]
        ),
    },
}
