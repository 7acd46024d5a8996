"""Nulls in DLPack exports are rejected, or passed as masks."""

import capi
import numpy as np
import pyarrow as pa
import pytest
from tensors import FORMATS, Producer, assert_same, import_batches, capsule_of, sample, export_batch, export_column

forms = pytest.mark.parametrize("form", FORMATS)


def batch_of(**columns):
    return pa.record_batch(list(columns.values()), names=list(columns))


@forms
def test_error_for_nulls_names_column_and_advice(session, form):
    batch = batch_of(whole=pa.array([1, 2, 3]), part=pa.array([1, None, None]))
    with pytest.raises(capi.CrossdockError, match="batch 0: column 'part': 2 of 3 rows are null") as caught:
        export_batch(session, batch, form)
    assert caught.value.code == "unsupported"
    for advice in ("fill them (Column.fill_null) or drop them", "leave the column out", "nulls=mask"):
        assert advice in str(caught.value)


@forms
def test_slice_without_nulls_is_accepted(session, form):
    column = pa.array([None, 1, 2, 3, None])
    assert export_column(session, column.slice(1, 3), form).tolist() == [1, 2, 3]
    with pytest.raises(capi.CrossdockError, match="1 of 4 rows"):
        export_column(session, column.slice(1, 4), form)


@pytest.mark.parametrize("nulls", ["error", "mask"])
def test_rejects_nulls_within_rows(session, nulls):
    lists = pa.array([[1, 2], [3, None]], pa.list_(pa.int32(), 2))
    with pytest.raises(capi.CrossdockError, match="column 'c': 1 values within its rows are null.*fill them"):
        export_column(session, lists, nulls=nulls)
    assert export_column(session, lists.slice(0, 1)).tolist() == [[1, 2]]


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
def test_mask_is_true_for_null_rows(session, name, offset, form):
    column = MASKED[name].slice(offset)
    capsules = export_batch(session, batch_of(c=column, d=column), form, nulls="mask")
    assert len(capsules) == 4
    for tensor, mask in (capsules[:2], capsules[2:]):
        tensor, mask = (np.from_dlpack(Producer(capsule)) for capsule in (tensor, mask))
        assert_same(column.is_null().to_numpy(zero_copy_only=False), mask)
        assert tensor.shape[0] == len(column)
        if tensor.ndim == 1:
            is_present = ~mask
            assert tensor[is_present].tolist() == column.drop_null().to_pylist()


@forms
@pytest.mark.parametrize("name", MASKED)
def test_column_round_trips_with_its_mask(session, name, form):
    for offset in (0, 1):
        batch = batch_of(c=MASKED[name].slice(offset))
        capsules = export_batch(session, batch, form, nulls="mask")
        (back,) = import_batches(session, *capsules, schema=batch.schema, nulls="mask")
        back.validate(full=True)
        assert back.equals(batch)


@forms
def test_masked_arrays_of_numpy_have_the_values_that_pyarrow_reads(session, form):
    data, mask = sample("int32", 131), sample("bool", 131)
    (batch,) = import_batches(session, capsule_of(data, form), capsule_of(mask, form), nulls="mask", names="n")
    batch.validate(full=True)
    expected = pa.array(data, mask=mask)
    assert batch.equals(batch_of(n=expected))
    assert batch.column(0).null_count == expected.null_count
    assert batch.column(0).buffers()[1].address == data.__array_interface__["data"][0]


@forms
def test_mask_may_have_any_stride(session, form):
    data, mask = sample("int64", 40), sample("bool", 80)
    for part in (mask[::2], mask[40:][::-1]):
        (batch,) = import_batches(session, capsule_of(data, form), capsule_of(part, form), nulls="mask")
        assert batch.column(0).equals(pa.array(data, mask=part.copy()))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.zeros(3, np.uint8), r"a tensor of uint8 of shape \[3\], expected bool of shape \[3\]"),
        (np.zeros(4, bool), r"a tensor of bool of shape \[4\], expected bool of shape \[3\]"),
        (np.zeros((3, 1), bool), r"a tensor of bool of shape \[3, 1\]"),
    ],
)
def test_rejects_invalid_mask(session, mask, message):
    with pytest.raises(capi.CrossdockError, match=f"column 'col_0'.*mask.* {message}"):
        import_batches(session, capsule_of(np.arange(3), "versioned"), capsule_of(mask, "versioned"), nulls="mask")


def test_rejects_tensor_without_its_mask(session):
    with pytest.raises(capi.CrossdockError, match="3 tensors with nulls=mask, expected an even number"):
        import_batches(session, *(capsule_of(np.zeros(3, bool), "versioned") for _ in range(3)), nulls="mask")


def test_rejects_mask_of_non_nullable_field(session):
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(capi.CrossdockError, match="column 'n'.*the mask marks 3 rows as null") as caught:
        import_batches(
            session,
            capsule_of(np.arange(3), "legacy"),
            capsule_of(np.ones(3, bool), "legacy"),
            schema=schema,
            nulls="mask",
        )
    assert caught.value.code == "bad_data"
    (batch,) = import_batches(
        session,
        capsule_of(np.arange(3), "legacy"),
        capsule_of(np.zeros(3, bool), "legacy"),
        schema=schema,
        nulls="mask",
    )
    assert batch.equals(pa.record_batch([pa.array([0, 1, 2])], schema=schema))
