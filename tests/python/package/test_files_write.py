"""Arrow IPC to paths and to file objects, whatever these do."""

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
def test_every_sample_is_written_and_read_by_pyarrow(session, tmp_path, name, form, compression):
    schema, batches = make(name)
    path = tmp_path / f"out{FORMS[form]}"
    from_pyarrow(session, schema, batches).write_ipc(path, compression=compression)
    got = read(path, form)
    # Through pyarrow's own stream: it forgets types that are not registered, and merges no dictionaries.
    reader = pa.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(schema, batches))
    assert_equal((reader.schema, list(reader)), got)


@pytest.fixture
def table(session):
    return session.from_arrow(pa.table({"zeros": pa.array([0] * 100_000, pa.int64())}))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compression", [None, "none", "lz4", "zstd"])
def test_the_compression_asked_for_is_the_one_written(table, compression, form):
    sink = io.BytesIO()
    table.write_ipc(sink, compression=compression, form=form)
    content = sink.getvalue()
    assert (len(content) < table.nbytes // 10) == (compression in MAGIC)
    assert all((magic in content) == (codec == compression) for codec, magic in MAGIC.items())


def test_the_form_follows_the_ending_and_form_overrules_it(table, tmp_path):
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


def test_arguments_that_make_no_sense_are_named(table, tmp_path):
    with pytest.raises(ValueError, match='form="parquet": expected "file" or "stream"'):
        table.write_ipc(tmp_path / "x", form="parquet")
    with pytest.raises(cd.Error, match="brotli"):
        table.write_ipc(tmp_path / "x", compression="brotli")
    with pytest.raises(TypeError, match="a int is no path and has no method write"):
        table.write_ipc(7)
    with pytest.raises(cd.Error, match="no-such-format"):
        table.write(tmp_path / "x", "no-such-format")
    assert os.listdir(tmp_path) == []


class Sink:
    """A file object that takes at most so many bytes at a time, and answers as it is told."""

    def __init__(self, most=None, answer=lambda n: n):
        self.content, self.most, self.answer = bytearray(), most, answer

    def write(self, data):
        assert isinstance(data, bytes)
        taken = data[: self.most]
        self.content += taken
        return self.answer(len(taken))


@pytest.mark.parametrize("sink", [Sink(), Sink(most=1000), Sink(answer=lambda n: None)], ids=["all", "less", "None"])
@pytest.mark.parametrize("form", FORMS)
def test_file_objects_that_take_all_or_less_or_do_not_say(session, sink, form):
    sink.content.clear()
    batch = mixed()
    session.from_arrow(batch).write_ipc(sink, form=form)
    assert session.read_ipc(bytes(sink.content)).to_pyarrow().equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize("answer", [lambda n: 0, lambda n: n + 1, lambda n: -1, lambda n: "ten"])
def test_a_file_object_that_answers_nonsense_ends_the_work(table, answer):
    with pytest.raises((cd.UsageError, OverflowError, TypeError)):
        table.write_ipc(Sink(answer=answer))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), LookupError("a bug"), KeyboardInterrupt()])
def test_what_a_file_object_raises_comes_through_as_it_is(table, error):
    class Raises(Sink):
        def write(self, data):
            if self.content:
                raise error
            return super().write(data)

    with pytest.raises(type(error)) as raised:
        table.write_ipc(Raises(most=100))
    assert raised.value is error


def test_the_library_s_files_are_written_to(session, tmp_path):
    batch = mixed()
    ours = session.from_arrow(batch)
    for name, open_it in [
        ("buffered", lambda path: path.open("wb")),
        ("raw", lambda path: path.open("wb", buffering=0)),
        ("pyarrow", lambda path: pa.OSFile(str(path), "wb")),
    ]:
        with open_it(tmp_path / name) as file:
            ours.write_ipc(file)
        assert_equal((batch.schema, [batch]), read(tmp_path / name, "file"))


def test_a_file_appears_whole_or_not_at_all(table, tmp_path):
    path = tmp_path / "out.arrow"
    path.write_bytes(b"what was there")

    def refuse(done, total):
        raise LookupError("seen enough")

    with pytest.raises(LookupError, match="seen enough"):
        table.write_ipc(path, progress=refuse)
    assert path.read_bytes() == b"what was there" and os.listdir(tmp_path) == ["out.arrow"]
    with pytest.raises(FileNotFoundError):
        table.write_ipc(tmp_path / "no" / "such" / "folder.arrow")
    table.write_ipc(path)
    assert read(path, "file")[1][0].num_rows == 100_000


def test_progress_is_told_in_bytes_of_the_table(session, tmp_path):
    batch = pa.record_batch({"a": pa.array(range(1000), pa.int64())})
    table = session.from_arrow(pa.Table.from_batches([batch] * 3))
    told = []
    table.write_ipc(tmp_path / "x.arrow", progress=lambda done, total: told.append((done, total)))
    assert told == [(8000, 24_000), (16_000, 24_000), (24_000, 24_000)]


def test_a_format_follows_the_ending_or_is_named(session, tmp_path):
    batch = mixed()
    table = session.from_arrow(batch)
    table.write(tmp_path / "a.arrow")
    table.write(tmp_path / "b", "arrow-ipc-stream", compression="zstd")
    assert_equal((batch.schema, [batch]), read(tmp_path / "a.arrow", "file"))
    assert_equal((batch.schema, [batch]), read(tmp_path / "b", "stream"))
    with pytest.raises(cd.Error, match="xyz"):
        table.write(tmp_path / "c.xyz")


def test_a_written_table_does_not_change_when_it_is_written_again(session, tmp_path):
    table = session.from_arrow(mixed())
    sinks = [io.BytesIO() for _ in range(3)]
    for sink in sinks:
        table.write_ipc(sink, compression="lz4")
    assert len({sink.getvalue() for sink in sinks}) == 1
