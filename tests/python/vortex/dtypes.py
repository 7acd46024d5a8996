"""Reads and writes Vortex's DType flatbuffers, without a schema compiler."""

import collections
import struct

import pyarrow as pa
from flatbuffer import Table, write

PTYPES = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.int8(), pa.int16(), pa.int32(), pa.int64()]
PTYPES += [pa.float16(), pa.float32(), pa.float64()]
NUMPY = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]
UNITS = ["ns", "us", "ms", "s", "D"]

# The names of the members of the flatbuffer union DType, by number.
(NULL, BOOL, PRIMITIVE, DECIMAL, UTF8, BINARY, STRUCT, LIST, EXTENSION, FIXED_SIZE_LIST, VARIANT, UNION, MAP) = range(
    1, 14
)

# `kind` is the number of the member of the flatbuffer union. `of` has the parameters of the kind:
# (ptype), (precision, scale), (names), (size), (id, metadata) or (keys sorted). `inner` has the
# DTypes of the children.
DType = collections.namedtuple("DType", "kind nullable of inner")


class _Reader:
    """One table of a flatbuffer."""

    def __init__(self, data, at):
        self.data, self.at = data, at
        self.vtable = at - struct.unpack_from("<i", data, at)[0]
        self.slots = struct.unpack_from("<H", data, self.vtable)[0] // 2 - 2

    def _field(self, slot):
        offset = struct.unpack_from("<H", self.data, self.vtable + 4 + 2 * slot)[0] if slot < self.slots else 0
        return self.at + offset if offset else None

    def number(self, slot, code="B"):
        at = self._field(slot)
        return struct.unpack_from("<" + code, self.data, at)[0] if at else 0

    def table(self, slot):
        at = self._field(slot)
        return _Reader(self.data, at + struct.unpack_from("<I", self.data, at)[0])

    def raw(self, slot):
        at = self._field(slot)
        if at is None:
            return b""
        at += struct.unpack_from("<I", self.data, at)[0]
        return self.data[at + 4 : at + 4 + struct.unpack_from("<I", self.data, at)[0]]

    def references(self, slot):
        at = self._field(slot)
        if at is None:
            return []
        at += struct.unpack_from("<I", self.data, at)[0]
        positions = range(at + 4, at + 4 + 4 * struct.unpack_from("<I", self.data, at)[0], 4)
        return [position + struct.unpack_from("<I", self.data, position)[0] for position in positions]

    def text(self, at):
        return self.data[at + 4 : at + 4 + struct.unpack_from("<I", self.data, at)[0]].decode()


def read(data):
    """Returns the DType of a flatbuffer."""
    return _read(_Reader(data, struct.unpack_from("<I", data)[0]))


def _read(root):
    kind = root.number(0)
    table = root.table(1)
    nullable_slot = {PRIMITIVE: 1, DECIMAL: 2, STRUCT: 2, LIST: 1, FIXED_SIZE_LIST: 2, MAP: 3, UNION: 3}.get(kind, 0)
    nullable = kind == NULL or (kind != EXTENSION and bool(table.number(nullable_slot)))
    if kind == PRIMITIVE:
        return DType(kind, nullable, (table.number(0),), ())
    if kind == DECIMAL:
        return DType(kind, nullable, (table.number(0), table.number(1, "b")), ())
    if kind == STRUCT:
        names = tuple(table.text(at) for at in table.references(0))
        return DType(kind, nullable, names, tuple(_read(_Reader(table.data, at)) for at in table.references(1)))
    if kind == LIST:
        return DType(kind, nullable, (), (_read(table.table(0)),))
    if kind == FIXED_SIZE_LIST:
        return DType(kind, nullable, (table.number(1, "I"),), (_read(table.table(0)),))
    if kind == MAP:
        return DType(kind, nullable, (bool(table.number(2)),), (_read(table.table(0)), _read(table.table(1))))
    if kind == EXTENSION:
        storage = _read(table.table(1))
        return DType(kind, storage.nullable, (table.raw(0).decode(), table.raw(2)), (storage,))
    return DType(kind, nullable, (), ())


def arrow_type(dtype):
    """Returns the Arrow type of a DType. Strings and lists have 32-bit offsets."""
    kind, _, of, inner = dtype
    if kind == PRIMITIVE:
        return PTYPES[of[0]]
    if kind == DECIMAL:
        return (pa.decimal128 if of[0] <= 38 else pa.decimal256)(*of)
    if kind == STRUCT:
        return pa.struct([pa.field(name, arrow_type(field), field.nullable) for name, field in zip(of, inner)])
    if kind == LIST:
        return pa.list_(pa.field("item", arrow_type(inner[0]), inner[0].nullable))
    if kind == FIXED_SIZE_LIST:
        return pa.list_(pa.field("item", arrow_type(inner[0]), inner[0].nullable), of[0])
    if kind == MAP:
        return pa.map_(arrow_type(inner[0]), arrow_type(inner[1]), keys_sorted=of[0])
    if kind == EXTENSION:
        return _temporal(*of)
    return {NULL: pa.null(), BOOL: pa.bool_(), UTF8: pa.string(), BINARY: pa.binary()}[kind]


def _temporal(id, metadata):
    unit = UNITS[metadata[0]]
    if id == "vortex.date":
        return pa.date32() if unit == "D" else pa.date64()
    if id == "vortex.time":
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if id == "vortex.timestamp":
        zone = metadata[3 : 3 + struct.unpack_from("<H", metadata, 1)[0]].decode()
        return pa.timestamp(unit, zone or None)
    raise NotImplementedError(id)


def dump(dtype):
    """Returns a DType as a short text. A question mark means nullable, as in `i32?`."""
    kind, nullable, of, inner = dtype
    mark = "?" if nullable and kind not in (NULL, EXTENSION) else ""
    if kind == PRIMITIVE:
        name = NUMPY[of[0]]
        return f"{name[0]}{8 * int(name[1])}{mark}"
    if kind == DECIMAL:
        return f"decimal({of[0]}, {of[1]}){mark}"
    if kind == STRUCT:
        return "struct{" + ", ".join(f"{name}: {dump(field)}" for name, field in zip(of, inner)) + "}" + mark
    if kind in (LIST, FIXED_SIZE_LIST, MAP):
        of = f"; {of[0]}" if kind == FIXED_SIZE_LIST else ""
        return {LIST: "list", FIXED_SIZE_LIST: "fixed_size_list", MAP: "map"}[
            kind
        ] + f"({', '.join(map(dump, inner))}{of}){mark}"
    if kind == EXTENSION:
        return f"{of[0]}[{of[1].hex()}]({dump(inner[0])})"
    return {NULL: "null", BOOL: "bool", UTF8: "utf8", BINARY: "binary", VARIANT: "variant", UNION: "union"}[kind] + mark


def primitive(ptype, nullable=False):
    """Returns the flatbuffer of a primitive DType."""
    return _root(PRIMITIVE, {0: ("B", ptype), 1: ("B", nullable)})


def boolean(nullable=False):
    return _root(BOOL, {0: ("B", nullable)})


def text(nullable=False):
    return _root(UTF8, {0: ("B", nullable)})


def binary(nullable=False):
    return _root(BINARY, {0: ("B", nullable)})


def _root(kind, fields):
    return write(Table({0: ("B", kind), 1: Table(fields)}))
