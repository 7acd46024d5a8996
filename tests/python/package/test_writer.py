"""Writing batches one after another: `Session.write` and `Session.writer`."""

import os

import crossdock as cd
import pyarrow as pa
import pyarrow.ipc as ipc
import pytest
from peers import write

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def batch(first, rows):
    numbers = range(first, first + rows)
    return pa.record_batch([pa.array(numbers), pa.array([f"name {n}" for n in numbers])], schema=SCHEMA)


BATCHES = [batch(0, 10), batch(10, 1), batch(11, 30)]
TABLE = pa.Table.from_batches(BATCHES)


def read(path):
    opener = ipc.open_file if path.suffix == ".arrow" else ipc.open_stream
    with opener(path) as reader:
        return reader.read_all()


@pytest.fixture
def source(tmp_path):
    write(tmp_path / "in.arrow", "file", SCHEMA, BATCHES)
    return tmp_path / "in.arrow"


SOURCES = {
    "scan": lambda session, path: session.scan(path),
    "table": lambda session, path: session.read(path),
    "pyarrow table": lambda session, path: TABLE,
    "reader": lambda session, path: pa.RecordBatchReader.from_batches(SCHEMA, BATCHES),
}


@pytest.mark.parametrize("name", ["out.arrow", "out.arrows"])
@pytest.mark.parametrize("kind", SOURCES)
def test_write_keeps_the_batches_of_any_source(session, source, tmp_path, kind, name):
    path = tmp_path / name
    session.write(SOURCES[kind](session, source), path, compression="zstd")
    written = read(path)
    assert written.equals(TABLE)
    assert [len(chunk) for chunk in written["id"].chunks] == [10, 1, 30]


def test_record_batch_is_written_as_one_batch(session, tmp_path):
    session.write(BATCHES[0], tmp_path / "out.arrow")
    assert read(tmp_path / "out.arrow").equals(TABLE.slice(0, 10))


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_source_larger_than_the_budget_is_written(tmp_path, threads):
    rows = 100_000
    part = pa.record_batch({"n": pa.array(range(rows), pa.int64()), "text": [f"a text {n}" for n in range(rows)]})
    write(tmp_path / "in.arrow", "file", part.schema, [part] * 20, compression="lz4")
    with cd.Session(memory="12MiB", threads=threads) as session:
        session.write(session.scan(tmp_path / "in.arrow"), tmp_path / "out.arrow", compression="lz4")
    assert read(tmp_path / "out.arrow").num_rows == 20 * rows


def test_writer_writes_tables_batches_and_scans(session, source, tmp_path):
    path = tmp_path / "out.arrow"
    with session.writer(path, SCHEMA) as writer:
        writer.write(session.scan(source))
        assert not path.exists()
        writer.write(BATCHES[0])
        writer.write(session.from_arrow(TABLE))
    assert read(path).equals(pa.concat_tables([TABLE, TABLE.slice(0, 10), TABLE]))
    writer.close()


def test_exception_in_the_block_leaves_no_file(session, tmp_path):
    with pytest.raises(KeyError), session.writer(tmp_path / "out.arrow", SCHEMA) as writer:
        writer.write(TABLE)
        raise KeyError("stop")
    assert os.listdir(tmp_path) == []
    with pytest.raises(cd.UsageError, match="the writer is closed"):
        writer.write(TABLE)


def test_failed_scan_keeps_the_old_file(session, source, tmp_path):
    path = tmp_path / "out.arrow"
    path.write_bytes(b"old")
    scan = session.scan([source, tmp_path / "missing.arrow"])
    with pytest.raises(FileNotFoundError, match="missing.arrow"):
        session.write(scan, path)
    assert path.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["in.arrow", "out.arrow"]


def test_rejects_batches_with_another_schema(session, tmp_path):
    writer = session.writer(tmp_path / "out.arrow", SCHEMA)
    with pytest.raises(cd.UsageError, match="the batch does not have the output's schema: expected 2 columns, got 1"):
        writer.write(TABLE.select(["id"]))
    with pytest.raises(cd.UsageError, match="an earlier batch was not written"):
        writer.close()
    assert os.listdir(tmp_path) == []


def test_dropped_writer_leaves_no_file(session, tmp_path):
    writer = session.writer(tmp_path / "out.arrow", SCHEMA)
    writer.write(TABLE)
    del writer
    assert os.listdir(tmp_path) == []
    writer = session.writer(tmp_path / "out.arrow", SCHEMA)
    writer.discard()
    writer.close()
    assert os.listdir(tmp_path) == []


def test_rejects_sources_that_are_no_tables(session, tmp_path):
    for wrong in (3, pa.array([1])):
        with pytest.raises((TypeError, cd.UsageError)):
            session.write(wrong, tmp_path / "out.arrow")
    assert os.listdir(tmp_path) == []


def test_device_scan_is_written(cuda_session, source, tmp_path):
    cuda_session.write(cuda_session.scan(source, batch_rows=7), tmp_path / "out.arrow")
    assert read(tmp_path / "out.arrow").equals(TABLE)
