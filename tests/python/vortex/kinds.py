"""The table of encodings and their generators, and a function that compresses values to an encoding."""

import functools

import craft
import dtypes
import numpy as np
import pyarrow as pa
import vortex as vx
from tree_slices import slice_tree
from flat import Tree
from values import arrow

# The compressor receives at least this number of rows, because it does not compress smaller arrays.
# Smaller arrays are slices of its results.
ENOUGH = 2048

# Maps the id of an encoding to its generators. A generator receives the number of rows, and yields
# (name, array or tree).
KINDS = {}


def kind(*ids):
    """Registers a generator, which receives the number of rows, and yields (name, array or tree)."""

    def register(generate):
        for id in ids:
            KINDS.setdefault(id, []).append(generate if len(ids) == 1 else functools.partial(generate, id=id))
        return generate

    return register


def compressed(name, id, values, rows, nulls="no null", type=None):
    """Compresses the values. Raises AssertionError if the result does not contain the encoding, because
    vortex-data changed."""
    # The compressor would turn an array of nulls into a constant, so nulls are inserted afterwards.
    nulls_to_compress = "no null" if nulls == "no null" else "some null"
    tree = Tree.of(vx.compress(vx.array(arrow(values(max(rows, ENOUGH)), type, nulls_to_compress))))
    if id not in tree.ids():
        raise AssertionError(f"expected {id}, got {tree.ids()} from the compressor")
    if nulls == "all null":
        tree = all_null(tree)
    # Vortex fails if the tree contains a frame of reference without rows.
    if rows or "fastlanes.for" not in tree.ids():
        yield name, tree if rows >= ENOUGH else slice_tree(tree, 0, rows)


def all_null(tree):
    """Returns the tree with all values null. The values must not be booleans, because the booleans in the
    tree are validities."""
    type = dtypes.read(tree.dtype)
    if dtypes.arrow_type(type) == pa.bool_() and not type.nullable:
        return craft.boolean(np.zeros(tree.length, bool))
    children = [all_null(child) for child in tree.children]
    return Tree(tree.id, tree.dtype, tree.length, tree.metadata, tree.buffers, children)


def encode(encoder, values, *rest):
    """Encodes the values with an encoder of craft.py. Also supports empty values, unlike the encoders."""
    if len(values):
        return encoder(values, *rest)
    rest = [np.ones(1, bool) if isinstance(item, np.ndarray) else item for item in rest]
    return slice_tree(encoder(np.ones(1, values.dtype), *rest), 0, 0)
