"""Arrays of every kind of vortex-data, decoded: equal to Vortex's own decoding, bit for bit."""

import combined
import crossdock as cd
import dtypes
import numpy as np
import proto
import pyarrow as pa
import pytest
import reference
import trees
import vortex as vx
from craft import primitive
from flat import Tree
from ipc import build
from kinds import KINDS
from proto import LIST, STRING

# Arrays that are not decoded yet: (kind, part of the array's name), and the text that the error
# names. Remove an entry when its encoding is decoded, so that the arrays are compared with
# Vortex's.
NOT_YET = {
    ("fastlanes.bitpacked.v2", ""): "fastlanes.bitpacked.v2",
    ("fastlanes.for.v2", ""): "fastlanes.for.v2",
    ("vortex.decimal_byte_parts.v2", ""): "vortex.decimal_byte_parts.v2",
}

# Errors of Vortex for arrays that it does not decode: runs of lists, sparse maps, and structs
# without fields in a sparse array.
NOT_BY_VORTEX = [
    "Unsupported RunEnd value type",
    "Sparse canonicalization does not support Map arrays",
    "StructArray cannot be constructed from an empty slice of arrays",
]

NESTED = {
    "list": ([[1, 2], None, [3]], pa.list_(pa.int64())),
    "fixed-size list": ([[1, 2], None, [3, None]], pa.list_(pa.int16(), 2)),
    "struct": (
        [{"a": 1, "b": "x"}, None, {"a": None, "b": "a text of more than twelve bytes"}],
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
    ),
}


def nested(rows):
    """Yields (name, array) of lists and structs in the encodings that accept every type. vortex-data rarely
    produces such arrays."""
    for name, (values, type) in NESTED.items():
        whole = vx.array(pa.array(values, type))
        tree = Tree.of(whole)
        ends = np.array([1, rows // 2 + 2, rows + 3], "u4")
        meta = proto.write({1: dtypes.NUMPY.index("u4"), 2: 3})
        yield f"runend of {name}", Tree("vortex.runend", tree.dtype, rows, meta, [], [primitive(ends), tree])
        codes = primitive((np.arange(rows) % 3).astype("u2"))
        meta = proto.write({1: 3, 2: dtypes.NUMPY.index("u2")})
        yield f"dict of {name}", Tree("vortex.dict", tree.dtype, rows, meta, [], [codes, tree])
        if rows > 10:
            indices = primitive(np.array([1, 5, rows - 1], "u4"))
            meta = proto.write({1: proto.write({1: 3, 3: dtypes.NUMPY.index("u4")})})
            yield f"sparse of {name}", Tree("vortex.sparse", tree.dtype, rows, meta, [b"\x08\x00"], [indices, tree])
        scalars = [b"\x18\x02", bytes([STRING << 3 | 2, 1]) + b"x" if name == "struct" else b"\x18\x04"]
        one = proto.write({LIST: b"".join(proto.write({1: scalar}) for scalar in scalars)})
        yield f"constant of {name}", Tree("vortex.constant", tree.dtype, rows, b"", [one])
        yield f"constant of {name}, null", Tree("vortex.constant", tree.dtype, rows, b"", [b"\x08\x00"])
        yield f"chunks of {name}", vx.array(pa.chunked_array([pa.array(values, type), pa.array(values[1:], type)]))


def not_yet(kind, name):
    return next((key for key in NOT_YET if key[0] == kind and key[1] in name), None)


def arrays(kind, sizes=trees.SIZES):
    """Yields (name, vortex array) of a kind."""
    if kind != "nested":
        yield from trees.arrays(kind, sizes)
        return
    for rows in sizes:
        for name, array_or_tree in nested(rows) if rows else ():
            yield f"{name}, {rows} rows", build(array_or_tree) if isinstance(array_or_tree, Tree) else array_or_tree


def truth(array):
    """Returns the values that Vortex decodes. If Vortex fails, returns the values of the reference decoder."""
    try:
        return array.to_arrow_array()
    except BaseException as error:
        # Vortex panics on a frame of reference without rows. Its panic is not an `Exception`.
        panicked = type(error).__name__ == "PanicException" and not len(array)
        if not panicked and not any(words in str(error) for words in NOT_BY_VORTEX):
            raise
        return reference.decode(Tree.of(array))


def plain(type):
    """Returns the type with views replaced by strings and binaries, and with all lists of variable size
    replaced by lists with 32-bit offsets."""
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(plain(field.type)) for field in type])
    if pa.types.is_map(type):
        return pa.map_(plain(type.key_type), plain(type.item_type), keys_sorted=type.keys_sorted)
    if pa.types.is_fixed_size_list(type):
        return pa.list_(pa.field("item", plain(type.value_type), type.value_field.nullable), type.list_size)
    if pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_list_view(type):
        return pa.list_(pa.field("item", plain(type.value_type), type.value_field.nullable))
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(type, type)


def whole(array):
    """Returns an array, or the concatenated chunks of a chunked array."""
    if not isinstance(array, pa.ChunkedArray):
        return array
    return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()


def assert_decoded(session, name, array):
    column = session.from_vortex(array)
    got = whole(column.to_pyarrow())
    got.validate(full=True)
    assert len(column) == len(got) == len(array), name
    type = dtypes.arrow_type(dtypes.read(Tree.of(array).dtype))
    assert plain(got.type) == type, name
    expected = whole(truth(array))
    assert column.null_count == expected.null_count or pa.types.is_null(type), name
    assert expected.null_count == len(expected) or "all null" not in name, name
    assert reference.same(expected.cast(type) if not pa.types.is_nested(type) else expected, got), name


@pytest.mark.parametrize("kind", [*KINDS, "nested"])
def test_decodes_to_the_values_of_vortex(session, kind):
    n = 0
    for name, array in arrays(kind):
        n += 1
        if not not_yet(kind, name):
            assert_decoded(session, name, array)
    assert n, "the kind has no arrays"


@pytest.mark.parametrize("kind", [*KINDS, "nested"])
def test_decodes_on_a_device_to_the_values_of_vortex(cuda_session, kind):
    """Some encodings decode on the device, and the other encodings on the host."""
    for name, array in arrays(kind):
        if not not_yet(kind, name):
            column = cuda_session.from_vortex(array)
            assert column.device == "cuda:0" or not column.nbytes, name
            assert_decoded(cuda_session, name, array)


@pytest.mark.parametrize("group", combined.GROUPS)
def test_nested_values_decode_to_the_values_of_vortex(session, group):
    for name, array in combined.arrays(group):
        assert_decoded(session, name, array)


@pytest.mark.parametrize("group", combined.GROUPS)
def test_nested_values_decode_on_a_device_to_the_values_of_vortex(cuda_session, group):
    for name, array in combined.arrays(group):
        column = cuda_session.from_vortex(array)
        assert column.device == "cuda:0" or not column.nbytes, name
        assert_decoded(cuda_session, name, array)


@pytest.mark.parametrize("key", NOT_YET, ids=" ".join)
def test_error_for_unsupported_encoding_names_it(session, key):
    n = 0
    for name, array in arrays(key[0], (1, 1025)):
        if not_yet(key[0], name) == key:
            n += 1
            with pytest.raises(cd.Error) as raised:
                session.from_vortex(array)
            assert isinstance(raised.value, cd.UnsupportedError), (name, raised.value)
            assert NOT_YET[key] in str(raised.value), name
    assert n, "the entry applies to no array"


def test_arrays_of_a_compact_file_decode(session, tmp_path):
    """The compact strategy of Vortex uses compressors that the default strategy does not use."""
    rows = 5000
    table = pa.table(
        {"n": np.random.default_rng(1).integers(0, 1 << 40, rows), "t": [f"{i:x} {i}" for i in range(rows)]}
    )
    path = str(tmp_path / "compact.vortex")
    vx.io.VortexWriteOptions.compact().write(vx.array(table), path)
    found = set()
    for chunk in vx.open(path).scan():
        found |= {id for id in ("vortex.pco", "vortex.zstd") if id in Tree.of(chunk).ids()}
        assert session.from_vortex(chunk).to_pyarrow().to_pylist() == chunk.to_arrow_array().to_pylist()
    assert found


@pytest.fixture(scope="module")
def columns(flights_of):
    return dict(trees.of_table(pa.ipc.open_file(flights_of).read_all()))


def test_flights_data_set_decodes_to_the_values_of_vortex(session, columns):
    assert len(columns) >= 30
    for name, array in columns.items():
        assert_decoded(session, name, array)
