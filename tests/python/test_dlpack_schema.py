"""Import of tensors with a schema."""

import capi
import numpy as np
import pyarrow as pa
import pytest
from tensors import FORMATS, assert_same, import_batches, copied_bytes, capsule_of, sample, values

forms = pytest.mark.parametrize("form", FORMATS)


@pytest.mark.parametrize(
    ("field", "array", "message"),
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
def test_rejects_tensor_of_another_type(session, field, array, message):
    with pytest.raises(capi.CrossdockError, match=message) as caught:
        import_batches(session, capsule_of(array, "versioned"), schema=pa.schema([("c", field)]))
    assert caught.value.code == "invalid_argument"


def test_rejects_unsupported_schema(session):
    with pytest.raises(capi.CrossdockError, match="column 'c' of type string"):
        import_batches(session, capsule_of(np.arange(3), "versioned"), schema=pa.schema([("c", pa.string())]))


def test_rejects_wrong_number_of_tensors(session):
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    with pytest.raises(capi.CrossdockError, match="3 tensors for 2 columns"):
        import_batches(session, *(capsule_of(np.arange(3), "versioned") for _ in range(3)), schema=schema)
    capsules = [capsule_of(np.arange(3) + i, "versioned") for i in range(4)]
    batches = import_batches(session, *capsules, schema=schema)
    assert [batch.to_pydict() for batch in batches] == [
        {"a": [0, 1, 2], "b": [1, 2, 3]},
        {"a": [2, 3, 4], "b": [3, 4, 5]},
    ]
    with pytest.raises(capi.CrossdockError, match="n_capsules is 0"):
        import_batches(session, schema=schema)


@forms
def test_rejects_columns_of_different_length(session, form):
    with pytest.raises(capi.CrossdockError, match="column 'b'.* 4 rows.*, expected 3 like the first column"):
        import_batches(session, capsule_of(np.arange(3), form), capsule_of(np.arange(4), form), names="a,b")


def test_default_column_names_are_numbers(session):
    def capsules():
        return capsule_of(np.arange(3), "versioned"), capsule_of(np.arange(3), "legacy")

    assert import_batches(session, *capsules())[0].schema.names == ["col_0", "col_1"]
    assert import_batches(session, *capsules(), names="x,é")[0].schema.names == ["x", "é"]
    with pytest.raises(capi.CrossdockError, match="1 names for 2 columns"):
        import_batches(session, *capsules(), names="x")
    with pytest.raises(capi.CrossdockError, match="names and a schema were given"):
        import_batches(session, *capsules(), names="x,y", schema=pa.schema([("a", pa.int64()), ("b", pa.int64())]))


def test_batch_has_the_schemas_types_names_and_metadata(host, session):
    array = np.asfortranarray(sample("float32", (2, 3)))[None].repeat(5, 0)
    array = np.ascontiguousarray(array.transpose(0, 2, 1)).transpose(0, 2, 1)
    tensor = pa.fixed_shape_tensor(pa.float32(), [3, 2], permutation=[1, 0], dim_names=["h", "w"])
    fields = [
        pa.field("t", tensor, metadata={"unit": "m"}),
        pa.field("s", pa.uint32(), metadata={"xlog.symbol": "true"}),
        pa.field("b", pa.bool8()),
    ]
    schema = pa.schema(fields, metadata={"origin": "test"})
    arrays = [array, sample("uint32", 5), sample("bool", 5)]
    (batch,) = import_batches(session, *(capsule_of(a, "versioned") for a in arrays), schema=schema)
    assert batch.schema.equals(schema, check_metadata=True)
    for column, expected in zip(batch.columns, arrays):
        assert_same(expected, values(column))
    assert copied_bytes(host) == 0 and host.ledger()["live_bytes"] == 0


def test_bool_schema_converts_booleans_to_bits(session):
    array = sample("bool", (9, 5))
    (batch,) = import_batches(session, capsule_of(array, "legacy"), schema=pa.schema([("c", pa.list_(pa.bool_(), 5))]))
    assert_same(array, values(batch.column(0)))


def test_gathers_dimensions_into_the_schemas_order(session):
    array = np.ascontiguousarray(sample("int32", (4, 3, 2)).transpose(0, 2, 1)).transpose(0, 2, 1)
    (batch,) = import_batches(
        session, capsule_of(array, "versioned"), schema=pa.schema([("c", pa.list_(pa.list_(pa.int32(), 2), 3))])
    )
    assert_same(array, values(batch.column(0)))


def test_accepts_only_capsules_of_tensors(session):
    with pytest.raises(capi.CrossdockError, match="dlpack.* passes batches through capsules"):
        session.read(__file__, format="dlpack")
    with pytest.raises(capi.CrossdockError, match="dlpack.* passes batches through capsules"):
        session.write("never.dlpack", pa.schema([("a", pa.int8())]), format="dlpack")
