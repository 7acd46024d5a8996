"""Trees of `__vortex_array_metadata__` as lists: nodes in pre-order, their buffers beside them, no recursion."""

import collections
import ctypes

# The node's id with its version, its dtype as a flatbuffer, its rows, its metadata, how many buffers and children are its own.
Node = collections.namedtuple("Node", "id dtype length metadata n_buffers n_children")

CAPSULE = b"vortex_buffer_export"


class BufferExport(ctypes.Structure):
    """What a buffer's capsule points at, version 1."""

    _fields_ = [
        ("version", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("ptr", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("alignment", ctypes.c_size_t),
        ("device_id", ctypes.c_int32),
        ("sync_event", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
    ]


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def export_of(capsule):
    """The capsule's descriptor, borrowed: the capsule stays the owner and must outlive it."""
    return BufferExport.from_address(_get_pointer(capsule, CAPSULE))


def bytes_of(capsule):
    """A copy of the buffer's bytes. The capsule stays usable."""
    export = export_of(capsule)
    if export.version != 1 or export.kind != 0:
        raise ValueError(f"a host buffer of version 1 was expected, got version {export.version}, kind {export.kind}")
    return ctypes.string_at(export.ptr, export.len) if export.len else b""


def flatten(array):
    """(nodes, capsules) of an array, or of the tuple it gave. Both in pre-order: a node's buffers follow its parent's."""
    root = array if isinstance(array, tuple) else array.__vortex_array_metadata__()
    nodes, capsules, waiting = [], [], [root]
    while waiting:
        id, dtype, length, metadata, buffers, children = waiting.pop()
        nodes.append(Node(id, dtype, length, metadata, len(buffers), len(children)))
        capsules.extend(buffers)
        waiting.extend(reversed(children))
    return nodes, capsules


def paths(nodes):
    """Each node's path from the root, such as (0, 2): the root's first child's third."""
    found, open_nodes = [], []
    for node in nodes:
        while open_nodes and open_nodes[-1][1] == open_nodes[-1][2]:
            open_nodes.pop()
        if open_nodes:
            parent = open_nodes[-1]
            path = (*parent[0], parent[1])
            parent[1] += 1
        else:
            path = ()
        found.append(path)
        open_nodes.append([path, 0, node.n_children])
    return found


class Tree:
    """A node as Python holds it: buffers as bytes, children as trees. For making trees and for decoding small ones."""

    def __init__(self, id, dtype, length, metadata=b"", buffers=(), children=()):
        self.id, self.dtype, self.length, self.metadata = id, dtype, length, metadata
        self.buffers, self.children = list(buffers), list(children)

    @classmethod
    def of(cls, array):
        """The tree of an array, its buffers copied."""
        nodes, capsules = flatten(array)
        left, done = len(capsules), []
        for node in reversed(nodes):
            own = capsules[left - node.n_buffers : left]
            left -= node.n_buffers
            children = [done.pop() for _ in range(node.n_children)]
            done.append(cls(node.id, node.dtype, node.length, node.metadata, map(bytes_of, own), children))
        return done.pop()

    def ids(self):
        """The ids in pre-order, in brackets: `vortex.dict[vortex.primitive, vortex.varbin[...]]`."""
        inner = ", ".join(child.ids() for child in self.children)
        return f"{self.id}[{inner}]" if inner else self.id
