"""Fragments of scans: each row once, in the same and in other processes, and tokens that are not valid."""

import gc
import io
import multiprocessing
import os
import pickle
import random

import crossdock as cd
import pyarrow as pa
import pytest
from conftest import assert_all_memory_freed
from peers import FORMS, write

ROWS = 1_500_000


@pytest.fixture(scope="module")
def table():
    """16 batches of about 4 MiB."""
    numbers = pa.array(range(ROWS), pa.int64())
    columns = {f"c{i}": numbers for i in range(5)}
    return pa.table({**columns, "name": pa.array([f"{n % 7}" for n in range(ROWS)]).dictionary_encode()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("fragments")
    for form, extension in FORMS.items():
        write(folder / f"{form}{extension}", form, table.schema, table.to_batches(100_000))
    return folder


def ids(scan):
    return pa.table(scan.to_table())["c0"].to_pylist()


def read_fragment(fragment):
    """Reads a fragment in another process."""
    scan = fragment.scan()
    return os.getpid(), scan.num_rows, pa.schema(scan).names, pa.table(scan.to_table())["c0"].to_pylist()


@pytest.mark.parametrize("source", ["path", "bytes"])
def test_fragments_of_a_file_contain_each_row_once(session, folder, source):
    path = folder / "file.arrow"
    scan = session.scan(path if source == "path" else path.read_bytes(), columns=["c0"])
    fragments = scan.fragments()
    assert len(fragments) >= 3
    assert sum(fragment.num_rows for fragment in fragments) == ROWS
    assert all(16 << 20 <= fragment.bytes < 32 << 20 for fragment in fragments[:-1])
    assert all(fragment.statistics is None for fragment in fragments)
    assert [len(fragment.scan().to_table()) for fragment in fragments] == [part.num_rows for part in fragments]
    assert [row for fragment in fragments for row in ids(fragment.scan())] == list(range(ROWS))
    assert session.scan(fragments[1]).num_rows in (fragments[1].num_rows, None)


def test_file_object_has_no_fragments(session, folder):
    with (folder / "file.arrow").open("rb") as file, pytest.raises(cd.UsageError, match="pass a path or bytes"):
        session.scan(file).fragments()


def test_number_of_rows_of_a_file_is_known(session, folder):
    assert session.scan(folder / "file.arrow").num_rows == ROWS
    assert session.scan(folder / "file.arrow", rows=[(5, 7), (ROWS - 1, ROWS + 5)]).num_rows == 3
    assert session.scan(folder / "file.arrow", limit=9).num_rows == 9
    assert session.scan(folder / "stream.arrows").num_rows is None


def test_stream_is_one_fragment(session, folder):
    (fragment,) = session.scan(folder / "stream.arrows", columns=["c0"]).fragments()
    assert fragment.num_rows is None
    assert ids(fragment.scan()) == list(range(ROWS))
    (fragment,) = session.scan(folder / "stream.arrows", columns=["c0"], rows=(7, 9)).fragments()
    assert ids(fragment.scan()) == [7, 8]


def test_fragments_are_read_by_other_processes(session, folder):
    scan = session.scan([folder / "file.arrow"] * 2, columns=["c1", "c0"], rows=(ROWS - 10, ROWS + 200_000))
    fragments = scan.fragments()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = pool.map(read_fragment, fragments)
    assert all(pid != os.getpid() for pid, *_ in results)
    assert [n for _, n, _, _ in results] == [fragment.num_rows for fragment in fragments]
    assert all(names == ["c1", "c0"] for _, _, names, _ in results)
    assert [row for *_, rows in results for row in rows] == [*range(ROWS - 10, ROWS), *range(200_000)]


def test_fragment_keeps_the_arguments_of_its_scan(session, folder):
    wanted = pa.schema([("c1", pa.int32())])
    scan = session.scan(folder / "file.arrow", schema=wanted, batch_rows=1000, prefetch=0, limit=2500)
    (fragment,) = pickle.loads(pickle.dumps(scan.fragments()))
    tables = list(fragment.scan(session))
    assert [len(table) for table in tables] == [1000, 1000, 500]
    assert pa.schema(fragment.scan()).equals(wanted)
    assert repr(fragment).startswith("crossdock.Fragment('/") and "rows: 2500" in repr(fragment)


def test_fragments_of_a_scan_with_a_filter_have_the_filter(session, folder):
    scan = session.scan(folder / "file.arrow", columns=["c1"], filter=[("c0", "<", 1_000_000), ("name", "==", "3")])
    fragments = pickle.loads(pickle.dumps(scan.fragments()))
    assert len(fragments) >= 3
    assert all(fragment.num_rows is None for fragment in fragments)
    rows = [row for part in fragments for row in pa.table(part.scan(session).to_table())["c1"].to_pylist()]
    assert rows == list(range(3, 1_000_000, 7))
    with pytest.raises(cd.UsageError, match="a filter and a limit has no fragments"):
        session.scan(folder / "file.arrow", filter=[("c0", "<", 3)], limit=2).fragments()


def test_fragment_of_bytes_is_pickled_with_its_bytes(session, folder):
    data = io.BytesIO()
    with pa.ipc.new_file(data, pa.schema([("c0", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch({"c0": pa.array([1, 2, 3])}))
    (fragment,) = session.scan(data.getvalue()).fragments()
    assert ids(pickle.loads(pickle.dumps(fragment)).scan()) == [1, 2, 3]


def test_other_arguments_with_a_fragment_are_an_error(session, folder):
    fragment = session.scan(folder / "file.arrow").fragments()[0]
    with pytest.raises(cd.UsageError, match="expected no other arguments"):
        session.scan(fragment, columns=["c0"])
    scan = session.scan(fragment.source, fragment=fragment.token, columns=["c0"], rows=(1, 3))
    assert ids(scan) == [1, 2]


def test_token_of_another_or_a_changed_file_is_an_error(session, tmp_path, table):
    small = table.slice(0, 10)
    for name in ("a.arrow", "b.arrow"):
        write(tmp_path / name, "file", small.schema, small.to_batches())
    (fragment,) = session.scan(tmp_path / "a.arrow").fragments()
    with pytest.raises(cd.DataError, match="of another input, or the input has changed"):
        session.scan(tmp_path / "b.arrow", fragment=fragment.token)
    os.utime(tmp_path / "a.arrow")
    with pytest.raises(cd.DataError, match="has changed since its fragments were listed"):
        fragment.scan()
    with pytest.raises(cd.UsageError, match="expected one file"):
        session.scan(tmp_path, fragment=fragment.token)


def test_damaged_tokens_are_usage_errors(session, folder):
    path = folder / "file.arrow"
    token = session.scan(path).fragments()[0].token
    generator = random.Random(3)
    for i in range(300):
        changed = bytearray(token)
        if i % 3 == 0:
            del changed[generator.randrange(len(token)) :]
        elif i % 3 == 1:
            changed[generator.randrange(len(token))] ^= 1 << generator.randrange(8)
        else:
            changed += generator.randbytes(3)
        with pytest.raises(cd.UsageError, match="fragment: "):
            session.scan(path, fragment=bytes(changed))


def test_fragments_release_everything(folder):
    session = cd.Session("cpu")
    fragments = session.scan(folder / "file.arrow", columns=["c0"]).fragments()
    assert len(next(iter(fragments[1].scan()))) == 100_000
    del fragments
    gc.collect()
    assert_all_memory_freed(session)
