"""Every Arrow type, through every protocol of Arrow's PyCapsule interface, from pyarrow and back: equal, with all metadata, and
at the same addresses where nothing has to be copied."""

import pyarrow as pa
import pytest
from peers import assert_equal, differs
from samples import SAMPLES, make, mixed


def only(obj, protocol):
    """An object that speaks one of the protocols of another one."""
    return type("Only", (), {protocol: lambda self, *args, **kwargs: getattr(obj, protocol)(*args, **kwargs)})()


def sample(name):
    """(schema, batches) as pyarrow itself has them after its own interface: it forgets types that are not registered."""
    reader = pa.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(*make(name)))
    return reader.schema, list(reader)


def addresses(array):
    """Of all buffers, in order; those that are empty may lie anywhere."""
    return [buffer.address for buffer in array.buffers() if buffer is not None and buffer.size]


def batches_of(table):
    """What a table is made of, as pyarrow has it: tables of no batches lose nothing in pa.table, empty batches do."""
    return [pa.record_batch(batch) for batch in table.batches()]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_comes_back_from_a_stream_as_it_went_in(session, name):
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
def test_every_batch_goes_in_through_each_protocol_and_comes_out_through_each(session, name, protocol):
    schema, batches = sample(name)
    for batch in batches:
        given = batch if protocol != "__arrow_c_stream__" else pa.RecordBatchReader.from_batches(schema, [batch])
        table = session.from_arrow(only(given, protocol))
        for out in ["__arrow_c_array__", "__arrow_c_device_array__"]:
            assert_equal((schema, [batch]), (schema, [pa.record_batch(only(table, out))]))
        assert_equal((schema, [batch]), (schema, list(pa.RecordBatchReader.from_stream(table))))


@pytest.mark.parametrize("protocol", ["__arrow_c_device_stream__", "__arrow_c_stream__"])
@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_goes_from_session_to_session_through_each_stream(session, name, protocol):
    schema, batches = sample(name)
    table = session.from_arrow(pa.RecordBatchReader.from_batches(schema, batches))
    again = session.from_arrow(only(table, protocol))
    assert_equal((schema, batches), (pa.schema(again), batches_of(again)))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_column_stands_alone_with_its_field(session, name):
    """As pyarrow.ChunkedArray, and each chunk as pyarrow.Array; arrays that are no structs come in as columns."""
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
def test_on_the_cpu_nothing_is_copied(session, name):
    schema, batches = sample(name)
    table = session.from_arrow(pa.RecordBatchReader.from_batches(schema, batches))
    for batch, back in zip(batches, batches_of(table), strict=True):
        for column, again in zip(batch.columns, back.columns, strict=True):
            # The sizes that a view's last buffer holds are no buffer of pyarrow's.
            assert set(addresses(again)) <= set(addresses(column)) or len(batch) == 0
    assert session.memory_used() == {}


def test_slices_and_selections_share_their_buffers(session):
    batch = mixed()
    table = session.from_arrow(pa.Table.from_batches([batch, batch.slice(3, 7), batch.slice(0, 0)]))
    for offset, length in [(0, 1), (5, 3), (130, 4), (131, 7), (138, 5), (0, None), (9, 1000), (200, 1)]:
        want = pa.Table.from_batches([batch, batch.slice(3, 7)]).slice(offset, length)
        assert table.slice(offset, length).to_pyarrow().equals(want), (offset, length)
        assert table["t"].slice(offset, length).to_pyarrow().equals(want["t"])
    chosen = table.select(["t", 0, -1, "t"])
    assert chosen.column_names == ["t", "n", "z", "t"]
    assert chosen[0].to_pyarrow().chunk(0).buffers()[1].address == batch["t"].buffers()[1].address


@pytest.mark.parametrize("name", SAMPLES)
def test_nulls_are_counted_as_pyarrow_counts_them(session, name):
    schema, batches = sample(name)
    table = session.from_arrow(pa.RecordBatchReader.from_batches(schema, batches))
    for i, _ in enumerate(schema):
        assert table[i].null_count == sum(batch.column(i).null_count for batch in batches)


def test_schemas_are_equal_where_arrow_says_so(session):
    schema, batches = sample("metadata")
    table = session.from_arrow(pa.RecordBatchReader.from_batches(schema, batches))
    assert table.schema == session.from_arrow(batches[0]).schema
    assert table.schema != table.select([0]).schema
    assert len(table.schema) == len(schema) and table.schema.names == schema.names
    assert table.schema.to_pyarrow().equals(schema, check_metadata=True)
    assert table.schema[0].to_pyarrow().equals(schema.field(0), check_metadata=True)
    assert table.schema.metadata == {k.decode(): v.decode() for k, v in schema.metadata.items()}


def test_what_bytes_are_there_is_told(session):
    table = session.from_arrow(pa.table({"a": pa.array(range(1000), pa.int64()), "b": pa.array([1.0] * 1000)}))
    assert table.nbytes == 16_000 and table["a"].nbytes == 8_000 and table.device == table["a"].device == "cpu"
