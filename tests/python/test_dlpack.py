"""DLPack with numpy at the other end: every dtype, every layout, both forms of tensor, both ways."""

import numpy as np
import pyarrow as pa
import pytest
from numpy.lib.stride_tricks import as_strided
from tensors import (
    FORMATS,
    IS_COPIED,
    NUMPY_DTYPES,
    READ_ONLY,
    Lender,
    address,
    assert_same,
    bring,
    bring_one,
    copied,
    elements,
    form_of,
    lend,
    managed,
    sample,
    send,
    send_one,
    values,
)

import capi

forms = pytest.mark.parametrize("form", FORMATS)
dtypes = pytest.mark.parametrize("dtype", NUMPY_DTYPES)
ROWS = 131


def assert_nothing_copied(host):
    assert copied(host) == 0
    assert host.ledger()["live_bytes"] == 0, "nothing was allocated either"


# -------------------------------------------------------------------------------------------------------- inwards ---


@forms
@dtypes
def test_every_dtype_comes_in_where_it_lies(host, session, dtype, form):
    array = sample(dtype, ROWS)
    column = bring_one(session, array, form)
    column.validate(full=True)
    assert column.type == NUMPY_DTYPES[dtype]
    assert_same(array, values(column))
    assert address(column) == array.__array_interface__["data"][0]
    assert_nothing_copied(host)


@forms
def test_booleans_come_in_as_bits_on_request(session, form):
    array = sample("bool", ROWS)
    column = bring_one(session, array, form, bools="bits")
    column.validate(full=True)
    assert column.type == pa.bool_()
    assert_same(array, values(column))


@pytest.mark.parametrize("bools", ["bytes", "bits"])
def test_any_byte_but_0_is_true(session, bools):
    array = np.arange(256, dtype=np.uint8).view(bool)
    column = bring_one(session, array, bools=bools)
    assert column.to_pylist() == [False] + [True] * 255


@forms
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_dtype_that_arrow_lacks_is_refused_by_name(session, dtype, form):
    with pytest.raises(capi.CrossdockError, match=f"dtype {dtype}: .*cast it to one of int8, .*bool first") as caught:
        bring_one(session, np.zeros(3, dtype), form)
    assert caught.value.code == "unsupported"
    assert "tensor 0 of 1" in str(caught.value)


def test_a_scalar_is_refused_with_what_to_do(session):
    with pytest.raises(capi.CrossdockError, match=r"a scalar: .*reshape it to \(1,\)"):
        bring_one(session, np.zeros(()))


@forms
def test_several_tensors_are_the_columns_of_one_batch(host, session, form):
    arrays = {dtype: sample(dtype, ROWS) for dtype in NUMPY_DTYPES}
    capsules = [lend(array, form) for array in arrays.values()]
    (batch,) = bring(session, *capsules, names=",".join(arrays))
    assert batch.schema.names == list(arrays)
    for array, column in zip(arrays.values(), batch.columns):
        assert_same(array, values(column))
    assert_nothing_copied(host)


def cube(dtype=np.int32):
    return np.arange(2 * 3 * 4 * 5, dtype=dtype).reshape(2, 3, 4, 5)


IN_PLACE = {
    "a slice of rows": cube()[1:],
    "row-major": cube(),
    "rows of column-major": np.ascontiguousarray(cube().transpose(0, 3, 2, 1)).transpose(0, 3, 2, 1),
    "rows permuted": np.ascontiguousarray(cube().transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    "rows of size one with a stride of their own": as_strided(cube(), (2, 1, 20), (80, 77 * 4, 4)),
    "one row of any stride": as_strided(cube(), (1, 20), (12, 4)),
}
"""Arrow holds them where they are: the rows in order, a row's dimensions in any."""
GATHERED = {
    "every second": np.arange(20)[::2],
    "backwards": np.arange(20)[::-1],
    "backwards by three": np.arange(20)[::-3],
    "broadcast": as_strided(np.arange(1), (7,), (0,)),
    "rows broadcast": as_strided(np.arange(6), (5, 6), (0, 8)),
    "columns broadcast": as_strided(np.arange(5), (5, 6), (8, 0)),
    "overlapping windows": as_strided(np.arange(10), (8, 3), (8, 8)),
    "a diagonal": as_strided(np.arange(25), (5,), (48,)),
    "a block of 2-d": np.arange(48).reshape(6, 8)[1:5, 2:7],
    "a block of 3-d": cube(np.float64)[0, :, 1:3, 2:],
    "transposed 2-d": np.arange(48).reshape(6, 8).T,
    "transposed all through": cube().T,
    "column-major all through": np.asfortranarray(cube()),
    "all dimensions backwards": cube(np.int16)[::-1, ::-1, ::-1, ::-1],
    "rows backwards, whole": cube(np.int8)[::-1],
}


@forms
@pytest.mark.parametrize("layout", IN_PLACE)
def test_a_layout_that_arrow_can_tell_stays_where_it_is(host, session, layout, form):
    array = IN_PLACE[layout]
    column = bring_one(session, array, form)
    column.validate(full=True)
    assert_same(array, values(column))
    assert address(column) == array.__array_interface__["data"][0]
    assert_nothing_copied(host)


def test_pyarrow_s_tensor_of_a_permuted_column_has_numpy_s_values(session):
    array = IN_PLACE["rows of column-major"]
    column = bring_one(session, array)
    assert column.type.permutation == [2, 1, 0]
    assert_same(array, column.to_numpy_ndarray())
    assert_same(array, column.to_tensor().to_numpy())


@forms
@pytest.mark.parametrize("layout", GATHERED)
def test_any_other_layout_is_gathered(session, layout, form):
    array = GATHERED[layout]
    column = bring_one(session, array, form)
    column.validate(full=True)
    assert_same(array, values(column))
    assert address(column) != array.__array_interface__["data"][0]


def test_a_permutation_is_that_of_arrow_s_specification(session):
    """Dimension i of the row is dimension permutation[i] of the shape in memory; here the inverse is another one."""
    kind = bring_one(session, IN_PLACE["rows permuted"]).type
    assert (kind.shape, kind.permutation) == ([4, 5, 3], [2, 0, 1])


def test_numpy_s_read_only_arrays_come_in_as_versioned_tensors(host, session):
    array = sample("int32", ROWS)
    array.flags.writeable = False
    column = bring_one(session, array)
    assert address(column) == array.__array_interface__["data"][0]
    assert_nothing_copied(host)


@forms
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3), (1,), (1, 1, 1), (5, 1), (1, 5)])
@pytest.mark.parametrize("dtype", ["float64", "bool", "int8"])
def test_empty_tensors_and_those_of_one_element_go_both_ways(session, dtype, shape, form):
    array = sample(dtype, shape)
    column = bring_one(session, array, form)
    column.validate(full=True)
    assert_same(array, values(column))
    assert_same(array, send_one(session, column, form))


# ------------------------------------------------------------------------------------------------------- outwards ---


def column_of(dtype, n=ROWS):
    array = sample(dtype, n)
    if dtype == "bool":
        return array, pa.ExtensionArray.from_storage(pa.bool8(), pa.array(array.view(np.int8)))
    return array, pa.array(array, type=NUMPY_DTYPES[dtype])


@dtypes
def test_every_type_goes_out_where_it_lies_and_may_not_be_written(host, session, dtype):
    array, column = column_of(dtype)
    (capsule,) = send(session, pa.record_batch([column], names=["c"]))
    struct = managed(capsule)
    assert (struct.major, struct.flags) == (1, READ_ONLY)
    got = np.from_dlpack(Lender(capsule))
    assert_same(array, got)
    assert not got.flags.writeable
    assert got.__array_interface__["data"][0] == address(column)
    assert_nothing_copied(host)


@dtypes
def test_a_legacy_tensor_is_a_copy_unless_the_consumer_is_trusted(host, session, dtype):
    array, column = column_of(dtype)
    got = send_one(session, column, "legacy")
    assert_same(array, got)
    assert got.__array_interface__["data"][0] != address(column)
    assert copied(host) == array.nbytes
    lent = send_one(session, column, "legacy", read_only="lent", copy="never")
    assert_same(array, lent)
    assert lent.__array_interface__["data"][0] == address(column)
    assert copied(host) == array.nbytes, "no more than before"


def test_copy_never_refuses_what_a_legacy_tensor_needs(session):
    with pytest.raises(capi.CrossdockError, match="column 'c': .*copy=never"):
        send_one(session, column_of("int32")[1], "legacy", copy="never")


def test_a_copy_may_be_written_and_nobody_else_sees_it(host, session):
    array, column = column_of("int64")
    (capsule,) = send(session, pa.record_batch([column], names=["c"]), copy="always")
    assert managed(capsule).flags == IS_COPIED
    got = np.from_dlpack(Lender(capsule))
    assert got.flags.writeable
    got += 1
    assert_same(array + 1, got)
    assert_same(array, values(column))
    assert copied(host) == array.nbytes


@forms
def test_bits_go_out_as_bytes(session, form):
    array = sample("bool", ROWS)
    column = pa.array(array)
    assert_same(array, send_one(session, column, form))
    for offset in (1, 7, 8, 13):
        assert_same(array[offset:99], send_one(session, column.slice(offset, 99 - offset), form))


@forms
@dtypes
def test_a_slice_begins_at_its_offset(session, dtype, form):
    array, column = column_of(dtype)
    got = send_one(session, column.slice(17, 40), form, **({"read_only": "lent"} if form == "legacy" else {}))
    assert_same(array[17:57], got)
    assert got.__array_interface__["data"][0] == address(column) + 17 * array.itemsize


@forms
@pytest.mark.parametrize("layout", ["row-major", "rows of column-major", "rows permuted"])
def test_rows_of_several_dimensions_come_back_from_where_they_were(host, session, layout, form):
    array = IN_PLACE[layout]
    column = bring_one(session, array, form)
    back = send_one(session, column)
    assert_same(array, back)
    assert back.strides == array.strides
    assert back.__array_interface__["data"][0] == array.__array_interface__["data"][0]
    assert_same(array[1:], send_one(session, column.slice(1)))
    assert_nothing_copied(host)


def test_lists_of_fixed_size_go_out_without_being_called_tensors(session):
    array = sample("float32", (6, 2, 3))
    inner = pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), 3)
    column = pa.FixedSizeListArray.from_arrays(inner, 2)
    assert_same(array, send_one(session, column))
    assert_same(array[2:5], send_one(session, column.slice(2, 3)))


@pytest.mark.parametrize("kind", [pa.list_(pa.bool_(), 5), pa.fixed_shape_tensor(pa.float16(), [5])])
def test_pyarrow_s_own_nested_columns_go_out(session, kind):
    storage = pa.list_(kind.value_type, 5)
    array = sample("bool" if pa.types.is_boolean(kind.value_type) else "float16", (7, 5))
    column = pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), type=storage)
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.ExtensionArray.from_storage(kind, column)
    assert_same(array, send_one(session, column))
    assert_same(array[3:], send_one(session, column.slice(3)))


REFUSED = {
    "timestamp": (pa.timestamp("us"), "cast it to an integer type"),
    "decimal": (pa.decimal128(10, 2), "cast it to float64"),
    "text": (pa.string(), "leave it out"),
    "dictionary": (pa.dictionary(pa.int8(), pa.int32()), "decode it first"),
    "lists": (pa.list_(pa.int8()), "make it a fixed-size list"),
    "null": (pa.null(), "leave it out"),
}


@forms
@pytest.mark.parametrize("name", REFUSED)
def test_a_type_that_dlpack_lacks_is_refused_with_what_to_do(session, name, form):
    kind, advice = REFUSED[name]
    with pytest.raises(capi.CrossdockError, match=f"column 'c'.*{advice}") as caught:
        session.export(FORMATS[form], pa.schema([("c", kind)]))
    assert caught.value.code == "unsupported"


@forms
def test_what_a_consumer_reads_of_our_struct_is_the_specification_s(session, form):
    column = bring_one(session, IN_PLACE["rows permuted"])
    for column in (column, column.slice(0, 0)):
        (capsule,) = send(session, pa.record_batch([column], names=["c"]), form)
        assert form_of(capsule) == form
        struct = managed(capsule)
        tensor = struct.dl_tensor
        assert tensor.strides and tensor.shape and struct.deleter
        assert tensor.byte_offset == 0
        assert bool(tensor.data) == (len(column) > 0)
        assert (tensor.device.device_type, tensor.device.device_id) == (1, 0)
    assert elements(column).type == pa.int32()
