"""All Arrow types through all protocols of Arrow's PyCapsule interface, from pyarrow and back: values and
metadata are equal. If no copy is needed, the addresses are equal too."""

import pyarrow as pa
import pytest
from peers import assert_equal, differs
from samples import SAMPLES, make, mixed


def only(obj, protocol):
    """Returns an object that implements only the given protocol of `obj`."""
    return type("Only", (), {protocol: lambda self, *args, **kwargs: getattr(obj, protocol)(*args, **kwargs)})()


def sample(name):
    """Returns (schema, batches) after a round trip through pyarrow, which drops types that are not
    registered."""
    reader = pa.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(*make(name)))
    return reader.schema, list(reader)


def addresses(array):
    """Returns the addresses of all buffers that are not empty, in order."""
    return [buffer.address for buffer in array.buffers() if buffer is not None and buffer.size]


def batches_of(table):
    """Returns the parts of a table to compare. pa.table keeps a table without batches, but drops empty
    batches."""
    return [pa.record_batch(batch) for batch in table.batches()]


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_round_trip_through_a_stream(session, name):
    schema, batches = sample(name)
    table = session.from_arrow(pa.RecordBatchReader.from_batches(schema, batches))
    assert (table.num_rows, table.num_columns) == (sum(map(len, batches)), len(schema))
    reader = pa.RecordBatchReader.from_stream(table)
    assert_equal((schema, batches), (reader.schema, list(reader)))
    assert_equal((schema, batches), (pa.schema(table), batches_of(table)))
    whole = table.to_pyarrow()
    assert whole.schema.equals(schema, check_metadata=True) and whole.num_rows == table.num_rows


@pytest.mark.parametrize("protocol", ["__arrow_c_array__", "__arrow_c_device_array__", "__arrow_c_stream__"])
@pytest.mark.parametrize("name", SAMPLES)
def test_batches_round_trip_through_each_pair_of_protocols(session, name, protocol):
    schema, batches = sample(name)
    for batch in batches:
        source = batch if protocol != "__arrow_c_stream__" else pa.RecordBatchReader.from_batches(schema, [batch])
        table = session.from_arrow(only(source, protocol))
        for out in ["__arrow_c_array__", "__arrow_c_device_array__"]:
            assert_equal((schema, [batch]), (schema, [pa.record_batch(only(table, out))]))
        assert_equal((schema, [batch]), (schema, list(pa.RecordBatchReader.from_stream(table))))


@pytest.mark.parametrize("protocol", ["__arrow_c_device_stream__", "__arrow_c_stream__"])
@pytest.mark.parametrize("name", SAMPLES)
def test_each_stream_protocol_passes_samples_between_sessions(session, name, protocol):
    schema, batches = sample(name)
    table = session.from_arrow(pa.RecordBatchReader.from_batches(schema, batches))
    again = session.from_arrow(only(table, protocol))
    assert_equal((schema, batches), (pa.schema(again), batches_of(again)))


@pytest.mark.parametrize("name", SAMPLES)
def test_columns_round_trip_with_their_field(session, name):
    """A column makes a round trip as pyarrow.ChunkedArray, and each chunk as pyarrow.Array. Arrays that are
    not struct arrays become columns."""
    schema, batches = sample(name)
    table = session.from_arrow(pa.RecordBatchReader.from_batches(schema, batches))
    for i, field in enumerate(schema):
        column = table[i]
        assert (column.name, len(column), column.num_chunks) == (field.name, table.num_rows, len(batches))
        assert pa.field(column).equals(field, check_metadata=True)
        assert pa.field(column.field).equals(field, check_metadata=True)
        chunks = [column.chunk(n) for n in range(column.num_chunks)]
        for chunk, batch in zip(chunks, batches, strict=True):
            assert differs(batch.column(i), pa.array(chunk)) is None
        assert len(column.to_pyarrow()) == len(column)
        if not pa.types.is_struct(field.type):
            again = session.from_arrow(column)
            assert (type(again), pa.field(again)) == (type(column), field)


@pytest.mark.parametrize("name", SAMPLES)
def test_cpu_round_trip_copies_nothing(session, name):
    schema, batches = sample(name)
    table = session.from_arrow(pa.RecordBatchReader.from_batches(schema, batches))
    for batch, back in zip(batches, batches_of(table), strict=True):
        for column, again in zip(batch.columns, back.columns, strict=True):
            # pyarrow does not list the last buffer of a view array. This buffer has the sizes of
            # the array's data buffers.
            assert set(addresses(again)) <= set(addresses(column)) or len(batch) == 0
    assert session.memory_used() == {}


def test_slices_and_selections_share_their_buffers(session):
    batch = mixed()
    table = session.from_arrow(pa.Table.from_batches([batch, batch.slice(3, 7), batch.slice(0, 0)]))
    for offset, length in [(0, 1), (5, 3), (130, 4), (131, 7), (138, 5), (0, None), (9, 1000), (200, 1)]:
        expected = pa.Table.from_batches([batch, batch.slice(3, 7)]).slice(offset, length)
        assert table.slice(offset, length).to_pyarrow().equals(expected), (offset, length)
        assert table["t"].slice(offset, length).to_pyarrow().equals(expected["t"])
    chosen = table.select(["t", 0, -1, "t"])
    assert chosen.column_names == ["t", "n", "z", "t"]
    assert chosen[0].to_pyarrow().chunk(0).buffers()[1].address == batch["t"].buffers()[1].address


@pytest.mark.parametrize("name", SAMPLES)
def test_null_counts_equal_those_of_pyarrow(session, name):
    schema, batches = sample(name)
    table = session.from_arrow(pa.RecordBatchReader.from_batches(schema, batches))
    for i, _ in enumerate(schema):
        assert table[i].null_count == sum(batch.column(i).null_count for batch in batches)


def test_schema_equality_follows_arrow(session):
    schema, batches = sample("metadata")
    table = session.from_arrow(pa.RecordBatchReader.from_batches(schema, batches))
    assert table.schema == session.from_arrow(batches[0]).schema
    assert table.schema != table.select([0]).schema
    assert len(table.schema) == len(schema) and table.schema.names == schema.names
    assert table.schema.to_pyarrow().equals(schema, check_metadata=True)
    assert table.schema[0].to_pyarrow().equals(schema.field(0), check_metadata=True)
    assert table.schema.metadata == {k.decode(): v.decode() for k, v in schema.metadata.items()}


def test_nbytes_counts_the_buffers(session):
    table = session.from_arrow(pa.table({"a": pa.array(range(1000), pa.int64()), "b": pa.array([1.0] * 1000)}))
    assert table.nbytes == 16_000 and table["a"].nbytes == 8_000 and table.device == table["a"].device == "cpu"
