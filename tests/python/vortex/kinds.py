"""The table of kinds, and how to get a kind out of the compressor."""

import functools

import craft
import dtypes
import numpy as np
import pyarrow as pa
import vortex as vx
from cut import cut
from flat import Tree
from values import arrow

# Rows that every compressor sees; smaller arrays are cut from that many, as a compressor leaves few rows as they are.
ENOUGH = 2048

# id -> makers: each a generator of (name, array or tree) for a number of rows.
KINDS = {}


def kind(*ids):
    """Registers a maker: a generator of (name, array or tree) for a number of rows."""

    def register(maker):
        for id in ids:
            KINDS.setdefault(id, []).append(maker if len(ids) == 1 else functools.partial(maker, id=id))
        return maker

    return register


def compressed(name, id, values, rows, nulls="no null", type=None):
    """What the compressor makes of the values. Fails if the kind is not in it, as then the wheel has changed its mind."""
    # Of nulls alone it makes a constant: they come into the tree afterwards.
    some = "no null" if nulls == "no null" else "some null"
    tree = Tree.of(vx.compress(vx.array(arrow(values(max(rows, ENOUGH)), type, some))))
    if id not in tree.ids():
        raise AssertionError(f"{id} was expected, the compressor made {tree.ids()}")
    if nulls == "all null":
        tree = all_null(tree)
    # Vortex itself fails on a frame of reference of no rows, wherever in the tree it is.
    if rows or "fastlanes.for" not in tree.ids():
        yield name, tree if rows >= ENOUGH else cut(tree, 0, rows)


def all_null(tree):
    """The same tree of values that are no truth values, with nulls alone: what is a truth value in it says what is valid."""
    type = dtypes.read(tree.dtype)
    if dtypes.arrow_type(type) == pa.bool_() and not type.nullable:
        return craft.boolean(np.zeros(tree.length, bool))
    children = [all_null(child) for child in tree.children]
    return Tree(tree.id, tree.dtype, tree.length, tree.metadata, tree.buffers, children)


def some(maker, values, *rest):
    """A crafted tree; of no rows too."""
    if len(values):
        return maker(values, *rest)
    rest = [np.ones(1, bool) if isinstance(item, np.ndarray) else item for item in rest]
    return cut(maker(np.ones(1, values.dtype), *rest), 0, 0)
