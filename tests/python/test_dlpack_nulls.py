"""DLPack has no nulls: they are refused, or travel in masks."""

import capi
import numpy as np
import pyarrow as pa
import pytest
from tensors import FORMATS, Lender, assert_same, bring, lend, sample, send, send_one

forms = pytest.mark.parametrize("form", FORMATS)


def batch_of(**columns):
    return pa.record_batch(list(columns.values()), names=list(columns))


@forms
def test_nulls_are_refused_with_the_column_and_what_to_do(session, form):
    batch = batch_of(whole=pa.array([1, 2, 3]), part=pa.array([1, None, None]))
    with pytest.raises(capi.CrossdockError, match="batch 0: column 'part': 2 of 3 rows are null") as caught:
        send(session, batch, form)
    assert caught.value.code == "unsupported"
    for advice in ("fill or drop them", "leave the column out", "--nulls mask", "nulls=mask"):
        assert advice in str(caught.value)


@forms
def test_a_slice_without_nulls_is_not_refused_for_the_rest(session, form):
    column = pa.array([None, 1, 2, 3, None])
    assert send_one(session, column.slice(1, 3), form).tolist() == [1, 2, 3]
    with pytest.raises(capi.CrossdockError, match="1 of 4 rows"):
        send_one(session, column.slice(1, 4), form)


@pytest.mark.parametrize("nulls", ["error", "mask"])
def test_nulls_within_rows_are_refused_either_way(session, nulls):
    lists = pa.array([[1, 2], [3, None]], pa.list_(pa.int32(), 2))
    with pytest.raises(capi.CrossdockError, match="column 'c': 1 values within its rows are null.*fill them"):
        send_one(session, lists, nulls=nulls)
    assert send_one(session, lists.slice(0, 1)).tolist() == [[1, 2]]


MASKED = {
    "integers": pa.array([1, None, 3, None, 5, 6, 7, None, 9, 10], pa.int16()),
    "floats": pa.array([None, 2.5, None] * 50, pa.float64()),
    "booleans": pa.array([True, None, False] * 7),
    "none null": pa.array([1, 2, 3], pa.uint8()),
    "all null": pa.nulls(9, pa.float32()),
    "lists": pa.array([[1, 2], [3, 4], None, [5, 6]], pa.list_(pa.int64(), 2)).fill_null([0, 0]),
    "no rows": pa.array([], pa.int32()),
}


@forms
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("name", MASKED)
def test_a_mask_is_true_where_a_row_is_null(session, name, offset, form):
    column = MASKED[name].slice(offset)
    capsules = send(session, batch_of(c=column, d=column), form, nulls="mask")
    assert len(capsules) == 4
    for tensor, mask in (capsules[:2], capsules[2:]):
        tensor, mask = (np.from_dlpack(Lender(capsule)) for capsule in (tensor, mask))
        assert_same(column.is_null().to_numpy(zero_copy_only=False), mask)
        assert tensor.shape[0] == len(column)
        if tensor.ndim == 1:
            there = ~mask
            assert tensor[there].tolist() == column.drop_null().to_pylist()


@forms
@pytest.mark.parametrize("name", MASKED)
def test_a_column_comes_back_from_its_tensor_and_its_mask(session, name, form):
    for offset in (0, 1):
        batch = batch_of(c=MASKED[name].slice(offset))
        capsules = send(session, batch, form, nulls="mask")
        (back,) = bring(session, *capsules, schema=batch.schema, nulls="mask")
        back.validate(full=True)
        assert back.equals(batch)


@forms
def test_numpy_s_masked_arrays_come_in_as_pyarrow_makes_them(session, form):
    data, mask = sample("int32", 131), sample("bool", 131)
    (batch,) = bring(session, lend(data, form), lend(mask, form), nulls="mask", names="n")
    batch.validate(full=True)
    expected = pa.array(data, mask=mask)
    assert batch.equals(batch_of(n=expected))
    assert batch.column(0).null_count == expected.null_count
    assert batch.column(0).buffers()[1].address == data.__array_interface__["data"][0]


@forms
def test_a_mask_of_any_stride_is_read(session, form):
    data, mask = sample("int64", 40), sample("bool", 80)
    for part in (mask[::2], mask[40:][::-1]):
        (batch,) = bring(session, lend(data, form), lend(part, form), nulls="mask")
        assert batch.column(0).equals(pa.array(data, mask=part.copy()))


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.zeros(3, np.uint8), r"a tensor of uint8 of shape \[3\], expected bool of shape \[3\]"),
        (np.zeros(4, bool), r"a tensor of bool of shape \[4\], expected bool of shape \[3\]"),
        (np.zeros((3, 1), bool), r"a tensor of bool of shape \[3, 1\]"),
    ],
)
def test_a_mask_that_is_none_is_refused(session, mask, words):
    with pytest.raises(capi.CrossdockError, match=f"column 'col_0'.*mask.* {words}"):
        bring(session, lend(np.arange(3), "versioned"), lend(mask, "versioned"), nulls="mask")


def test_a_tensor_without_its_mask_is_refused(session):
    with pytest.raises(capi.CrossdockError, match="3 tensors with nulls=mask, expected an even number"):
        bring(session, *(lend(np.zeros(3, bool), "versioned") for _ in range(3)), nulls="mask")


def test_a_schema_without_nulls_holds_against_the_mask(session):
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(capi.CrossdockError, match="column 'n'.*the mask says that rows are null") as caught:
        bring(session, lend(np.arange(3), "legacy"), lend(np.ones(3, bool), "legacy"), schema=schema, nulls="mask")
    assert caught.value.code == "bad_data"
    (batch,) = bring(
        session, lend(np.arange(3), "legacy"), lend(np.zeros(3, bool), "legacy"), schema=schema, nulls="mask"
    )
    assert batch.equals(pa.record_batch([pa.array([0, 1, 2])], schema=schema))
