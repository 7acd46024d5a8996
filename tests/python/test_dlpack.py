"""DLPack from numpy: every dtype, every layout, both forms of tensor."""

import capi
import numpy as np
import pyarrow as pa
import pytest
from numpy.lib.stride_tricks import as_strided
from tensors import (
    FORMATS,
    IN_PLACE,
    NUMPY_DTYPES,
    address,
    assert_nothing_copied,
    assert_same,
    bring,
    bring_one,
    cube,
    lend,
    sample,
    send_one,
    values,
)

forms = pytest.mark.parametrize("form", FORMATS)
dtypes = pytest.mark.parametrize("dtype", NUMPY_DTYPES)
ROWS = 131


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
