"""Queries of Polars that read from scans, compared with queries of the same values in Polars."""

import datetime
import decimal
import math
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest
from conftest import write_in_batches

import crossdock as cd
import crossdock.polars
from crossdock.polars import comparisons

ROWS = 1000
NAN = math.nan


def values():
    day, zone = datetime.datetime(2024, 2, 28), ZoneInfo("Europe/Vienna")
    return pa.table(
        {
            "i": pa.array([None if i % 7 == 0 else i - 500 for i in range(ROWS)], pa.int32()),
            "u": pa.array(range(ROWS), pa.uint64()),
            "f": pa.array([NAN if i % 5 == 0 else i / 4 for i in range(ROWS)]),
            "f32": pa.array([NAN if i % 5 == 0 else i / 10 for i in range(ROWS)], pa.float32()),
            "t": [None if i % 11 == 0 else f"text {i % 20}" for i in range(ROWS)],
            "word": pa.array(["a", "b", "c", None] * (ROWS // 4)).dictionary_encode(),
            "flag": [None if i % 13 == 0 else i % 2 == 0 for i in range(ROWS)],
            "day": [(day + datetime.timedelta(days=i)).date() for i in range(ROWS)],
            "time": pa.array([day + datetime.timedelta(minutes=i) for i in range(ROWS)], pa.timestamp("us")),
            "zoned": pa.array(
                [(day + datetime.timedelta(hours=i)).replace(tzinfo=zone) for i in range(ROWS)],
                pa.timestamp("ms", "Europe/Vienna"),
            ),
            "price": pa.array([decimal.Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(9, 2)),
            "struct": [{"x": i, "a.b": str(i)} for i in range(ROWS)],
            "a.b": range(ROWS),
        }
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("polars") / "values.arrow"
    write_in_batches(values(), path, 300)
    return path


c = pl.col
VIENNA = datetime.datetime(2024, 3, 10, tzinfo=ZoneInfo("Europe/Vienna"))
# Each predicate, and the comparisons that the scan gets.
PREDICATES = [
    (c("i") > 5, [("i", ">", 5)]),
    (pl.lit(5) < c("i"), [("i", ">", 5)]),
    (
        (c("i") >= -100) & (c("t") == "text 3") & (c("u") != 3),
        [("i", ">=", -100), ("t", "==", "text 3"), ("u", "!=", 3)],
    ),
    ((c("i") > 5) & ((c("u") < 800) | c("flag")), [("i", ">", 5)]),
    ((c("i") > 5) | (c("u") < 8), []),
    (c("i") > 2.5, []),
    (c("f") < 100.5, [("f", "<", 100.5)]),
    # NaN fulfils these comparisons in Polars.
    (c("f") > 100.5, []),
    (c("f") != 0.25, []),
    (c("f") == NAN, []),
    (c("f32") == 0.1, []),
    (c("f32") < 0.3, []),
    (c("t") < "text 2", [("t", "<", "text 2")]),
    (c("word") == "a", []),
    (c("flag"), []),
    (c("flag") == False, [("flag", "==", False)]),  # noqa: E712
    (~c("flag"), []),
    (c("day") <= datetime.date(2024, 2, 29), [("day", "<=", datetime.date(2024, 2, 29))]),
    (c("time") > datetime.datetime(2024, 2, 28, 3), [("time", ">", datetime.datetime(2024, 2, 28, 3))]),
    (c("zoned") >= VIENNA, [("zoned", ">=", VIENNA.astimezone(datetime.UTC))]),
    (c("price") > 200, []),
    (c("i").is_null(), []),
    (c("i") == None, []),  # noqa: E711
    (c("struct").struct.field("x") > 990, []),
    (c("a.b") > 990, [("a.b", ">", 990)]),
    (c("i").is_in([1, 2, 3]), []),
    (c("i").abs() > 400, []),
]


@pytest.mark.parametrize("number", range(len(PREDICATES)))
def test_query_equals_that_of_polars(path, number):
    predicate, expected = PREDICATES[number]
    lazy, frame = crossdock.polars.scan(path), pl.DataFrame(values())
    assert comparisons(predicate, lazy.collect_schema()) == expected
    for query in [
        lambda frame: frame.filter(predicate),
        lambda frame: frame.filter(predicate).select("u", "a.b"),
        lambda frame: frame.filter(predicate).head(7),
        lambda frame: frame.head(100).filter(predicate).select("word"),
    ]:
        assert query(lazy).collect().equals(query(frame.lazy()).collect())


def test_columns_and_rows_are_those_of_the_query(path):
    lazy, frame = crossdock.polars.scan(path), pl.DataFrame(values())
    assert lazy.collect_schema() == frame.schema
    for query in [
        lambda frame: frame,
        lambda frame: frame.select("flag", "i"),
        lambda frame: frame.select("a.b"),
        lambda frame: frame.select(pl.len()),
        lambda frame: frame.head(3),
        lambda frame: frame.slice(295, 10),
        lambda frame: frame.tail(3),
        lambda frame: frame.head(0),
        lambda frame: frame.group_by("t", maintain_order=True).agg(c("u").sum()),
    ]:
        assert query(lazy).collect().equals(query(frame.lazy()).collect())


def test_arguments_of_the_scan_apply(path):
    lazy = crossdock.polars.scan(path, columns=["u", "struct.x", "i"], filter=[("u", "<", 500)], limit=400)
    expected = cd.default_session().scan(path, columns=["u", "struct.x", "i"], filter=[("u", "<", 500)], limit=400)
    expected = pl.DataFrame(expected.to_table())
    assert lazy.collect_schema() == expected.schema
    for query in [
        lambda frame: frame.filter(c("i") > -300).select("i"),
        lambda frame: frame.head(450),
        lambda frame: frame.select(frame.collect_schema().names()[1]),
    ]:
        assert query(lazy).collect().equals(query(expected.lazy()).collect())


def test_only_the_needed_columns_and_rows_are_read(path):
    requests = []

    class Recorded:
        def scan(self, source, format, **arguments):
            requests.append(arguments)
            return cd.default_session().scan(source, format, **arguments)

    lazy = crossdock.polars.scan(path, session=Recorded())
    lazy.filter((c("i") > 5) & (c("t") != "text 3")).select("u").collect()
    lazy.select("t").head(3).collect()
    assert sorted(requests[1]["columns"]) == [("i",), ("t",), ("u",)]
    assert requests[1]["filter"] == [(("i",), ">", 5), (("t",), "!=", "text 3")]
    assert (requests[2]["columns"], requests[2]["limit"]) == ([("t",)], 3)


def test_missing_file_is_an_error_at_once(tmp_path):
    with pytest.raises(FileNotFoundError):
        crossdock.polars.scan(tmp_path / "none.arrow")
