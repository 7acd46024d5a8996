"""CSV and NDJSON: values, options and compression, compared with pyarrow and polars."""

import datetime
import decimal
import gzip
import io
import json
import os
import threading

import crossdock as cd
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.json as paj
import pytest
from csv_plugin import built_csv_plugin

UTC = datetime.UTC
MOMENT = datetime.datetime(2013, 1, 1, 10, 30, 15, 123456)

# Values of each type that CSV and NDJSON store, and the name of the type in the option `types`.
VALUES = {
    "Boolean": ([True, False], pa.bool_()),
    "Int8": ([-128, 127], pa.int8()),
    "Int16": ([-(2**15), 2**15 - 1], pa.int16()),
    "Int32": ([-(2**31), 2**31 - 1], pa.int32()),
    "Int64": ([-(2**63), 2**63 - 1], pa.int64()),
    "UInt8": ([0, 255], pa.uint8()),
    "UInt16": ([0, 2**16 - 1], pa.uint16()),
    "UInt32": ([0, 2**32 - 1], pa.uint32()),
    "UInt64": ([0, 2**64 - 1], pa.uint64()),
    "Float16": ([1.5, -0.25], pa.float16()),
    "Float32": ([1.5, 1 / 3, -1e30], pa.float32()),
    "Float64": ([0.1, 1 / 3, -1e300, 5e-324, 2.0**53], pa.float64()),
    "Date32": ([datetime.date(1969, 7, 20), datetime.date(2013, 1, 1)], pa.date32()),
    "Date64": ([datetime.date(1969, 7, 20), datetime.date(2013, 1, 1)], pa.date64()),
    "Time32(s)": ([datetime.time(0, 0, 0), datetime.time(23, 59, 59)], pa.time32("s")),
    "Time32(ms)": ([datetime.time(1, 2, 3, 4000)], pa.time32("ms")),
    "Time64(µs)": ([datetime.time(1, 2, 3, 456789)], pa.time64("us")),
    "Time64(ns)": ([datetime.time(1, 2, 3, 456789)], pa.time64("ns")),
    "Timestamp(s)": ([MOMENT.replace(microsecond=0)], pa.timestamp("s")),
    "Timestamp(ms)": ([MOMENT.replace(microsecond=123000)], pa.timestamp("ms")),
    "Timestamp(µs)": ([MOMENT, datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)], pa.timestamp("us")),
    "Timestamp(ns)": ([1357036215123456789, -1], pa.timestamp("ns")),
    'Timestamp(µs, "UTC")': ([MOMENT.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
    'Timestamp(µs, "America/New_York")': ([MOMENT.replace(tzinfo=UTC)], pa.timestamp("us", "America/New_York")),
    "Decimal32(9, 2)": ([decimal.Decimal("1234567.89"), decimal.Decimal("-0.01")], pa.decimal32(9, 2)),
    "Decimal64(18, 0)": ([decimal.Decimal("123456789012345678")], pa.decimal64(18, 0)),
    "Decimal128(38, 10)": ([decimal.Decimal("-1234567890123456789012345678.0123456789")], pa.decimal128(38, 10)),
    "Decimal256(76, 38)": ([decimal.Decimal("12345678901234567890123456789.5")], pa.decimal256(76, 38)),
    "Utf8": (["", "a", 'a "b", c', "two\nlines\r\n", "héé 🦀", "\ttab", "NULL", "1", " x ", "\0"], pa.string()),
    "LargeUtf8": (["", "text"], pa.large_string()),
    "Utf8View": (["", "a text of more than twelve bytes"], pa.string_view()),
    "Binary": ([b"", b"\x00\xff", b"abc"], pa.binary()),
    "LargeBinary": ([b"", b"\x00\xff"], pa.large_binary()),
    "BinaryView": ([b"", b"a value of more than twelve bytes"], pa.binary_view()),
    "FixedSizeBinary(2)": ([b"\x00\xff", b"ab"], pa.binary(2)),
}
NESTED = {
    "List(Int64)": ([[1, None, 3], []], pa.list_(pa.int64())),
    'Struct("x": Int64, "y": List(Utf8))': (
        [{"x": 1, "y": ["a", None]}, {"x": None, "y": []}],
        pa.struct({"x": pa.int64(), "y": pa.list_(pa.string())}),
    ),
}
SIZES = [0, 1, 1024, 100003]


def column(values, kind, rows):
    """Returns an array in which every third value is null."""
    if pa.types.is_timestamp(kind) and isinstance(values[0], int):
        return column(values, pa.int64(), rows).cast(kind)
    return pa.array([None if i % 3 == 1 else values[i % len(values)] for i in range(rows)], kind)


def names_of(types):
    """Returns the option `types` for columns with the names of their positions."""
    return ",".join(f"c{i}={name}" for i, name in enumerate(types))


def table_of(types, rows):
    return pa.table({f"c{i}": column(*types[name], rows) for i, name in enumerate(types)})


def assert_equal(expected, got):
    """Compares the values and types."""
    assert got.num_rows == expected.num_rows
    assert got.column_names == expected.column_names
    for i, name in enumerate(expected.column_names):
        want, have = expected.column(i), got.column(i)
        assert have.type == want.type, name
        assert have.equals(want), name


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.cuda)])
def on_device(request):
    """A session on each device."""
    if request.param == "cpu":
        yield request.getfixturevalue("session")
    else:
        with cd.Session(request.getfixturevalue("cuda")) as session:
            yield session


@pytest.mark.parametrize("extension", ["csv", "ndjson"])
def test_types_may_be_set_as_pyarrow_prints_them(session, tmp_path, extension):
    types = VALUES if extension == "csv" else VALUES | NESTED
    table = table_of(types, 3)
    path = tmp_path / f"out.{extension}"
    session.write(session.from_arrow(table), path, binary="hex")
    names = ", ".join(f"{field.name}={field.type}" for field in table.schema)
    assert_equal(table, pa.table(session.read(path, types=names, binary="hex")))


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("extension", ["csv", "tsv.gz", "ndjson", "jsonl.zst"])
def test_all_types_round_trip(on_device, tmp_path, extension, rows):
    types = VALUES if extension in ("csv", "tsv.gz") else VALUES | NESTED
    if rows > 10_000:
        # Some types suffice for many batches.
        types = {name: types[name] for name in ["Int64", "Float64", "Utf8", "Timestamp(µs)", "Boolean"]}
    table = table_of(types, rows)
    path = tmp_path / f"out.{extension}"
    on_device.write(on_device.from_arrow(table), path, binary="hex")
    if rows == 0 and extension in ("ndjson", "jsonl.zst"):
        assert len(on_device.read(path).schema) == 0, "a file without records has no names"
        return
    got = on_device.read(path, types=names_of(types), binary="hex")
    assert got.device == on_device.device
    assert_equal(table, pa.table(got.to("cpu") if got.device != "cpu" else got))


def test_null_columns_round_trip(session, tmp_path):
    table = pa.table({"a": pa.nulls(3), "b": [1, 2, 3]})
    session.write(table, tmp_path / "a.csv")
    assert_equal(table, pa.table(session.read(tmp_path / "a.csv", types="a=Null")))
    session.write(table, tmp_path / "a.ndjson")
    assert_equal(table, pa.table(session.read(tmp_path / "a.ndjson")))


@pytest.mark.parametrize("extension", ["csv", "ndjson"])
def test_dictionaries_are_written_as_their_values(session, tmp_path, extension):
    column = pa.array(["a", None, "", "a"]).dictionary_encode()
    path = tmp_path / f"a.{extension}"
    session.write(pa.table({"d": column, "n": pa.array([1, 2, None, 1]).dictionary_encode()}), path)
    got = pa.table(session.read(path))
    assert got.to_pydict() == {"d": ["a", None, "", "a"], "n": [1, 2, None, 1]}
    if extension == "csv":
        got = pa.table(session.read(path, types="d=dictionary<values=string, indices=int32, ordered=0>"))
        assert got["d"].type == pa.dictionary(pa.int32(), pa.string())
        assert got["d"].to_pylist() == ["a", None, "", "a"]


@pytest.mark.parametrize("extension", ["csv", "ndjson"])
def test_nulls_and_missing_values_of_dictionaries_are_nulls(session, tmp_path, extension):
    keys = pa.array([0, 1, None, 2], pa.int8())
    columns = {
        "text": pa.DictionaryArray.from_arrays(keys, ["x", None, ""]),
        "number": pa.DictionaryArray.from_arrays(keys, [7, None, 9]),
        "empty": pa.DictionaryArray.from_arrays(pa.nulls(4, pa.int8()), pa.array([], pa.string())),
        "row": pa.array(range(4)),
    }
    if extension == "ndjson":
        columns["list"] = pa.ListArray.from_arrays(range(5), columns["text"])
        columns["time"] = pa.DictionaryArray.from_arrays(keys, pa.array([1, None, 2], pa.date32()))
    table = pa.table(columns)
    session.write(table, tmp_path / f"a.{extension}")
    assert pa.table(session.read(tmp_path / f"a.{extension}")).to_pylist() == table.to_pylist()


def test_names_of_columns_in_types_can_be_in_quotes(session, tmp_path):
    table = pa.table({"a, b": [1], ' "c(" ': ["2"]}).cast(pa.schema([("a, b", pa.int8()), (' "c(" ', pa.string())]))
    session.write(table, tmp_path / "a.csv")
    got = session.read(tmp_path / "a.csv", types='"a, b"=int8, " ""c("" " = string')
    assert_equal(table, pa.table(got))


def test_a_csv_column_of_nulls_alone_round_trips(session, tmp_path):
    table = pa.table({"a": pa.array([None, "x", None, ""])})
    session.write(table, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_bytes() == b'a\n\nx\n\n""\n'
    assert_equal(table, pa.table(session.read(tmp_path / "a.csv")))


def read_text(session, text, format="csv", **options):
    data = text if isinstance(text, bytes) else text.encode()
    return pa.table(session.read(io.BytesIO(data), format, **options))


# pyarrow's reader of CSV, with the same nulls.
CONVERT = csv.ConvertOptions(null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False)


def mixed(rows):
    """A table whose types pyarrow and this reader infer equally."""
    return pa.table(
        {
            "i": column([1, -5, 2**62], pa.int64(), rows),
            "f": column([0.5, -1e300, 1 / 3], pa.float64(), rows),
            "s": column(["text", 'with "quotes", commas\nand lines', "héé", ""], pa.string(), rows),
            "b": column([True, False], pa.bool_(), rows),
            "d": column([datetime.date(2013, 1, 1)], pa.date32(), rows),
            "t": column([datetime.datetime(2013, 1, 1, 10)], pa.timestamp("s"), rows),
        }
    )


@pytest.mark.parametrize("rows", SIZES[1:])
def test_pyarrow_and_this_plugin_read_each_others_csv(session, tmp_path, rows):
    table = mixed(rows)
    ours, theirs = tmp_path / "ours.csv", tmp_path / "theirs.csv"
    session.write(table, ours)
    csv.write_csv(table, theirs)
    parse = csv.ParseOptions(newlines_in_values=True)
    assert_equal(table, csv.read_csv(ours, parse_options=parse, convert_options=CONVERT).cast(table.schema))
    assert_equal(table, pa.table(session.read(theirs, types="t=Timestamp(s)")))


@pytest.mark.parametrize("rows", SIZES[1:])
def test_pyarrow_and_this_plugin_read_each_others_ndjson(session, tmp_path, rows):
    table = mixed(rows).drop_columns(["d"])
    table = table.append_column("l", column([[1, 2], [], [3]], pa.list_(pa.int64()), rows))
    table = table.append_column("o", column([{"x": 1, "y": "a"}], pa.struct({"x": pa.int64(), "y": pa.string()}), rows))
    ours = tmp_path / "ours.jsonl"
    session.write(table, ours)
    assert_equal(table, paj.read_json(ours))
    theirs = tmp_path / "theirs.ndjson"
    with theirs.open("w") as file:
        for row in table.to_pylist():
            file.write(json.dumps(row | {"t": row["t"] and row["t"].isoformat()}) + "\n")
    assert_equal(table, pa.table(session.read(theirs)))


def test_polars_and_this_plugin_read_each_others_files(session, tmp_path):
    polars = pytest.importorskip("polars")
    table = mixed(1024)
    frame = polars.from_arrow(table)
    session.write(table, tmp_path / "ours.csv")
    got = polars.read_csv(tmp_path / "ours.csv", try_parse_dates=True)
    assert got.select("i", "b", "d").equals(frame.select("i", "b", "d"))
    frame.write_csv(tmp_path / "theirs.csv")
    assert_equal(table, pa.table(session.read(tmp_path / "theirs.csv", types="t=Timestamp(s)")))
    frame.drop("t").write_ndjson(tmp_path / "theirs.ndjson")
    assert_equal(table.drop_columns("t"), pa.table(session.read(tmp_path / "theirs.ndjson")))
    session.write(table, tmp_path / "ours.ndjson")
    assert polars.read_ndjson(tmp_path / "ours.ndjson")["s"].equals(frame["s"])


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("extension", ["csv", "tsv", "ndjson", "jsonl"])
def test_extensions_choose_the_format_and_the_compression(session, tmp_path, extension, suffix):
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    path = tmp_path / f"a.{extension}{suffix}"
    session.write(table, path)
    data = path.read_bytes()
    assert data[:4] == {"": data[:4], ".gz": b"\x1f\x8b" + data[2:4], ".zst": b"\x28\xb5\x2f\xfd"}[suffix]
    text = {
        "": bytes,
        ".gz": gzip.decompress,
        ".zst": lambda data: pa.CompressedInputStream(io.BytesIO(data), "zstd").read(),
    }
    expected = {"csv": b"a,b\n1,x\n2,\n", "tsv": b"a\tb\n1\tx\n2\t\n"}
    assert text[suffix](data) == expected.get(extension, b'{"a":1,"b":"x"}\n{"a":2,"b":null}\n')
    assert_equal(table, pa.table(session.read(path)))


def test_a_given_plugin_with_a_format_of_the_same_name_has_precedence(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    assert cd.Session().read(path, infer_rows=1).num_rows == 1
    session = cd.Session(plugins=[built_csv_plugin(tmp_path)])
    for format in (None, "csv"):
        with pytest.raises(cd.UsageError, match="csv has no option 'infer_rows'"):
            session.read(path, format, infer_rows=1)
        assert session.read(io.BytesIO(b"a\n1\n"), "csv").num_rows == 1
    assert session.read(path, "arrow-text", infer_rows=1).num_rows == 1


def test_compressed_bytes_are_recognised_without_a_name(session):
    text = b"a,b\n1,x\n"
    assert read_text(session, gzip.compress(text)).to_pydict() == {"a": [1], "b": ["x"]}
    two_members = gzip.compress(b"a\n1\n") + gzip.compress(b"2\n")
    assert read_text(session, two_members).to_pydict() == {"a": [1, 2]}
    frames = b"".join(pa.compress(part, "zstd", asbytes=True) for part in (b"a\n1\n", b"2\n"))
    assert read_text(session, frames).to_pydict() == {"a": [1, 2]}
    with pytest.raises(cd.DataError, match="0x8b, expected UTF-8"):
        read_text(session, gzip.compress(text), compression="none")


def test_csv_options(session):
    text = "# a comment, 'ignored\na;'b'\n1;'x''y'\n#\nNA;'NA'\n3;\n"
    options = {"delimiter": ";", "quote": "'", "comment": "#", "null_values": "NA,-"}
    got = read_text(session, text, **options)
    assert got.to_pydict() == {"a": [1, None, 3], "b": ["x'y", "NA", ""]}
    got = read_text(session, "1\t2\n3\t4\n", delimiter="tab", header=False)
    assert got.to_pydict() == {"column_1": [1, 3], "column_2": [2, 4]}
    assert read_text(session, 'a,b\n"x\\"\\\\",2\n', escape="\\").to_pydict() == {"a": ['x"\\'], "b": [2]}
    assert read_text(session, 'a,b\n"x,2\n', quote="none").to_pydict() == {"a": ['"x'], "b": [2]}
    expected = pa.table({"a": pa.array([1], pa.int8()), "b": pa.array(["2"])})
    assert_equal(expected, read_text(session, "a,b\n1,2\n", types="b=string, a=int8"))


def test_csv_output_options(session, tmp_path):
    table = pa.table({"a": [1, None], "b": ["x;'y'", "NA"], "c": [b"\xff", None]})
    path = tmp_path / "out"
    options = {"delimiter": ";", "quote": "'", "header": False, "null_value": "NA", "binary": "hex"}
    session.write(table, path, "csv", compression="gzip", **options)
    assert gzip.decompress(path.read_bytes()) == b"1;'x;''y''';ff\nNA;'NA';NA\n"


def test_ndjson_output_options(session, tmp_path):
    table = pa.table({"a": [1, None], "b": [{"x": None}, None], "c": [float("nan"), float("-inf")]})
    path = tmp_path / "out.ndjson"
    with pytest.raises(cd.UnsupportedError, match="column 'c' has the value NaN, which is no JSON number"):
        session.write(table, path)
    session.write(table, path, nulls="omit", non_finite="null")
    assert path.read_text() == '{"a":1,"b":{},"c":null}\n{"c":null}\n'
    # An entry of a map is not a field.
    entries = pa.array([[("k", None), ("l", {"y": None})], None], pa.map_(pa.string(), pa.struct([("y", pa.int8())])))
    session.write(pa.table({"m": entries}), path, nulls="omit")
    assert path.read_text() == '{"m":{"k":null,"l":{}}}\n{}\n'
    session.write(table, path, non_finite="text")
    assert path.read_text() == '{"a":1,"b":{"x":null},"c":"NaN"}\n{"a":null,"b":null,"c":"-inf"}\n'
    got = pa.table(session.read(path, types="c=Float64"))["c"].to_pylist()
    assert str(got) == "[nan, -inf]"


@pytest.mark.parametrize(
    "format, option, message",
    [
        ("csv", {"delimeter": ";"}, "no option 'delimeter'"),
        ("csv", {"delimiter": ";;"}, "the option delimiter is ';;', expected one character"),
        ("csv", {"delimiter": "\n"}, "expected one character"),
        ("csv", {"delimiter": '"'}, "delimiter and quote are the same character"),
        ("csv", {"quote": "none", "escape": "\\"}, "escape needs a quote"),
        ("csv", {"header": "yes"}, "the option header is 'yes', expected true or false"),
        ("csv", {"infer_rows": 0}, "infer_rows is '0', expected a number of at least 1, or all"),
        ("csv", {"types": "a=int9"}, "the option types has 'a=int9', expected a type"),
        ("csv", {"types": "z=Int8"}, "the column 'z', which does not exist; the columns are: a"),
        ("csv", {"types": "a=List(Int8)"}, "column 'a' is list<item: int8>: CSV has no nested values"),
        ("csv", {"types": "a=Binary"}, "column 'a' is binary: .*pass binary=hex"),
        ("csv", {"compression": "lz4"}, "compression is 'lz4', expected auto, none, gzip or zstd"),
        ("ndjson", {"types": "a=Binary"}, "column 'a' is binary: .*pass binary=hex"),
        ("ndjson", {"delimiter": ";"}, "no option 'delimiter'"),
    ],
)
def test_invalid_options_are_named(session, format, option, message):
    with pytest.raises((cd.UsageError, cd.UnsupportedError), match=message):
        read_text(session, {"csv": "a\n1\n", "ndjson": '{"a": 1}\n'}[format], format, **option)


@pytest.mark.parametrize(
    "extension, table, message",
    [
        ("csv", {"a": [1], "b": [b"x"]}, "column 'b' is binary: CSV has no binary values"),
        ("csv", {"a": [1], "b": [[1]]}, "column 'b' is list.*CSV has no nested values"),
        ("csv", {"a": [1], "b": [datetime.timedelta(1)]}, "column 'b' is duration"),
        ("ndjson", {"a": [1], "b": [{"x": [b"x"]}]}, "column 'b' is struct.*JSON has no binary values"),
        (
            "ndjson",
            {"a": [1], "b": pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8()))},
            "column 'b' is map.*only texts",
        ),
        ("ndjson", {"a": [1], "b": [datetime.timedelta(1)]}, "column 'b' is duration"),
    ],
)
def test_columns_without_text_are_named_before_anything_is_written(session, tmp_path, extension, table, message):
    path = tmp_path / f"out.{extension}"
    with pytest.raises(cd.UnsupportedError, match=message):
        session.write(pa.table(table), path)
    assert not path.exists()


def test_values_without_text_are_named(session, tmp_path):
    far = pa.table({"far": pa.array([2**62], pa.int64()).cast(pa.timestamp("s"))})
    for extension in ("csv", "ndjson"):
        with pytest.raises(cd.UnsupportedError, match="column 'far'"):
            session.write(far, tmp_path / f"out.{extension}")
    with pytest.raises(cd.UnsupportedError, match="column 'a' has the value 5, which is also the text of nulls"):
        session.write(pa.table({"a": [5]}), tmp_path / "out.csv", null_value="5")
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(cd.UnsupportedError, match="two columns are called 'a'"):
        session.write(twice, tmp_path / "out.ndjson")
    session.write(twice, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "a,a\n1,2\n"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a,b\n1,2", {"a": [1], "b": [2]}),
        ("a,b\r\n1,2\r\n\r\n", {"a": [1], "b": [2]}),
        ("a,b\r1,2\r3,4", {"a": [1, 3], "b": [2, 4]}),
        ("\ufeffa,b\n1,2\n", {"a": [1], "b": [2]}),
        ('\ufeff"a",b\n1,2\n', {"a": [1], "b": [2]}),
        ("a,b\n", {"a": [], "b": []}),
        ("a,b", {"a": [], "b": []}),
        ("\n\na,b\n1,2\n", {"a": [1], "b": [2]}),
        ("a,\n1,2\n", {"a": [1], "": [2]}),
        ('a,b\n"",\n', {"a": [""], "b": [None]}),
        ("a,b\nx\0y,1\n", {"a": ["x\0y"], "b": [1]}),
        ("a,b\n,\n", {"a": [None], "b": [None]}),
    ],
)
def test_line_ends_marks_and_blank_lines(session, text, expected):
    assert read_text(session, text).to_pydict() == expected


def test_repeated_names_are_kept(session):
    table = read_text(session, "a,a\n1,x\n")
    assert table.column_names == ["a", "a"]
    assert [column.to_pylist() for column in table.columns] == [[1], ["x"]]
    with pytest.raises(cd.UsageError, match="'a'"):
        read_text(session, "a,a\n1,x\n", columns=["a"])


def test_inferred_types(session):
    text = "b,i,f,d,s,z,m,t,n,big\nTRUE,1,1,2013-01-01,2013-01-01 10:00:00,2013-01-01T10:00:00.5+01:00,"
    text += "2013-01-01 10:00:00.000001,1x,,9223372036854775808\n,,2e3,,,,,,,\n"
    expected = {
        "b": pa.bool_(),
        "i": pa.int64(),
        "f": pa.float64(),
        "d": pa.date32(),
        "s": pa.timestamp("s"),
        "z": pa.timestamp("ms", "UTC"),
        "m": pa.timestamp("us"),
        "t": pa.string(),
        "n": pa.string(),
        "big": pa.string(),
    }
    assert read_text(session, text).schema == pa.schema(expected)


@pytest.mark.parametrize("extension", ["csv", "ndjson"])
def test_columns_rows_and_limits(session, tmp_path, extension):
    rows = 100_003
    table = pa.table({"a": range(rows), "b": [f"text {i}" for i in range(rows)], "c": [i / 2 for i in range(rows)]})
    path = tmp_path / f"in.{extension}"
    session.write(table, path)
    assert_equal(table.select(["c", "a"]), pa.table(session.read(path, columns=["c", "a"])))
    wanted = pa.concat_tables([table.slice(5, 10), table.slice(60_000, 40_003)])
    assert_equal(wanted, pa.table(session.read(path, rows=[(5, 15), (60_000, 200_000)])))
    assert_equal(table.slice(0, 7), pa.table(session.read(path, limit=7)))
    got = pa.table(session.read(path, columns=["b"], filter=[("a", ">=", 99_999)]))
    assert_equal(table.slice(99_999).select(["b"]), got)
    batches = [batch.num_rows for batch in session.scan(path, batch_rows=1000)]
    assert sum(batches) == rows and max(batches) == 1000
    assert pa.table(session.read(path, columns=[])).num_rows == rows


def test_nested_fields_are_selected(session):
    text = '{"a": {"x": 1, "y": {"z": "t", "w": 2}}, "b": 3}\n{"a": null}\n'
    got = read_text(session, text, "ndjson", columns=["a.y.w"])
    assert got.to_pylist() == [{"a": {"y": {"w": 2}}}, {"a": None}]
    with pytest.raises(cd.DataError, match="column 'a.q'"):
        read_text(session, text + '{"a": {"q": 1}}\n', "ndjson", columns=["a.y.w"], infer_rows=2)


def test_several_files_have_the_types_of_the_first(session, tmp_path):
    (tmp_path / "1.csv").write_text("a\n1\n")
    (tmp_path / "2.csv").write_text("a\n2\n")
    assert pa.table(session.read(str(tmp_path / "*.csv"))).to_pydict() == {"a": [1, 2]}


@pytest.mark.parametrize("format, text", [("csv", "a\n" + "1\n" * 50_000), ("ndjson", '{"a":1}\n' * 50_000)])
def test_pipes_are_read(session, tmp_path, format, text):
    path = tmp_path / f"pipe.{format}"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(text,))
    writer.start()
    assert pa.table(session.read(path))["a"].to_pylist() == [1] * 50_000
    writer.join()
    writer = threading.Thread(target=path.write_text, args=("a\n1\n",))
    writer.start()
    with pytest.raises(cd.UnsupportedError, match="can be read only once"):
        session.read(path, infer_rows="all")
    writer.join()


def test_tables_larger_than_the_budget_are_scanned(tmp_path):
    path = tmp_path / "large.csv.zst"
    with pa.CompressedOutputStream(str(path), "zstd") as file:
        file.write(b"a,b\n")
        for _ in range(200):
            file.write(b"12345,some text of a row\n" * 20_000)
    with cd.Session(memory="32M") as session:
        scan = session.scan(path)
        assert sum(table.num_rows for table in scan) == 4_000_000
        assert scan.schema.names == ["a", "b"]


def test_progress_counts_the_bytes_of_the_file(session, tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("a\n" + "1\n" * 500_000)
    seen = []
    session.read(path, progress=lambda done, total: seen.append((done, total)))
    assert {total for _, total in seen} == {path.stat().st_size}
    assert seen[-1][0] == path.stat().st_size and sorted(seen) == seen
