"""The plugin in C, examples/c-plugin, and pyarrow.csv read each other's files with equal values."""

import json
import random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pytest

from csv_plugin import built_csv_plugin
from peers import differs, read, write

COLUMNS = {
    "i": pa.array([1, None, -(2**63), 2**63 - 1, 0]),
    "i8": pa.array([-128, None, 127, 0, 1], pa.int8()),
    "f": pa.array([0.1, None, -1e300, 1 / 3, 5e-324]),
    "b": pa.array([True, False, None, True, False]),
    "s": pa.array(["", None, 'a "b", c', "two\nlines", "héé 🦀"]),
}
TYPES = "types=int64,int8,float64,bool,utf8"


@pytest.fixture(scope="session")
def plugin(tmp_path_factory):
    """Builds the plugin as its users do."""
    return built_csv_plugin(tmp_path_factory.mktemp("csv-plugin"))


@pytest.fixture
def convert_with_plugin(convert, plugin):
    """Returns a function that runs `crossdock convert` with the plugin and with additional flags."""
    return lambda source, target, *flags: convert(source, target, "--plugins", plugin, *flags)


def read_with_pyarrow(path, types, **parse):
    """Reads a file with pyarrow. Only unquoted empty fields are null."""
    options = csv.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return csv.read_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True, **parse), convert_options=options)


def assert_columns(expected, got):
    for name in expected.column_names:
        expected_column, actual_column = (table[name].combine_chunks() for table in (expected, got))
        assert differs(expected_column, actual_column) is None, f"{name}: {differs(expected_column, actual_column)}"


def write_table(tmp_path, table):
    path = tmp_path / "in.arrow"
    write(path, "file", table.schema, table.to_batches())
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "tab"])
def test_pyarrow_reads_written_files(tmp_path, convert_with_plugin, delimiter):
    table = pa.table(COLUMNS)
    out = tmp_path / "out.csv"
    convert_with_plugin(write_table(tmp_path, table), out, "--to-option", f"delimiter={delimiter}")
    types = {field.name: field.type for field in table.schema}
    got = read_with_pyarrow(out, types, delimiter="\t" if delimiter == "tab" else delimiter)
    assert_columns(table, got)


def test_reads_files_of_pyarrow(tmp_path, convert_with_plugin):
    table = pa.table(COLUMNS)
    source, out = tmp_path / "in.csv", tmp_path / "out.arrow"
    csv.write_csv(table, source, csv.WriteOptions(quoting_style="needed"))
    convert_with_plugin(source, out, "--from-option", TYPES)
    _, batches = read(out, "file")
    # pyarrow's writer quotes all texts that are not null, so an empty text differs from a null.
    assert_columns(table, pa.Table.from_batches(batches))


def test_quoted_fields_are_read_like_unquoted_fields(tmp_path, convert_with_plugin):
    table = pa.table({"i": [1, 2], "f": [0.5, 1.5], "s": ["x", "1"]})
    source, out = tmp_path / "in.csv", tmp_path / "out.arrow"
    source.write_text('"i","f","s"\n"1","0.5","x"\n"2","1.5","1"\n')
    convert_with_plugin(source, out, "--from-option", "types=int64,float64,utf8")
    _, batches = read(out, "file")
    assert_columns(table, pa.Table.from_batches(batches))


def test_sample_has_the_values_that_pyarrow_reads(tmp_path, convert_with_plugin, sample):
    csv_file, out = tmp_path / "flights.csv", tmp_path / "flights.arrow"
    convert_with_plugin(sample, csv_file, "--columns", "year,month,dep_time,tailnum,cancelled,speed_mph")
    convert_with_plugin(csv_file, out, "--from-option", "types=int16,int8,int16,utf8,bool,float64")
    schema, batches = read(out, "file")
    got = pa.Table.from_batches(batches)
    assert_columns(read_with_pyarrow(csv_file, {field.name: field.type for field in schema}), got)
    _, original = read(sample, "file")
    assert_columns(pa.Table.from_batches(original).select(got.column_names), got)


def test_floats_have_the_values_that_pyarrow_reads(tmp_path, convert_with_plugin):
    numbers = random.Random(7)
    bits = pa.array([numbers.getrandbits(63) for _ in range(20_000)], pa.int64())
    values = bits.view(pa.float64())
    values = pc.if_else(pc.is_finite(values), values, 0.0)
    table = pa.table({"f": values})
    out = tmp_path / "out.csv"
    convert_with_plugin(write_table(tmp_path, table), out)
    assert_columns(table, read_with_pyarrow(out, {"f": pa.float64()}))


def test_rejects_files_that_pyarrow_rejects(tmp_path, run, plugin):
    for text in ["a,b\n1\n", "a,b\n1,2,3\n"]:
        source, out = tmp_path / "in.csv", tmp_path / "out.arrow"
        source.write_text(text)
        with pytest.raises(pa.ArrowInvalid):
            csv.read_csv(source)
        done = run("convert", source, out, "--plugins", plugin, "--quiet")
        assert done.returncode == 1 and b"expected 2 fields" in done.stderr and not out.exists()


def test_host_data_is_moved_to_the_sessions_device(cuda, run, plugin, tmp_path):
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("a,b\n1,x\n2,y\n")
    done = run("convert", source, out, "--plugins", plugin, "--device", "cuda", "--json")
    assert done.returncode == 0, done.stderr
    stages = json.loads(done.stdout)["stages"]
    assert [(stage["stage"], stage["format"], stage["rows"]) for stage in stages] == [
        ("read", "csv", 2),
        ("move", "cuda:0", 2),
        ("move", "cpu", 2),
        ("write", "csv", 2),
    ]
    assert out.read_bytes() == source.read_bytes()
