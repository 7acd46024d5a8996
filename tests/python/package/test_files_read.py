"""Arrow IPC from all kinds of sources, and files of other formats."""

import io
import mmap
import os
import pathlib
import threading

import crossdock as cd
import pyarrow as pa
import pytest
from peers import FORMS, assert_equal, read, write
from samples import SAMPLES, make, mixed


def batches_of(table):
    return pa.schema(table), [pa.record_batch(batch) for batch in table.batches()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_read_from_paths_and_bytes(session, tmp_path, name, form):
    path = tmp_path / f"in{FORMS[form]}"
    write(path, form, *make(name))
    expected = read(path, form)
    assert_equal(expected, batches_of(session.read_ipc(path)))
    assert_equal(expected, batches_of(session.read_ipc(path.read_bytes())))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("form", FORMS)
def test_reads_compressed_files(session, tmp_path, form, compression):
    path = tmp_path / f"in{FORMS[form]}"
    batch = mixed()
    write(path, form, batch.schema, [batch, batch.slice(3, 7)], compression=compression)
    assert_equal(read(path, form), batches_of(session.read_ipc(path)))


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "in.arrow", "file", mixed().schema, [mixed()] * 2)
    return tmp_path / "in.arrow"


SOURCES = {
    "str": str,
    "pathlib": pathlib.Path,
    "bytes": lambda path: path.read_bytes(),
    "bytearray": lambda path: bytearray(path.read_bytes()),
    "memoryview": lambda path: memoryview(path.read_bytes()),
    "memoryview of words": lambda path: memoryview(path.read_bytes() + bytes(-path.stat().st_size % 4)).cast("I"),
    "pyarrow.Buffer": lambda path: pa.py_buffer(path.read_bytes()),
    "BytesIO": lambda path: io.BytesIO(path.read_bytes()),
    "open file": lambda path: path.open("rb"),
    "raw file": lambda path: path.open("rb", buffering=0),
    "pyarrow file": lambda path: pa.OSFile(str(path)),
    "mmap": lambda path: memoryview(mmap.mmap(os.open(path, os.O_RDONLY), 0, access=mmap.ACCESS_READ)),
}


@pytest.mark.parametrize("source", SOURCES)
def test_reads_every_kind_of_source(session, path, source):
    if source == "memoryview of words":
        # A stream has an end marker, so padding after it is harmless.
        write(path, "stream", mixed().schema, [mixed()] * 2)
    source_object = SOURCES[source](path)
    assert session.read_ipc(source_object).to_pyarrow().equals(pa.Table.from_batches([mixed()] * 2))


def test_reads_numpy_arrays_of_bytes(session, path):
    numpy = pytest.importorskip("numpy")
    assert session.read_ipc(numpy.frombuffer(path.read_bytes(), "uint8")).num_rows == 2 * len(mixed())
    with pytest.raises((cd.UsageError, TypeError), match="contiguous|bytes-like"):
        session.read_ipc(numpy.zeros((8, 8), "uint8")[:, ::2])


def test_columns_share_the_bytes(session, tmp_path):
    write(tmp_path / "in.arrow", "file", mixed().schema, [mixed()])
    content = bytearray((tmp_path / "in.arrow").read_bytes())
    numpy = pytest.importorskip("numpy")
    begin = numpy.frombuffer(content, "uint8").ctypes.data
    column = session.read_ipc(content)["n"].to_pyarrow()
    address = column.chunk(0).buffers()[1].address
    assert begin <= address < begin + len(content)
    with pytest.raises(BufferError):
        content.append(0)
    del column
    session.synchronize()
    content.append(0)


def test_file_object_is_read_from_its_position(session, path):
    file = io.BytesIO(b"before" + path.read_bytes())
    file.seek(6)
    assert session.read_ipc(file).num_rows == 2 * len(mixed())


def test_exception_of_file_object_is_raised_unchanged(session):
    class Raises:
        def read(self, *_):
            raise LookupError("the source is broken")

    with pytest.raises(LookupError, match="the source is broken"):
        session.read_ipc(Raises())
    with pytest.raises(TypeError):
        session.read_ipc(io.StringIO("text"))
    with pytest.raises(TypeError, match="expected a path, a file object or a bytes-like object, got int"):
        session.read_ipc(7)


def test_pipe_is_read_to_its_end(session, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    write(tmp_path / "in.arrows", "stream", mixed().schema, [mixed()])
    writer = threading.Thread(target=lambda: path.write_bytes((tmp_path / "in.arrows").read_bytes()))
    writer.start()
    try:
        assert session.read_ipc(path).to_pyarrow().equals(pa.Table.from_batches([mixed()]))
    finally:
        writer.join()


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("by", ["bytes", "path", "fifo"])
def test_consecutive_streams_are_one_table(session, tmp_path, by, legacy):
    content = b""
    for name in ["a", "b"]:
        write(tmp_path / name, "stream", mixed().schema, [mixed()], use_legacy_format=legacy)
        content += (tmp_path / name).read_bytes()
    assert read_by(session, tmp_path, by, content).to_pyarrow().equals(pa.Table.from_batches([mixed()] * 2))


@pytest.mark.parametrize("by", ["bytes", "path", "fifo"])
def test_rejects_file_without_footer_from_every_source(session, tmp_path, by):
    write(tmp_path / "whole", "file", mixed().schema, [mixed()])
    content = (tmp_path / "whole").read_bytes()
    footer = len(content) - 10 - int.from_bytes(content[-10:-6], "little")
    with pytest.raises(cd.DataError, match="footer|ARROW1"):
        read_by(session, tmp_path, by, content[: footer - 8])
    # Some writers omit the end-of-stream marker before the footer.
    whole = read_by(session, tmp_path, by, content[: footer - 8] + content[footer:])
    assert whole.to_pyarrow().equals(pa.Table.from_batches([mixed()]))


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
@pytest.mark.parametrize("by", ["bytes", "path", "fifo"])
def test_reads_polars_files_from_every_source(session, tmp_path, by, compression):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"n": range(1000), "t": [str(i) for i in range(1000)]})
    frame = frame.with_columns(c=polars.Series(["x", "y"] * 500, dtype=polars.Categorical))
    for write_frame in [frame.write_ipc, frame.write_ipc_stream]:
        content = io.BytesIO()
        write_frame(content, compression=compression)
        table = read_by(session, tmp_path, by, content.getvalue())
        assert polars.from_arrow(table.to_pyarrow()).equals(frame)


def read_by(session, tmp_path, by, content):
    if by == "bytes":
        return session.read_ipc(content)
    path = tmp_path / by
    if by == "path":
        path.write_bytes(content)
        return session.read_ipc(path)
    if not path.exists():
        os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(content))
    writer.start()
    try:
        return session.read_ipc(path)
    finally:
        writer.join()


def test_missing_file_or_directory_raises_the_exception_of_open(session, tmp_path):
    missing = tmp_path / "missing.arrow"
    for read_path, path, kind in [
        (session.read_ipc, missing, FileNotFoundError),
        (session.read, missing, FileNotFoundError),
        (session.read_ipc, tmp_path, IsADirectoryError),
    ]:
        with pytest.raises(kind) as raised:
            read_path(path)
        with pytest.raises(kind) as expected:
            open(path)
        assert (raised.value.errno, raised.value.filename) == (expected.value.errno, str(path))
        assert str(raised.value) == str(expected.value)


def test_error_contains_the_path_of_an_unsupported_file(session, tmp_path):
    letter = b"Dear Sir or Madam, this is no table, though it is long enough to be one."
    for name, read_path, expected in [
        ("letter.arrow", session.read_ipc, cd.DataError),
        ("letter.arrow", session.read, cd.DataError),
        ("letter.txt", session.read, cd.UnsupportedError),
    ]:
        (tmp_path / name).write_bytes(letter)
        with pytest.raises(expected, match=name):
            read_path(tmp_path / name)


def test_rejects_truncated_files(session, path):
    whole = path.read_bytes()
    for end in [0, 1, 5, 6, 7, 8, 12, 100, len(whole) // 2, len(whole) - 10, len(whole) - 1]:
        with pytest.raises((cd.DataError, cd.UnsupportedError)):
            session.read_ipc(whole[:end])


def test_rejects_invalid_values_unless_only_the_layout_is_validated(path):
    write(path, "file", pa.schema([("t", pa.string())]), [pa.record_batch({"t": ["aaaa", "bbbb"]})])
    broken = path.read_bytes().replace(b"aaaabbbb", b"aaa\xffbbbb")
    with cd.Session() as session, pytest.raises(cd.DataError, match="UTF-8|utf8|utf-8"):
        session.read_ipc(broken)
    with cd.Session(validate="layout") as session:
        assert session.read_ipc(broken).num_rows == 2


def test_format_argument_is_optional_if_content_is_recognised(session, path):
    assert session.read(path).num_rows == 2 * len(mixed())
    assert session.read(str(path), "arrow-ipc-file").num_rows == 2 * len(mixed())
    with pytest.raises(cd.Error, match="^format=no-such-format: "):
        session.read(path, "no-such-format")
    with pytest.raises(cd.Error, match="nonsense"):
        session.read(path, nonsense="1")


def test_progress_is_in_bytes_and_ends_at_the_total(session, path):
    reports = []
    session.read(path, progress=lambda done, total: reports.append((done, total)))
    assert reports and reports == sorted(reports)
    for quiet in (None, False, True):
        session.read(path, progress=quiet)
    with pytest.raises(cd.UsageError, match="progress=7: expected"):
        session.read(path, progress=7)


def test_exception_of_progress_function_cancels_the_read(session, path):
    def cancel(done, total):
        raise LookupError("cancelled by the test")

    with pytest.raises(LookupError, match="cancelled by the test"):
        session.read(path, progress=cancel)


@pytest.mark.parametrize("method", ["read_ipc", "read"])
def test_table_read_without_mapping_survives_truncation_of_its_file(tmp_path, method):
    path = tmp_path / "numbers.arrow"
    expected = pa.table({"x": range(100_000)})
    with pa.ipc.new_file(path, expected.schema) as file:
        file.write_table(expected)
    with cd.Session() as session:
        table = getattr(session, method)(path, map=False)
        os.truncate(path, 100)
        assert table.to_pyarrow() == expected
        with pytest.raises(cd.DataError):
            getattr(session, method)(path, map=False)
