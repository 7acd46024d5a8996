"""Datasets of pyarrow that read from scans, and queries of DuckDB on them, compared with the same table in memory."""

import datetime
import decimal

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from conftest import write_in_batches

import crossdock as cd
import crossdock.dataset
from crossdock.dataset import comparisons

ROWS = 1000
FIELD = ds.field


def values():
    day = datetime.datetime(2024, 2, 28)
    return pa.table(
        {
            "i": pa.array([None if i % 7 == 0 else i - 500 for i in range(ROWS)], pa.int32()),
            "u": pa.array(range(ROWS), pa.uint64()),
            "f": pa.array([float("nan") if i % 5 == 0 else i / 4 for i in range(ROWS)]),
            "f32": pa.array([i / 10 for i in range(ROWS)], pa.float32()),
            "t": [None if i % 11 == 0 else f"text {i % 20}" for i in range(ROWS)],
            "word": pa.array(["a", "b", "c", None] * (ROWS // 4)).dictionary_encode(),
            "flag": [None if i % 13 == 0 else i % 2 == 0 for i in range(ROWS)],
            "day": [(day + datetime.timedelta(days=i)).date() for i in range(ROWS)],
            "time": pa.array([day + datetime.timedelta(minutes=i) for i in range(ROWS)], pa.timestamp("us")),
            "price": pa.array([decimal.Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(9, 2)),
            "odd name": range(ROWS),
            "and": range(ROWS),
        }
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("dataset") / "values.arrow"
    write_in_batches(values(), path, 300)
    return path


QUERIES = [
    "SELECT * FROM {0}",
    "SELECT count(*) FROM {0}",
    "SELECT i, t FROM {0} WHERE u >= 990",
    "SELECT i FROM {0} WHERE i > 5 AND t = 'text 3' AND u <> 3",
    "SELECT u FROM {0} WHERE i > 5 OR t < 'text 2'",
    "SELECT u FROM {0} WHERE i IN (1, 2, 3)",
    "SELECT u FROM {0} WHERE i IS NULL AND u < 100",
    "SELECT u FROM {0} WHERE NOT (i > 5)",
    "SELECT u FROM {0} WHERE f > 100.5",
    "SELECT u FROM {0} WHERE f < 100.5 AND f <> 0.25",
    "SELECT u FROM {0} WHERE f32 = 0.1",
    "SELECT u FROM {0} WHERE word = 'a' AND flag",
    "SELECT u FROM {0} WHERE flag = false",
    "SELECT u FROM {0} WHERE day <= DATE '2024-02-29' AND i < 0",
    "SELECT u FROM {0} WHERE time > TIMESTAMP '2024-02-28 03:00:00.5'",
    "SELECT u FROM {0} WHERE price > 200.5",
    """SELECT u FROM {0} WHERE "odd name" > 990 AND "and" < 995""",
    "SELECT t, sum(u) FROM {0} WHERE i > 0 GROUP BY t ORDER BY t",
    "SELECT u FROM {0} WHERE t = 'text \"3' OR t = '(i > 5)'",
    "SELECT u FROM {0} LIMIT 3",
]


@pytest.mark.parametrize("query", QUERIES)
def test_query_of_duckdb_equals_that_of_a_table(path, query):
    scanned, table = crossdock.dataset.Dataset(path), values()
    assert scanned.schema.equals(table.schema)
    with duckdb.connect() as connection:
        connection.register("scanned", scanned)
        connection.register("loaded", table)
        results = [str(connection.sql(query.format(name)).fetchall()) for name in ("scanned", "loaded")]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (FIELD("i") > pa.scalar(5, pa.int32()), [("i", ">", 5)]),
        (FIELD("t") == "text 3", [("t", "==", "text 3")]),
        (FIELD("word") == "a", [("word", "==", "a")]),
        (
            (FIELD("t") == "a") & (FIELD("u") != pa.scalar(3, pa.uint64())) & (FIELD("f") <= 2.5),
            [("t", "==", "a"), ("u", "!=", 3), ("f", "<=", 2.5)],
        ),
        (FIELD("day") < datetime.date(2024, 3, 1), [("day", "<", datetime.date(2024, 3, 1))]),
        (FIELD("flag") == True, [("flag", "==", True)]),  # noqa: E712
        # Constants of another type, and texts that look like expressions.
        (FIELD("i") > pa.scalar(5, pa.int64()), []),
        (FIELD("t") == 'a" and (u > 5)', []),
        (FIELD("t") == "(u > 5) and (i > 3)", [("t", "==", "(u > 5) and (i > 3)")]),
        ((FIELD("t") == "a") | (FIELD("u") > pa.scalar(5, pa.uint64())), []),
        (FIELD("i").is_null(), []),
        (FIELD("i") > FIELD("u"), []),
        (FIELD("odd name") > 5, []),
    ],
)
def test_comparisons_of_a_filter(filter, expected):
    assert comparisons(filter, values().schema) == expected


def test_methods_of_datasets_equal_those_of_a_table(path):
    scanned, table = crossdock.dataset.Dataset(path), ds.dataset(values())
    for arguments in [
        {},
        {"columns": ["t", "i"]},
        {"columns": []},
        {"columns": ["t"], "filter": FIELD("i") > pa.scalar(5, pa.int32())},
        {"columns": {"x": pc.field("u") * 2}, "filter": FIELD("t") == "text 3"},
        {"filter": FIELD("i").is_null() | (FIELD("u") > 990)},
    ]:
        assert str(scanned.to_table(**arguments).to_pydict()) == str(table.to_table(**arguments).to_pydict())
    assert scanned.count_rows() == ROWS and scanned.count_rows(filter=FIELD("u") < 7) == 7
    assert scanned.head(5).num_rows == 5
    assert sum(batch.num_rows for batch in scanned.to_batches(columns=["i"], batch_size=100)) == ROWS


def test_arguments_of_the_scan_apply(path):
    arguments = {"columns": ["u", "t"], "filter": [("u", "<", 500)], "limit": 400}
    scanned = crossdock.dataset.Dataset(path, **arguments)
    table = ds.dataset(cd.default_session().scan(path, **arguments).to_table().to_pyarrow())
    assert scanned.schema.equals(table.schema)
    for filter in [None, FIELD("t") == "text 3", FIELD("u") > pa.scalar(450, pa.uint64())]:
        assert scanned.to_table(filter=filter).to_pydict() == table.to_table(filter=filter).to_pydict()


def test_only_the_needed_columns_and_rows_are_read(path):
    requests = []

    class Recorded:
        def scan(self, source, format, **arguments):
            requests.append({name: value for name, value in arguments.items() if name != "batch_rows"})
            return cd.default_session().scan(source, format, **arguments)

    scanned = crossdock.dataset.Dataset(path, session=Recorded())
    scanned.to_table(columns=["u"], filter=(FIELD("t") == "a") & (FIELD("f") <= 2.5))
    scanned.to_table(columns=["u"], filter=FIELD("i").is_null() | (FIELD("f") <= 2.5))
    assert requests[1] == {
        "columns": [("u",), ("f",), ("t",)],
        "filter": [(("t",), "==", "a"), (("f",), "<=", 2.5)],
    }
    assert requests[2] == {"columns": [("i",), ("u",), ("f",)]}


def test_other_uses_are_errors(path):
    scanned = crossdock.dataset.Dataset(path)
    for use in [scanned.get_fragments, lambda: scanned.filter(FIELD("u") > 5), lambda: scanned.sort_by("u")]:
        with pytest.raises(cd.UsageError, match="supports only reads"):
            use()
    with pytest.raises(OSError, match=r"is read only by its method scanner\(\)"):
        ds.UnionDataset(scanned.schema, [scanned]).to_table()
