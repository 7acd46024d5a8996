"""Arrays of every kind that vortex-data makes, decoded: equal to what vortex-data itself makes of them, bit for bit."""

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

# What is not decoded yet: (kind, part of the array's name), and what the error has to name. Whoever decodes one of these takes
# it off the list: the arrays are then held to Vortex's like all others.
NOT_YET = {
    ("fastlanes.bitpacked.v2", ""): "fastlanes.bitpacked.v2",
    ("fastlanes.for.v2", ""): "fastlanes.for.v2",
    ("vortex.decimal_byte_parts.v2", ""): "vortex.decimal_byte_parts.v2",
}

# What Vortex itself does not decode: runs of lists, and few maps or structs of nothing among nulls.
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
    """(name, array): lists and structs under the kinds that hold any type, which the wheel makes of them rarely."""
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
            where = primitive(np.array([1, 5, rows - 1], "u4"))
            meta = proto.write({1: proto.write({1: 3, 3: dtypes.NUMPY.index("u4")})})
            yield f"sparse of {name}", Tree("vortex.sparse", tree.dtype, rows, meta, [b"\x08\x00"], [where, tree])
        scalars = [b"\x18\x02", bytes([STRING << 3 | 2, 1]) + b"x" if name == "struct" else b"\x18\x04"]
        one = proto.write({LIST: b"".join(proto.write({1: scalar}) for scalar in scalars)})
        yield f"constant of {name}", Tree("vortex.constant", tree.dtype, rows, b"", [one])
        yield f"constant of {name}, null", Tree("vortex.constant", tree.dtype, rows, b"", [b"\x08\x00"])
        yield f"chunks of {name}", vx.array(pa.chunked_array([pa.array(values, type), pa.array(values[1:], type)]))


def not_yet(kind, name):
    return next((key for key in NOT_YET if key[0] == kind and key[1] in name), None)


def arrays(kind, sizes=trees.SIZES):
    """(name, vortex array) of a kind."""
    if kind != "nested":
        yield from trees.arrays(kind, sizes)
        return
    for rows in sizes:
        for name, made in nested(rows) if rows else ():
            yield f"{name}, {rows} rows", build(made) if isinstance(made, Tree) else made


def truth(array):
    """The values as Vortex has them; as the format's description has them where Vortex itself fails."""
    try:
        return array.to_arrow_array()
    except BaseException as error:
        # A frame of reference of no rows panics in Vortex, which is no Exception.
        panicked = type(error).__name__ == "PanicException" and not len(array)
        if not panicked and not any(words in str(error) for words in NOT_BY_VORTEX):
            raise
        return reference.decode(Tree.of(array))


def plain(type):
    """A type with strings and lists as a DType has them."""
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
    """One array of what may be chunks."""
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
def test_decoded_as_vortex_decodes_it(session, kind):
    n = 0
    for name, array in arrays(kind):
        n += 1
        if not not_yet(kind, name):
            assert_decoded(session, name, array)
    assert n, "no array was made"


@pytest.mark.parametrize("kind", [*KINDS, "nested"])
def test_decoded_on_a_device_as_vortex_decodes_it(there, kind):
    """What the device decodes itself, and what the host decodes for it."""
    for name, array in arrays(kind):
        if not not_yet(kind, name):
            column = there.from_vortex(array)
            assert column.device == "cuda:0" or not column.nbytes, name
            assert_decoded(there, name, array)


@pytest.mark.parametrize("group", combined.GROUPS)
def test_any_type_under_any_kind_is_decoded_as_vortex_decodes_it(session, group):
    for name, array in combined.arrays(group):
        assert_decoded(session, name, array)


@pytest.mark.parametrize("group", combined.GROUPS)
def test_any_type_under_any_kind_is_decoded_on_a_device_as_vortex_decodes_it(there, group):
    for name, array in combined.arrays(group):
        column = there.from_vortex(array)
        assert column.device == "cuda:0" or not column.nbytes, name
        assert_decoded(there, name, array)


@pytest.mark.parametrize("key", NOT_YET, ids=" ".join)
def test_not_decoded_yet_is_refused_by_name(session, key):
    n = 0
    for name, array in arrays(key[0], (1, 1025)):
        if not_yet(key[0], name) == key:
            n += 1
            with pytest.raises(cd.Error) as refused:
                session.from_vortex(array)
            assert isinstance(refused.value, cd.UnsupportedError), (name, refused.value)
            assert NOT_YET[key] in str(refused.value), name
    assert n, "no such array was made: the entry is for nothing"


def test_files_that_are_written_compactly_are_refused_by_name(session, tmp_path):
    """Other compressors than Vortex's own."""
    rows = 5000
    table = pa.table(
        {"n": np.random.default_rng(1).integers(0, 1 << 40, rows), "t": [f"{i:x} {i}" for i in range(rows)]}
    )
    path = str(tmp_path / "compact.vortex")
    vx.io.VortexWriteOptions.compact().write(vx.array(table), path)
    found = []
    for chunk in vx.open(path).scan():
        ids = Tree.of(chunk).ids()
        found += [id for id in ("vortex.pco", "vortex.zstd") if id in ids]
        with pytest.raises(cd.UnsupportedError, match=r"vortex\.(pco|zstd)"):
            session.from_vortex(chunk)
    assert found


@pytest.fixture(scope="module")
def columns(flights_of):
    return dict(trees.of_table(pa.ipc.open_file(flights_of).read_all()))


def test_flights(session, columns):
    assert len(columns) >= 30
    for name, array in columns.items():
        assert_decoded(session, name, array)
