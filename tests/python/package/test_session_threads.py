"""Eight threads that use one session."""

import concurrent.futures
import io
import os
import signal
import threading
import time

import crossdock as cd
import pyarrow as pa
import pytest
from samples import SAMPLES, make

THREADS = 8


def run_on_threads(work):
    barrier = threading.Barrier(THREADS)

    def one(i):
        barrier.wait()
        return work(i)

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


def test_threads_share_a_session(session, flights):
    expected = pa.ipc.open_file(flights).read_all()

    def work(i):
        for _ in range(10):
            table = session.read_ipc(flights)
            sink = io.BytesIO()
            part = table.slice(i * 100, 1000)
            part.write_ipc(sink, compression=[None, "lz4", "zstd"][i % 3])
            again = session.read_ipc(sink.getvalue())
            assert again.to_pyarrow().equals(expected.slice(i * 100, 1000))

    run_on_threads(work)


def test_threads_share_a_table(session):
    tables = [session.from_arrow(pa.RecordBatchReader.from_batches(*make(name))) for name in SAMPLES]

    def work(i):
        for table in tables[i:] + tables[:i]:
            session.from_arrow(pa.RecordBatchReader.from_stream(table))
            assert repr(table)
            assert all(0 <= column.null_count <= len(column) for column in table.columns)
            for batch in table.batches():
                session.from_capsules(*batch.__arrow_c_device_array__())

    run_on_threads(work)


def test_session_may_be_closed_during_use():
    session = cd.Session()
    table = session.from_arrow(pa.table({"a": range(1000)}))

    def work(i):
        for n in range(200):
            try:
                if i == 0 and n == 100:
                    session.close()
                session.from_arrow(table)
            except cd.UsageError as error:
                assert "closed" in str(error)
        return table.num_rows

    assert run_on_threads(work) == [1000] * THREADS


def test_objects_are_released_on_other_threads(session):
    tables = [session.from_arrow(pa.table({"a": range(100)})) for _ in range(800)]

    def work(i):
        for _ in range(100):
            tables.pop()

    run_on_threads(work)
    assert not tables


def test_waiting_for_a_file_releases_the_interpreters_lock(session, tmp_path):
    """The reader must release the interpreter's lock while it waits, because the writer needs this lock."""
    os.mkfifo(tmp_path / "pipe")
    batch = pa.record_batch({"a": [1, 2, 3]})

    def feed():
        with (tmp_path / "pipe").open("wb") as pipe, pa.ipc.new_stream(pipe, batch.schema) as out:
            out.write(batch)

    writer = threading.Thread(target=feed)
    writer.start()
    assert session.read_ipc(tmp_path / "pipe").num_rows == 3
    writer.join()


@pytest.mark.parametrize("what", ["read", "write"])
def test_ctrl_c_cancels_long_wait(session, tmp_path, what):
    os.mkfifo(tmp_path / "pipe")
    other_end = os.open(tmp_path / "pipe", os.O_RDWR)
    table = session.from_arrow(pa.table({"a": range(1_000_000)}))

    def interrupt():
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    # Sets the handler, because SIGINT is ignored if the tests were started in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            thread.start()
            if what == "read":
                session.read_ipc(tmp_path / "pipe")
            else:
                table.write_ipc(tmp_path / "pipe")
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
        os.close(other_end)
    assert session.from_arrow(table).num_rows == 1_000_000
