"""Queries of a local Spark on scans, through the data source crossdock."""

import os
import shutil
import sys

import pyarrow as pa
import pytest

import crossdock as cd

pyspark_sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java", allow_module_level=True)

import crossdock.spark  # noqa: E402
from pyspark.sql.datasource import EqualTo, GreaterThan, InputPartition, LessThan, Not  # noqa: E402


@pytest.fixture(scope="module")
def spark():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = pyspark_sql.SparkSession.builder.master("local[2]")
    builder = builder.config("spark.ui.enabled", False).config("spark.sql.session.timeZone", "UTC")
    session = builder.config("spark.sql.python.filterPushdown.enabled", True).getOrCreate()
    session.dataSource.register(crossdock.spark.Source)
    yield session
    session.stop()


@pytest.fixture
def values():
    """A table with types that Spark has, and types that it lacks."""
    n = 1000
    return pa.table(
        {
            "number": pa.array([None if i % 5 == 0 else i for i in range(n)], pa.int64()),
            "unsigned": pa.array(range(n), pa.uint32()),
            "large": pa.array([2**64 - 1 - i for i in range(n)], pa.uint64()),
            "double": [float("nan") if i % 100 == 0 else i / 2 for i in range(n)],
            "text": [f"text {i}" for i in range(n)],
            "word": pa.array(["a", "b", None, "c"] * (n // 4)).dictionary_encode(),
            "list": pa.array([list(range(i % 4)) for i in range(n)], pa.large_list(pa.int16())),
            "struct": pa.array([{"x": i, "y": [str(i)]} for i in range(n)]),
            "time": pa.array(range(n), pa.timestamp("ms", "UTC")),
            "bytes": pa.array([bytes([i % 256]) for i in range(n)], pa.large_binary()),
        }
    )


def write(table, path, rows=None):
    cd.default_session().from_arrow(pa.Table.from_batches(table.to_batches(max_chunksize=rows))).write_ipc(path)


def read(spark, path, **options):
    return spark.read.format("crossdock").options(**options).load(str(path))


def test_each_type_has_the_values_of_the_file(spark, values, tmp_path):
    for i in range(4):
        write(values.slice(i * 250, 250), tmp_path / f"{i}.arrow", 100)
    frame = read(spark, tmp_path)
    assert frame.rdd.getNumPartitions() == 4
    got = frame.toArrow()
    assert got.num_rows == 1000 and got.column_names == values.column_names
    for name in values.column_names:
        column = values[name]
        expected = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        found, expected = got[name].to_pylist(), expected.to_pylist()
        assert repr(found) == repr(expected) or [int(v) for v in found] == expected, name


def test_queries_have_the_results_of_pyarrow(spark, values, tmp_path):
    for i in range(3):
        write(values.slice(i * 300, 300), tmp_path / f"{i}.arrow", 100)
    read(spark, tmp_path, pushdown=True).createOrReplaceTempView("t")
    cases = {
        "SELECT count(*) FROM t": [(900,)],
        "SELECT count(*) FROM t WHERE number > 500 AND text < 'text 7'": [
            (sum(1 for i in range(501, 900) if i % 5 and f"text {i}" < "text 7"),)
        ],
        # NaN is greater than all other numbers in Spark.
        "SELECT count(*) FROM t WHERE double > 400": [(99 + 9,)],
        "SELECT count(*) FROM t WHERE double = double('NaN')": [(9,)],
        "SELECT count(*) FROM t WHERE double < 10": [(19,)],
        "SELECT word, count(*) FROM t WHERE unsigned >= 890 GROUP BY word ORDER BY word": [
            (None, 3),
            ("a", 2),
            ("b", 2),
            ("c", 3),
        ],
        "SELECT sum(struct.x) FROM t WHERE struct.x <= 3": [(6,)],
    }
    for query, expected in cases.items():
        assert [tuple(row) for row in spark.sql(query).collect()] == expected, query


def test_scan_reads_only_the_requested_columns_and_evaluates_comparisons(values, tmp_path):
    write(values, tmp_path / "a.arrow", 100)
    source = crossdock.spark.Source(
        {"path": str(tmp_path / "a.arrow"), "columns": "number, double", "pushdown": "true"}
    )
    assert source.schema().names == ["number", "double"]
    reader = source.reader(source.schema())
    filters = [
        EqualTo(("number",), 7),
        GreaterThan(("double",), 1.0),
        LessThan(("double",), 5.0),
        Not(EqualTo(("number",), 8)),
        EqualTo(("number",), None),
    ]
    assert list(reader.pushFilters(filters)) == filters
    assert reader._filter == [(["number"], "==", 7), (["double"], "<", 5.0)]
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert pa.Table.from_batches(batches).to_pylist() == [{"number": 7, "double": 3.5}]
    assert list(reader.read(InputPartition(None))) == []


def test_options_of_the_format_apply(spark, tmp_path):
    (tmp_path / "a.txt").write_text("id;name\n1;x\n2;y\n")
    frame = read(spark, tmp_path / "a.txt", format="csv", delimiter=";")
    assert [tuple(row) for row in frame.collect()] == [(1, "x"), (2, "y")]


def test_errors_name_the_column_and_what_to_do(spark, tmp_path):
    write(
        pa.table({"a": [1], "b": pa.array([1], pa.decimal256(50)), "c": pa.array([1], pa.timestamp("ns"))}),
        tmp_path / "a.arrow",
    )
    with pytest.raises(Exception, match="column 'b' .*which Spark lacks: leave it out with the option columns"):
        read(spark, tmp_path / "a.arrow", columns="a,b").collect()
    with pytest.raises(Exception, match="column 'c' cannot be converted to timestamp"):
        read(spark, tmp_path / "a.arrow", columns="a,c").collect()
    assert [tuple(row) for row in read(spark, tmp_path / "a.arrow", columns="a").collect()] == [(1,)]
    with pytest.raises(Exception, match="needs a path"):
        spark.read.format("crossdock").load().collect()
