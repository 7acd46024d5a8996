"""Malformed CSV and NDJSON files are errors that name the line and the column."""

import gzip
import os

import crossdock as cd
import pyarrow as pa
import pytest

LONG = "x" * 100
# For each bad file the format, the bytes and the error.
BAD = {
    "type": ("csv", "a,b\n1,2\n3,x\n", {"types": "b=Int64"}, "line 3: column 'b': expected int64, got \"x\"$"),
    "type after quoted lines": (
        "csv",
        'a,b\n"1\n\n2",2\n#,x\n',
        {"types": "b=Int64"},
        "line 5: column 'b': expected int64, got \"x\"",
    ),
    "long text": ("csv", f"a\n{LONG}\n", {"types": "a=Int8"}, r'got "x{40}"... \(100 bytes\)'),
    "overflow": ("csv", "a\n128\n", {"types": "a=Int8"}, 'expected int8, got "128"'),
    "fraction": ("csv", "a\n1.5\n", {"types": "a=Int8"}, 'expected int8, got "1.5"'),
    "digits": ("csv", "a\n1.555\n", {"types": "a=Decimal128(9, 2)"}, 'got "1.555"'),
    "unit": ("csv", "a\n2013-01-01 00:00:00.5\n", {"types": "a=Timestamp(s)"}, "line 2: column 'a'"),
    "zone": ("csv", "a\n2013-01-01 00:00:00Z\n", {"types": "a=Timestamp(s)"}, "line 2: column 'a'"),
    "fewer fields": ("csv", "a,b\n1,2\n3\n", {}, "line 3: the record has 1 fields, expected 2"),
    "more fields": ("csv", "a,b\n1,2\n\n3,4,5\n", {}, "line 4: the record has 3 fields, expected 2"),
    "open quote": ("csv", 'a,b\n1,2\n"3,4\n5,6\n', {}, "line 3: a quote is not closed"),
    "text after a quote": ("csv", 'a,b\n"1"2,3\n', {}, "line 2: a field goes on after its closing quote"),
    "UTF-8": ("csv", b"a,b\n1,\xff\n", {}, "line 2: byte 3 is 0xff, expected UTF-8"),
    "UTF-16": ("csv", "a,b\n1,2\n".encode("utf-16"), {}, "byte order mark is that of UTF-16"),
    "NUL": ("csv", "a\n1\0\n", {"types": "a=Int8"}, r'expected int8, got "1\\0"'),
    "empty": ("csv", "", {}, "has no record, expected at least one with the names"),
    "empty without header": ("csv", "\n\n", {"header": "false"}, "has no record, expected at least one, because its"),
    "truncated gzip": (
        "csv",
        gzip.compress(b"a\n" + b"1\n" * 999)[:-9],
        {},
        "decompressed with gzip: the data ends too early",
    ),
    "damaged gzip": ("csv", b"\x1f\x8b\x08" + b"\x77" * 99, {}, "cannot be decompressed with gzip"),
    "truncated zstd": (
        "csv",
        pa.compress(b"a\n" + b"1\n" * 999, "zstd", asbytes=True)[:-3],
        {},
        "decompressed with Zstandard: the data ends too early",
    ),
    "damaged zstd": ("csv", b"\x28\xb5\x2f\xfd" + b"\xff" * 99, {}, "cannot be decompressed with Zstandard"),
    "JSON type": (
        "ndjson",
        '{"a":1}\n{"a":"x"}\n',
        {"types": "a=Int64"},
        "line 2: column 'a': expected int64, got \"x\"",
    ),
    "JSON fraction": ("ndjson", '{"a":1.5}\n', {"types": "a=Int64"}, "line 1: column 'a': expected int64, got 1.5"),
    "JSON object": ("ndjson", '{"a":1}\n[1]\n', {}, "line 2: .*expected an object"),
    "JSON nested": (
        "ndjson",
        '{"a":{"b":[1]}}\n{"a":{"b":[1,"x"]}}\n',
        {"types": 'a=Struct("b": List(Int64))'},
        "line 2: column 'a.b': expected int64, got \"x\"",
    ),
    "JSON conflict": (
        "ndjson",
        '{"a":1}\n{"a":"x"}\n',
        {},
        "line 2: column 'a': a text follows a number; set its type",
    ),
    "JSON syntax": ("ndjson", '{"a":1}\n{"a":\n', {}, "line 2: byte 5: EOF while parsing a value"),
    "JSON lines": ("ndjson", '{"a":1}{"a":2}\n', {"infer_rows": 1}, "line 1: byte 8: trailing characters"),
    "many columns": ("csv", "," * 100_000, {}, "line 1: the record has 100001 fields, expected at most 100000"),
    "late field": (
        "ndjson",
        '{"a":1}\n{"a":1,"b":2}\n',
        {"infer_rows": 1},
        "line 2: column 'b': the field is not in the",
    ),
    "late lines": ("ndjson", '{"a":1}\n{"a":1}{"a":2}\n', {"infer_rows": 1}, "line 2: expected one object per line"),
    "late end": ("ndjson", '{"a":1}\n{"a":1\n', {"infer_rows": 1}, "line 2: the object is not complete"),
    "late type": ("ndjson", '{"a":"x"}\n{"a":[1]}\n', {"infer_rows": 1}, "line 2: column 'a': expected string"),
    "repeated field": (
        "ndjson",
        '{"a":1,"a":2}\n',
        {"types": "a=Int64"},
        "line 1: column 'a': the object has this field twice",
    ),
    "deep nesting": ("ndjson", '{"a":' + "[" * 100_000 + "\n", {"types": "a=Utf8"}, "line 1: more than 64 levels"),
    "JSON UTF-8": ("ndjson", b'{"a":"\xff"}\n', {}, "line 1: byte 7 is 0xff, expected UTF-8"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_errors_with_the_line_and_the_column(session, tmp_path, name):
    format, data, options, message = BAD[name]
    path = tmp_path / f"bad.{format}"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(cd.DataError, match=message) as error:
        session.read(path, **options)
    assert str(path) in str(error.value)


def test_errors_name_lines_of_later_chunks(session, tmp_path):
    lines = [f"{i},text {i}" for i in range(400_000)]
    lines[123_456] = "x,late"
    path = tmp_path / "late.csv"
    path.write_text("a,b\r\n" + "\r\n".join(lines))
    with pytest.raises(cd.DataError, match="line 123458: column 'a': expected int64, got \"x\""):
        session.read(path)
    assert session.read(path, limit=10_000).num_rows == 10_000, "later chunks are not parsed"
    assert pa.table(session.read(path, infer_rows="all"))["a"].type == pa.string()


@pytest.mark.parametrize("codec", ["", ".gz", ".zst"])
def test_long_records_are_errors_within_the_budget(tmp_path, codec):
    """A record of 1 GB is an error after a part of it has been read. Compressed, it is a bomb."""
    path = tmp_path / f"long.csv{codec}"
    head = b'a,b\n1,2\n3,"'
    if codec:
        name = {".gz": "gzip", ".zst": "zstd"}[codec]
        with pa.CompressedOutputStream(str(path), name) as file:
            file.write(head)
            for _ in range(256 if codec == ".gz" else 1000):
                file.write(b"x" * (1 << 20))
    else:
        path.write_bytes(head)
        os.truncate(path, 1 << 30)
    with cd.Session(memory="64M") as session:
        with pytest.raises(cd.DataError, match="line 3: a record has more than .*a quote in line 3 that is not closed"):
            session.read(path)
        assert session.memory_used() == {}
