"""What a Vortex file cannot store is an error or a warning, and a failed file does not appear."""

import os

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from separate_plugin import assert_error_of_the_sink_is_passed_on
import vortex as vx

UNSUPPORTED = {
    "duration": pa.duration("s"),
    "interval": pa.month_day_nano_interval(),
    "fixed_size_binary": pa.binary(4),
    "sparse_union": pa.sparse_union([pa.field("a", pa.int8()), pa.field("b", pa.string())]),
    "dense_union": pa.dense_union([pa.field("a", pa.int8())]),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_type_that_vortex_lacks_is_an_error_that_names_the_column(session, tmp_path, name):
    schema = pa.schema([("first", pa.int8()), (f"my {name}", UNSUPPORTED[name])])
    with pytest.raises(cd.UnsupportedError, match=f"column 'my {name}': Vortex has no type for"):
        session.writer(tmp_path / "x.vortex", schema)
    assert os.listdir(tmp_path) == []


def test_nested_type_that_vortex_lacks_is_an_error_that_names_its_path(session, tmp_path):
    schema = pa.schema([("s", pa.struct([("l", pa.list_(pa.duration("s")))]))])
    with pytest.raises(cd.Error, match=r"column 's\.l\.item': Vortex has no type for"):
        session.writer(tmp_path / "x.vortex", schema)


def test_repeated_name_is_an_error_that_names_it(session, tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(cd.Error, match="column 'a': the name occurs twice"):
        session.write(table, tmp_path / "x.vortex")


def test_unknown_options_are_errors(session, tmp_path):
    table = pa.table({"a": [1]})
    with pytest.raises(cd.Error, match="unknown compression 'lz4', expected default, compact or none"):
        session.write(table, tmp_path / "x.vortex", compression="lz4")
    for option, most in (("zone_rows", 1 << 24), ("chunk_rows", 1 << 30), ("chunk_bytes", 1 << 40)):
        for value in (0, most + 1, "8 MiB"):
            with pytest.raises(cd.Error, match=f"{option} is '{value}', expected a number from 1 to {most}"):
                session.write(table, tmp_path / "x.vortex", **{option: value})
    with pytest.raises(cd.Error, match="no option 'level'"):
        session.write(table, tmp_path / "x.vortex", level="3")
    assert os.listdir(tmp_path) == []


def test_error_of_the_sink_is_passed_on(tmp_path, plugin, run):
    table = pa.table({"a": np.random.default_rng(1).random(50_000)})
    assert_error_of_the_sink_is_passed_on(run, plugin, table, tmp_path, "b.vortex")


def test_writer_that_is_not_finished_leaves_no_file(session, tmp_path):
    table = pa.table({"a": range(20_000)})
    with pytest.raises(RuntimeError, match="stop"), session.writer(tmp_path / "x.vortex", table.schema) as writer:
        writer.write(table)
        raise RuntimeError("stop")
    assert os.listdir(tmp_path) == []


def test_too_little_memory_is_an_error_and_enough_memory_suffices(plugin, tmp_path):
    table = pa.table({"a": np.random.default_rng(1).random(500_000)})
    with cd.Session(plugins=[plugin], memory=3 << 20) as session:
        with pytest.raises(cd.Error, match="memory for the writer of the crate vortex: write smaller batches"):
            session.write(table, tmp_path / "x.vortex")
    assert os.listdir(tmp_path) == []
    with cd.Session(plugins=[plugin], memory=32 << 20) as session:
        session.write(table, tmp_path / "x.vortex")
    assert vx.open(str(tmp_path / "x.vortex")).to_arrow().read_all()["a"].to_pylist() == table["a"].to_pylist()


def of_numbers(data_type, numbers):
    """Returns an array of a type of 64 bits."""
    return pa.Array.from_buffers(data_type, len(numbers), [None, pa.array(numbers, pa.int64()).buffers()[1]])


VALUES_THAT_VORTEX_REJECTS = {
    "timestamp": of_numbers(pa.timestamp("s"), [1, 2**60]),
    "time": of_numbers(pa.time64("us"), [1, 86_400_000_000]),
    "decimal": of_numbers(pa.decimal64(2, 0), [1, 1000]),
    "nested": pa.StructArray.from_arrays([of_numbers(pa.time64("us"), [-1, 5])], ["x"]),
}


@pytest.mark.parametrize("compression", ["default", "none"])
@pytest.mark.parametrize("name", VALUES_THAT_VORTEX_REJECTS)
def test_value_that_vortex_rejects_is_an_error_that_names_the_column(session, tmp_path, name, compression):
    table = pa.table({"first": [1, 2], "my column": VALUES_THAT_VORTEX_REJECTS[name]})
    with pytest.raises(cd.Error, match="column 'my column': the crate vortex cannot write the values"):
        session.write(table, tmp_path / "x.vortex", compression=compression)
    assert os.listdir(tmp_path) == []
    session.write(pa.table({"a": [1]}), tmp_path / "x.vortex")


def test_unknown_time_zone_is_an_error_that_names_the_column(session, tmp_path):
    for data_type in (pa.timestamp("us", "Nowhere/Land"), pa.list_(pa.timestamp("us", "Nowhere/Land"))):
        with pytest.raises(cd.Error, match="column 't': Vortex has no type for .*time zone"):
            session.writer(tmp_path / "x.vortex", pa.schema([("t", data_type)]))


def test_unused_null_of_a_dictionary_that_is_not_nullable_is_an_error_that_names_the_column(session, tmp_path):
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array(["a", None]))
    schema = pa.schema([pa.field("d", column.type, nullable=False)])
    with pytest.raises(cd.Error, match="column 'd': the crate vortex cannot write the values"):
        session.write(pa.Table.from_arrays([column], schema=schema), tmp_path / "x.vortex")


def test_malformed_contents_are_an_error(session, tmp_path):
    offsets = pa.array([0, 2, 4], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab\xff\xff")])
    with pytest.raises(cd.Error, match="UTF-8"):
        session.write(pa.table({"a": text}), tmp_path / "x.vortex")
    assert os.listdir(tmp_path) == []


def test_null_in_a_column_that_is_not_nullable_is_an_error(session, tmp_path):
    schema = pa.schema([pa.field("a", pa.int8(), nullable=False)])
    table = pa.Table.from_arrays([pa.array([1, None], pa.int8())], schema=schema)
    with pytest.raises(cd.Error, match="column a: the null count is 1, but its field is not nullable"):
        session.write(table, tmp_path / "x.vortex")


@pytest.fixture
def convert_table(tmp_path, run, plugin):
    """Writes a table with the command, and returns what the command wrote to stderr."""

    def convert_table(table, *flags):
        with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
            writer.write_table(table)
        done = run("convert", "--plugins", plugin, tmp_path / "a.arrow", tmp_path / "b.vortex", "--quiet", *flags)
        assert done.returncode == 0, done.stderr
        return done.stderr.decode()

    return convert_table


def test_metadata_of_fields_are_dropped_with_a_warning(tmp_path, convert_table):
    inner = pa.field("b", pa.int8(), metadata={"k": "v"})
    schema = pa.schema([pa.field("a", pa.struct([inner])), pa.field("c", pa.int8(), metadata={"k": "v"})])
    warning = convert_table(pa.table([[{"b": 1}], [2]], schema=schema))
    assert "dropped: those of 'a.b', 'c'" in warning
    assert vx.open(str(tmp_path / "b.vortex")).to_arrow().read_all().to_pydict() == {"a": [{"b": 1}], "c": [2]}


def test_metadata_of_the_schema_are_stored_or_dropped_with_a_warning(tmp_path, convert_table, session):
    table = pa.table({"a": [1]})
    assert convert_table(table.replace_schema_metadata({"a key": "some value"})) == ""
    assert session.read(tmp_path / "b.vortex").to_pyarrow().schema.metadata == {b"a key": b"some value"}
    warning = convert_table(table.replace_schema_metadata({"k" * 65: "value"}))
    assert "the metadata of the schema are dropped" in warning
    assert vx.open(str(tmp_path / "b.vortex")).to_arrow().read_all().to_pydict() == {"a": [1]}


def test_table_without_metadata_is_written_without_a_warning(convert_table):
    assert convert_table(pa.table({"a": [1]})) == ""


def test_isolated_plugin_writes_the_same_file(tmp_path, convert_table):
    table = pa.table({"a": range(1000), "s": ["x"] * 1000})
    convert_table(table)
    expected = (tmp_path / "b.vortex").read_bytes()
    convert_table(table, "--isolate=vortex-writer")
    assert (tmp_path / "b.vortex").read_bytes() == expected


def test_plan_names_the_columns_that_cannot_be_written(plugin, run, tmp_path):
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), pa.schema([("a", pa.int8()), ("d", pa.duration("s"))])):
        pass
    done = run("plan", "--plugins", plugin, tmp_path / "a.arrow", "--to", "vortex")
    text = done.stdout.decode() + done.stderr.decode()
    assert "compressed with the encodings that Vortex chooses" in text
    assert "column 'd': Vortex has no type for" in text


def test_plugin_passes_verification(plugin, run):
    done = run("verify", plugin)
    assert done.returncode == 0, done.stdout.decode()
