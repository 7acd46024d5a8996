"""Arrow IPC to paths and file objects."""

import io
import os

import crossdock as cd
import pyarrow as pa
import pytest
from peers import FORMS, assert_equal, read
from samples import SAMPLES, make, mixed

MAGIC = {"lz4": b"\x04\x22\x4d\x18", "zstd": b"\x28\xb5\x2f\xfd"}


def from_pyarrow(session, schema, batches):
    return session.from_arrow(pa.RecordBatchReader.from_batches(schema, batches))


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SAMPLES)
def test_pyarrow_reads_written_samples(session, tmp_path, name, form, compression):
    schema, batches = make(name)
    path = tmp_path / f"out{FORMS[form]}"
    from_pyarrow(session, schema, batches).write_ipc(path, compression=compression)
    got = read(path, form)
    # The expected table passes through a stream of pyarrow, because pyarrow drops types that are
    # not registered, and does not merge dictionaries.
    reader = pa.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(schema, batches))
    assert_equal((reader.schema, list(reader)), got)


@pytest.fixture
def table(session):
    return session.from_arrow(pa.table({"zeros": pa.array([0] * 100_000, pa.int64())}))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compression", [None, "none", "lz4", "zstd"])
def test_compression_is_applied(table, compression, form):
    sink = io.BytesIO()
    table.write_ipc(sink, compression=compression, form=form)
    content = sink.getvalue()
    assert (len(content) < table.nbytes // 10) == (compression in MAGIC)
    assert all((magic in content) == (codec == compression) for codec, magic in MAGIC.items())


def test_form_argument_overrides_file_extension(table, tmp_path):
    for name, form, expected in [
        ("a.arrow", None, "file"),
        ("a.arrows", None, "stream"),
        ("a.bin", None, "file"),
        ("a.arrow", "stream", "stream"),
        ("a.arrows", "file", "file"),
    ]:
        table.write_ipc(str(tmp_path / name), form=form)
        assert read(tmp_path / name, expected)[1][0].num_rows == 100_000
        assert (tmp_path / name).read_bytes().startswith(b"ARROW1") == (expected == "file")


def test_errors_name_invalid_arguments(table, tmp_path):
    with pytest.raises(ValueError, match='form="parquet": expected "file" or "stream"'):
        table.write_ipc(tmp_path / "x", form="parquet")
    with pytest.raises(cd.Error, match="brotli"):
        table.write_ipc(tmp_path / "x", compression="brotli")
    with pytest.raises(TypeError, match="expected a path or an object with a method write, got int"):
        table.write_ipc(7)
    with pytest.raises(cd.Error, match="no-such-format"):
        table.write(tmp_path / "x", "no-such-format")
    assert os.listdir(tmp_path) == []


class Sink:
    """A file object whose `write` writes at most `most` bytes per call, and returns a fixed result."""

    def __init__(self, most=None, result=lambda n: n):
        self.content, self.most, self.result = bytearray(), most, result

    def write(self, data):
        assert isinstance(data, bytes)
        accepted = data[: self.most]
        self.content += accepted
        return self.result(len(accepted))


@pytest.mark.parametrize("sink", [Sink(), Sink(most=1000), Sink(result=lambda n: None)], ids=["all", "less", "None"])
@pytest.mark.parametrize("form", FORMS)
def test_file_object_may_write_less_or_return_none(session, sink, form):
    sink.content.clear()
    batch = mixed()
    session.from_arrow(batch).write_ipc(sink, form=form)
    assert session.read_ipc(bytes(sink.content)).to_pyarrow().equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize("result", [lambda n: 0, lambda n: n + 1, lambda n: -1, lambda n: "ten"])
def test_rejects_invalid_results_of_write(table, result):
    with pytest.raises((cd.UsageError, OverflowError, TypeError)):
        table.write_ipc(Sink(result=result))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), LookupError("a bug"), KeyboardInterrupt()])
def test_exception_of_file_object_is_raised_unchanged(table, error):
    class Raises(Sink):
        def write(self, data):
            if self.content:
                raise error
            return super().write(data)

    with pytest.raises(type(error)) as raised:
        table.write_ipc(Raises(most=100))
    assert raised.value is error


def test_writes_to_file_objects_of_the_standard_library(session, tmp_path):
    batch = mixed()
    table = session.from_arrow(batch)
    for name, open_it in [
        ("buffered", lambda path: path.open("wb")),
        ("raw", lambda path: path.open("wb", buffering=0)),
        ("pyarrow", lambda path: pa.OSFile(str(path), "wb")),
    ]:
        with open_it(tmp_path / name) as file:
            table.write_ipc(file)
        assert_equal((batch.schema, [batch]), read(tmp_path / name, "file"))


@pytest.mark.parametrize("form", FORMS)
def test_writes_to_memory_at_its_position(session, tmp_path, form):
    batch = mixed()
    sink = io.BytesIO(b"before" + bytes(10**6))
    sink.seek(6)
    session.from_arrow(batch).write_ipc(sink, form=form)
    end = sink.tell()
    (tmp_path / "x").write_bytes(sink.getvalue()[6:end])
    assert_equal((batch.schema, [batch]), read(tmp_path / "x", form))
    assert sink.getvalue()[:6] == b"before" and set(sink.getvalue()[end:]) == {0}


def test_memory_that_cannot_be_resized_is_an_error(table):
    sink = io.BytesIO()
    with sink.getbuffer(), pytest.raises(BufferError, match="cannot be re-sized"):
        table.write_ipc(sink)
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(ValueError, match="closed file"):
        table.write_ipc(closed)


def test_class_derived_from_memory_may_keep_what_it_receives(table):
    class Keeps(io.BytesIO):
        def __init__(self):
            super().__init__()
            self.parts = []

        def write(self, data):
            self.parts.append(data)
            return len(data)

    sink, expected = Keeps(), io.BytesIO()
    table.write_ipc(sink)
    table.write_ipc(expected)
    assert b"".join(sink.parts) == expected.getvalue()


def test_method_of_the_object_may_keep_what_it_receives(table):
    sink, expected, parts = io.BytesIO(), io.BytesIO(), []
    sink.write = lambda data: parts.append(data)
    table.write_ipc(sink)
    table.write_ipc(expected)
    assert b"".join(parts) == expected.getvalue() and sink.getvalue() == b""


def test_file_appears_complete_or_not_at_all(table, tmp_path):
    path = tmp_path / "out.arrow"
    path.write_bytes(b"earlier content")

    def cancel(done, total):
        raise LookupError("cancelled by the test")

    with pytest.raises(LookupError, match="cancelled by the test"):
        table.write_ipc(path, progress=cancel)
    assert path.read_bytes() == b"earlier content" and os.listdir(tmp_path) == ["out.arrow"]
    missing = tmp_path / "no" / "such" / "folder.arrow"
    with pytest.raises(FileNotFoundError) as raised:
        table.write_ipc(missing)
    assert raised.value.filename == str(missing)
    table.write_ipc(path)
    assert read(path, "file")[1][0].num_rows == 100_000


def test_progress_is_in_bytes_of_the_table(session, tmp_path):
    batch = pa.record_batch({"a": pa.array(range(1000), pa.int64())})
    table = session.from_arrow(pa.Table.from_batches([batch] * 3))
    reports = []
    table.write_ipc(tmp_path / "x.arrow", progress=lambda done, total: reports.append((done, total)))
    assert reports == [(8000, 24_000), (16_000, 24_000), (24_000, 24_000)]


def test_format_follows_the_extension_or_is_named(session, tmp_path):
    batch = mixed()
    table = session.from_arrow(batch)
    table.write(tmp_path / "a.arrow")
    table.write(tmp_path / "b", "arrow-ipc-stream", compression="zstd")
    assert_equal((batch.schema, [batch]), read(tmp_path / "a.arrow", "file"))
    assert_equal((batch.schema, [batch]), read(tmp_path / "b", "stream"))
    with pytest.raises(cd.Error, match="xyz"):
        table.write(tmp_path / "c.xyz")


def test_table_stays_valid_if_its_file_is_overwritten(session, tmp_path):
    table = session.from_arrow(mixed())
    sinks = [io.BytesIO() for _ in range(3)]
    for sink in sinks:
        table.write_ipc(sink, compression="lz4")
    assert len({sink.getvalue() for sink in sinks}) == 1
