"""Builds Vortex arrays from trees through Vortex's IPC messages, for encodings that the wheel's Python API
cannot create."""

import struct

from flatbuffer import Table, Vector, write
from vortex._lib.serde import decode_ipc_array

ARRAY_MESSAGE, DTYPE_MESSAGE = 1, 3


def _message(kind, header, body):
    """Returns an IPC message: the length of the flatbuffer, the flatbuffer, the body."""
    message = write(Table({1: ("B", kind), 2: Table(header), 3: ("Q", len(body))}))
    message += bytes(-len(message) % 8)
    return struct.pack("<I", len(message)) + message + body


def _alignment_exponent(tree, data):
    """Returns the binary logarithm of the elements' alignment in bytes. vortex-data panics if a slice violates
    a buffer's declared alignment."""
    if tree.id == "vortex.primitive" and tree.length:
        return (len(data) // tree.length).bit_length() - 1
    if tree.id in ("vortex.primitive", "fastlanes.bitpacked") or (
        tree.id in ("vortex.fsst", "vortex.onpair") and data is tree.buffers[0]
    ):
        return 3
    if tree.id == "vortex.decimal" or (tree.id == "vortex.varbinview" and data is tree.buffers[-1]):
        return 4
    return 0


def _array_body(tree):
    """Returns the body of the array message, and the list of encoding ids to which the nodes in the body refer
    by index."""
    ids, buffers, body = [], [], bytearray()

    def node(tree):
        if tree.id not in ids:
            ids.append(tree.id)
        numbers = []
        for data in tree.buffers:
            exponent = _alignment_exponent(tree, data)
            padding = -len(body) % 64
            body.extend(bytes(padding) + data)
            numbers.append(struct.pack("<H", len(buffers)))
            buffers.append(struct.pack("<HBBI", padding, exponent, 0, len(data)))
        fields = {0: ("H", ids.index(tree.id)), 1: tree.metadata, 2: Vector([node(child) for child in tree.children])}
        return Table({**fields, 3: Vector(numbers, size=2)})

    flat = write(Table({0: node(tree), 1: Vector(buffers, size=8)}))
    flat += bytes(-len(flat) % 8)
    body.extend(bytes(-len(body) % 64))
    return bytes(body) + flat + struct.pack("<I", len(flat)), ids


def build(tree):
    """Returns the Vortex array of a tree. The wheel checks the tree, and derives the dtypes and lengths of
    children from those of the root."""
    body, ids = _array_body(tree)
    array = _message(ARRAY_MESSAGE, {0: ("I", tree.length), 1: Vector(ids)}, body)
    return decode_ipc_array(array, _message(DTYPE_MESSAGE, {}, tree.dtype))
