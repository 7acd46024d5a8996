"""Queries of DataFusion's Python package on scans, through the module crossdock_datafusion."""

import datafusion
import pyarrow as pa
import pytest

import crossdock as cd
import crossdock.datafusion

QUERIES = [
    "SELECT count(*) FROM t",
    "SELECT * FROM t WHERE day = 3 ORDER BY flight, dep_time, carrier LIMIT 7",
    "SELECT carrier, count(*) AS n FROM t WHERE distance > 500 GROUP BY carrier ORDER BY carrier",
    "SELECT max(speed_mph) AS m FROM t WHERE speed_mph < 400.5 AND day >= 7 AND carrier <> 'UA'",
    "SELECT a.flight FROM t AS a JOIN t AS b ON a.tailnum = b.tailnum AND a.day + 1 = b.day ORDER BY 1 LIMIT 3",
]


@pytest.fixture
def context():
    return datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(3))


def rows(context, query):
    return pa.Table.from_batches(context.sql(query).collect()).to_pylist()


def test_queries_have_the_results_of_the_same_table_in_memory(context, flights, tmp_path):
    session = cd.default_session()
    whole = session.read_ipc(flights)
    for i in range(4):
        whole.slice(i * len(whole) // 4, (i + 1) * len(whole) // 4 - i * len(whole) // 4).write_ipc(
            tmp_path / f"{i}.arrow"
        )
    context.register_record_batches("memory", [whole.to_pyarrow().to_batches()])
    context.register_table("one", crossdock.datafusion.table(session.scan(flights)))
    context.register_table("four", crossdock.datafusion.table(session.scan(tmp_path)))
    for query in QUERIES:
        expected = rows(context, query.replace(" t", " memory"))
        assert expected
        for name in ("one", "four"):
            assert rows(context, query.replace(" t", f" {name}")) == expected, (name, query)


def test_table_has_the_settings_of_the_scan(context, tmp_path):
    (tmp_path / "a.txt").write_text("id;name\n1;x\n2;y\n")
    session = cd.Session(memory="64MiB", threads=1)
    table = crossdock.datafusion.table(session.scan(tmp_path / "a.txt", "csv", delimiter=";"))
    context.register_table("t", table)
    assert rows(context, "SELECT * FROM t WHERE id = 2") == [{"id": 2, "name": "y"}]
    others = {"columns": ["id"], "limit": 1, "map": False}
    with pytest.raises(cd.UsageError, match="has no columns, limit, map: select columns and rows in the query"):
        crossdock.datafusion.table(session.scan(tmp_path / "a.txt", "csv", delimiter=";", **others))
    with pytest.raises(cd.UsageError, match="has no validate='full'"):
        crossdock.datafusion.table(cd.Session(validate="full").scan(tmp_path / "a.txt", "csv"))
    with pytest.raises(TypeError, match="only a scan of files"):
        crossdock.datafusion.table(session.scan(b"id\n1\n", "csv"))


def test_error_while_a_query_reads_is_raised(context, flights, tmp_path):
    path = tmp_path / "a.arrow"
    path.write_bytes(open(flights, "rb").read())
    context.register_table("t", crossdock.datafusion.table(cd.default_session().scan(path)))
    path.unlink()
    with pytest.raises(Exception, match=r"a\.arrow"):
        context.sql("SELECT count(day) FROM t WHERE day > 0").collect()


def test_module_rejects_another_major_version_and_other_objects(monkeypatch, context, flights):
    table = crossdock.datafusion.table(cd.default_session().scan(flights))
    with pytest.raises(TypeError, match="got a int, expected a session of DataFusion"):
        table.__datafusion_table_provider__(5)
    major = datafusion.__version__.split(".")[0]
    monkeypatch.setattr(datafusion, "__version__", "12.0.0")
    with pytest.raises(RuntimeError, match=rf"compiled for DataFusion {major}, and the package datafusion 12\.0\.0"):
        context.register_table("t", table)
