"""Reads valid and damaged Arrow IPC from every kind of source. The same bytes give the same result from every
source: the rows, or an error. The Rust tests in plugins/arrow-ipc/tests/devices/ends_of_input.rs flip every
bit of a file and of a stream."""

import io
import os
import struct
import subprocess
import threading

import capi
import crossdock as cd
import pyarrow as pa
import pytest

pytestmark = pytest.mark.filterwarnings("ignore::crossdock.Warning")


def ipc(*values, form="stream", **options):
    out = io.BytesIO()
    schema = pa.schema([("a", pa.int64())])
    new = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
    with new(out, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for value in values:
            writer.write(pa.record_batch({"a": pa.array([value], pa.int64())}))
    return out.getvalue()


def without_end(data, bytes_from_end):
    return data[: len(data) - bytes_from_end]


def changed(data, at, new):
    at %= len(data)
    return data[:at] + new + data[at + len(new) :]


def last_block(data, field, change):
    """Returns a file whose footer declares another offset, metadata length or body length of the last record
    batch."""
    offsets = [i for i in range(0, len(data) - 4) if data[i : i + 8] == b"\xff\xff\xff\xff" + data[i + 4 : i + 8]]
    footer = len(data) - 10 - struct.unpack("<i", data[-10:-6])[0]
    last = [i for i in offsets if i < footer and data[i + 4 : i + 8] != bytes(4)][-1]
    at = data.index(struct.pack("<q", last), footer) + {"offset": 0, "metadata": 8, "body": 16}[field]
    return changed(data, at, struct.pack("<q", struct.unpack("<q", data[at : at + 8])[0] + change))


STREAM, FILE = ipc(1, 2), ipc(1, 2, form="file")
MESSAGES = [i for i in range(0, len(STREAM), 8) if STREAM[i : i + 4] == b"\xff\xff\xff\xff"]
OTHER = io.BytesIO()
with pa.ipc.new_stream(OTHER, pa.schema([("b", pa.utf8())])) as writer:
    pass

INPUTS = {
    "a stream": (STREAM, [1, 2]),
    "a file": (FILE, [1, 2]),
    "a stream without batches": (ipc(), []),
    "a file without batches": (ipc(form="file"), []),
    "an old stream": (ipc(1, 2, use_legacy_format=True), [1, 2]),
    "no bytes": (b"", None),
    "one byte": (STREAM[:1], None),
    "text": (b"no Arrow at all, and long enough to be looked at", None),
    "a stream truncated in its schema": (STREAM[:50], None),
    "a stream truncated in a batch's metadata": (STREAM[: MESSAGES[2] + 20], None),
    "a stream truncated in a batch's body": (STREAM[: MESSAGES[3] - 8], None),
    "a stream truncated between batches": (STREAM[: MESSAGES[2]], [1]),
    "a stream without its end": (without_end(STREAM, 8), [1, 2]),
    "two streams": (STREAM + ipc(3), [1, 2, 3]),
    "two streams with padding": (STREAM + bytes(24) + ipc(3), [1, 2, 3]),
    "two streams, the second truncated": (STREAM + ipc(3)[:-20], None),
    "two streams with different fields": (STREAM + OTHER.getvalue(), None),
    "a stream and other bytes": (STREAM + b"something else", [1, 2]),
    "a stream and a file": (STREAM + FILE, None),
    "two files": (FILE + FILE, None),
    "a file and other bytes": (FILE + b"something else", None),
    "a file truncated before its footer": (FILE[: FILE.rindex(b"\xff\xff\xff\xff\0\0\0\0") + 8], None),
    "a file truncated in its footer": (without_end(FILE, 40), None),
    "a file truncated in its magic": (without_end(FILE, 3), None),
    "a file with another magic at its end": (changed(FILE, -1, b"?"), None),
    "a file that declares a long footer": (changed(FILE, -10, struct.pack("<i", len(FILE))), None),
    "a file that declares a footer of negative length": (changed(FILE, -10, struct.pack("<i", -1)), None),
    "the footer declares another offset of the last block": (last_block(FILE, "offset", 8), None),
    "the footer declares more metadata of the last block": (last_block(FILE, "metadata", 8), None),
    "the footer declares less metadata of the last block": (last_block(FILE, "metadata", -8), None),
    "the footer declares one more byte in the body of the last block": (last_block(FILE, "body", 1), None),
    "the footer declares a longer body of the last block": (last_block(FILE, "body", 8), None),
    "the footer declares a shorter body of the last block": (last_block(FILE, "body", -8), None),
    "the footer declares a huge body of the last block": (last_block(FILE, "body", 1 << 40), None),
    "a message of negative length": (changed(STREAM, MESSAGES[1] + 4, struct.pack("<i", -8)), None),
    "a message of huge length": (changed(STREAM, MESSAGES[1] + 4, struct.pack("<i", 1 << 30)), None),
}


class OnlyRead:
    """An object that has only `read`."""

    def __init__(self, content):
        self.read = io.BytesIO(content).read


def write_file(tmp_path, data):
    path = tmp_path / "in.arrow"
    path.write_bytes(data)
    return path


def write_on_thread(target, data):
    """Starts a thread that writes to a descriptor or a path until the reader stops."""

    def write():
        try:
            with open(target, "wb") as file:
                file.write(data)
        except BrokenPipeError:
            pass

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def through_fifo(tmp_path, data, read):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    thread = write_on_thread(path, data)
    try:
        return read(path)
    finally:
        # Opens the fifo as a reader, because a writer that has not opened the fifo yet would wait
        # forever. The remaining bytes fit into the pipe.
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        thread.join()
        os.close(reader)


def read_with_python(**options):
    def read(session, source):
        return session.read_ipc(source, **options)["a"].to_pyarrow().to_pylist()

    return read


def through_object(tmp_path, session, data):
    read_end, write_end = os.pipe()
    thread = write_on_thread(write_end, data)
    try:
        with open(read_end, "rb") as pipe:
            return read_with_python()(session, pipe)
    finally:
        thread.join()


def read_with_c(path, read=lambda session, path: session.read(str(path))):
    if capi.library_path() is None:
        pytest.skip("neither CROSSDOCK_LIB nor CROSSDOCK_BIN is set")
    with capi.Host() as host, host.session() as session:
        stream = read(session, path)
        return [row for batch in stream for row in batch.column(0).to_pylist()]


def read_with_command(tmp_path, *arguments, **options):
    program = os.environ.get("CROSSDOCK_BIN")
    if program is None:
        pytest.skip("CROSSDOCK_BIN is not set; `cargo xtask test` sets it to what it built")
    out = tmp_path / "out.arrows"
    done = subprocess.run([program, "convert", "-q", *arguments, out], capture_output=True, timeout=60, **options)
    if done.returncode == 0:
        return pa.ipc.open_stream(out).read_all()["a"].to_pylist()
    assert done.returncode == 1 and not out.exists(), done
    raise cd.Error(done.stderr.decode())


READERS = {
    "python, path": lambda tmp, session, data: read_with_python()(session, write_file(tmp, data)),
    "python, path unmapped": lambda tmp, session, data: read_with_python(map=False)(session, write_file(tmp, data)),
    "python, bytes": lambda tmp, session, data: read_with_python()(session, data),
    "python, seekable object": lambda tmp, session, data: read_with_python()(session, io.BytesIO(data)),
    "python, other object": lambda tmp, session, data: read_with_python()(session, OnlyRead(data)),
    "python, pipe's object": through_object,
    "python, fifo": lambda tmp, session, data: through_fifo(tmp, data, lambda path: read_with_python()(session, path)),
    "C, path": lambda tmp, session, data: read_with_c(write_file(tmp, data)),
    "C, bytes": lambda tmp, session, data: read_with_c(
        data, lambda session, data: session.read_bytes(data, "arrow-ipc")
    ),
    "C, fifo": lambda tmp, session, data: through_fifo(tmp, data, read_with_c),
    "command, path": lambda tmp, session, data: read_with_command(tmp, write_file(tmp, data)),
    "command, path unmapped": lambda tmp, session, data: read_with_command(tmp, "--no-map", write_file(tmp, data)),
    "command, pipe": lambda tmp, session, data: read_with_command(tmp, "--from", "arrow-ipc", "-", input=data),
    "command, fifo": lambda tmp, session, data: through_fifo(tmp, data, lambda path: read_with_command(tmp, path)),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("name", INPUTS)
def test_each_input_has_the_same_outcome_through_every_reader(session, tmp_path, name, reader):
    data, expected = INPUTS[name]
    try:
        rows = reader(tmp_path, session, data)
    except (cd.Error, capi.CrossdockError) as error:
        assert expected is None, error
        assert "panicked" not in str(error) and "internal" not in str(error)
    else:
        assert rows == expected


@pytest.mark.parametrize("reader", ["python, path", "python, bytes", "python, fifo"])
def test_exceptions_have_the_position_of_the_damage(session, tmp_path, reader):
    with pytest.raises(cd.DataError) as raised:
        READERS[reader](tmp_path, session, STREAM + FILE)
    assert f"at byte {len(STREAM)}" in str(raised.value)
    assert (raised.value.offset, raised.value.row, raised.value.retry) == (len(STREAM), None, False)


def test_exceptions_without_a_position_have_none(session):
    with pytest.raises(cd.UsageError) as raised:
        session.read(b"", format="no-such-format")
    assert (raised.value.offset, raised.value.row, raised.value.retry) == (None, None, False)
    assert (cd.Error().offset, cd.Error().row, cd.Error().retry) == (None, None, False)
