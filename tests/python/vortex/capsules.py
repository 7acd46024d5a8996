"""Exports trees as Vortex does: as nested tuples that contain capsules with buffers. The trees may be
malformed."""

import ctypes

import numpy as np
import pyarrow as pa
from flat import CAPSULE, BufferExport

_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# A capsule must not be referenced in its destructor, so the destructor receives it as an address.
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)

# Exported buffers that are not released yet: address of the descriptor -> (descriptor, memory).
LIVE = {}


@_RELEASE
def _release(address):
    del LIVE[address]


@_DESTRUCTOR
def _destroy(capsule):
    _release(_pointer_of(capsule, CAPSULE))


def capsule_of(data, alignment=64, **fields):
    """Returns a capsule that owns an aligned copy of the bytes. `fields` replace fields of the descriptor."""
    memory = (ctypes.c_char * (len(data) + alignment))()
    start = ctypes.addressof(memory)
    start += -start % alignment
    ctypes.memmove(start, data, len(data))
    export = BufferExport(1, 0, start if data else None, len(data), alignment, -1, None, None)
    export.release = ctypes.cast(_release, ctypes.c_void_p)
    for field, value in fields.items():
        setattr(export, field, value)
    LIVE[ctypes.addressof(export)] = export, memory
    return _new(ctypes.addressof(export), CAPSULE, ctypes.cast(_destroy, ctypes.c_void_p))


def on_the_device_of(session):
    """Returns a function that creates the capsule of a buffer on the session's device."""

    def capsule_of_column(data):
        column = session.from_arrow(pa.array(np.frombuffer(data, "u1")))
        [capsule] = column.__vortex_array_metadata__()[4]
        return capsule

    return capsule_of_column


def tuple_of(tree, capsule_of=capsule_of):
    """Returns the nested tuples of a tree. Not recursive, because trees may be deeper than Python's stack."""
    pending, tuples = [(tree, False)], []
    while pending:
        node, ready = pending.pop()
        if not ready:
            pending.append((node, True))
            pending.extend((child, False) for child in node.children)
            continue
        children = [tuples.pop() for _ in node.children]
        buffers = [capsule_of(data) for data in node.buffers]
        tuples.append((node.id, node.dtype, node.length, node.metadata, buffers, children))
    return tuples.pop()


class Exporter:
    """An object that implements the protocol of a Vortex array."""

    def __init__(self, tree, capsule_of=capsule_of):
        self.tree, self.capsule_of = tree, capsule_of

    def __len__(self):
        return self.tree.length

    def __vortex_array_metadata__(self):
        return tuple_of(self.tree, self.capsule_of)
