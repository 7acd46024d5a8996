"""Trees given out the way Vortex gives them: nested tuples whose buffers are capsules. So a tree can be made by hand, well or ill."""

import ctypes

import numpy as np
import pyarrow as pa
from flat import CAPSULE, BufferExport

_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# The capsule is dying when its destructor asks, so it travels as an address and never as an object.
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)

# What is given out and not yet released: address of the descriptor -> (descriptor, memory).
LIVE = {}


@_RELEASE
def _release(address):
    del LIVE[address]


@_DESTRUCTOR
def _destroy(capsule):
    _release(_pointer_of(capsule, CAPSULE))


def capsule_of(data, alignment=64, **lies):
    """A capsule that owns a copy of the bytes, aligned. Keywords replace the descriptor's fields."""
    memory = (ctypes.c_char * (len(data) + alignment))()
    start = ctypes.addressof(memory)
    start += -start % alignment
    ctypes.memmove(start, data, len(data))
    export = BufferExport(1, 0, start if data else None, len(data), alignment, -1, None, None)
    export.release = ctypes.cast(_release, ctypes.c_void_p)
    for field, value in lies.items():
        setattr(export, field, value)
    LIVE[ctypes.addressof(export)] = export, memory
    return _new(ctypes.addressof(export), CAPSULE, ctypes.cast(_destroy, ctypes.c_void_p))


def on_the_device_of(session):
    """Makes the capsule of a buffer that lies where the session's columns do: it is one of a column of these bytes."""

    def capsule_of_column(data):
        column = session.from_arrow(pa.array(np.frombuffer(data, "u1")))
        [capsule] = column.__vortex_array_metadata__()[4]
        return capsule

    return capsule_of_column


def tuple_of(tree, capsule_of=capsule_of):
    """The nested tuples of a tree, without recursion, so that a tree can be deeper than Python's stack."""
    waiting, done = [(tree, False)], []
    while waiting:
        node, ready = waiting.pop()
        if not ready:
            waiting.append((node, True))
            waiting.extend((child, False) for child in node.children)
            continue
        children = [done.pop() for _ in node.children]
        buffers = [capsule_of(data) for data in node.buffers]
        done.append((node.id, node.dtype, node.length, node.metadata, buffers, children))
    return done.pop()


class Exporter:
    """An object that looks like a Vortex array to a consumer of the protocol."""

    def __init__(self, tree, capsule_of=capsule_of):
        self.tree, self.capsule_of = tree, capsule_of

    def __len__(self):
        return self.tree.length

    def __vortex_array_metadata__(self):
        return tuple_of(self.tree, self.capsule_of)
