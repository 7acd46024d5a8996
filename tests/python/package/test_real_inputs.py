"""Small inputs that reports of users led to, each with its outcome: the command and the package side by side."""

import io
import os
import struct
import subprocess

import crossdock as cd
import pyarrow as pa
import pyarrow.ipc as ipc
import pytest

pl = pytest.importorskip("polars")


@pytest.fixture
def session():
    with cd.Session(validate="full") as session:
        yield session


def stream(rows, **options):
    out = io.BytesIO()
    batch = pa.record_batch({"a": pa.array(range(rows), pa.int64())})
    with ipc.new_stream(out, batch.schema, options=ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return out.getvalue()


def file_of(batches):
    out = io.BytesIO()
    batch = pa.record_batch({"a": pa.array(range(100), pa.int64())})
    with ipc.new_file(out, batch.schema) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return out.getvalue()


@pytest.fixture
def rows_through_a_pipe(tmp_path):
    """How many rows the command makes of bytes on its standard input, or its error."""
    command = os.environ.get("CROSSDOCK_BIN")
    if command is None:
        pytest.skip("CROSSDOCK_BIN is not set; `cargo xtask test` sets it to what it built")

    def run(data):
        out = tmp_path / "out.arrow"
        run = subprocess.run([command, "convert", "-q", "-", out], input=data, capture_output=True, timeout=60)
        return ipc.open_file(out).read_all().num_rows if run.returncode == 0 else run.stderr.decode()

    return run


def test_a_column_without_nulls_that_has_one_is_no_vortex_tree(session):
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(cd.Error, match="column x: 1 nulls"):
        session.from_vortex(session.from_arrow(pa.table([pa.array([1, None, 3])], schema=schema))["x"])


def test_a_file_that_is_cut_after_its_second_batch_is_an_error_through_a_pipe(rows_through_a_pipe):
    whole = file_of(3)
    footer = struct.unpack("<i", whole[-10:-6])[0]
    marks = [i for i in range(0, len(whole) - 10 - footer, 8) if whole[i : i + 4] == b"\xff\xff\xff\xff"]
    assert "cut off" in rows_through_a_pipe(whole[: marks[3]])


def test_streams_one_after_another_lose_no_row(session, rows_through_a_pipe):
    assert rows_through_a_pipe(stream(3) + stream(4)) == 7
    assert session.read_ipc(stream(3) + stream(4)).num_rows == 7


def test_a_stream_in_the_framing_before_arrow_0_15_is_read(rows_through_a_pipe):
    assert rows_through_a_pipe(stream(5, use_legacy_format=True)) == 5


def test_a_polars_column_of_nulls_is_taken(session):
    assert session.from_arrow(pl.DataFrame({"x": [None]})).to_pyarrow().column(0).null_count == 1


def test_a_schema_that_is_asked_for_is_given(session):
    asked = session.from_arrow(pa.table({"n": pa.array([1], pa.int8())})).schema
    assert session.from_arrow(pl.DataFrame({"n": [1]}), schema=asked).schema["n"].type == "Int8"


def test_a_dictionary_whose_values_are_of_an_extension_type_keeps_it(session):
    values = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
    uuid = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), values)
    assert session.from_arrow(pa.table({"u": uuid})).to_pyarrow().schema.field(0).type == uuid.type


def test_a_polars_series_of_structs_is_a_column(session):
    column = session.from_arrow(pl.Series("s", [{"a": 1}, None]))
    assert column.to_pyarrow().to_pylist() == [{"a": 1}, None]


def test_metadata_that_is_not_utf8_is_taken(session):
    assert session.from_arrow(pa.table({"a": [1]}, metadata={"k": b"\xff"})).num_rows == 1


def test_chunks_whose_dictionaries_differ_are_combined(session):
    chunks = pa.chunked_array([pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()])
    column = session.from_arrow(pa.table({"d": chunks}))["d"].combine_chunks()
    assert column.to_pyarrow().to_pylist() == ["a", "b"]
