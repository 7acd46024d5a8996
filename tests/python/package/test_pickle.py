"""Pickled objects, and objects that are taken apart and rebuilt, compared with pyarrow."""

import copy
import io
import multiprocessing
import os
import pickle
import subprocess
import sys

import pyarrow as pa
import pytest
from conftest import assert_all_memory_freed
from samples import SAMPLES, make

import crossdock as cd

ROWS = 1000
PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


@pytest.fixture
def session():
    with cd.Session() as session:
        yield session


def numbers(rows=ROWS, batches=4):
    texts = pa.array([None if i % 7 == 0 else f"text {i}" for i in range(rows)])
    whole = pa.table(
        {
            "n": pa.array(range(rows), pa.int64()),
            "t": texts,
            "d": pa.array(["a", "b"] * (rows // 2)).dictionary_encode(),
        }
    ).replace_schema_metadata({"made by": "a test"})
    step = -(-rows // batches)
    return pa.Table.from_batches([whole.slice(i, step).combine_chunks().to_batches()[0] for i in range(0, rows, step)])


def out_of_band(thing):
    """Returns an object that was pickled with its buffers outside of the bytes, and the number of bytes in both."""
    buffers = []
    data = pickle.dumps(thing, 5, buffer_callback=buffers.append)
    # A transport copies the bytes to any address.
    copies = [memoryview(b"\0" + bytes(buffer))[1:] for buffer in buffers]
    size = sum(len(buffer) for buffer in copies)
    return pickle.loads(data, buffers=copies), len(data), size


def assert_equal(actual, expected):
    actual, expected = actual.to_pyarrow(), expected.to_pyarrow()
    assert actual.schema.equals(expected.schema, check_metadata=True)
    # The text of NaN equals itself.
    assert actual.num_rows == expected.num_rows
    actual, expected = [[column.to_string(window=1000) for column in table.columns] for table in (actual, expected)]
    assert actual == expected


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_table_of_every_type_survives(session, name):
    schema, batches = make(name)
    table = session.from_arrow(pa.Table.from_batches(batches, schema), as_column=False)
    for protocol in PROTOCOLS:
        assert_equal(pickle.loads(pickle.dumps(table, protocol)), table)
    assert_equal(out_of_band(table)[0], table)
    part = table.slice(len(table) // 3, len(table) // 2)
    assert_equal(out_of_band(part)[0], part)


def test_columns_schemas_and_fields_survive(session):
    table = session.from_arrow(numbers())
    for protocol in PROTOCOLS:
        for name in table.column_names:
            column = pickle.loads(pickle.dumps(table[name], protocol))
            assert isinstance(column, cd.Column) and column.field == table[name].field
            assert column.to_pyarrow().equals(table[name].to_pyarrow())
        assert pickle.loads(pickle.dumps(table.schema, protocol)) == table.schema
        assert pickle.loads(pickle.dumps(table.schema["d"], protocol)) == table.schema["d"]
    empty = session.from_arrow(pa.table({"a": pa.array([], pa.int8())}))
    assert pickle.loads(pickle.dumps(empty)).to_pyarrow().equals(empty.to_pyarrow())
    assert len(pickle.loads(pickle.dumps(session.from_arrow(pa.table({}))))) == 0


def test_buffers_are_shared_and_not_copied(session):
    table = session.from_arrow(numbers(100_000))
    header, parts = table.to_parts()
    addresses = {address(batch["n"]) for batch in table.batches()}
    ranges = [(address(part), address(part) + len(part)) for part in parts]
    assert all(any(start <= at < end for start, end in ranges) for at in addresses)
    again = session.from_parts(header, parts)
    assert {address(batch["n"]) for batch in again.batches()} == addresses
    size = sum(len(part) for part in parts)
    assert size < numbers(100_000).nbytes * 1.01, "slices of the same buffers share them"


def address(thing):
    import numpy as np

    array = np.asarray(thing) if isinstance(thing, cd.Column) else np.frombuffer(thing, np.uint8)
    return array.__array_interface__["data"][0]


def test_neighbours_in_the_memory_of_a_file_are_one_buffer(session, tmp_path):
    table = session.from_arrow(numbers())
    table.write_ipc(tmp_path / "numbers.arrow")
    separate = len(table.to_parts()[1])
    mapped = session.read_ipc(tmp_path / "numbers.arrow")
    header, buffers = mapped.to_parts()
    assert len(buffers) <= mapped.num_batches + 1 < separate
    received = session.from_parts(header, [bytes(buffer) for buffer in buffers])
    assert_equal(received, table)
    # A process that passes the table on sends as few buffers.
    again, _, _ = out_of_band(received)
    assert len(received.to_parts()[1]) == len(buffers) and len(again.to_parts()[1]) <= separate
    assert_equal(again, table)
    # The bytes of other columns stay here, also if they are few.
    for rows in (1, 7, ROWS):
        columns = pa.table({"a": list(range(rows)), "secret": [0x5EC2E7] * rows, "b": list(range(rows))})
        session.from_arrow(columns).write_ipc(tmp_path / "three.arrow")
        part = session.read_ipc(tmp_path / "three.arrow")[["a", "b"]]
        header, buffers = part.to_parts()
        assert not any((0x5EC2E7).to_bytes(4, "little") in bytes(buffer) for buffer in buffers)
        assert_equal(session.from_parts(header, buffers), part)


def test_parts_are_read_only_and_keep_their_memory(session):
    header, parts = session.from_arrow(numbers()).to_parts()
    assert isinstance(header, bytes) and all(len(part) > 0 for part in parts)
    assert repr(parts[0]) == f"crossdock.Part({len(parts[0])} bytes)"
    view = memoryview(parts[0])
    assert view.readonly and view.nbytes == len(parts[0])
    with pytest.raises(TypeError):
        view[0] = 1
    with pytest.raises(TypeError, match="read-write"):
        io.BytesIO(bytes(8)).readinto(parts[0])
    kept = bytes(view)
    del parts
    assert bytes(view) == kept


def test_slice_has_only_its_own_rows(session):
    table = session.from_arrow(numbers(100_000, batches=1))
    part, header, size = out_of_band(table.slice(50_000, 1000))
    assert part.to_pyarrow().equals(table.slice(50_000, 1000).to_pyarrow())
    # Per row: 8 bytes, a text of 10 bytes with an offset of 4 bytes, a key of 4 bytes.
    assert header < 5000 and size < 1000 * 27 + 1000


def test_the_rebuilt_table_keeps_its_buffers(session):
    table = session.from_arrow(numbers())
    header, parts = table.to_parts()
    buffers = [bytearray(part) for part in parts]
    again = session.from_parts(bytearray(header), buffers)
    with pytest.raises(BufferError):
        buffers[0].append(1)
    del buffers, parts
    assert again.to_pyarrow().equals(table.to_pyarrow())


def test_damaged_parts_are_errors(session):
    header, parts = session.from_arrow(numbers()).to_parts()
    with pytest.raises(cd.DataError, match=f"expected {len(parts)} buffers, got {len(parts) - 1}"):
        session.from_parts(header, parts[:-1])
    with pytest.raises(cd.DataError, match="buffer 1: expected .* got 8 bytes"):
        session.from_parts(header, [parts[0], bytes(8), *parts[2:]])
    with pytest.raises(cd.DataError, match="not the header of parts"):
        session.from_parts(b"abc", parts)
    with pytest.raises(cd.DataError, match="damaged"):
        session.from_parts(header[:-5], parts)
    other = bytearray(header)
    other[8] = 2
    with pytest.raises(cd.UnsupportedError, match="version 2, written by Crossdock .* use the same release"):
        session.from_parts(other, parts)
    with pytest.raises(TypeError):
        session.from_parts(header, [1])
    with pytest.raises(BufferError):
        session.from_parts(header, [memoryview(bytes(100))[::2], *parts[1:]])


def test_equal_tables_have_equal_pickles(session):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, numbers().schema) as writer:
        writer.write_table(numbers())
    first, second = (session.read_ipc(bytes(sink.getvalue())) for _ in range(2))
    assert pickle.dumps(first) == pickle.dumps(second)


def test_memory_is_freed(session):
    for protocol in PROTOCOLS:
        out_of_band(session.from_arrow(numbers()))
        pickle.loads(pickle.dumps(session.from_arrow(numbers()), protocol))
        session.from_parts(*session.from_arrow(numbers()).to_parts())
    assert_all_memory_freed(session)


def test_encoded_array_stays_encoded(session):
    column = session.from_arrow(pa.table({"n": pa.array(range(5000), pa.int32())}))["n"]
    array = column.encode("fastlanes.bitpacked")
    for protocol in PROTOCOLS:
        again = pickle.loads(pickle.dumps(array, protocol))
        assert again.encoding == "fastlanes.bitpacked" and again.to_bytes() == array.to_bytes()
    again, _, size = out_of_band(array)
    assert size < 5000 * 2
    assert again.decode().to_pyarrow().equals(column.to_pyarrow())


def test_session_and_scan_keep_their_settings(session, tmp_path):
    path = tmp_path / "a.arrow"
    table = session.from_arrow(numbers())
    table.write_ipc(path)
    with cd.Session(memory="1GiB", threads=1, validate="full", plugins=[tmp_path]) as other:
        again = pickle.loads(pickle.dumps(other))
        assert again._settings == ("cpu", 1 << 30, (str(tmp_path),), "full", 1)
        assert pickle.loads(pickle.dumps(other)) is again, "objects that are pickled one by one share a session"
        again.close()
        assert pickle.loads(pickle.dumps(other)) is not again
        scan = pickle.loads(pickle.dumps(other.scan(path)))
        assert scan.to_table().to_pyarrow().equals(table.to_pyarrow())
        with cd.Session(memory=1000) as small:
            with pytest.raises(cd.OutOfMemoryError):
                pickle.loads(pickle.dumps(small.scan(path, map=False))).to_table()
            (fragment, *_) = pickle.loads(pickle.dumps(small.scan(path, map=False).fragments()))
            with pytest.raises(cd.OutOfMemoryError):
                fragment.scan().to_table()
    assert pickle.loads(pickle.dumps(cd.Session())) is cd.default_session()


def test_copies_are_the_same_object(session):
    table = session.from_arrow(numbers())
    for thing in [table, table["n"], table.schema, table.schema["n"], table["n"].encode("fastlanes.for")]:
        assert copy.copy(thing) is thing and copy.deepcopy([thing])[0] is thing


PROGRAM = """
import pickle, sys
import crossdock as cd
if len(sys.argv) > 1:
    with cd.unpickle_on(sys.argv[1]):
        table = pickle.load(sys.stdin.buffer)
else:
    table = pickle.load(sys.stdin.buffer)
table.to("cpu").write_ipc(sys.stdout.buffer, form="stream")
"""


def in_another_process(data, *arguments, **variables):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        input=data,
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, **variables},
    )


def test_another_process_rebuilds_a_table(session):
    out = in_another_process(pickle.dumps(session.from_arrow(numbers())))
    assert pa.ipc.open_stream(out.stdout).read_all().equals(numbers()), out.stderr.decode()


def test_missing_device_is_an_error_that_names_the_choice(cuda):
    with cd.Session("cuda:0") as session:
        table = session.from_arrow(numbers()).to("cuda:0")
        assert pickle.loads(pickle.dumps(table)).device == "cuda:0"
        assert out_of_band(table)[0].to_pyarrow().equals(numbers())
        data = pickle.dumps(table)
    with cd.unpickle_on("cpu"):
        assert pickle.loads(data).device == "cpu"
    without = {"LD_LIBRARY_PATH": "", "CUDA_VISIBLE_DEVICES": ""}
    out = in_another_process(data, **without)
    error = out.stderr.decode()
    assert out.returncode != 0 and "cannot unpickle on cuda:0" in error and "unpickle_on" in error, error
    for out in [
        in_another_process(data, "cpu", **without),
        in_another_process(data, CROSSDOCK_UNPICKLE_DEVICE="cpu", **without),
    ]:
        assert pa.ipc.open_stream(out.stdout).read_all().equals(numbers()), out.stderr.decode()


def sum_of(table):
    return len(table), table["n"].to_pyarrow().to_pylist()[-1]


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_multiprocessing_passes_tables(session, method):
    table = session.from_arrow(numbers())
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(sum_of, [table, table.slice(0, 10)]) == [(ROWS, ROWS - 1), (10, 9)]
