"""Writes flatbuffers, without a schema compiler."""

import struct


class Table:
    """A flatbuffer table: {slot: value}. A value is a Table, bytes (a byte vector), a Vector, or (struct
    code, number)."""

    def __init__(self, fields):
        self.fields = fields


class Vector:
    """A vector of tables and strings (as references), or of raw items of `size` bytes, aligned to `align`
    bytes."""

    def __init__(self, items, size=None, align=4):
        self.items, self.size, self.align = items, size, align


def write(root):
    """Returns the bytes of a flatbuffer. Parents precede their children, because a reference can only point
    forwards."""
    out = bytearray(4)
    pending = [(0, root)]
    while pending:
        at, value = pending.pop()
        position, references = _append(out, value)
        struct.pack_into("<I", out, at, position - at)
        pending.extend(references)
    return bytes(out)


def _pad(out, align, ahead=0):
    out.extend(bytes(-(len(out) + ahead) % align))


def _append(out, value):
    """Writes one object. Returns its position, and the references that must still be set."""
    if isinstance(value, Table):
        return _append_table(out, value.fields)
    if isinstance(value, str):
        text = value.encode()
        _pad(out, 4)
        out.extend(struct.pack("<I", len(text)) + text + b"\0")
        return len(out) - len(text) - 5, []
    if isinstance(value, bytes):
        value = Vector([value[i : i + 1] for i in range(len(value))], size=1)
    _pad(out, max(value.align, 4), 4)
    position = len(out)
    out.extend(struct.pack("<I", len(value.items)))
    if value.size is None:
        references = [(len(out) + 4 * i, item) for i, item in enumerate(value.items)]
        out.extend(bytes(4 * len(value.items)))
        return position, references
    out.extend(b"".join(value.items))
    return position, []


def _append_table(out, fields):
    slots = max(fields, default=-1) + 1
    sizes = {slot: struct.calcsize("<" + value[0]) if isinstance(value, tuple) else 4 for slot, value in fields.items()}
    offsets, end = {}, 4
    for slot in sorted(fields, key=lambda slot: -sizes[slot]):
        end += -end % sizes[slot]
        offsets[slot] = end
        end += sizes[slot]
    _pad(out, 2)
    vtable = len(out)
    out.extend(struct.pack(f"<{slots + 2}H", 4 + 2 * slots, end, *(offsets.get(slot, 0) for slot in range(slots))))
    _pad(out, 8)
    table = len(out)
    out.extend(struct.pack("<i", table - vtable) + bytes(end - 4))
    references = []
    for slot, value in fields.items():
        if isinstance(value, tuple):
            struct.pack_into("<" + value[0], out, table + offsets[slot], value[1])
        else:
            references.append((table + offsets[slot], value))
    return table, references
