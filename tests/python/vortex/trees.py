"""Arrays of every kind that vortex-data writes, from tables of every type and of every awkward size.

`arrays(kind)` yields (name, vortex array). What the wheel's Python API cannot make goes through Vortex's IPC message
(`BY_MESSAGE` says why), so all of these are arrays of Vortex's own, and `array.to_arrow_array()` is the truth.
"""

import number_kinds  # noqa: F401  registers makers, as the next two do
import other_kinds  # noqa: F401
import plain_kinds  # noqa: F401
import vortex as vx
from cut import cut
from flat import Node, Tree, flatten, paths
from ipc import build
from kinds import KINDS

SIZES = (0, 1, 1023, 1024, 1025, 100_003)

# Kinds that no call of the wheel's Python API gives, and shapes of kinds that it gives otherwise only as lazy nodes.
BY_MESSAGE = {
    "vortex.bytebool": "no constructor, and the compressor never chooses it",
    "fastlanes.delta": "the compressor's default schemes leave it out",
    "fastlanes.rle": "the compressor's default schemes leave it out",
    "fastlanes.bitpacked.v2": "an edition that is not the default",
    "fastlanes.for.v2": "an edition that is not the default",
    "vortex.decimal_byte_parts.v2": "an edition that is not the default",
    "vortex.fsst (two buffers)": "the layout of older versions, which is still read",
    "sliced": "a slice of an array with patches, run ends or chunks is a lazy node that does not serialise",
}
# Kinds that vortex-data 0.91 knows and that neither way makes here.
NOT_MADE = {
    "vortex.patched": "experimental; the wheel does not know the id",
    "vortex.union": "Arrow's unions are refused",
    "vortex.variant": "no Arrow type",
    "vortex.pco": "written into files only, by the compact strategy",
    "vortex.zstd": "written into files only, by the compact strategy",
}


def arrays(id, sizes=SIZES):
    """(name, vortex array) of a kind, of each size: whole, and cut out of the middle."""
    for maker in KINDS[id]:
        for rows in sizes:
            for name, made in maker(rows):
                tree = made if isinstance(made, Tree) else None
                yield f"{id}, {name}, {rows} rows", build(tree) if tree else made
                if rows > 2:
                    yield f"{id}, {name}, {rows} rows, sliced", sliced(tree or made, rows // 3 + 1, rows - rows // 7)


def sliced(made, start, stop):
    """A slice that stays encoded: Vortex's own where it is one, else a message."""
    if not isinstance(made, Tree):
        part = made.slice(start, stop)
        try:
            part.__vortex_array_metadata__()
            return part
        except RuntimeError:
            made = Tree.of(made)
    return build(cut(made, start, stop))


def all_arrays(sizes=SIZES):
    for id in KINDS:
        yield from arrays(id, sizes)


def of_table(table):
    """(name, vortex array) of a table's columns: as they are, compressed, and a part of each that stays encoded."""
    for column in table.column_names:
        plain = vx.array(table[column].combine_chunks())
        tree = Tree.of(vx.compress(plain))
        yield f"{column}, plain", plain
        yield f"{column}, compressed as {tree.ids()}", build(tree)
        yield (
            f"{column}, compressed, sliced",
            build(cut(tree, table.num_rows // 3 + 1, table.num_rows - table.num_rows // 7)),
        )


__all__ = ["BY_MESSAGE", "KINDS", "NOT_MADE", "Node", "all_arrays", "arrays", "flatten", "of_table", "paths", "sliced"]
