"""Decodes small trees in numpy, as the description of the format specifies. This reference decoder does not
use Vortex or Crossdock."""

import decimal

import dtypes
import numpy as np
import proto
import pyarrow as pa
import pyarrow.compute as compute

FL = [0, 4, 2, 6, 1, 5, 3, 7]
BLOCK = 1024
DECODERS = {}


def encoding(*ids):
    def register(function):
        DECODERS.update(dict.fromkeys(ids, function))
        return function

    return register


def decode(tree):
    """Returns the pyarrow array of a tree."""
    if tree.id not in DECODERS:
        raise NotImplementedError(tree.id)
    array = DECODERS[tree.id](tree)
    assert len(array) == tree.length, (tree.id, len(array), tree.length)
    return array


def type_of(tree):
    return dtypes.arrow_type(dtypes.read(tree.dtype))


def numpy_of(tree):
    """Returns the numpy dtype of a primitive tree."""
    return np.dtype(dtypes.NUMPY[dtypes.read(tree.dtype).of[0]])


def numbers(tree):
    """Returns the values of a primitive tree. Null values are arbitrary."""
    array = decode(tree)
    return np.frombuffer(array.buffers()[1] or b"", numpy_of(tree), len(array), array.offset * numpy_of(tree).itemsize)


def bits(valid):
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())


def validity(trees):
    """Returns the validity from the last child, or None."""
    return np.array(decode(trees[0]).to_pylist(), bool) if trees else None


def valid_of(array):
    return np.array(array.is_valid().to_pylist(), bool)


def fixed(tree, values, valid=None):
    return pa.Array.from_buffers(
        type_of(tree), tree.length, [bits(valid), pa.py_buffer(np.ascontiguousarray(values).tobytes())]
    )


def masked(array, valid):
    if valid is None:
        return array
    return compute.if_else(pa.array(valid), array, pa.scalar(None, array.type))


@encoding("vortex.null")
def null(tree):
    return pa.nulls(tree.length)


@encoding("vortex.bool")
def boolean(tree):
    skip = proto.message(tree.metadata).get(1, 0)
    values = np.unpackbits(np.frombuffer(tree.buffers[0], "u1"), bitorder="little")[skip : skip + tree.length]
    return pa.Array.from_buffers(pa.bool_(), tree.length, [bits(validity(tree.children)), bits(values)])


@encoding("vortex.bytebool")
def bytebool(tree):
    values = np.frombuffer(tree.buffers[0], "u1") != 0
    return pa.Array.from_buffers(pa.bool_(), tree.length, [bits(validity(tree.children)), bits(values)])


@encoding("vortex.primitive")
def primitive(tree):
    return fixed(tree, np.frombuffer(tree.buffers[0], numpy_of(tree)), validity(tree.children))


@encoding("vortex.masked")
def mask(tree):
    return masked(decode(tree.children[0]), validity(tree.children[1:]))


@encoding("vortex.ext")
def extension(tree):
    return decode(tree.children[0]).view(type_of(tree))


@encoding("vortex.decimal")
def fixed_decimal(tree):
    width = 1 << proto.message(tree.metadata).get(1, 0)
    data = tree.buffers[0]
    values = [int.from_bytes(data[at : at + width], "little", signed=True) for at in range(0, len(data), width)]
    return decimals(tree, values, validity(tree.children))


@encoding("vortex.decimal_byte_parts")
def decimal_byte_parts(tree):
    parts = decode(tree.children[0])
    return decimals(tree, [value or 0 for value in parts.to_pylist()], valid_of(parts))


@encoding("vortex.decimal_byte_parts.v2")
def decimal_in_parts(tree):
    first, *lower = tree.children
    top = decode(first)
    values = [value or 0 for value in top.to_pylist()]
    for part in lower:
        values = [(value << 64) + low for value, low in zip(values, numbers(part).tolist())]
    return decimals(tree, values, valid_of(top))


def decimals(tree, values, valid):
    type = type_of(tree)
    width = type.bit_width // 8
    data = b"".join(value.to_bytes(width, "little", signed=True) for value in values)
    return pa.Array.from_buffers(type, tree.length, [bits(valid), pa.py_buffer(data)])


@encoding("vortex.constant")
def constant(tree):
    dtype = dtypes.read(tree.dtype)
    value = plain(proto.scalar(tree.buffers[0]), dtype)
    if dtype.kind == dtypes.EXTENSION and value is not None:
        return pa.array([value] * tree.length, dtypes.arrow_type(dtype.inner[0])).view(type_of(tree))
    return pa.array([value] * tree.length, type_of(tree))


def plain(scalar, dtype):
    """Converts a scalar to a value that pyarrow accepts."""
    value = scalar[1]
    if value is None:
        return None
    if dtype.kind == dtypes.BOOL:
        return bool(value)
    if dtype.kind == dtypes.DECIMAL:
        exact = decimal.Context(prec=80)
        return decimal.Decimal(int.from_bytes(value, "little", signed=True)).scaleb(-dtype.of[1], exact)
    if dtype.kind == dtypes.STRUCT:
        return {name: plain(item, inner) for name, item, inner in zip(dtype.of, value, dtype.inner)}
    if dtype.kind in (dtypes.LIST, dtypes.FIXED_SIZE_LIST):
        return [plain(item, dtype.inner[0]) for item in value]
    if dtype.kind == dtypes.EXTENSION:
        return plain(scalar, dtype.inner[0])
    if dtype.kind == dtypes.PRIMITIVE and dtype.of[0] == 8:
        return np.float16(value)
    return value


def patch(values, data, children, node_valid=None):
    """Writes patches into the values, in place. The first patch child has the indices."""
    if data is None:
        return values
    indices = numbers(children[0]).astype("i8") - proto.message(data).get(2, 0)
    values[indices] = numbers(children[1])
    return values


def patch_children(data):
    """Returns the number of children of the patches."""
    return 0 if data is None else 3 if 5 in proto.message(data) else 2


def unpack(data, width, unsigned, length, offset):
    """Unpacks whole blocks as FastLanes does, and returns the rows of the array."""
    size = 8 * unsigned.itemsize
    lanes = BLOCK // size
    blocks = -(-(length + offset) // BLOCK)
    out = np.zeros((blocks, BLOCK), unsigned)
    words = np.frombuffer(data, unsigned).reshape(blocks, width, lanes)
    keep = unsigned.type((1 << width) - 1)
    for row in range(size if width else 0):
        word, shift = divmod(row * width, size)
        value = words[:, word] >> unsigned.type(shift)
        if shift + width > size:
            value = value | words[:, word + 1] << unsigned.type(size - shift)
        first = FL[row // 8] * 16 + row % 8 * 128
        out[:, first : first + lanes] = value & keep
    return out.reshape(-1)[offset : offset + length].copy()


@encoding("fastlanes.bitpacked")
def bitpacked(tree):
    meta, dtype = proto.message(tree.metadata), numpy_of(tree)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    values = unpack(tree.buffers[0], meta.get(1, 0), unsigned, tree.length, meta.get(2, 0)).view(dtype)
    patches = meta.get(3)
    valid = validity(tree.children[patch_children(patches) :])
    return fixed(tree, patch(values, patches, tree.children), valid)


def child_values(tree, child):
    """Returns (values, validity) of a child. The child's validity is also the validity of its parent."""
    return numbers(child).copy(), valid_of(decode(child))


@encoding("fastlanes.bitpacked.v2")
def bitpacked_in_widths(tree):
    meta, dtype = proto.message(tree.metadata), numpy_of(tree)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    *children, bounds = tree.children
    at = (numbers(bounds).astype("i8") - numbers(bounds)[:1]).tolist()
    blocks = [unpack(tree.buffers[0][a:b], (b - a) // 128, unsigned, BLOCK, 0) for a, b in zip(at, at[1:])]
    offset = meta.get(1, 0)
    values = np.concatenate([np.zeros(0, unsigned), *blocks])[offset : offset + tree.length].view(dtype)
    patches = meta.get(3)
    return fixed(tree, patch(values, patches, children), validity(children[patch_children(patches) :]))


@encoding("fastlanes.for")
def frame_of_reference(tree):
    values, valid = child_values(tree, tree.children[0])
    unsigned = np.dtype(f"u{values.itemsize}")
    reference = proto.scalar(tree.metadata)[1] & ((1 << 8 * values.itemsize) - 1)
    return fixed(tree, values.view(unsigned) + unsigned.type(reference), valid)


@encoding("fastlanes.for.v2")
def frames_of_reference(tree):
    values, valid = child_values(tree, tree.children[0])
    unsigned = np.dtype(f"u{values.itemsize}")
    offset = proto.message(tree.metadata).get(1, 0)
    references = np.repeat(numbers(tree.children[1]).view(unsigned), BLOCK)[offset : offset + tree.length]
    return fixed(tree, values.view(unsigned) + references, valid)


@encoding("vortex.zigzag")
def zigzag(tree):
    values, valid = child_values(tree, tree.children[0])
    one = values.dtype.type(1)
    return fixed(tree, values >> one ^ (~(values & one) + one), valid)


@encoding("vortex.alp")
def alp(tree):
    meta, dtype = proto.message(tree.metadata), numpy_of(tree).type
    values, valid = child_values(tree, tree.children[0])
    up, down = dtype(float(f"1e{meta.get(2, 0)}")), dtype(f"1e-{meta.get(1, 0)}")
    return fixed(tree, patch(values.astype(dtype) * up * down, meta.get(3), tree.children[1:]), valid)


@encoding("vortex.alprd")
def alp_rd(tree):
    meta = proto.message(tree.metadata)
    codes, valid = child_values(tree, tree.children[0])
    table = np.array(proto.repeated(tree.metadata, 3), "u2")
    codes = np.where(valid, codes, 0)
    left = patch(
        np.where(codes < len(table), table[np.minimum(codes, len(table) - 1)], 0), meta.get(5), tree.children[2:]
    )
    right = numbers(tree.children[1])
    return fixed(tree, left.astype(right.dtype) << right.dtype.type(meta.get(1, 0)) | right, valid)


@encoding("vortex.sequence")
def sequence(tree):
    meta, dtype = proto.message(tree.metadata), numpy_of(tree)
    base, step = (proto.scalar(meta[field])[1] for field in (1, 2))
    return fixed(tree, np.array([base + i * step for i in range(tree.length)], dtype))


@encoding("vortex.dict")
def dictionary(tree):
    codes = decode(tree.children[0])
    if len(codes) == codes.null_count:
        return pa.nulls(len(codes), type_of(tree))
    return decode(tree.children[1]).take(codes)


@encoding("vortex.runend")
def run_end(tree):
    offset = proto.message(tree.metadata).get(3, 0)
    run_indices = np.searchsorted(numbers(tree.children[0]), np.arange(offset, offset + tree.length), side="right")
    return decode(tree.children[1]).take(pa.array(run_indices))


@encoding("vortex.sparse")
def sparse(tree):
    offset = proto.message(proto.message(tree.metadata)[1]).get(2, 0)
    fill = constant(type(tree)("vortex.constant", tree.dtype, 1, b"", tree.buffers))
    value_indices = np.zeros(tree.length, "i8")
    value_indices[numbers(tree.children[0]).astype("i8") - offset] = np.arange(tree.children[0].length) + 1
    return pa.concat_arrays([fill, decode(tree.children[1])]).take(pa.array(value_indices))


@encoding("fastlanes.delta")
def delta(tree):
    bases, deltas = (numbers(child) for child in tree.children[:2])
    unsigned = np.dtype(f"u{bases.itemsize}")
    lanes = BLOCK // (8 * bases.itemsize)
    previous, deltas = bases.view(unsigned).reshape(-1, lanes).copy(), deltas.view(unsigned).reshape(-1, BLOCK)
    out = np.zeros_like(deltas)
    for row in range(8 * bases.itemsize):
        first = FL[row // 8] * 16 + row % 8 * 128
        previous += deltas[:, first : first + lanes]
        at = np.arange(first, first + lanes)
        out[:, at % 16 * 64 + np.array(FL)[at // 16 % 8] * 8 + at // 128] = previous
    offset = proto.message(tree.metadata).get(2, 0)
    return fixed(tree, out.reshape(-1)[offset : offset + tree.length], validity(tree.children[2:]))


@encoding("fastlanes.rle")
def run_length(tree):
    offset = proto.message(tree.metadata).get(6, 0)
    values, starts = numbers(tree.children[0]), numbers(tree.children[2]).astype("i8")
    codes, valid = child_values(tree, tree.children[1])
    ends = np.append(starts[1:] - starts[0], len(values)) if len(starts) else starts
    n_values = ends - (starts - starts[0]) if len(starts) else starts
    indices = np.where(valid & (np.repeat(n_values, BLOCK) > 1), codes, 0) + np.repeat(starts - starts[:1], BLOCK)
    rows = slice(offset, offset + tree.length)
    return fixed(tree, values[indices[rows]], valid[rows])


@encoding("vortex.datetimeparts")
def date_time_parts(tree):
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type_of(tree).unit]
    days, valid = child_values(tree, tree.children[0])
    seconds, rest = (numbers(child).astype("i8") for child in tree.children[1:])
    return fixed(tree, (days.astype("i8") * 86400 + seconds) * per_second + rest, valid)


def strings(tree, values, valid):
    """Returns strings from bytes. Raises for invalid utf8."""
    array = pa.array(
        [None if valid is not None and not valid[i] else value for i, value in enumerate(values)], pa.binary()
    )
    return array.cast(type_of(tree))


@encoding("vortex.varbin")
def var_bin(tree):
    ends = numbers(tree.children[0]).astype("i8")
    data = tree.buffers[0]
    return strings(tree, [data[a:b] for a, b in zip(ends, ends[1:])], validity(tree.children[1:]))


@encoding("vortex.varbinview")
def var_bin_view(tree):
    valid = validity(tree.children)
    *data, views = tree.buffers
    values = []
    for i in range(tree.length):
        view = views[16 * i : 16 * i + 16]
        size, block, at = (int.from_bytes(view[a : a + 4], "little") for a in (0, 8, 12))
        if valid is not None and not valid[i]:
            values.append(b"")
        else:
            values.append(view[4 : 4 + size] if size <= 12 else data[block][at : at + size])
    return strings(tree, values, valid)


@encoding("vortex.fsst")
def fsst(tree):
    symbols, sizes, *data = tree.buffers
    table = [symbols[8 * i : 8 * i + size] for i, size in enumerate(sizes)]
    if not data:
        codes, lengths = tree.children
        data, children = codes.buffers, [lengths, *codes.children]
    else:
        children = tree.children
    [data], sizes, ends = data, numbers(children[0]), numbers(children[1]).astype("i8")
    values = []
    for a, b in zip(ends, ends[1:]):
        codes, out = iter(data[a:b]), []
        out = [bytes([next(codes)]) if code == 255 else table[code] for code in codes]
        values.append(b"".join(out))
    assert [len(value) for value in values] == sizes.tolist()
    return strings(tree, values, validity(children[2:]))


@encoding("vortex.onpair")
def on_pair(tree):
    starts, codes, ends, sizes = (numbers(child).astype("i8") for child in tree.children[:4])
    tokens = [tree.buffers[0][a:b] for a, b in zip(starts, starts[1:])]
    values = [b"".join(tokens[code] for code in codes[a:b]) for a, b in zip(ends, ends[1:])]
    assert [len(value) for value in values] == sizes.tolist()
    return strings(tree, values, validity(tree.children[4:]))


@encoding("vortex.struct")
def struct(tree):
    fields = list(type_of(tree))
    valid = validity(tree.children[: len(tree.children) - len(fields)])
    columns = [decode(child) for child in tree.children[len(tree.children) - len(fields) :]]
    type = pa.struct([pa.field(field.name, column.type, field.nullable) for field, column in zip(fields, columns)])
    return pa.Array.from_buffers(type, tree.length, [bits(valid)], children=columns)


@encoding("vortex.chunked")
def chunked(tree):
    return pa.concat_arrays([pa.array([], type_of(tree)), *(decode(child) for child in tree.children[1:])])


@encoding("vortex.list")
def list_of(tree):
    ends = numbers(tree.children[1]).astype("i4")
    valid = validity(tree.children[2:])
    return pa.Array.from_buffers(
        type_of(tree), tree.length, [bits(valid), pa.py_buffer(ends.tobytes())], children=[decode(tree.children[0])]
    )


@encoding("vortex.listview")
def list_view(tree):
    starts, sizes = (numbers(child).astype("i8") for child in tree.children[1:3])
    valid = validity(tree.children[3:])
    sizes = sizes if valid is None else np.where(valid, sizes, 0)
    at = np.concatenate([np.arange(a, a + n) for a, n in zip(starts, sizes)] or [np.zeros(0, "i8")])
    ends = np.cumsum([0, *sizes]).astype("i4")
    inner = decode(tree.children[0]).take(pa.array(at, pa.int64()))
    return pa.Array.from_buffers(
        type_of(tree), tree.length, [bits(valid), pa.py_buffer(ends.tobytes())], children=[inner]
    )


@encoding("vortex.fixed_size_list")
def fixed_size_list(tree):
    valid = validity(tree.children[1:])
    return pa.Array.from_buffers(type_of(tree), tree.length, [bits(valid)], children=[decode(tree.children[0])])


@encoding("vortex.map")
def map_of(tree):
    entries = list_view(tree.children[0])
    return pa.Array.from_buffers(type_of(tree), tree.length, entries.buffers()[:2], children=[entries.values])


def same(left, right):
    """Returns whether two arrays have the same values bit for bit. Ignores the layout of strings, lists and
    nulls."""
    if isinstance(right, pa.ChunkedArray):
        right = right.combine_chunks() if right.num_chunks != 1 else right.chunk(0)
    if pa.types.is_floating(left.type):
        whole = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[left.type.bit_width]
        return left.type == right.type and left.view(whole).equals(right.view(whole))
    if left.type != right.type:
        if pa.types.is_nested(left.type):
            return left.to_pylist() == right.to_pylist()
        right = right.cast(left.type)
    return left.equals(right)
