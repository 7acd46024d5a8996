"""Types are printed as pyarrow prints them."""

import nanoarrow as na
import pyarrow as pa
import pytest

INTERVALS = [
    pa.field(na.Schema(interval)).type
    for interval in (na.Type.INTERVAL_MONTHS, na.Type.INTERVAL_DAY_TIME, na.Type.INTERVAL_MONTH_DAY_NANO)
]
FLAT = [
    *(pa.null(), pa.bool_()),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(16)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(
        pa.timestamp(unit, zone)
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "Europe/Berlin", "+01:00")
    ),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *INTERVALS,
    *(pa.decimal32(9, 2), pa.decimal64(18, -3), pa.decimal128(10, 2), pa.decimal256(76, 38)),
]
REQUIRED = pa.field("x y", pa.int32(), False)
NESTED = [
    *(pa.list_(pa.int32()), pa.list_(REQUIRED), pa.large_list(REQUIRED), pa.list_(REQUIRED, 3)),
    *(pa.list_view(REQUIRED), pa.large_list_view(REQUIRED)),
    *(pa.struct([]), pa.struct([REQUIRED, pa.field("", pa.string())])),
    *(pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), REQUIRED), pa.map_(pa.string(), pa.int64(), True)),
    *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.uint16(), pa.date32(), True)),
    *(pa.run_end_encoded(run_ends, pa.string()) for run_ends in (pa.int16(), pa.int32(), pa.int64())),
    *(union([REQUIRED, pa.field("b", pa.string())]) for union in (pa.dense_union, pa.sparse_union)),
    *(union([REQUIRED, pa.field("b", pa.string())], [7, 3]) for union in (pa.dense_union, pa.sparse_union)),
]


def wrap(type):
    """Nested types that contain the type."""
    yield pa.list_(type)
    yield pa.large_list(pa.field("item", type, pa.types.is_null(type)))
    yield pa.list_(type, 2)
    yield pa.struct([pa.field("a", type, pa.types.is_null(type)), pa.field("b", pa.list_(type))])
    yield pa.map_(pa.string(), type)
    yield pa.dense_union([pa.field("a", type)])
    if not pa.types.is_dictionary(type):
        yield pa.run_end_encoded(pa.int32(), type)


class WithSchema:
    """An empty table of a schema. pyarrow cannot create arrays of every type."""

    def __init__(self, schema):
        self.schema = schema

    def __arrow_c_schema__(self):
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.RecordBatchReader.from_batches(self.schema, []).__arrow_c_stream__()


def schema_of(session, types):
    fields = [pa.field(str(i), type, i % 2 == 0 or pa.types.is_null(type)) for i, type in enumerate(types)]
    return session.from_arrow(WithSchema(pa.schema(fields)))


@pytest.mark.parametrize("types", [FLAT, NESTED], ids=["flat", "nested"])
def test_types_are_printed_as_by_pyarrow(session, types):
    table = schema_of(session, types)
    assert [table.schema[i].type for i in range(len(types))] == [str(type) for type in types]
    assert [column.type for column in table.columns] == [str(type) for type in types]
    nulls = ["" if i % 2 == 0 else " not null" for i in range(len(types))]
    lines = [f"{i}: {type}{null}" for i, (type, null) in enumerate(zip(types, nulls, strict=True))]
    assert repr(table.schema).splitlines() == lines


def test_types_in_nested_types_are_printed_as_by_pyarrow(session):
    types = [outer for type in FLAT + NESTED for outer in wrap(type)]
    table = schema_of(session, types)
    assert [column.type for column in table.columns] == [str(type) for type in types]
    twice = [outer for inner in types for outer in wrap(inner)]
    assert [column.type for column in schema_of(session, twice).columns] == [str(type) for type in twice]


def test_unusual_names_in_maps_are_printed_as_by_pyarrow(session):
    map_ = pa.map_(pa.field("keys", pa.string(), False), pa.field("values", pa.int64()))
    assert schema_of(session, [map_])[0].type == str(map_) == "map<string ('keys'), int64 ('values')>"


def test_extension_type_is_printed_as_its_storage_type(session):
    column = session.from_arrow(pa.array([b"0123456789abcdef"], pa.uuid()))
    assert column.type == str(pa.uuid().storage_type) == "fixed_size_binary[16]"
    assert column.field.metadata["ARROW:extension:name"] == "arrow.uuid"


def test_columns_encoded_arrays_and_tables_show_types(session):
    column = session.from_arrow(pa.array([1, 2], pa.uint32()))
    assert repr(column).startswith('crossdock.Column "": uint32, 2 values')
    encoded = column.encode("fastlanes.for")
    assert encoded.type == "uint32" and repr(encoded).endswith("of uint32, 2 values")
    table = session.from_arrow(pa.table({"a": pa.array([True])}))
    assert "bool" in repr(table) and ">bool</th>" in table._repr_html_()
