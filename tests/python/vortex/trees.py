"""Arrays of every encoding that vortex-data writes, from tables of every type and of edge-case sizes.

`arrays(kind)` yields (name, vortex array). Arrays that the wheel's Python API cannot create are built through
Vortex's IPC messages (`THROUGH_IPC` has the reasons). So all arrays are objects of Vortex, and
`array.to_arrow_array()` returns the expected values.
"""

import number_kinds  # noqa: F401  registers generators, as the next two do
import other_kinds  # noqa: F401
import plain_kinds  # noqa: F401
import vortex as vx
from tree_slices import slice_tree
from flat import Node, Tree, flatten, paths
from ipc import build
from kinds import KINDS

SIZES = (0, 1, 1023, 1024, 1025, 100_003)

# Encodings that vortex-data's Python API does not create, and layouts that it creates only as lazy
# nodes.
THROUGH_IPC = {
    "vortex.bytebool": "no constructor, and the compressor never chooses it",
    "fastlanes.delta": "the compressor's default schemes leave it out",
    "fastlanes.rle": "the compressor's default schemes leave it out",
    "fastlanes.bitpacked.v2": "an edition that is not the default",
    "fastlanes.for.v2": "an edition that is not the default",
    "vortex.decimal_byte_parts.v2": "an edition that is not the default",
    "vortex.fsst (two buffers)": "the layout of older versions, which is still read",
    "sliced": "a slice of an array with patches, run ends or chunks is a lazy node that does not serialise",
}
# Encodings of vortex-data 0.91 that the tests do not cover.
NOT_COVERED = {
    "vortex.patched": "experimental; the wheel does not know the id",
    "vortex.union": "Vortex rejects Arrow's unions",
    "vortex.variant": "no Arrow type",
    "vortex.pco": "written into files only, by the compact strategy",
    "vortex.zstd": "written into files only, by the compact strategy",
}


def arrays(id, sizes=SIZES):
    """Yields (name, vortex array) of an encoding for each size. Each array is yielded whole and as a slice
    from its middle."""
    for generate in KINDS[id]:
        for rows in sizes:
            for name, array_or_tree in generate(rows):
                tree = array_or_tree if isinstance(array_or_tree, Tree) else None
                yield f"{id}, {name}, {rows} rows", build(tree) if tree else array_or_tree
                if rows > 2:
                    yield (
                        f"{id}, {name}, {rows} rows, sliced",
                        sliced(tree or array_or_tree, rows // 3 + 1, rows - rows // 7),
                    )


def sliced(array_or_tree, start, stop):
    """Returns an encoded slice. If Vortex's own slice is a lazy node, the slice is created by
    tree_slices.py."""
    if not isinstance(array_or_tree, Tree):
        part = array_or_tree.slice(start, stop)
        try:
            part.__vortex_array_metadata__()
            return part
        except RuntimeError:
            array_or_tree = Tree.of(array_or_tree)
    return build(slice_tree(array_or_tree, start, stop))


def all_arrays(sizes=SIZES):
    for id in KINDS:
        yield from arrays(id, sizes)


def of_table(table):
    """Yields (name, vortex array) of a table's columns. Each column is yielded uncompressed, compressed, and
    as an encoded slice of the compressed array."""
    for column in table.column_names:
        plain = vx.array(table[column].combine_chunks())
        tree = Tree.of(vx.compress(plain))
        yield f"{column}, plain", plain
        yield f"{column}, compressed as {tree.ids()}", build(tree)
        yield (
            f"{column}, compressed, sliced",
            build(slice_tree(tree, table.num_rows // 3 + 1, table.num_rows - table.num_rows // 7)),
        )


__all__ = [
    "THROUGH_IPC",
    "KINDS",
    "NOT_COVERED",
    "Node",
    "all_arrays",
    "arrays",
    "flatten",
    "of_table",
    "paths",
    "sliced",
]
