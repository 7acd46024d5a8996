"""Positions of file objects after a read."""

import io
import os
import threading

import crossdock as cd
import pyarrow as pa
import pytest


def stream_of(*values, form="stream"):
    out = io.BytesIO()
    batches = [pa.record_batch({"a": [value]}) for value in values]
    new = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
    with new(out, batches[0].schema) as writer:
        for batch in batches:
            writer.write(batch)
    return out.getvalue()


TAILS = {"nothing": b"", "other bytes": b"next: no Arrow", "a few bytes": b"x"}
OBJECTS = {
    "BytesIO": lambda path: io.BytesIO(path.read_bytes()),
    "open file": lambda path: path.open("rb"),
    "raw file": lambda path: path.open("rb", buffering=0),
    "pyarrow file": lambda path: pa.OSFile(str(path)),
    "pyarrow buffer": lambda path: pa.BufferReader(path.read_bytes()),
}


@pytest.mark.filterwarnings("ignore::crossdock.Warning")
@pytest.mark.parametrize("head", [b"", b"before"])
@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
@pytest.mark.parametrize("open_", OBJECTS.values(), ids=OBJECTS)
def test_seekable_object_is_positioned_after_the_streams(session, tmp_path, open_, tail, head):
    path = tmp_path / "in"
    streams = stream_of(1, 2) + stream_of(3)
    path.write_bytes(head + streams + tail)
    with open_(path) as file:
        file.seek(len(head))
        assert pa.table(session.read_ipc(file)).to_pydict() == {"a": [1, 2, 3]}
        assert file.tell() == len(head) + len(streams)
        assert file.read() == tail


def test_object_is_positioned_at_the_end_of_a_file(session):
    file = io.BytesIO(stream_of(1, 2, form="file"))
    assert session.read_ipc(file).num_rows == 2
    assert file.read() == b""


@pytest.mark.parametrize("damage", [b"no Arrow at all", stream_of(1)[:-20], stream_of(1) + stream_of("other fields")])
def test_failed_read_restores_the_position(session, damage):
    file = io.BytesIO(b"before" + damage)
    file.seek(6)
    with pytest.raises(cd.Error):
        session.read_ipc(file)
    assert file.tell() == 6


class OnlyRead:
    """An object that has only `read`."""

    def __init__(self, content):
        self.inner = io.BytesIO(content)

    def read(self, n=-1):
        return self.inner.read(n)


class Failing(io.BytesIO):
    """A file object whose second read fails."""

    reads = 0

    def seek(self, *arguments):
        super().seek(*arguments)  # returns nothing, as some file objects do

    def read(self, size=-1):
        self.reads += 1
        if self.reads > 1:
            raise ConnectionError("lost")
        return super().read(size)


def test_exception_of_object_restores_its_position(session):
    sink = io.BytesIO(b"prefix")
    sink.seek(6)
    session.from_arrow(pa.table({"a": range(1000)})).write_ipc(sink, form="stream")
    file = Failing(sink.getvalue())
    file.seek(6)
    with pytest.raises(ConnectionError):
        session.read_ipc(file)
    assert file.tell() == 6


def test_unseekable_object_is_read_to_its_end(session):
    file = OnlyRead(stream_of(1) + stream_of(2))
    assert session.read_ipc(file).num_rows == 2
    assert file.read() == b""


def test_pipe_is_read_until_its_writer_closes(session):
    read_end, write_end = os.pipe()

    def write():
        with open(write_end, "wb") as pipe:
            pipe.write(stream_of(1, 2))
            pipe.flush()
            pipe.write(stream_of(3))

    writer = threading.Thread(target=write)
    writer.start()
    with open(read_end, "rb") as pipe:
        assert pa.table(session.read_ipc(pipe)).to_pydict() == {"a": [1, 2, 3]}
    writer.join()
