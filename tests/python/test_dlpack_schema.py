"""Tensors held against a schema, which then says what they are."""

import capi
import numpy as np
import pyarrow as pa
import pytest
from tensors import FORMATS, assert_same, bring, copied, lend, sample, values

forms = pytest.mark.parametrize("form", FORMATS)


@pytest.mark.parametrize(
    ("field", "array", "words"),
    [
        (pa.int32(), np.zeros(3, np.int64), "column 'c' is a tensor of int64, expected int32 by the schema"),
        (pa.uint8(), np.zeros(3, bool), "column 'c' is a tensor of bool, expected uint8 by the schema"),
        (pa.int8(), np.zeros(3, bool), "column 'c' is a tensor of bool, expected int8 by the schema"),
        (pa.bool8(), np.zeros(3, np.int8), "column 'c' is a tensor of int8, expected bool by the schema"),
        (pa.float64(), np.zeros((3, 2)), r"shape \[3, 2\], expected \[3\] by the schema"),
        (pa.list_(pa.float64(), 2), np.zeros(3), r"shape \[3\], expected \[3, 2\] by the schema"),
        (pa.list_(pa.float64(), 2), np.zeros((3, 3)), r"shape \[3, 3\], expected \[3, 2\]"),
        (pa.fixed_shape_tensor(pa.float64(), [2, 3]), np.zeros((4, 6)), r"shape \[4, 6\], expected \[4, 2, 3\]"),
        (pa.fixed_shape_tensor(pa.float64(), [2, 3], permutation=[1, 0]), np.zeros((4, 2, 3)), r"expected \[4, 3, 2\]"),
    ],
)
def test_a_tensor_that_is_not_the_schema_s_is_refused(session, field, array, words):
    with pytest.raises(capi.CrossdockError, match=words) as caught:
        bring(session, lend(array, "versioned"), schema=pa.schema([("c", field)]))
    assert caught.value.code == "invalid_argument"


def test_a_schema_that_dlpack_cannot_hold_is_refused(session):
    with pytest.raises(capi.CrossdockError, match="column 'c' of type Utf8"):
        bring(session, lend(np.arange(3), "versioned"), schema=pa.schema([("c", pa.string())]))


def test_the_number_of_tensors_is_held_against_that_of_columns(session):
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    with pytest.raises(capi.CrossdockError, match="3 tensors for 2 columns"):
        bring(session, *(lend(np.arange(3), "versioned") for _ in range(3)), schema=schema)
    capsules = [lend(np.arange(3) + i, "versioned") for i in range(4)]
    batches = bring(session, *capsules, schema=schema)
    assert [batch.to_pydict() for batch in batches] == [
        {"a": [0, 1, 2], "b": [1, 2, 3]},
        {"a": [2, 3, 4], "b": [3, 4, 5]},
    ]
    with pytest.raises(capi.CrossdockError, match="0 tensors|no capsules"):
        bring(session, schema=schema)


@forms
def test_rows_must_be_as_many_in_each_column(session, form):
    with pytest.raises(capi.CrossdockError, match="column 'b'.* 4 rows.*, expected 3 as the first column"):
        bring(session, lend(np.arange(3), form), lend(np.arange(4), form), names="a,b")


def test_names_are_those_given_or_numbers(session):
    def capsules():
        return lend(np.arange(3), "versioned"), lend(np.arange(3), "legacy")

    assert bring(session, *capsules())[0].schema.names == ["col_0", "col_1"]
    assert bring(session, *capsules(), names="x,é")[0].schema.names == ["x", "é"]
    with pytest.raises(capi.CrossdockError, match="1 names for 2 columns"):
        bring(session, *capsules(), names="x")
    with pytest.raises(capi.CrossdockError, match="names and a schema were given"):
        bring(session, *capsules(), names="x,y", schema=pa.schema([("a", pa.int64()), ("b", pa.int64())]))


def test_a_schema_s_types_names_and_metadata_are_the_batch_s(host, session):
    array = np.asfortranarray(sample("float32", (2, 3)))[None].repeat(5, 0)
    array = np.ascontiguousarray(array.transpose(0, 2, 1)).transpose(0, 2, 1)
    tensor = pa.fixed_shape_tensor(pa.float32(), [3, 2], permutation=[1, 0], dim_names=["h", "w"])
    fields = [
        pa.field("t", tensor, metadata={"unit": "m"}),
        pa.field("s", pa.uint32(), metadata={"xlog.symbol": "true"}),
        pa.field("b", pa.bool8()),
    ]
    schema = pa.schema(fields, metadata={"from": "elsewhere"})
    arrays = [array, sample("uint32", 5), sample("bool", 5)]
    (batch,) = bring(session, *(lend(a, "versioned") for a in arrays), schema=schema)
    assert batch.schema.equals(schema, check_metadata=True)
    for column, expected in zip(batch.columns, arrays):
        assert_same(expected, values(column))
    assert copied(host) == 0 and host.ledger()["live_bytes"] == 0


def test_booleans_are_bits_where_the_schema_says_so(session):
    array = sample("bool", (9, 5))
    (batch,) = bring(session, lend(array, "legacy"), schema=pa.schema([("c", pa.list_(pa.bool_(), 5))]))
    assert_same(array, values(batch.column(0)))


def test_dimensions_in_the_schema_s_order_are_gathered_where_they_lie_otherwise(session):
    array = np.ascontiguousarray(sample("int32", (4, 3, 2)).transpose(0, 2, 1)).transpose(0, 2, 1)
    (batch,) = bring(session, lend(array, "versioned"), schema=pa.schema([("c", pa.list_(pa.list_(pa.int32(), 2), 3))]))
    assert_same(array, values(batch.column(0)))


def test_only_capsules_of_tensors_are_taken(session):
    with pytest.raises(capi.CrossdockError, match="dlpack.* speaks through capsules"):
        session.read(__file__, format="dlpack")
    with pytest.raises(capi.CrossdockError, match="dlpack.* speaks through capsules"):
        session.write("never.dlpack", pa.schema([("a", pa.int8())]), format="dlpack")
