"""Builds nodes of Vortex trees, with one function for each encoding. Arguments replace parts of a valid node,
so that tests can build malformed nodes."""

import struct

import dtypes
import numpy as np
import proto
import pyarrow as pa
import vortex as vx
from craft import boolean, primitive, ptype_of
from flat import Tree
from flatbuffer import Table, Vector, write
from proto import Present

U1, U2, U4, U8, I1, I4, I8, F8 = (ptype_of(kind) for kind in ("u1", "u2", "u4", "u8", "i1", "i4", "i8", "f8"))
NULL = b"\x08\x00"
MOST = (1 << 64) - 1


def of(kind, *values, valid=None):
    return primitive(np.array(values, kind), None if valid is None else np.array(valid, bool))


def node(id, dtype, length, meta=None, buffers=(), children=()):
    meta = meta if isinstance(meta, bytes) else proto.write(meta or {})
    return Tree(id, dtype, length, meta, buffers, children)


def number(kind, nullable=False):
    return dtypes.primitive(ptype_of(kind), nullable)


def dtype_of(type, nullable=True):
    array = pa.array([None] if nullable else [], type)
    return Tree.of(vx.array(array)).dtype


def constant(kind, length, value=b"\x20\x01", nullable=False):
    return node("vortex.constant", number(kind, nullable), length, b"", [value])


def dictionary(codes, values, length=None, nullable=False, declared_values=None):
    length = codes.length if length is None else length
    declared_values = values.length if declared_values is None else declared_values
    kind = dtypes.NUMPY[dtypes.read(values.dtype).of[0]]
    meta = {1: declared_values, 2: dtypes.read(codes.dtype).of[0]}
    return node("vortex.dict", number(kind, nullable), length, meta, [], [codes, values])


def runs(ends, values, length, offset=0):
    meta = {1: dtypes.read(ends.dtype).of[0], 2: ends.length, 3: offset}
    return node("vortex.runend", values.dtype, length, meta, [], [ends, values])


def patch_metadata(indices, offset=0, declared=None, chunks=None, within=0):
    """Returns the metadata of patches."""
    ptype = dtypes.read(indices.dtype).of[0]
    meta = {1: indices.length if declared is None else declared, 2: offset, 3: ptype}
    if chunks is not None:
        meta |= {4: Present(chunks.length), 5: Present(dtypes.read(chunks.dtype).of[0]), 6: Present(within)}
    return proto.write(meta)


def sparse(indices, values, length=10, fill=b"\x20\x07", **declarations):
    return node(
        "vortex.sparse", values.dtype, length, {1: patch_metadata(indices, **declarations)}, [fill], [indices, values]
    )


def packed(indices, values, length=10, width=1, blocks=1, offset=0, chunks=None, children=(), **declarations):
    meta = {1: width, 2: offset, 3: patch_metadata(indices, chunks=chunks, **declarations)}
    parts = [indices, values, *([] if chunks is None else [chunks]), *children]
    return node("fastlanes.bitpacked", values.dtype, length, meta, [bytes(128 * width * blocks)], parts)


def plain_packed(length=10, width=1, offset=0, kind="u4", size=None, dtype=None):
    size = 128 * width * -(-(length + offset) // 1024) if size is None else size
    return node("fastlanes.bitpacked", dtype or number(kind), length, {1: width, 2: offset}, [bytes(size)])


def patched_alp(indices, values, length=10):
    integers = primitive(np.arange(length, dtype="i8"))
    return node("vortex.alp", number("f8"), length, {3: patch_metadata(indices)}, [], [integers, indices, values])


def alp_rd(codes, table=(1, 2), width=60, size=None, patches=None, kind="f8", nullable=False, right=0):
    table = tuple(table)
    meta = {1: width, 2: len(table) if size is None else size, 3: b"".join(map(proto.varint, table)), 4: U2}
    right = np.full(codes.length, right, "u8" if kind == "f8" else "u4")
    children = [codes, primitive(right)]
    if patches:
        meta[5] = patch_metadata(patches[0])
        children += patches
    return node("vortex.alprd", number(kind, nullable), codes.length, meta, [], children)


def frame(reference, child=None, meta=None):
    child = child or of("u4", 1, 2)
    return node("fastlanes.for", child.dtype, child.length, reference if meta is None else meta, [], [child])


def sequence(base, step, length, kind="u1"):
    return node("vortex.sequence", number(kind), length, {1: base, 2: step})


def fsst(codes, offsets, lengths, symbols=(b"ab", b"c"), dtype=None, sizes=None, valid=None):
    table = b"".join(symbol.ljust(8, b"\0") for symbol in symbols)
    sizes = bytes(map(len, symbols)) if sizes is None else sizes
    children = [primitive(np.array(lengths, "i4")), primitive(np.array(offsets, "i4"))]
    children += [] if valid is None else [boolean(valid)]
    dtype = dtype or dtypes.text(valid is not None)
    return node("vortex.fsst", dtype, len(lengths), {1: I4, 2: I4}, [table, sizes, codes], children)


def onpair(
    codes=(0, 1), offsets=(0, 1, 2), lengths=(2, 1), data=b"abc" + bytes(16), tokens=(0, 2, 3), dtype=None, size=None
):
    size = len(tokens) - 1 if size is None else size
    meta = {1: I4, 3: size, 4: len(codes), 5: U4, 6: U2, 7: U4}
    children = [of("u4", *tokens), of("u2", *codes), of("u4", *offsets), of("i4", *lengths)]
    return node("vortex.onpair", dtype or dtypes.text(), len(lengths), meta, [data], children)


def varbin(data, *offsets, kind="i4", dtype=None):
    ends = of(kind, *offsets)
    return node("vortex.varbin", dtype or dtypes.text(), len(offsets) - 1, {1: ptype_of(kind)}, [data], [ends])


LONG = b"a text of more than twelve bytes"


def view(size, prefix=b"", index=0, offset=0):
    return struct.pack("<I4sII", size, prefix, index, offset) if size > 12 else struct.pack("<I12s", size, prefix)


def views(*all, data=(LONG,), dtype=None, valid=None):
    children = [] if valid is None else [boolean(valid)]
    return node(
        "vortex.varbinview", dtype or dtypes.text(valid is not None), len(all), b"", [*data, b"".join(all)], children
    )


def differences(length=1024, deltas=1024, offset=0, bases=32, kind="u4", meta=None):
    children = [primitive(np.zeros(bases, kind)), primitive(np.ones(deltas, kind))]
    return node("fastlanes.delta", number(kind), length, meta or {1: deltas, 2: offset}, [], children)


def in_runs(indices, starts=(0,), values=3, length=1024, offset=0, meta=None):
    """Returns a fastlanes.rle node of one or more blocks, with all indices."""
    indices = primitive(np.array(indices, "u2"))
    metadata = {1: values, 2: indices.length, 3: U2, 4: len(starts), 5: U4, 6: offset} | (meta or {})
    children = [primitive(np.arange(values, dtype="f8")), indices, of("u4", *starts)]
    return node("fastlanes.rle", number("f8"), length, metadata, [], children)


def chunks(offsets, *parts, length=None, dtype=None):
    length = sum(part.length for part in parts) if length is None else length
    return node("vortex.chunked", dtype or parts[0].dtype, length, b"", [], [of("u8", *offsets), *parts])


def date_time(days, seconds, rest):
    return date_times([days], [seconds], [rest])


def date_times(days, seconds, rest, valid=None):
    children = [of("i8", *days, valid=valid), of("i8", *seconds), of("i8", *rest)]
    dtype = dtype_of(pa.timestamp("ns"), nullable=valid is not None)
    return node("vortex.datetimeparts", dtype, len(days), {1: I8, 2: I8, 3: I8}, [], children)


def decimal(value, precision=5, width=16):
    return decimals([value], pa.decimal128(precision, 2), width)


def decimals(values, type, width, valid=None):
    data = b"".join(value.to_bytes(width, "little", signed=True) for value in values)
    kind, children = width.bit_length() - 1, [] if valid is None else [boolean(valid)]
    return node("vortex.decimal", dtype_of(type, valid is not None), len(values), {1: kind}, [data], children)


def row_of(*fields, length=3, names=None):
    names = names or [f"f{i}" for i in range(len(fields))]
    types = Vector([dtype_table(field.dtype) for field in fields])
    dtype = write(Table({0: ("B", dtypes.STRUCT), 1: Table({0: Vector(names), 1: types})}))
    return node("vortex.struct", dtype, length, b"", [], fields)


def dtype_table(data):
    """Returns the type of a primitive as a table, for use in another type."""
    kind = dtypes.read(data)
    assert kind.kind == dtypes.PRIMITIVE
    return Table({0: ("B", kind.kind), 1: Table({0: ("B", kind.of[0]), 1: ("B", kind.nullable)})})


def with_validity(child):
    return node("vortex.primitive", number("u1", True), 3, b"", [b"abc"], [child])


def list_of(offsets, elements=4, kind="i4", length=None):
    ends = of(kind, *offsets)
    return node(
        "vortex.list",
        dtype_of(pa.list_(pa.uint8())),
        len(offsets) - 1 if length is None else length,
        {1: elements, 2: ptype_of(kind)},
        [],
        [of("u1", *range(elements), valid=[True] * elements), ends],
    )


def list_view(offsets, sizes, elements=4):
    return node(
        "vortex.listview",
        dtype_of(pa.list_(pa.uint8())),
        len(offsets),
        {1: elements, 2: I4, 3: I4},
        [],
        [of("u1", *range(elements), valid=[True] * elements), of("i4", *offsets), of("i4", *sizes)],
    )


ENTRY = {"key": "k", "value": 1}


def map_of(*lists, nullable=False, type=pa.list_, key_nullable=False, length=None):
    """Returns a map of text and integers. The tree may declare null entries, although the type of a map
    forbids them."""
    entry = pa.struct([pa.field("key", pa.string(), key_nullable), pa.field("value", pa.int32())])
    tree = Tree.of(vx.array(pa.array(lists, type(entry))))
    dtype = dtype_of(pa.map_(pa.string(), pa.int32()), nullable)
    return node("vortex.map", dtype, len(lists) if length is None else length, b"", [], [tree])


BAD_TEXT = b"\xff\xfe\xfd\xfc"
ZEROS = [0] * 1024
