"""Encoders in numpy, for encodings and layouts that vortex-data's Python API creates rarely or not at all."""

import dtypes
import numpy as np
import proto
from flat import Tree
from proto import Present
from reference import BLOCK, FL


def ptype_of(kind):
    return dtypes.NUMPY.index(np.dtype(kind).str[1:])


def boolean(values):
    """Returns a tree of booleans without nulls, which can be used as a validity."""
    data = np.packbits(np.asarray(values, bool), bitorder="little").tobytes()
    return Tree("vortex.bool", dtypes.boolean(), len(values), b"", [data])


def validity(valid):
    return [] if valid is None else [boolean(valid)]


def primitive(values, valid=None):
    dtype = dtypes.primitive(ptype_of(values.dtype), valid is not None)
    return Tree("vortex.primitive", dtype, len(values), b"", [values.tobytes()], validity(valid))


def byte_bool(values, valid=None):
    data = np.asarray(values, "u1").tobytes()
    return Tree("vortex.bytebool", dtypes.boolean(valid is not None), len(values), b"", [data], validity(valid))


def masked(values, valid):
    dtype = dtypes.primitive(ptype_of(values.dtype), True)
    return Tree("vortex.masked", dtype, len(values), b"", [], [primitive(values), boolean(valid)])


def in_blocks(values):
    """Returns the values as a matrix with rows of 1024 values. The last row is padded with the last value."""
    missing = -len(values) % BLOCK
    return np.append(values, np.repeat(values[-1:], missing)).reshape(-1, BLOCK)


def pack(values, width):
    """Packs blocks of unsigned values as FastLanes does. Drops the bits that exceed the width."""
    unsigned = values.dtype
    size = 8 * unsigned.itemsize
    lanes = BLOCK // size
    out = np.zeros((len(values), width, lanes), unsigned)
    keep = unsigned.type((1 << width) - 1)
    for row in range(size if width else 0):
        word, shift = divmod(row * width, size)
        first = FL[row // 8] * 16 + row % 8 * 128
        value = values[:, first : first + lanes] & keep
        out[:, word] |= value << unsigned.type(shift)
        if shift + width > size:
            out[:, word + 1] |= value >> unsigned.type(size - shift)
    return out.tobytes()


def patches(values, positions, chunks=True, kind="u4"):
    """Returns (metadata, children) of patches for the values at which the mask `positions` is true."""
    positions = np.flatnonzero(positions)
    if not len(positions):
        return None, []
    children = [primitive(positions.astype(kind)), primitive(values[positions])]
    meta = {1: len(positions), 3: ptype_of(kind)}
    if chunks:
        starts = np.searchsorted(positions, np.arange(0, len(values), BLOCK)).astype("u4")
        children.append(primitive(starts))
        meta |= {4: Present(len(starts)), 5: Present(ptype_of("u4")), 6: Present(0)}
    return proto.write(meta), children


def bitpacked(values, width, valid=None, chunks=True):
    """Packs integers to `width` bits, with patches for larger values."""
    unsigned = values.view(f"u{values.itemsize}")
    is_patched = (
        unsigned >> unsigned.dtype.type(width) != 0 if width < 8 * values.itemsize else np.zeros(len(values), bool)
    )
    message, children = patches(values, is_patched, chunks)
    if valid is not None and children:
        children[1] = primitive(values[is_patched], np.ones(is_patched.sum(), bool))
    dtype = dtypes.primitive(ptype_of(values.dtype), valid is not None)
    meta = proto.write({1: width, 3: message})
    return Tree(
        "fastlanes.bitpacked", dtype, len(values), meta, [pack(in_blocks(unsigned), width)], children + validity(valid)
    )


def bitpacked_in_widths(values, widths, valid=None, chunks=True):
    """Packs integers in blocks of 1024. The blocks use the given widths in turn."""
    unsigned = in_blocks(values.view(f"u{values.itemsize}"))
    widths = np.array([widths[i % len(widths)] for i in range(len(unsigned))])
    top = 8 * values.itemsize
    maxima = np.repeat(np.array([(1 << int(width)) - 1 for width in widths], "u8"), BLOCK)[: len(values)]
    is_patched = unsigned.reshape(-1)[: len(values)].astype("u8") > maxima
    message, children = patches(values, is_patched, chunks)
    if valid is not None and children:
        children[1] = primitive(values[is_patched], np.ones(is_patched.sum(), bool))
    assert (widths <= top).all()
    bounds = np.cumsum([0, *(128 * widths)]).astype("u4")
    data = b"".join(pack(unsigned[i : i + 1], int(width)) for i, width in enumerate(widths))
    dtype = dtypes.primitive(ptype_of(values.dtype), valid is not None)
    meta = proto.write({2: ptype_of("u4"), 3: message})
    children += [*validity(valid), primitive(bounds)]
    return Tree("fastlanes.bitpacked.v2", dtype, len(values), meta, [data], children)


def frames_of_reference(values, valid=None):
    """Stores each block of 1024 as differences from its minimum."""
    references = in_blocks(values).min(axis=1)
    differences = values - np.repeat(references, BLOCK)[: len(values)]
    tree = primitive(differences, valid)
    return Tree("fastlanes.for.v2", tree.dtype, len(values), b"", [], [tree, primitive(references)])


def decimal_in_parts(dtype, values, parts, valid=None):
    """Stores unscaled decimals as a signed top part and `parts` lower parts of 64 bits."""
    lower = [[value >> 64 * i & (1 << 64) - 1 for value in values] for i in reversed(range(parts))]
    top = primitive(np.array([value >> 64 * parts for value in values], "i8"), valid)
    children = [top, *(primitive(np.array(part, "u8")) for part in lower)]
    meta = proto.write({1: ptype_of("i8"), 2: bytes([ptype_of("u8")] * parts)})
    return Tree("vortex.decimal_byte_parts.v2", dtype, len(values), meta, [], children)


def alp(encoded, up, down):
    """Returns floats as integers times 10^up times 10^-down. Accepts any integers, so that tests cover all
    roundings."""
    dtype = dtypes.primitive(ptype_of(f"f{encoded.itemsize}"))
    return Tree("vortex.alp", dtype, len(encoded), proto.write({1: down, 2: up}), [], [primitive(encoded)])


def delta(values, valid=None):
    """Stores lane-wise differences of transposed blocks. The bases are 0."""
    unsigned = values.view(f"u{values.itemsize}")
    lanes = BLOCK // (8 * values.itemsize)
    order = np.arange(BLOCK)
    order = order % 16 * 64 + np.array(FL)[order // 16 % 8] * 8 + order // 128
    transposed = in_blocks(unsigned)[:, order]
    deltas = transposed.copy()
    for row in range(1, 8 * values.itemsize):
        row_lanes, previous_lanes = (FL[r // 8] * 16 + r % 8 * 128 for r in (row, row - 1))
        deltas[:, row_lanes : row_lanes + lanes] = (
            transposed[:, row_lanes : row_lanes + lanes] - transposed[:, previous_lanes : previous_lanes + lanes]
        )
    bases = np.zeros(len(deltas) * lanes, values.dtype)
    children = [primitive(bases), primitive(deltas.reshape(-1).view(values.dtype)), *validity(valid)]
    dtype = dtypes.primitive(ptype_of(values.dtype), valid is not None)
    return Tree("fastlanes.delta", dtype, len(values), proto.write({1: deltas.size}), [], children)


def run_length(values, valid=None):
    """Stores each block of 1024 values as runs: the value of each run, and for each row the index of its
    run."""
    blocks = in_blocks(values)
    change = np.zeros(blocks.shape, bool)
    change[:, 1:] = blocks[:, 1:] != blocks[:, :-1]
    codes = np.cumsum(change, axis=1).astype("u2").reshape(-1)
    change[:, 0] = True
    starts = (np.cumsum(change.sum(axis=1)) - change.sum(axis=1)).astype("u4")
    runs = blocks[change]
    padded = None if valid is None else np.append(valid, np.zeros(len(codes) - len(values), bool))
    children = [primitive(runs), primitive(codes, padded), primitive(starts)]
    meta = {1: len(runs), 2: len(codes), 3: ptype_of("u2"), 4: len(starts), 5: ptype_of("u4")}
    dtype = dtypes.primitive(ptype_of(values.dtype), valid is not None)
    return Tree("fastlanes.rle", dtype, len(values), proto.write(meta), [], children)


def run_end(values, valid=None):
    """Stores runs, whose ends have 32 bits."""
    is_last = np.append(values[1:] != values[:-1], True)
    if valid is not None:
        is_last[:-1] |= valid[1:] != valid[:-1]
    ends = (np.flatnonzero(is_last) + 1).astype("u4")
    tree = primitive(values[is_last], None if valid is None else valid[is_last])
    meta = proto.write({1: ptype_of("u4"), 2: len(ends)})
    return Tree("vortex.runend", tree.dtype, len(values), meta, [], [primitive(ends), tree])


def sparse(values, fill, chunks=False):
    """Stores the integers that differ from `fill` as patches."""
    message, children = patches(values, values != fill, chunks)
    scalar = proto.write_int(fill) if values.dtype.kind == "i" else proto.write_uint(fill)
    dtype = dtypes.primitive(ptype_of(values.dtype))
    return Tree("vortex.sparse", dtype, len(values), proto.write({1: message}), [scalar], children)


def legacy_fsst(tree):
    """Converts an FSST tree to the older layout, whose codes are a varbin child."""
    lengths, ends, *valid = tree.children
    nullable = dtypes.read(tree.dtype).nullable
    codes = Tree(
        "vortex.varbin",
        dtypes.binary(nullable),
        tree.length,
        proto.write({1: dtypes.read(ends.dtype).of[0]}),
        tree.buffers[2:],
        [ends, *valid],
    )
    return Tree(tree.id, tree.dtype, tree.length, tree.metadata, tree.buffers[:2], [codes, lengths])
