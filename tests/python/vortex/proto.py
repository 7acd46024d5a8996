"""Reads and writes the part of protobuf that Vortex's metadata uses."""

import struct

# The field numbers of ScalarValue.
NULL, BOOL, INT, UINT, F32, F64, STRING, BYTES, LIST, F16 = range(1, 11)


def fields(data):
    """Returns [(field number, value)]: int for a varint or the bits of a fixed width, bytes for a
    length-delimited field."""
    pairs, at = [], 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            value, at = data[at : at + size], at + size
            if key & 7 != 2:
                value = int.from_bytes(value, "little")
        pairs.append((key >> 3, value))
    return pairs


def message(data):
    """Returns {field number: value}, with the last value of a repeated field."""
    return dict(fields(data))


def repeated(data, number):
    """Returns the values of a repeated uint32 field, which may be packed."""
    values = []
    for field, value in fields(data):
        if field == number:
            values += [value] if isinstance(value, int) else varints(value)
    return values


def varints(data):
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            value = shift = 0
    return values


def scalar(data):
    """Returns (field number, value) of a ScalarValue. The value of null is None."""
    [(kind, value)] = fields(data)
    if kind == NULL:
        return kind, None
    if kind == INT:
        return kind, (value >> 1) ^ -(value & 1)
    if kind in (F32, F64):
        code = "<f" if kind == F32 else "<d"
        return kind, struct.unpack(code, value.to_bytes(struct.calcsize(code), "little"))[0]
    if kind == F16:
        return kind, struct.unpack("<e", value.to_bytes(2, "little"))[0]
    if kind == LIST:
        return kind, [scalar(item) for _, item in fields(value)]
    return kind, value


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def write(pairs):
    """Returns the bytes of {field number: int or bytes}. Omits None and, as proto3 does, zeros."""
    out = b""
    for number, value in pairs.items():
        if isinstance(value, bytes):
            out += varint(number << 3 | 2) + varint(len(value)) + value
        elif value is not None and (value or isinstance(value, Present)):
            out += varint(number << 3) + varint(value)
    return out


class Present(int):
    """The value of an `optional` field. It is written even if it is 0."""


def write_int(value):
    """Returns the ScalarValue of a signed integer."""
    return bytes([INT << 3]) + varint((value << 1) ^ (value >> 63) if value >= 0 else (-value << 1) - 1)


def write_uint(value):
    return bytes([UINT << 3]) + varint(value)
