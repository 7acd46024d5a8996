"""Slices trees without decoding them. The slices have the same offsets as slices by Vortex. Vortex's Python
API creates such slices only as lazy nodes."""

import dtypes
import numpy as np
import proto
from flat import Tree
from proto import Present
from reference import BLOCK, numbers

SLICERS = {}


def slice_tree(tree, start, stop):
    """Returns the rows start..stop of a tree."""
    part = Tree(tree.id, tree.dtype, stop - start, tree.metadata, tree.buffers, tree.children)
    if tree.id not in SLICERS:
        raise NotImplementedError(tree.id)
    SLICERS[tree.id](part, start, stop)
    return part


def encoding(*ids):
    def register(function):
        SLICERS.update(dict.fromkeys(ids, function))
        return function

    return register


@encoding("vortex.null", "vortex.constant")
def nothing(tree, start, stop):
    pass


@encoding("vortex.struct", "vortex.ext", "vortex.masked", "vortex.zigzag", "vortex.datetimeparts", "vortex.map")
@encoding("fastlanes.for", "vortex.decimal_byte_parts", "vortex.decimal_byte_parts.v2")
def children_only(tree, start, stop):
    tree.children = [slice_tree(child, start, stop) for child in tree.children]


@encoding("vortex.primitive", "vortex.bytebool", "vortex.decimal", "vortex.varbinview")
def last_buffer(tree, start, stop):
    *data, values = tree.buffers
    width = len(values) // max(tree_rows(tree, values), 1)
    tree.buffers = [*data, values[start * width : stop * width]]
    children_only(tree, start, stop)


def tree_rows(tree, values):
    """Returns the number of rows of the whole tree, which is the buffer's size divided by the width of the
    type."""
    if tree.id == "vortex.bytebool":
        return len(values)
    if tree.id == "vortex.varbinview":
        return len(values) // 16
    if tree.id == "vortex.decimal":
        return len(values) >> proto.message(tree.metadata).get(1, 0)
    return len(values) // np.dtype(dtypes.NUMPY[dtypes.read(tree.dtype).of[0]]).itemsize


@encoding("vortex.bool")
def bits(tree, start, stop):
    skip = proto.message(tree.metadata).get(1, 0) + start
    tree.metadata = proto.write({1: skip % 8})
    tree.buffers = [tree.buffers[0][skip // 8 : (skip + stop - start + 7) // 8]]
    children_only(tree, start, stop)


def slice_patches(message, children, start, stop):
    """Returns (metadata, children of the patches, later children) of the patches of the rows start..stop."""
    if message is None:
        return None, [], children
    meta = proto.message(message)
    offset = meta.get(2, 0)
    first, last = np.searchsorted(numbers(children[0]).astype("i8"), [offset + start, offset + stop]).tolist()
    patches = [slice_tree(child, first, last) for child in children[:2]]
    chunked = 5 in meta
    others = children[2 + chunked :]
    if first == last:
        return None, [], others
    metadata = {1: last - first, 2: offset + start, 3: meta.get(3, 0)}
    if chunked:
        begins = (offset % BLOCK + start) // BLOCK
        ends = -(-(offset % BLOCK + stop) // BLOCK)
        starts = numbers(children[2]).astype("i8")
        skipped = int(first - max(starts[begins] - starts[0] - meta.get(6, 0), 0))
        patches.append(slice_tree(children[2], begins, ends))
        before = meta.get(6, 0) if begins == 0 else 0
        metadata |= {4: Present(ends - begins), 5: Present(meta[5]), 6: Present(before + skipped)}
    return proto.write(metadata), patches, others


@encoding("fastlanes.bitpacked")
def bitpacked(tree, start, stop):
    meta = proto.message(tree.metadata)
    width, skip = meta.get(1, 0), meta.get(2, 0) + start
    message, patches, others = slice_patches(meta.get(3), tree.children, start, stop)
    tree.metadata = proto.write({1: width, 2: skip % BLOCK, 3: message})
    first = skip // BLOCK
    last = first + -(-(skip % BLOCK + stop - start) // BLOCK)
    tree.buffers = [tree.buffers[0][128 * width * first : 128 * width * last]]
    tree.children = patches + [slice_tree(child, start, stop) for child in others]


@encoding("fastlanes.bitpacked.v2")
def bitpacked_in_widths(tree, start, stop):
    meta = proto.message(tree.metadata)
    *children, bounds = tree.children
    message, patches, others = slice_patches(meta.get(3), children, start, stop)
    first, last, skip = blocks(meta.get(1, 0), start, stop)
    at = numbers(bounds).astype("i8") - int(numbers(bounds)[0])
    tree.metadata = proto.write({1: skip, 2: meta.get(2, 0), 3: message})
    tree.buffers = [tree.buffers[0][at[first] : at[last]]]
    # The bounds stay relative to the start of the whole tree.
    tree.children = (
        patches + [slice_tree(child, start, stop) for child in others] + [slice_tree(bounds, first, last + 1)]
    )


@encoding("fastlanes.for.v2")
def frames_of_reference(tree, start, stop):
    first, last, skip = blocks(proto.message(tree.metadata).get(1, 0), start, stop)
    tree.metadata = proto.write({1: skip})
    tree.children = [slice_tree(tree.children[0], start, stop), slice_tree(tree.children[1], first, last)]


@encoding("vortex.alp")
def alp(tree, start, stop):
    meta = proto.message(tree.metadata)
    message, patches, _ = slice_patches(meta.get(3), tree.children[1:], start, stop)
    tree.metadata = proto.write({1: meta.get(1, 0), 2: meta.get(2, 0), 3: message})
    tree.children = [slice_tree(tree.children[0], start, stop), *patches]


@encoding("vortex.alprd")
def alp_rd(tree, start, stop):
    meta = proto.message(tree.metadata)
    message, patches, _ = slice_patches(meta.get(5), tree.children[2:], start, stop)
    tree.metadata = proto.write({**meta, 4: meta.get(4, 0), 5: message})
    tree.children = [slice_tree(child, start, stop) for child in tree.children[:2]] + patches


@encoding("vortex.sparse")
def sparse(tree, start, stop):
    message, patches, _ = slice_patches(proto.message(tree.metadata)[1], tree.children, start, stop)
    if message is None:
        tree.id, tree.metadata, tree.children = "vortex.constant", b"", []
    else:
        tree.metadata, tree.children = proto.write({1: message}), patches


@encoding("vortex.runend")
def run_end(tree, start, stop):
    meta = proto.message(tree.metadata)
    offset = meta.get(3, 0) + start
    ends = numbers(tree.children[0])
    first = int(np.searchsorted(ends, offset, side="right"))
    last = int(np.searchsorted(ends, offset + stop - start, side="left")) + 1 if stop > start else first
    tree.children = [slice_tree(child, first, min(last, len(ends))) for child in tree.children]
    tree.metadata = proto.write({1: meta.get(1, 0), 2: tree.children[0].length, 3: offset if last > first else 0})


@encoding("vortex.dict")
def dictionary(tree, start, stop):
    tree.children = [slice_tree(tree.children[0], start, stop), tree.children[1]]


@encoding("fastlanes.delta")
def delta(tree, start, stop):
    first, last, skip = blocks(proto.message(tree.metadata).get(2, 0), start, stop)
    bases, deltas, *valid = tree.children
    lanes = bases.length * BLOCK // max(deltas.length, 1)
    tree.metadata = proto.write({1: (last - first) * BLOCK, 2: skip})
    tree.children = [slice_tree(bases, first * lanes, last * lanes), slice_tree(deltas, first * BLOCK, last * BLOCK)]
    tree.children += [slice_tree(child, start, stop) for child in valid]


@encoding("fastlanes.rle")
def run_length(tree, start, stop):
    meta = proto.message(tree.metadata)
    first, last, skip = blocks(meta.get(6, 0), start, stop)
    values, codes, starts = tree.children
    at = [*(numbers(starts).astype("i8") - numbers(starts)[:1]).tolist(), values.length]
    values, codes, starts = (
        slice_tree(values, at[first], at[last]),
        slice_tree(codes, first * BLOCK, last * BLOCK),
        slice_tree(starts, first, last),
    )
    tree.children = [values, codes, starts]
    tree.metadata = proto.write({**meta, 1: values.length, 2: codes.length, 4: starts.length, 6: skip})


def blocks(offset, start, stop):
    """Returns (first block, block after the last, rows to skip in the first) of the rows start..stop of a
    tree with an offset."""
    first = (offset + start) // BLOCK
    return first, max(-(-(offset + stop) // BLOCK), first), (offset + start) % BLOCK


@encoding("vortex.sequence")
def sequence(tree, start, stop):
    meta = proto.message(tree.metadata)
    base, step = (proto.scalar(meta[field]) for field in (1, 2))
    value = base[1] + start * step[1]
    tree.metadata = proto.write({1: (proto.write_int if base[0] == proto.INT else proto.write_uint)(value), 2: meta[2]})


def with_ends(tree, start, stop, ends, rows):
    """Slices children. The child at index `ends` has one row more than the array. The children in `rows` have
    the same number of rows as the array."""
    for i in rows:
        tree.children[i] = slice_tree(tree.children[i], start, stop)
    tree.children[ends] = slice_tree(tree.children[ends], start, stop + 1)


@encoding("vortex.varbin")
def var_bin(tree, start, stop):
    tree.children = list(tree.children)
    with_ends(tree, start, stop, 0, range(1, len(tree.children)))


@encoding("vortex.fsst")
def fsst(tree, start, stop):
    tree.children = list(tree.children)
    with_ends(tree, start, stop, 1, [0, *range(2, len(tree.children))])


@encoding("vortex.onpair")
def on_pair(tree, start, stop):
    tree.children = list(tree.children)
    with_ends(tree, start, stop, 2, range(3, len(tree.children)))


@encoding("vortex.list")
def list_of(tree, start, stop):
    tree.children = list(tree.children)
    with_ends(tree, start, stop, 1, range(2, len(tree.children)))


@encoding("vortex.listview")
def list_view(tree, start, stop):
    tree.children = tree.children[:1] + [slice_tree(child, start, stop) for child in tree.children[1:]]


@encoding("vortex.fixed_size_list")
def fixed_size_list(tree, start, stop):
    size = dtypes.read(tree.dtype).of[0]
    inner = slice_tree(tree.children[0], start * size, stop * size)
    tree.children = [inner] + [slice_tree(child, start, stop) for child in tree.children[1:]]


@encoding("vortex.chunked")
def chunked(tree, start, stop):
    ends = numbers(tree.children[0]).astype("i8").tolist()
    chunks = []
    for chunk, a, b in zip(tree.children[1:], ends, ends[1:]):
        if max(a, start) < min(b, stop):
            chunks.append(slice_tree(chunk, max(a, start) - a, min(b, stop) - a))
    lengths = np.cumsum([0, *(chunk.length for chunk in chunks)]).astype("u8")
    offsets = Tree("vortex.primitive", tree.children[0].dtype, len(lengths), b"", [lengths.tobytes()])
    tree.children = [offsets, *chunks]
