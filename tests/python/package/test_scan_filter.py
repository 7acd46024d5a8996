"""Filters of reads and scans, compared with Python's own exact comparisons."""

import datetime
import math
import operator
import pickle
from decimal import Decimal

import crossdock as cd
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import assert_all_memory_freed
from hypothesis import HealthCheck, given, settings
from peers import FORMS, write

OPERATORS = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SIZES = [13, 0, 1, 64, 22]
DAY = datetime.datetime(2024, 2, 28)
TEXTS = ["", "a", "ab", "é", "a text that is longer than a view"]


def column(values, kind):
    """Returns an array in which every sixth value is null."""
    return pa.array([None if i % 6 == 5 else value for i, value in enumerate(values)], kind)


def batch(first, rows):
    numbers = range(first, first + rows)
    text = [TEXTS[n * 7 % 5] for n in numbers]
    signed = [n * 37 % 256 - 128 for n in numbers]
    floats = [[0.1, -0.0, float("inf"), float("nan"), n / 3][n % 5] for n in numbers]
    run_values = column([n // 3 for n in numbers], pa.int16())
    columns = {
        "id": pa.array(numbers, pa.int64()),
        "small": column(signed, pa.int8()),
        "large": column([2**64 - 1 - n * 2**55 for n in numbers], pa.uint64()),
        "half": column(np.array(floats, np.float16), pa.float16()),
        "float": column(floats, pa.float32()),
        "double": column(floats, pa.float64()),
        "decimal": column([Decimal(n * 7 - 200).scaleb(-2) for n in numbers], pa.decimal128(20, 2)),
        "wide": column([Decimal(10) ** 60 + n for n in numbers], pa.decimal256(76, 0)),
        "bool": column([n % 3 == 0 for n in numbers], pa.bool_()),
        "string": column(text, pa.string()),
        "large_string": column(text, pa.large_string()),
        "view": column(text, pa.string_view()),
        "binary": column([word.encode() for word in text], pa.binary()),
        "fixed": column([bytes([n % 3, n % 5]) for n in numbers], pa.binary(2)),
        "date": column([(DAY + datetime.timedelta(days=n % 9 - 4)).date() for n in numbers], pa.date32()),
        "time": column([(DAY + datetime.timedelta(minutes=n)).time() for n in numbers], pa.time64("us")),
        "stamp": column([DAY + datetime.timedelta(hours=7 * n) for n in numbers], pa.timestamp("us")),
        "zoned": column(
            [DAY.replace(tzinfo=datetime.UTC) + datetime.timedelta(hours=7 * n) for n in numbers],
            pa.timestamp("ms", "Europe/Paris"),
        ),
        "duration": column([datetime.timedelta(seconds=n - 30) for n in numbers], pa.duration("s")),
        "kind": column([f"kind {n % 3}" for n in numbers], pa.string()).dictionary_encode(),
        "runs": pc.run_end_encode(run_values, pa.int32()) if rows else pa.array([], pa.run_end_encoded(pa.int32(), pa.int16())),
        "list": column([[str(n)] * (n % 4) for n in numbers], pa.list_(pa.string())),
        "point": column(
            [{"x": n, "name": str(n)} for n in numbers], pa.struct([("x", pa.int32()), ("name", pa.string())])
        ),
    }  # fmt: skip
    return pa.record_batch(columns)


def batches():
    begin, result, whole = 0, [], batch(0, sum(SIZES))
    for size in SIZES:
        part = batch(begin, size)
        # All batches have the same dictionary, as the file form requires.
        kind = part.schema.get_field_index("kind")
        result.append(part.set_column(kind, "kind", whole.column(kind).slice(begin, size)))
        begin += size
    return result


BATCHES = batches()
ROWS = pa.Table.from_batches(BATCHES).to_pylist()
SCHEMA = BATCHES[0].schema
NUMBERS = st.one_of(
    st.integers(-300, 300),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.sampled_from([0.1, float(np.float32(0.1)), float(np.float16(0.1)), 10**60 + 5, Decimal("-1.95"), 2.5]),
    st.decimals(-3, 3, places=3),
)
STAMPS = st.builds(lambda hours, us: DAY + datetime.timedelta(hours=hours, microseconds=us), st.integers(-20, 700), st.integers(0, 1))  # fmt: skip
LITERALS = {
    "small": NUMBERS, "large": NUMBERS, "half": NUMBERS, "float": NUMBERS, "double": NUMBERS, "decimal": NUMBERS,
    "wide": NUMBERS, "runs": NUMBERS, "point.x": NUMBERS, "id": NUMBERS,
    "bool": st.booleans(),
    "string": st.sampled_from([*TEXTS, "b", "\U0001f600"]), "large_string": st.sampled_from(TEXTS),
    "view": st.sampled_from(TEXTS), "kind": st.sampled_from(["kind 1", "kind 2", "kind"]), "point.name": st.text(),
    "binary": st.binary(max_size=3), "fixed": st.binary(max_size=3),
    "date": st.one_of(STAMPS.map(lambda stamp: stamp.date()), STAMPS),
    "stamp": st.one_of(STAMPS, STAMPS.map(lambda stamp: stamp.date())),
    "zoned": STAMPS.map(lambda stamp: stamp.replace(tzinfo=datetime.UTC)),
    "time": STAMPS.map(lambda stamp: stamp.time()),
    "duration": st.builds(datetime.timedelta, seconds=st.integers(-40, 90), milliseconds=st.sampled_from([0, 500])),
}  # fmt: skip
PREDICATES = st.sampled_from(sorted(LITERALS)).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(list(OPERATORS)), LITERALS[name])
)


def fulfils(row, predicate):
    name, symbol, literal = predicate
    value = row
    for part in name.split("."):
        value = None if value is None else value[part]
    if value is None:
        return False
    if isinstance(literal, datetime.date) or isinstance(value, datetime.date):
        # A date is the timestamp at its midnight.
        value, literal = (
            part if isinstance(part, datetime.datetime) else datetime.datetime.combine(part, datetime.time())
            for part in (value, literal)
        )
    if isinstance(value, float | np.floating):
        value = float(value)
        if math.isnan(value):
            # Python refuses to compare NaN with a Decimal.
            return symbol == "!="
    return OPERATORS[symbol](value, literal)


def select(columns, rows, predicates, limit):
    """Returns the selected rows of the table."""
    numbers = (
        range(len(ROWS)) if rows is None else [n for begin, end in rows for n in range(begin, min(end, len(ROWS)))]
    )
    kept = [ROWS[n] for n in numbers if all(fulfils(ROWS[n], predicate) for predicate in predicates)]
    kept = kept if limit is None else kept[:limit]
    return kept if columns is None else [{name: row[name] for name in columns} for row in kept]


def same(actual, expected):
    """Compares rows, in which NaN equals NaN."""
    return repr(actual) == repr(expected)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filters")
    for form in FORMS:
        for compression in [None, "lz4"]:
            write(folder / f"{form}-{compression}.arrow", form, SCHEMA, BATCHES, compression=compression)
    return folder


reproducible = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
REQUESTS = {
    "form": st.sampled_from(list(FORMS)),
    "predicates": st.lists(PREDICATES, min_size=1, max_size=3),
    "columns": st.none() | st.lists(st.sampled_from(SCHEMA.names), unique=True, max_size=4),
    "rows": st.none() | st.just([(5, 17), (20, 90)]),
    "limit": st.none() | st.integers(0, 40),
    "batch_rows": st.none() | st.integers(1, 9),
    "files": st.integers(1, 2),
}


def check(session, folder, form, predicates, columns, rows, limit, batch_rows, files):
    paths = [folder / f"{form}-{[None, 'lz4'][i]}.arrow" for i in range(files)]
    scan = session.scan(paths, columns=columns, rows=rows, filter=predicates, limit=limit, batch_rows=batch_rows)
    n = len(ROWS)
    expected = []
    for i in range(files):
        shifted = None if rows is None else [(max(a - i * n, 0), max(b - i * n, 0)) for a, b in rows]
        expected += select(columns, shifted, predicates, None)
    expected = expected if limit is None else expected[:limit]
    tables = [table.to_pyarrow() for table in scan]
    assert all(0 < len(table) <= (batch_rows or len(table)) for table in tables)
    actual = [row for table in tables for row in table.to_pylist()]
    assert sum(map(len, tables)) == len(expected)
    if columns != []:
        assert same(actual, expected)


@reproducible
@given(**REQUESTS)
def test_any_filter_keeps_the_rows_for_which_pythons_comparisons_hold(session, folder, **request):
    check(session, folder, **request)


@pytest.mark.cuda
@settings(reproducible, max_examples=40)
@given(**REQUESTS)
def test_filter_on_a_device_keeps_the_same_rows(cuda_session, folder, **request):
    check(cuda_session, folder, **request)


@pytest.mark.parametrize("symbol", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("name", [name for name in SCHEMA.names if name not in ("list", "point", "runs", "half")])
def test_literal_from_the_column_gives_pyarrows_result(session, folder, name, symbol):
    table = pa.Table.from_batches(BATCHES)
    values = table.column(name)
    literal = next(value for value in values.slice(9) if value.is_valid)
    functions = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
    compare = getattr(pc, functions[["==", "!=", "<", "<=", ">", ">="].index(symbol)])
    if pa.types.is_dictionary(values.type):
        values, literal = pc.cast(values, pa.string()), pa.scalar(literal.as_py())
    elif pa.types.is_string_view(values.type):
        values, literal = pc.cast(values, pa.string()), pa.scalar(literal.as_py())
    expected = table.column("id").filter(compare(values, literal))
    actual = session.read(folder / "file-None.arrow", columns=["id"], filter=[(name, symbol, literal)])
    assert actual.to_pyarrow().column("id").to_pylist() == expected.to_pylist()


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (("none", "==", 1), "there is no column 'none'"),
        (("point.none", "==", 1), "there is no column"),
        (("point", "==", 1), "'point': values of type struct<.* cannot be compared"),
        (("list", "==", 1), "'list': values of type list<.* cannot be compared"),
        (("small", "<", "1"), "'small': values of type int8 cannot be compared with a string, expected a number"),
        (("string", "<", 1), "'string': .* with a number, expected a string"),
        (("stamp", "<", DAY.replace(tzinfo=datetime.UTC)), "'stamp': .* expected a timestamp without a time zone"),
        (("zoned", "<", DAY), "'zoned': .* expected a timestamp with a time zone"),
        (("float", "<", float("nan")), "'float': NaN"),
        (("float", "<", np.float32("nan")), "'float': NaN"),
        (("float", "<", Decimal("nan")), "'float': NaN"),
        (("small", "<", None), "None is no value of a comparison"),
        (("small", "<", np.datetime64("NaT")), "None is no value"),
        (("small", "<", pa.scalar(None, pa.int8())), "None is no value"),
        (("small", "<", [1]), "expected a bool, a number"),
        (("small", "<", np.array([1])), "expected a bool, a number"),
        (("small", "<", 10**90), "more digits"),
        (("small", "<>", 1), "expected a list of tuples"),
        (("small", "<"), "expected a list of tuples"),
        ((1, "<", 1), "expected a list of tuples"),
        ("small<1", "expected a list of tuples"),
    ],
)
def test_error_names_the_column_and_the_reason(session, folder, predicate, message):
    for source in [folder / "file-None.arrow", [folder / "stream-lz4.arrow"] * 2]:
        for read in [session.scan, session.read]:
            with pytest.raises(cd.UsageError, match=message):
                read(source, filter=[predicate])
    assert_all_memory_freed(session)


@pytest.mark.parametrize("argument", ["small < 1", ("small", "<", 1), 1, {"small": 1}])
def test_filter_must_be_a_list_of_predicates(session, folder, argument):
    with pytest.raises(cd.UsageError, match="filter: expected a list of tuples"):
        session.scan(folder / "file-None.arrow", filter=argument)


def test_scalars_of_numpy_and_pyarrow_are_literals(session, folder):
    def ids(*predicate):
        return session.read(folder / "file-None.arrow", filter=[predicate]).to_pyarrow()["id"].to_pylist()

    assert ids("small", "<", np.int8(3)) == ids("small", "<", 3)
    assert ids("double", ">", np.float32(0.1)) == ids("double", ">", float(np.float32(0.1)))
    assert ids("bool", "==", np.True_) == ids("bool", "==", True)
    assert ids("stamp", "<", np.datetime64("2024-03-01T00:00:00.000000001")) == ids(
        "stamp", "<=", datetime.datetime(2024, 3, 1)
    )
    assert ids("date", "<", np.datetime64("2024-03-01")) == ids("date", "<", datetime.date(2024, 3, 1))
    assert ids("date", "<", np.datetime64("2024-03")) == ids("date", "<", datetime.date(2024, 3, 1))
    assert ids("duration", "<", np.timedelta64(1, "m")) == ids("duration", "<", datetime.timedelta(minutes=1))
    zoned = pa.scalar(DAY.replace(tzinfo=datetime.UTC), pa.timestamp("ns", "UTC"))
    assert ids("zoned", ">", zoned) == ids("zoned", ">", DAY.replace(tzinfo=datetime.UTC))


def test_limit_counts_the_rows_of_the_result(session, folder):
    scan = session.scan([folder / "file-None.arrow"] * 2, columns=["id"], filter=[("id", ">=", 95)], limit=7)
    assert scan.num_rows is None
    assert scan.to_table().to_pyarrow()["id"].to_pylist() == [95, 96, 97, 98, 99, 95, 96]
    assert scan.head(6).to_pyarrow()["id"].to_pylist() == [95, 96, 97, 98, 99, 95]
    assert scan.head(100).num_rows == 7


def test_filter_that_keeps_no_row_gives_an_empty_table(session, folder):
    for literal in [-1, 10**40, 0.5]:
        table = session.read(folder / "stream-None.arrow", filter=[("id", "==", literal)])
        assert (table.num_rows, table.column_names) == (0, SCHEMA.names)


def test_pickled_scan_keeps_its_filter(session, folder):
    scan = session.scan(folder / "file-lz4.arrow", filter=[("zoned", ">", DAY.replace(tzinfo=datetime.UTC))])
    copy = pickle.loads(pickle.dumps(scan))
    assert same(copy.to_table().to_pyarrow().to_pylist(), scan.to_table().to_pyarrow().to_pylist())


def test_filter_releases_all_memory(session, folder):
    for table in session.scan(folder / "file-lz4.arrow", filter=[("string", "<", "b"), ("small", ">", 0.5)]):
        assert table.num_rows > 0
    del table
    assert_all_memory_freed(session)


def long_table(rows):
    """Returns a table in which the distances between kept rows vary, and whose columns have nulls in the second half."""
    numbers = np.arange(rows)
    kept = (numbers % 97 != 0) & ((numbers // 1000 % 3 == 0) | (numbers * 7919 % 11 < 4))
    nulls = (numbers > rows // 2) & (numbers % 6 == 5)
    text = pa.array([f"{TEXTS[n % 5]}{n}" for n in range(rows)], mask=nulls)
    columns = {
        "id": pa.array(numbers),
        "kept": pa.array(kept.astype(np.int8)),
        "double": pa.array(numbers / 3, mask=nulls),
        "bool": pa.array(numbers % 3 == 0, mask=nulls),
        "string": text,
        "large_string": text.cast(pa.large_string()),
        "view": text.cast(pa.string_view()),
        "list": pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) // 2), pa.array(numbers)),
    }
    return pa.table(columns)


@pytest.mark.parametrize("predicates", [
    [("kept", "==", 1)],
    [("kept", "==", 1), ("double", ">=", 1000.5)],
    [("string", ">", "a5")],
    [("large_string", "!=", "é13")],
    [("view", "<", "b")],
    [("id", "<", 40_000)],
    [("id", "!=", 40_000)],
    [("id", "==", 40_000)],
])  # fmt: skip
def test_filter_of_long_batches_keeps_the_same_rows_with_any_number_of_threads(tmp_path, predicates):
    table = long_table(100_003)
    write(tmp_path / "long.arrow", "file", table.schema, table.to_batches())
    # The rows begin and end within a byte of the bitmaps.
    rows = [(3, 99_990)]
    # pyarrow does not filter views.
    view = table.schema.get_field_index("view")
    expected = table.set_column(view, "view", table["string"]).slice(3, 99_987)
    functions = {"==": pc.equal, "!=": pc.not_equal, "<": pc.less, ">": pc.greater, ">=": pc.greater_equal}
    for name, symbol, literal in predicates:
        expected = expected.filter(functions[symbol](expected[name], literal))
    for threads in [1, 2, 4]:
        session = cd.Session(threads=threads)
        scan = session.scan(tmp_path / "long.arrow", rows=rows, filter=predicates)
        parts = [part.to_pyarrow() for part in scan]
        assert len(parts) == 1
        assert parts[0].to_pydict() == expected.to_pydict(), f"{threads} threads"
        del scan, parts
        assert_all_memory_freed(session)
