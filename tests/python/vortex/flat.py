"""Converts trees of `__vortex_array_metadata__` to lists of nodes and buffers in pre-order, and to `Tree`. The
functions are not recursive."""

import collections
import ctypes

# A node has the id with its version, the dtype as a flatbuffer, the number of rows, the metadata,
# and the number of its own buffers and of its own children.
Node = collections.namedtuple("Node", "id dtype length metadata n_buffers n_children")

CAPSULE = b"vortex_buffer_export"


class BufferExport(ctypes.Structure):
    """The struct in the capsule of a buffer, version 1."""

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
    """Returns the descriptor in a capsule. The capsule owns the descriptor, and must outlive its use."""
    return BufferExport.from_address(_get_pointer(capsule, CAPSULE))


def bytes_of(capsule):
    """Returns a copy of the buffer's bytes. The capsule is not consumed."""
    export = export_of(capsule)
    if export.version != 1 or export.kind != 0:
        raise ValueError(f"expected a host buffer of version 1, got version {export.version}, kind {export.kind}")
    return ctypes.string_at(export.ptr, export.len) if export.len else b""


def flatten(array):
    """Returns (nodes, capsules) of an array, or of its exported tuple, both in pre-order."""
    root = array if isinstance(array, tuple) else array.__vortex_array_metadata__()
    nodes, capsules, pending = [], [], [root]
    while pending:
        id, dtype, length, metadata, buffers, children = pending.pop()
        nodes.append(Node(id, dtype, length, metadata, len(buffers), len(children)))
        capsules.extend(buffers)
        pending.extend(reversed(children))
    return nodes, capsules


def paths(nodes):
    """Returns the path of each node from the root: (0, 2) is the third child of the root's first child."""
    all_paths, open_nodes = [], []
    for node in nodes:
        while open_nodes and open_nodes[-1][1] == open_nodes[-1][2]:
            open_nodes.pop()
        if open_nodes:
            parent = open_nodes[-1]
            path = (*parent[0], parent[1])
            parent[1] += 1
        else:
            path = ()
        all_paths.append(path)
        open_nodes.append([path, 0, node.n_children])
    return all_paths


class Tree:
    """A node with buffers as bytes, and children as trees."""

    def __init__(self, id, dtype, length, metadata=b"", buffers=(), children=()):
        self.id, self.dtype, self.length, self.metadata = id, dtype, length, metadata
        self.buffers, self.children = list(buffers), list(children)

    @classmethod
    def of(cls, array):
        """Returns the tree of an array, with copies of its buffers."""
        nodes, capsules = flatten(array)
        end, trees = len(capsules), []
        for node in reversed(nodes):
            buffers = capsules[end - node.n_buffers : end]
            end -= node.n_buffers
            children = [trees.pop() for _ in range(node.n_children)]
            trees.append(cls(node.id, node.dtype, node.length, node.metadata, map(bytes_of, buffers), children))
        return trees.pop()

    def ids(self):
        """Returns the ids of all nodes: `vortex.dict[vortex.primitive, vortex.varbin[...]]`."""
        inner = ", ".join(child.ids() for child in self.children)
        return f"{self.id}[{inner}]" if inner else self.id
