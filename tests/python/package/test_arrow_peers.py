"""Arrow data to and from other libraries."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

ROWS = 1000


def plain():
    """Types that all libraries support, with nulls, in chunks."""

    def every(n, values, kind):
        return pa.array([None if i % 7 == n else values(i) for i in range(ROWS)], kind)

    columns = {
        "i8": every(0, lambda i: i % 100, pa.int8()),
        "u32": every(1, lambda i: i, pa.uint32()),
        "i64": every(9, lambda i: i, pa.int64()),
        "f32": every(2, lambda i: i / 2, pa.float32()),
        "f64": every(3, lambda i: i / 3, pa.float64()),
        "bool": every(4, lambda i: i % 3 == 0, pa.bool_()),
        "text": every(5, lambda i: f"text {i}", pa.large_string()),
        "day": every(6, lambda i: i, pa.date32()),
        "when": every(0, lambda i: i * 1_000_000, pa.timestamp("us")),
        "list": every(1, lambda i: [i, None][: i % 3], pa.large_list(pa.int32())),
        "struct": every(2, lambda i: {"x": i, "y": None}, pa.struct([("x", pa.int16()), ("y", pa.float32())])),
    }
    batch = pa.record_batch(columns)
    return pa.Table.from_batches([batch.slice(0, 300), batch.slice(300, 1), batch.slice(301)])


SHAPES = {
    "chunks": lambda: plain(),
    "slice": lambda: plain().slice(5, 700),
    "no rows": lambda: plain().slice(0, 0),
    "one chunk": lambda: plain().combine_chunks(),
}


@pytest.fixture(params=SHAPES)
def table(request):
    return SHAPES[request.param]()


def assert_same(expected, got, name=""):
    """Compares the values. The library may use other Arrow types: views for text, small offsets for large
    ones."""
    assert got.column_names == expected.column_names
    for field in expected.schema:
        assert got[field.name].to_pylist() == expected[field.name].to_pylist(), f"{name} {field.name}"


def test_table_round_trips_through_polars(session, table):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(session.from_arrow(table))
    assert frame.equals(polars.from_arrow(table))
    assert_same(table, session.from_arrow(frame).to_pyarrow())
    series = polars.Series("i64", session.from_arrow(table)["i64"])
    assert series.equals(frame["i64"])
    assert session.from_arrow(series).to_pyarrow().to_pylist() == table["i64"].to_pylist()


def test_table_round_trips_through_duckdb(session, table):
    duckdb = pytest.importorskip("duckdb")
    imported = session.from_arrow(table)
    with duckdb.connect() as connection:
        connection.register("imported", imported)
        got = connection.sql("SELECT * FROM imported")
        assert_same(table, session.from_arrow(got).to_pyarrow())
        ((total,),) = connection.sql("SELECT sum(i64) FROM imported").fetchall()
        assert total == pc.sum(table["i64"]).as_py()
        # duckdb finds the local variable by its name.
        of_this_name = imported
        assert connection.sql("SELECT count(*) FROM of_this_name").fetchall() == [(of_this_name.num_rows,)]


def test_table_round_trips_through_arro3(session, table):
    arro3 = pytest.importorskip("arro3.core")
    arro3_table = arro3.Table.from_arrow(session.from_arrow(table))
    assert_same(table, pa.table(arro3_table))
    assert session.from_arrow(arro3_table).to_pyarrow().equals(table)
    column = arro3.ChunkedArray.from_arrow(session.from_arrow(table)["text"])
    assert session.from_arrow(column).to_pyarrow().equals(table["text"])
    schema = arro3.Schema.from_arrow(session.from_arrow(table).schema)
    assert pa.schema(schema).equals(table.schema, check_metadata=True)
    if table.num_rows and table["i8"].num_chunks == 1:
        assert_same(table, pa.table(arro3.RecordBatch.from_arrow(session.from_arrow(table))))


def test_table_round_trips_through_nanoarrow(session, table):
    nanoarrow = pytest.importorskip("nanoarrow")
    imported = session.from_arrow(table)
    array = nanoarrow.ArrayStream(imported).read_all()
    assert len(array) == len(table)
    assert [nanoarrow.Schema(imported.schema).field(i).name for i in range(len(table.schema))] == table.column_names
    assert list(nanoarrow.Array(imported["text"]).iter_py()) == table["text"].to_pylist()
    assert session.from_arrow(nanoarrow.Array(imported["f64"])).to_pyarrow().to_pylist() == table["f64"].to_pylist()
    assert_same(table, session.from_arrow(nanoarrow.ArrayStream(table)).to_pyarrow())


def test_column_becomes_a_numpy_array_through_pyarrow(session, table):
    numpy = pytest.importorskip("numpy")
    column = session.from_arrow(table)["i64"].to_pyarrow().drop_null()
    assert numpy.array_equal(column.to_numpy(), table["i64"].drop_null().to_numpy())


def test_table_without_columns_round_trips_through_libraries(session):
    without = pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([])))
    imported = session.from_arrow(without)
    assert (imported.num_rows, imported.num_columns) == (3, 0)
    assert pa.record_batch(imported).num_rows == 3
    arro3 = pytest.importorskip("arro3.core")
    assert arro3.RecordBatch.from_arrow(imported).num_rows == 3
    nanoarrow = pytest.importorskip("nanoarrow")
    assert nanoarrow.c_array(imported).length == 3
