"""Export to numpy through DLPack: all types, zero-copy or copied, both forms of tensors."""

import capi
import numpy as np
import pyarrow as pa
import pytest
from tensors import (
    FORMATS,
    IN_PLACE,
    IS_COPIED,
    NUMPY_DTYPES,
    READ_ONLY,
    Producer,
    address,
    assert_nothing_copied,
    assert_same,
    import_array,
    copied_bytes,
    elements,
    form_of,
    managed,
    sample,
    export_batch,
    export_column,
    values,
)

forms = pytest.mark.parametrize("form", FORMATS)
dtypes = pytest.mark.parametrize("dtype", NUMPY_DTYPES)
ROWS = 131


def column_of(dtype, n=ROWS):
    array = sample(dtype, n)
    if dtype == "bool":
        return array, pa.ExtensionArray.from_storage(pa.bool8(), pa.array(array.view(np.int8)))
    return array, pa.array(array, type=NUMPY_DTYPES[dtype])


@dtypes
def test_every_type_is_exported_in_place_and_read_only(host, session, dtype):
    array, column = column_of(dtype)
    (capsule,) = export_batch(session, pa.record_batch([column], names=["c"]))
    struct = managed(capsule)
    assert (struct.major, struct.flags) == (1, READ_ONLY)
    got = np.from_dlpack(Producer(capsule))
    assert_same(array, got)
    assert not got.flags.writeable
    assert got.__array_interface__["data"][0] == address(column)
    assert_nothing_copied(host)


@dtypes
def test_legacy_tensor_is_a_copy_unless_the_consumer_is_trusted(host, session, dtype):
    array, column = column_of(dtype)
    got = export_column(session, column, "legacy")
    assert_same(array, got)
    assert got.__array_interface__["data"][0] != address(column)
    assert copied_bytes(host) == array.nbytes
    shared = export_column(session, column, "legacy", read_only="lent", copy="never")
    assert_same(array, shared)
    assert shared.__array_interface__["data"][0] == address(column)
    assert copied_bytes(host) == array.nbytes, "the export copied"


def test_rejects_legacy_tensor_if_copies_are_forbidden(session):
    with pytest.raises(capi.CrossdockError, match="column 'c': .*copy=never"):
        export_column(session, column_of("int32")[1], "legacy", copy="never")


def test_copy_is_writable_and_unshared(host, session):
    array, column = column_of("int64")
    (capsule,) = export_batch(session, pa.record_batch([column], names=["c"]), copy="always")
    assert managed(capsule).flags == IS_COPIED
    got = np.from_dlpack(Producer(capsule))
    assert got.flags.writeable
    got += 1
    assert_same(array + 1, got)
    assert_same(array, values(column))
    assert copied_bytes(host) == array.nbytes


@forms
def test_bits_are_exported_as_bytes(session, form):
    array = sample("bool", ROWS)
    column = pa.array(array)
    assert_same(array, export_column(session, column, form))
    for offset in (1, 7, 8, 13):
        assert_same(array[offset:99], export_column(session, column.slice(offset, 99 - offset), form))


@forms
@dtypes
def test_slice_begins_at_its_offset(session, dtype, form):
    array, column = column_of(dtype)
    got = export_column(session, column.slice(17, 40), form, **({"read_only": "lent"} if form == "legacy" else {}))
    assert_same(array[17:57], got)
    assert got.__array_interface__["data"][0] == address(column) + 17 * array.itemsize


@forms
@pytest.mark.parametrize("layout", ["row-major", "rows in column-major order", "rows with permuted dimensions"])
def test_rows_of_several_dimensions_round_trip_in_place(host, session, layout, form):
    array = IN_PLACE[layout]
    column = import_array(session, array, form)
    back = export_column(session, column)
    assert_same(array, back)
    assert back.strides == array.strides
    assert back.__array_interface__["data"][0] == array.__array_interface__["data"][0]
    assert_same(array[1:], export_column(session, column.slice(1)))
    assert_nothing_copied(host)


def test_exports_fixed_size_lists_without_extension_type(session):
    array = sample("float32", (6, 2, 3))
    inner = pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), 3)
    column = pa.FixedSizeListArray.from_arrays(inner, 2)
    assert_same(array, export_column(session, column))
    assert_same(array[2:5], export_column(session, column.slice(2, 3)))


@pytest.mark.parametrize("kind", [pa.list_(pa.bool_(), 5), pa.fixed_shape_tensor(pa.float16(), [5])])
def test_exports_nested_columns_of_pyarrow(session, kind):
    storage = pa.list_(kind.value_type, 5)
    array = sample("bool" if pa.types.is_boolean(kind.value_type) else "float16", (7, 5))
    column = pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), type=storage)
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.ExtensionArray.from_storage(kind, column)
    assert_same(array, export_column(session, column))
    assert_same(array[3:], export_column(session, column.slice(3)))


UNSUPPORTED = {
    "timestamp": (pa.timestamp("us"), "cast it to an integer type"),
    "decimal": (pa.decimal128(10, 2), "cast it to float64"),
    "text": (pa.string(), "leave it out"),
    "dictionary": (pa.dictionary(pa.int8(), pa.int32()), "decode it first"),
    "lists": (pa.list_(pa.int8()), "make it a fixed-size list"),
    "null": (pa.null(), "leave it out"),
}


@forms
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_rejects_unsupported_type_with_advice(session, name, form):
    kind, advice = UNSUPPORTED[name]
    with pytest.raises(capi.CrossdockError, match=f"column 'c'.*{advice}") as caught:
        session.export(FORMATS[form], pa.schema([("c", kind)]))
    assert caught.value.code == "unsupported"


@forms
def test_exported_tensor_struct_follows_the_dlpack_specification(session, form):
    whole = import_array(session, IN_PLACE["rows with permuted dimensions"])
    for column in (whole, whole.slice(0, 0)):
        (capsule,) = export_batch(session, pa.record_batch([column], names=["c"]), form)
        assert form_of(capsule) == form
        struct = managed(capsule)
        tensor = struct.dl_tensor
        assert tensor.strides and tensor.shape and struct.deleter
        assert tensor.byte_offset == 0
        assert bool(tensor.data) == (len(column) > 0)
        assert (tensor.device.device_type, tensor.device.device_id) == (1, 0)
    assert elements(column).type == pa.int32()
