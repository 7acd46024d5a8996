"""Import of numpy arrays through DLPack: all dtypes and layouts, both forms of tensors."""

import capi
import numpy as np
import pyarrow as pa
import pytest
from numpy.lib.stride_tricks import as_strided
from tensors import (
    COMPLEX,
    FORMATS,
    IN_PLACE,
    NUMPY_DTYPES,
    ManagedTensor,
    address,
    assert_nothing_copied,
    assert_same,
    import_batches,
    import_array,
    cube,
    capsule_of,
    sample,
    export_column,
    values,
)

forms = pytest.mark.parametrize("form", FORMATS)
dtypes = pytest.mark.parametrize("dtype", NUMPY_DTYPES)
ROWS = 131


@forms
@dtypes
def test_every_dtype_is_imported_in_place(host, session, dtype, form):
    array = sample(dtype, ROWS)
    column = import_array(session, array, form)
    column.validate(full=True)
    assert column.type == NUMPY_DTYPES[dtype]
    assert_same(array, values(column))
    assert address(column) == array.__array_interface__["data"][0]
    assert_nothing_copied(host)


@forms
def test_booleans_become_bits_on_request(session, form):
    array = sample("bool", ROWS)
    column = import_array(session, array, form, bools="bits")
    column.validate(full=True)
    assert column.type == pa.bool_()
    assert_same(array, values(column))


@pytest.mark.parametrize("bools", ["bytes", "bits"])
def test_every_nonzero_byte_is_true(session, bools):
    array = np.arange(256, dtype=np.uint8).view(bool)
    column = import_array(session, array, bools=bools)
    assert column.to_pylist() == [False] + [True] * 255


@forms
def test_error_for_unsupported_dtype_names_it(session, form):
    tensor = ManagedTensor(form, dtype=(COMPLEX, 32, 1))
    with pytest.raises(
        capi.CrossdockError, match="dtype complex32: .*cast it to one of int8, .*complex128 first"
    ) as caught:
        import_batches(session, tensor.capsule)
    assert caught.value.code == "unsupported"
    assert "tensor 0 of 1" in str(caught.value)


def test_rejects_scalar_with_advice(session):
    with pytest.raises(capi.CrossdockError, match=r"the tensor is a scalar, .*reshape it to \(1,\)"):
        import_array(session, np.zeros(()))


@forms
def test_several_tensors_become_columns_of_one_batch(host, session, form):
    arrays = {dtype: sample(dtype, ROWS) for dtype in NUMPY_DTYPES}
    capsules = [capsule_of(array, form) for array in arrays.values()]
    (batch,) = import_batches(session, *capsules, names=",".join(arrays))
    assert batch.schema.names == list(arrays)
    for array, column in zip(arrays.values(), batch.columns):
        assert_same(array, values(column))
    assert_nothing_copied(host)


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
def test_layouts_with_arrow_equivalent_are_imported_in_place(host, session, layout, form):
    array = IN_PLACE[layout]
    column = import_array(session, array, form)
    column.validate(full=True)
    assert_same(array, values(column))
    assert address(column) == array.__array_interface__["data"][0]
    assert_nothing_copied(host)


def test_pyarrow_tensor_of_permuted_column_has_numpys_values(session):
    array = IN_PLACE["rows in column-major order"]
    column = import_array(session, array)
    assert column.type.permutation == [2, 1, 0]
    assert_same(array, column.to_numpy_ndarray())
    assert_same(array, column.to_tensor().to_numpy())


@forms
@pytest.mark.parametrize("layout", GATHERED)
def test_layouts_without_arrow_equivalent_are_gathered(session, layout, form):
    array = GATHERED[layout]
    column = import_array(session, array, form)
    column.validate(full=True)
    assert_same(array, values(column))
    assert address(column) != array.__array_interface__["data"][0]


def test_tensor_type_permutation_follows_the_arrow_specification(session):
    """Dimension i of a row is dimension permutation[i] of the shape in memory. The test uses a permutation
    that is not its own inverse."""
    kind = import_array(session, IN_PLACE["rows with permuted dimensions"]).type
    assert (kind.shape, kind.permutation) == ([4, 5, 3], [2, 0, 1])


def test_read_only_numpy_arrays_are_versioned_tensors(host, session):
    array = sample("int32", ROWS)
    array.flags.writeable = False
    column = import_array(session, array)
    assert address(column) == array.__array_interface__["data"][0]
    assert_nothing_copied(host)


@forms
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3), (1,), (1, 1, 1), (5, 1), (1, 5)])
@pytest.mark.parametrize("dtype", ["float64", "bool", "int8"])
def test_tensors_of_0_and_1_elements_round_trip(session, dtype, shape, form):
    array = sample(dtype, shape)
    column = import_array(session, array, form)
    column.validate(full=True)
    assert_same(array, values(column))
    assert_same(array, export_column(session, column, form))
