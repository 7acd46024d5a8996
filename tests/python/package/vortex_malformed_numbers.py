"""Malformed trees of numbers. Each must be rejected."""

import dtypes
import numpy as np
import proto
import pyarrow as pa
import vortex as vx
from craft import boolean, primitive
from flat import Tree
from vortex_nodes import (
    U1,
    U4,
    U8,
    I4,
    I8,
    F8,
    BAD_TEXT,
    MOST,
    NULL,
    ZEROS,
    alp_rd,
    decimal,
    dictionary,
    differences,
    dtype_of,
    frame,
    in_runs,
    node,
    number,
    of,
    packed,
    patched_alp,
    plain_packed,
    row_of,
    runs,
    sequence,
    sparse,
    patch_metadata,
    with_validity,
)

NUMBERS = {
    "dict": {
        "a code out of range": dictionary(of("u1", 0, 1, 2), of("u4", 5, 6)),
        "a code out of range and null codes": dictionary(of("u1", 0, 2, valid=[0, 1]), of("u4", 5, 6), nullable=True),
        "a code out of range in a run": dictionary(runs(of("u4", 2, 3), of("u1", 0, 2), 3), of("u4", 5, 6)),
        "codes in runs with descending ends": dictionary(runs(of("u4", 3, 2), of("u1", 0, 1), 3), of("u4", 5, 6)),
        "codes in runs that are too short": dictionary(runs(of("u4", 1, 2), of("u1", 0, 1), 3), of("u4", 5, 6)),
        "more codes than run ends": dictionary(runs(of("u4", 3), of("u1", 0, 1), 3), of("u4", 5, 6)),
        "a negative code": dictionary(of("i1", 0, -1), of("u4", 5, 6)),
        "no values": dictionary(of("u1", 0), of("u4")),
        "more values declared": dictionary(of("u1", 0), of("u4", 5, 6), declared_values=3),
        "fewer values declared": dictionary(of("u1", 0), of("u4", 5, 6), declared_values=1),
        "2^64 values declared": dictionary(of("u1", 0), of("u4", 5, 6), declared_values=MOST),
        "fewer codes": dictionary(of("u1", 0), of("u4", 5, 6), length=2),
        "more codes": dictionary(of("u1", 0, 1, 0), of("u4", 5, 6), length=2),
        "codes are floats": dictionary(of("f8", 0, 1), of("u4", 5, 6)),
        "values of another type": node(
            "vortex.dict", number("i4"), 1, {1: 2, 2: U1}, [], [of("u1", 0), of("u4", 5, 6)]
        ),
        "null codes of a non-nullable type": dictionary(of("u1", 0, 1, valid=[1, 0]), of("u4", 5, 6)),
        "null values of a non-nullable type": dictionary(of("u1", 0, 1), of("u4", 5, 6, valid=[1, 0])),
        "one child": node("vortex.dict", number("u4"), 1, {1: 2, 2: U1}, [], [of("u1", 0)]),
        "three children": node(
            "vortex.dict", number("u4", True), 1, {1: 1, 2: U1}, [], [of("u1", 0), of("u4", 1), boolean([True])]
        ),
        "a buffer": node("vortex.dict", number("u4"), 1, {1: 1, 2: U1}, [b"a"], [of("u1", 0), of("u4", 1)]),
        "the codes do not have the declared type": node(
            "vortex.dict", number("u4"), 1, {1: 1, 2: U4}, [], [of("u1", 0), of("u4", 1)]
        ),
        "packed codes: a code out of range": node(
            "vortex.dict", dtypes.boolean(), 2, {1: 1, 2: U1}, [], [of("u1", 0, 1), boolean([True])]
        ),
    },
    "runend": {
        "run ends descend": runs(of("u4", 3, 2, 5), of("u4", 1, 2, 3), 5),
        "run ends repeat": runs(of("u4", 2, 2, 5), of("u4", 1, 2, 3), 5),
        "the last end is too small": runs(of("u4", 2, 4), of("u4", 1, 2), 5),
        "the last end is too small for the offset": runs(of("u4", 2, 6), of("u4", 1, 2), 5, 2),
        "no runs": runs(of("u4"), of("u4"), 5),
        "no runs, but an offset": runs(of("u4"), of("u4"), 0, 5),
        "offset and length overflow": runs(of("u4", 5), of("u4", 1), 5, MOST),
        "offset and length overflow i64": runs(of("u8", MOST), of("u4", 1), 5, (1 << 63) - 3),
        "fewer values than run ends": runs(of("u4", 2, 5), of("u4", 1), 5),
        "run ends are signed": runs(of("i4", 2, 5), of("u4", 1, 2), 5),
        "run ends are nullable": runs(of("u4", 2, 5, valid=[1, 0]), of("u4", 1, 2), 5),
        "more runs declared": node(
            "vortex.runend", number("u4"), 5, {1: U4, 2: 3}, [], [of("u4", 2, 5), of("u4", 1, 2)]
        ),
        "the run ends do not have the declared type": node(
            "vortex.runend", number("u4"), 5, {1: U1, 2: 2}, [], [of("u4", 2, 5), of("u4", 1, 2)]
        ),
        "run ends are declared as signed": node(
            "vortex.runend", number("u4"), 5, {1: I4, 2: 2}, [], [of("u4", 2, 5), of("u4", 1, 2)]
        ),
    },
    "patches": {
        f"{kind}: {name}": make(of("u4", *indices), of(value, *range(len(indices))), **more)
        for kind, make, value in [("sparse", sparse, "u4"), ("bitpacked", packed, "u4"), ("alp", patched_alp, "f8")]
        for name, indices, more in [
            ("unsorted", [3, 2], {}),
            ("duplicate", [3, 3], {}),
            ("out of range in the middle", [1, 10, 11], {}),
            ("the last out of range", [1, 10], {}),
            ("far out of range", [1, 2**32 - 1], {}),
            ("none", [], {}),
            ("more than values", list(range(11)), {}),
            ("below the offset", [1, 20], {"offset": 15}),
            ("beyond the offset", [15, 25], {"offset": 15}),
            ("more declared", [1, 2], {"declared": 3}),
            ("2^64 - 1 declared", [1, 2], {"declared": MOST}),
            ("the offset overflows", [1, 2], {"offset": MOST}),
        ]
        if not (kind == "alp" and more)
    }
    | {
        "sparse: fewer values than indices": sparse(of("u4", 1, 2), of("u4", 1)),
        "sparse: null indices": sparse(of("u4", 1, 2, valid=[1, 0]), of("u4", 1, 2)),
        "sparse: signed indices": sparse(of("i4", 1, 2), of("u4", 1, 2)),
        "sparse: the indices do not have the declared type": node(
            "vortex.sparse",
            number("u4"),
            10,
            {1: proto.write({1: 2, 3: U1})},
            [b"\x20\x07"],
            [of("u4", 1, 2), of("u4", 1, 2)],
        ),
        "sparse: the metadata is empty": node(
            "vortex.sparse", number("u4"), 2, b"", [b"\x20\x07"], [of("u4", 1), of("u4", 1)]
        ),
        "sparse: an empty fill value": sparse(of("u4", 1), of("u4", 1), fill=b""),
        "sparse: a null fill value of a non-nullable type": sparse(of("u4", 1), of("u4", 1), fill=NULL),
        "sparse: a fill value of another type": sparse(of("u4", 1), of("u4", 1), fill=b"\x3a\x01a"),
        "sparse: a fill value out of range": sparse(of("u1", 1), of("u1", 1), fill=b"\x20\x80\x02"),
        "bitpacked: a null patch": node(
            "fastlanes.bitpacked",
            number("u4", True),
            10,
            {1: 1, 3: patch_metadata(of("u4", 1, 2))},
            [bytes(128)],
            [of("u4", 1, 2), of("u4", 5, 6, valid=[1, 0])],
        ),
        "bitpacked: patches of another type": node(
            "fastlanes.bitpacked",
            number("u4"),
            10,
            {1: 1, 3: patch_metadata(of("u4", 1))},
            [bytes(128)],
            [of("u4", 1), of("u8", 1)],
        ),
        "bitpacked: no children": node(
            "fastlanes.bitpacked", number("u4"), 10, {1: 1, 3: patch_metadata(of("u4", 1))}, [bytes(128)]
        ),
        "bitpacked: the declared chunk offsets are missing": node(
            "fastlanes.bitpacked",
            number("u4"),
            10,
            {1: 1, 3: patch_metadata(of("u4", 1), chunks=of("u4", 0))},
            [bytes(128)],
            [of("u4", 1), of("u4", 1)],
        ),
        "bitpacked: too many chunk offsets": packed(of("u4", 1), of("u4", 1), chunks=of("u4", 0, 1)),
        "bitpacked: too few chunk offsets": packed(of("u4", 1), of("u4", 1), length=1025, blocks=2, chunks=of("u4", 0)),
        "bitpacked: no chunk offsets": packed(of("u4", 1), of("u4", 1), chunks=of("u4")),
        "bitpacked: signed chunk offsets": packed(of("u4", 1), of("u4", 1), chunks=of("i4", 0)),
    },
    "bitpacked": {
        "65 bits": plain_packed(width=65, kind="u8"),
        "a width of 65 bits for u32": plain_packed(width=65),
        "a width of 33 bits for u32": plain_packed(width=33),
        "a width of 9 bits for u8": plain_packed(width=9, kind="u1"),
        "2^32 bits": node("fastlanes.bitpacked", number("u4"), 10, {1: 1 << 32}, [bytes(128)]),
        "a byte less": plain_packed(size=127),
        "a byte more": plain_packed(size=129),
        "no bytes": plain_packed(size=0),
        "a block more": plain_packed(size=256),
        "a width of 0 bits and a buffer that is not empty": plain_packed(width=0, size=128),
        "offset 1024": plain_packed(offset=1024, size=256),
        "offset 2^32": plain_packed(offset=1 << 32, size=128),
        "floats": plain_packed(dtype=number("f8"), size=128),
        "truth values": plain_packed(dtype=dtypes.boolean(), size=128),
        "text": plain_packed(dtype=dtypes.text(), size=128),
        "length 2^64 - 1": plain_packed(length=MOST, width=3, size=384),
        "length 2^63 - 1": plain_packed(length=(1 << 63) - 1, width=3, size=384),
        "length 2^63 - 1, 0 bits": plain_packed(length=(1 << 63) - 1, width=0, size=0),
        "length 2^40, 0 bits": plain_packed(length=1 << 40, width=0, size=0),
        "no buffer": node("fastlanes.bitpacked", number("u4"), 10, {1: 1}),
        "two buffers": node("fastlanes.bitpacked", number("u4"), 10, {1: 1}, [bytes(128), bytes(128)]),
        "a validity of a non-nullable type": node(
            "fastlanes.bitpacked", number("u4"), 3, {1: 1}, [bytes(128)], [boolean([True] * 3)]
        ),
        "a validity of another length": node(
            "fastlanes.bitpacked", number("u4", True), 3, {1: 1}, [bytes(128)], [boolean([True] * 4)]
        ),
    },
    "frames and zigzag": {
        "a null reference": frame(NULL),
        "no reference": frame(b""),
        "the reference is a text": frame(b"\x3a\x01a"),
        "a reference out of range": frame(b"\x20\x80\x02", of("u1", 1)),
        "a negative reference of an unsigned type": frame(b"\x18\x01"),
        "floats": frame(b"\x31" + bytes(8), of("f8", 1.0)),
        "a child of the other signedness": node("fastlanes.for", number("i4"), 2, b"\x18\x02", [], [of("u4", 1, 2)]),
        "a longer child": node("fastlanes.for", number("u4"), 1, b"\x20\x02", [], [of("u4", 1, 2)]),
        "a null child": node("fastlanes.for", number("u4"), 2, b"\x20\x02", [], [of("u4", 1, 2, valid=[1, 0])]),
        "no child": node("fastlanes.for", number("u4"), 0, b"\x20\x02"),
        "zigzag of an unsigned type": node("vortex.zigzag", number("u4"), 1, b"", [], [of("u4", 1)]),
        "zigzag with a signed child": node("vortex.zigzag", number("i4"), 1, b"", [], [of("i4", 1)]),
        "zigzag with a child of another width": node("vortex.zigzag", number("i4"), 1, b"", [], [of("u8", 1)]),
    },
    "blocks": {
        "delta: offset 1024": differences(length=0, deltas=2048, offset=1024, bases=64),
        "delta: too few differences": differences(length=1025),
        "delta: the offset is too large": differences(length=1024, offset=1),
        "delta: half a block": differences(length=512, deltas=512, bases=16),
        "delta: one base is missing": differences(bases=31),
        "delta: one base for each value": differences(bases=1024),
        "delta: more differences declared": differences(meta={1: 2048}),
        "delta: 2^64 - 1024 differences declared": differences(meta={1: (1 << 64) - 1024}),
        "delta: null differences": node(
            "fastlanes.delta",
            number("u4"),
            2,
            {1: 1024},
            [],
            [primitive(np.zeros(32, "u4")), primitive(np.ones(1024, "u4"), np.arange(1024) % 2 == 0)],
        ),
        "delta: floats": differences(kind="f8", bases=16),
        "rle: an index out of range": in_runs([3, *ZEROS[1:]]),
        "rle: an index out of its block's range": in_runs([*ZEROS, 2, *ZEROS[1:]], (0, 2), 4, 2048),
        "rle: block starts descend": in_runs([*ZEROS, *ZEROS, *ZEROS], (0, 2, 1), 3, 3072),
        "rle: a block start out of range": in_runs([*ZEROS, *ZEROS], (0, 9), 3, 2048),
        "rle: one block start is missing": in_runs([*ZEROS, *ZEROS], (0,), 3, 2048),
        "rle: one block start too many": in_runs(ZEROS, (0, 1), 3, 1024),
        "rle: offset 1024": in_runs([*ZEROS, *ZEROS], (0, 1), 3, 1024, 1024),
        "rle: too few indices": in_runs(ZEROS, (0,), 3, 1025),
        "rle: half a block": in_runs(ZEROS[:512], (0,), 3, 512),
        "rle: more values declared": in_runs(ZEROS, meta={1: 4}),
        "rle: 2^64 - 1 values declared": in_runs(ZEROS, meta={1: MOST}),
        "rle: 2^64 - 1024 indices declared": in_runs(ZEROS, meta={2: (1 << 64) - 1024}),
        "rle: indices are declared as u32": in_runs(ZEROS, meta={3: U4}),
        "rle: no values": in_runs(ZEROS, values=0),
    },
    "floats": {
        "alp: e of 19": node("vortex.alp", number("f8"), 1, {1: 19}, [], [of("i8", 1)]),
        "alp: f of 19": node("vortex.alp", number("f8"), 1, {2: 19}, [], [of("i8", 1)]),
        "alp: e of 11 for f32": node("vortex.alp", number("f4"), 1, {1: 11}, [], [of("i4", 1)]),
        "alp: f of 2^32": node("vortex.alp", number("f8"), 1, {2: 1 << 32}, [], [of("i8", 1)]),
        "alp: integers of another width": node("vortex.alp", number("f8"), 1, {}, [], [of("i4", 1)]),
        "alp: unsigned": node("vortex.alp", number("f8"), 1, {}, [], [of("u8", 1)]),
        "alp: an integer type": node("vortex.alp", number("i8"), 1, {}, [], [of("i8", 1)]),
        "alp: the type f16": node("vortex.alp", number("f2"), 1, {}, [], [of("i4", 1)]),
        "alprd: right parts of 64 bits": alp_rd(of("u2", 0), width=64),
        "alprd: right parts of 0 bits": alp_rd(of("u2", 0), width=0),
        "alprd: left parts of 17 bits": alp_rd(of("u2", 0), width=47),
        "alprd: left parts of 17 bits for f32": alp_rd(of("u2", 0), width=15, kind="f4"),
        "alprd: a dictionary entry is too wide": alp_rd(of("u2", 0), (1, 1 << 5), 60),
        "alprd: a dictionary entry of 17 bits": alp_rd(of("u2", 0), (1 << 16,), 48),
        "alprd: a code out of range": alp_rd(of("u2", 0, 2)),
        "alprd: a code outside the declared dictionary": alp_rd(of("u2", 0, 1), size=1),
        "alprd: a longer dictionary declared": alp_rd(of("u2", 0), size=3),
        "alprd: 2^64 - 1 entries declared": alp_rd(of("u2", 0), size=MOST),
        "alprd: no dictionary": alp_rd(of("u2", 0), ()),
        "alprd: codes of one byte": alp_rd(of("u1", 0)),
        "alprd: a patch too wide": alp_rd(of("u2", 0, 1), patches=[of("u4", 1), of("u2", 1 << 5)]),
        "alprd: a patch out of range": alp_rd(of("u2", 0, 1), patches=[of("u4", 2), of("u2", 1)]),
        "alprd: patches unsorted": alp_rd(of("u2", 0, 1, 1), patches=[of("u4", 2, 1), of("u2", 1, 1)]),
    },
    "sequences": {
        "the sequence overflows": sequence(b"\x20\xfa\x01", b"\x18\x02", 10),
        "the sequence falls below 0": sequence(b"\x20\x05", b"\x18\x01", 10),
        "the base is out of range": sequence(b"\x20\x80\x02", b"\x18\x02", 1),
        "no base": node("vortex.sequence", number("u1"), 1, {2: b"\x18\x02"}),
        "no step": node("vortex.sequence", number("u1"), 1, {1: b"\x20\x02"}),
        "a null base": sequence(NULL, b"\x18\x02", 1),
        "a null step": sequence(b"\x20\x02", NULL, 1),
        "floats": sequence(b"\x31" + bytes(8), b"\x18\x02", 1, "f8"),
        "2^63 values": sequence(b"\x20\x05", b"\x18\x00", 1 << 63, "u8"),
        "2^62 values": sequence(b"\x20\x05", b"\x18\x00", 1 << 62, "u8"),
        "2^40 values that overflow": sequence(b"\x20\x05", b"\x20" + proto.varint(MOST), 1 << 40, "u8"),
    },
    "constants": {
        "null of a non-nullable type": node("vortex.constant", number("u4"), 3, b"", [NULL]),
        "no scalar": node("vortex.constant", number("u4"), 3, b"", [b""]),
        "no buffer": node("vortex.constant", number("u4"), 3),
        "two buffers": node("vortex.constant", number("u4"), 3, b"", [NULL, NULL]),
        "a scalar out of range": node("vortex.constant", number("u1"), 3, b"", [b"\x20\x80\x02"]),
        "a scalar of another type": node("vortex.constant", number("u4"), 3, b"", [b"\x3a\x01a"]),
        "a text instead of the bytes of a float": node("vortex.constant", number("f8"), 3, b"", [b"\x42\x01a"]),
        "invalid text": node("vortex.constant", dtypes.text(), 3, b"", [b"\x3a\x04" + BAD_TEXT]),
        "a decimal of 3 bytes": node("vortex.constant", dtype_of(pa.decimal128(5)), 3, b"", [b"\x42\x03abc"]),
        "a varint of eleven bytes": node("vortex.constant", number("u8"), 3, b"", [b"\x20" + b"\xff" * 10 + b"\x01"]),
        "a varint without end": node("vortex.constant", number("u8"), 3, b"", [b"\x20\xff"]),
        "a length beyond the end": node("vortex.constant", dtypes.text(), 3, b"", [b"\x3a\x7fa"]),
        "a child": node("vortex.constant", number("u4"), 3, b"", [b"\x20\x01"], [of("u4", 1)]),
    },
    "validity": {
        "constant null of a non-nullable type": with_validity(
            node("vortex.constant", dtypes.boolean(), 3, b"", [NULL])
        ),
        "constant null of a nullable type": with_validity(
            node("vortex.constant", dtypes.boolean(True), 3, b"", [NULL])
        ),
        "some nulls": with_validity(
            node("vortex.bool", dtypes.boolean(True), 3, b"", [b"\7"], [boolean([True, False, True])])
        ),
        "bytes": with_validity(of("u1", 1, 1, 1)),
        "a validity that is too short": with_validity(boolean([True] * 2)),
        "a validity that is too long": with_validity(boolean([True] * 4)),
        "two validities": node(
            "vortex.primitive", number("u1", True), 3, b"", [b"abc"], [boolean([True] * 3), boolean([True] * 3)]
        ),
        "a validity of a non-nullable type": node(
            "vortex.primitive", number("u1"), 3, b"", [b"abc"], [boolean([True] * 3)]
        ),
        "masked: null values": node(
            "vortex.masked", number("u1", True), 2, b"", [], [of("u1", 1, 2, valid=[1, 0]), boolean([True] * 2)]
        ),
        "masked: no child": node("vortex.masked", number("u1", True), 2),
        "masked: a non-nullable type": node(
            "vortex.masked", number("u1"), 2, b"", [], [of("u1", 1, 2), boolean([1, 0])]
        ),
        "masked: a longer mask": node(
            "vortex.masked", number("u1", True), 2, b"", [], [of("u1", 1, 2), boolean([1] * 3)]
        ),
    },
    "plain": {
        "primitive: one byte is missing": node("vortex.primitive", number("u4"), 3, b"", [bytes(11)]),
        "primitive: one byte too many": node("vortex.primitive", number("u4"), 3, b"", [bytes(13)]),
        "primitive: no buffer": node("vortex.primitive", number("u4"), 0),
        "primitive: 2^62 values": node("vortex.primitive", number("u4"), 1 << 62, b"", [b""]),
        "primitive: 2^63 values": node("vortex.primitive", number("u4"), 1 << 63, b"", [b""]),
        "primitive: 2^64 - 1 values": node("vortex.primitive", number("u4"), MOST, b"", [b""]),
        "primitive: text": node("vortex.primitive", dtypes.text(), 1, b"", [bytes(16)]),
        "primitive: a struct": node("vortex.primitive", row_of(of("u4", 1)).dtype, 1, b"", [bytes(16)]),
        "bool: one byte is missing": node("vortex.bool", dtypes.boolean(), 9, b"", [b"a"]),
        "bool: 8 bits skipped": node("vortex.bool", dtypes.boolean(), 1, {1: 8}, [b"abc"]),
        "bool: 2^64 - 1 bits skipped": node("vortex.bool", dtypes.boolean(), 1, {1: MOST}, [b"abc"]),
        "bool: one bit is missing": node("vortex.bool", dtypes.boolean(), 8, {1: 1}, [b"a"]),
        "bool: 2^64 - 1 values": node("vortex.bool", dtypes.boolean(), MOST, {1: 7}, [b"a"]),
        "bool: 2^63 - 1 values": node("vortex.bool", dtypes.boolean(), (1 << 63) - 1, {1: 7}, [b"a"]),
        "bool: a numeric type": node("vortex.bool", number("u1"), 1, b"", [b"a"]),
        "bytebool: one byte is missing": node("vortex.bytebool", dtypes.boolean(), 3, b"", [b"ab"]),
        "bytebool: a numeric type": node("vortex.bytebool", number("u1"), 2, b"", [b"ab"]),
        "null: a numeric type": node("vortex.null", number("u1"), 2),
        "null: a buffer": node("vortex.null", Tree.of(vx.array(pa.nulls(1))).dtype, 2, b"", [b"a"]),
        "null: 2^64 - 1 values": node("vortex.null", Tree.of(vx.array(pa.nulls(1))).dtype, MOST),
        "ext: another width": node("vortex.ext", dtype_of(pa.date32()), 1, b"", [], [of("i8", 1)]),
        "ext: floats": node("vortex.ext", dtype_of(pa.date64()), 1, b"", [], [of("f8", 1)]),
        "ext: storage that is too long": node("vortex.ext", dtype_of(pa.date32()), 1, b"", [], [of("i4", 1, 2)]),
        "ext: no storage": node("vortex.ext", dtype_of(pa.date32()), 0),
        "ext: null storage of a non-nullable type": node(
            "vortex.ext", dtype_of(pa.date32(), False), 2, b"", [], [of("i4", 1, 2, valid=[1, 0])]
        ),
    },
    "decimals": {
        "stored as type number 6": node("vortex.decimal", dtype_of(pa.decimal128(5, 2), False), 1, {1: 6}, [bytes(64)]),
        "stored as type number 2^32": node(
            "vortex.decimal", dtype_of(pa.decimal128(5, 2), False), 1, {1: 1 << 32}, [bytes(64)]
        ),
        "a byte less": node("vortex.decimal", dtype_of(pa.decimal128(5, 2), False), 1, {1: 4}, [bytes(15)]),
        "beyond 128 bits": decimal(1 << 200, 38, 32),
        "a float type": node("vortex.decimal", number("f8"), 1, {1: 3}, [bytes(8)]),
        "parts: a part does not have the declared type": node(
            "vortex.decimal_byte_parts", dtype_of(pa.decimal128(5, 2), False), 1, {1: I8}, [], [of("i4", 1)]
        ),
        "parts: unsigned": node(
            "vortex.decimal_byte_parts", dtype_of(pa.decimal128(5, 2), False), 1, {1: U8}, [], [of("u8", 1)]
        ),
        "parts: a lower part": node(
            "vortex.decimal_byte_parts", dtype_of(pa.decimal128(5, 2), False), 1, {1: I8, 2: 1}, [], [of("i8", 1)]
        ),
        "times in parts: a numeric type": node(
            "vortex.datetimeparts", number("i8"), 1, {1: I8, 2: I8, 3: I8}, [], [of("i8", 1)] * 3
        ),
        "times in parts: float parts": node(
            "vortex.datetimeparts",
            dtype_of(pa.timestamp("s"), False),
            1,
            {1: F8, 2: I8, 3: I8},
            [],
            [of("f8", 1), of("i8", 1), of("i8", 1)],
        ),
        "times in parts: null seconds": node(
            "vortex.datetimeparts",
            dtype_of(pa.timestamp("s")),
            2,
            {1: I8, 2: I8, 3: I8},
            [],
            [of("i8", 1, 2, valid=[1, 1]), of("i8", 1, 2, valid=[1, 0]), of("i8", 1, 2)],
        ),
    },
}
