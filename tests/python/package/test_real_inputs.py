"""Small inputs from reports of users. Each test checks the outcome of the command or of the package."""

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
    """Returns the number of rows that the command reads from its standard input, or its error."""
    command = os.environ.get("CROSSDOCK_BIN")
    if command is None:
        pytest.skip("CROSSDOCK_BIN is not set; `cargo xtask test` sets it to what it built")

    def run(data):
        out = tmp_path / "out.arrow"
        run = subprocess.run([command, "convert", "-q", "-", out], input=data, capture_output=True, timeout=60)
        return ipc.open_file(out).read_all().num_rows if run.returncode == 0 else run.stderr.decode()

    return run


def test_rejects_vortex_export_of_null_in_non_nullable_column(session):
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(cd.Error, match="column x: the null count is 1"):
        session.from_vortex(session.from_arrow(pa.table([pa.array([1, None, 3])], schema=schema))["x"])


def test_rejects_truncated_file_through_a_pipe(rows_through_a_pipe):
    whole = file_of(3)
    footer = struct.unpack("<i", whole[-10:-6])[0]
    marks = [i for i in range(0, len(whole) - 10 - footer, 8) if whole[i : i + 4] == b"\xff\xff\xff\xff"]
    assert "the input is truncated: it ends" in rows_through_a_pipe(whole[: marks[3]])


def test_consecutive_streams_lose_no_row(session, rows_through_a_pipe):
    assert rows_through_a_pipe(stream(3) + stream(4)) == 7
    assert session.read_ipc(stream(3) + stream(4)).num_rows == 7


def test_reads_stream_in_the_framing_before_arrow_0_15(rows_through_a_pipe):
    assert rows_through_a_pipe(stream(5, use_legacy_format=True)) == 5


def test_imports_polars_null_column(session):
    assert session.from_arrow(pl.DataFrame({"x": [None]})).to_pyarrow().column(0).null_count == 1


def test_requested_schema_is_returned(session):
    requested = session.from_arrow(pa.table({"n": pa.array([1], pa.int8())})).schema
    assert session.from_arrow(pl.DataFrame({"n": [1]}), schema=requested).schema["n"].type == "int8"


def test_keeps_extension_type_of_dictionary_values(session):
    values = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
    uuid = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), values)
    assert session.from_arrow(pa.table({"u": uuid})).to_pyarrow().schema.field(0).type == uuid.type


def test_polars_struct_series_becomes_a_column(session):
    column = session.from_arrow(pl.Series("s", [{"a": 1}, None]))
    assert column.to_pyarrow().to_pylist() == [{"a": 1}, None]


def test_imports_metadata_that_is_not_utf8(session):
    assert session.from_arrow(pa.table({"a": [1]}, metadata={"k": b"\xff"})).num_rows == 1


def test_combines_chunks_with_different_dictionaries(session):
    chunks = pa.chunked_array([pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()])
    column = session.from_arrow(pa.table({"d": chunks}))["d"].combine_chunks()
    assert column.to_pyarrow().to_pylist() == ["a", "b"]
