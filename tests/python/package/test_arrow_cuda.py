"""Tables on a CUDA device. Consumers never read device memory on the host, because nanoarrow reads only the
structs. With the simulated driver, an access from the host faults, and an access out of order ends the
process."""

import ctypes
import io
import os
import subprocess
import sys

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from capi_structs import ArrowArray, ArrowDeviceArray
from peers import assert_equal
from samples import SAMPLES, make, mixed

CUDA = 2


def sample(name):
    """Returns (schema, batches) after a round trip through pyarrow, which drops types that are not
    registered."""
    reader = pa.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(*make(name)))
    return reader.schema, list(reader)


def upload(cuda_session, schema, batches):
    return cuda_session.from_arrow(pa.RecordBatchReader.from_batches(schema, batches))


def device_array_in(capsule):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ArrowDeviceArray.from_address(pointer(capsule, b"arrow_device_array"))


def pointers(address, n):
    return [*(ctypes.c_void_p * n).from_address(address)] if n else []


def addresses(array):
    """Returns the addresses of all buffers of the array and its children."""
    children = pointers(array.children, array.n_children) + ([array.dictionary] if array.dictionary else [])
    buffers = pointers(array.buffers, array.n_buffers)
    return buffers + [address for child in children for address in addresses(ArrowArray.from_address(child))]


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_round_trip_through_the_device(cuda_session, name):
    schema, batches = sample(name)
    table = upload(cuda_session, schema, batches)
    # A table without columns or batches has no device memory.
    assert table.device == "cuda:0" or not len(schema)
    back = pa.RecordBatchReader.from_stream(table)
    assert_equal((schema, batches), (back.schema, list(back)))
    assert_equal((schema, batches), (schema, [pa.record_batch(batch.to("cpu")) for batch in table.batches()]))
    # `__arrow_c_array__` returns host memory.
    for batch, host in zip(table.batches(), batches, strict=True):
        got = pa.RecordBatch._import_from_c_capsule(*batch.__arrow_c_array__())
        assert_equal((schema, [host]), (schema, [got]))


@pytest.mark.parametrize("name", SAMPLES)
def test_nanoarrow_reads_device_arrays(cuda_session, name):
    schema, batches = sample(name)
    nanoarrow_device = pytest.importorskip("nanoarrow.device")
    if not len(schema):
        pytest.skip("without a column there is nothing on the device")
    for batch in upload(cuda_session, schema, batches).batches():
        array = nanoarrow_device.c_device_array(batch)
        assert (array.device_type_id, array.device_id) == (CUDA, 0)
        assert (array.array.length, array.array.n_children) == (batch.num_rows, len(schema))
        for i, column in enumerate(batch.columns):
            alone = nanoarrow_device.c_device_array(column)
            # An empty buffer may have any address.
            where = (CUDA, 0) if column.nbytes else (1, -1)
            assert (alone.device_type_id, alone.device_id, alone.array.length) == (*where, batch.num_rows)
            assert alone.array.null_count == column.null_count == array.array.child(i).null_count


@pytest.mark.parametrize("name", SAMPLES)
def test_round_trip_through_an_external_consumer_keeps_the_memory(cuda_session, name):
    """Exports the table and imports it again, as arrays and as a stream. No byte is copied, and the values are
    equal."""
    schema, batches = sample(name)
    table = upload(cuda_session, schema, batches)
    used_before = cuda_session.memory_used()
    again = cuda_session.from_arrow(
        type("Stream", (), {"__arrow_c_device_stream__": lambda self: table.__arrow_c_device_stream__()})()
    )
    batches_again = [cuda_session.from_capsules(*batch.__arrow_c_device_array__()) for batch in table.batches()]
    # An export allocates only the offset buffer of an empty array, which has one offset, and the
    # list of buffer sizes of a view array.
    for account, by_device in cuda_session.memory_used().items():
        assert by_device.get("cuda:0", 0) - used_before.get(account, {}).get("cuda:0", 0) < 256, (
            "device memory was copied"
        )
    assert_equal((schema, batches), (schema, list(pa.RecordBatchReader.from_stream(again))))
    assert_equal((schema, batches), (schema, [pa.record_batch(one.to("cpu")) for one in batches_again]))


def test_round_trip_keeps_addresses(cuda_session):
    batch = mixed().drop_columns("v")
    schema, array = upload(cuda_session, batch.schema, [batch]).__arrow_c_device_array__()
    before = addresses(device_array_in(array).array)
    again = cuda_session.from_capsules(schema, array)
    schema, array = again.__arrow_c_device_array__()
    assert addresses(device_array_in(array).array) == before and len(before) > 20


def test_device_array_of_pending_work_has_an_event_and_zeroed_reserved_fields(cuda_session):
    table = upload(cuda_session, mixed().schema, [mixed()])
    schema, array = table.__arrow_c_device_array__()
    device_array = device_array_in(array)
    assert (device_array.device_type, device_array.device_id, list(device_array.reserved)) == (CUDA, 0, [0, 0, 0])
    assert device_array.sync_event, "the copy to the device is pending"
    # A pointer to CUDA's handle of the event.
    assert ctypes.c_void_p.from_address(device_array.sync_event).value
    cuda_session.synchronize()
    device_array = device_array_in(table.__arrow_c_device_array__()[1])
    assert device_array.sync_event is None or ctypes.c_void_p.from_address(device_array.sync_event).value
    host_array = device_array_in(table.to("cpu").__arrow_c_device_array__()[1])
    assert (host_array.device_type, host_array.device_id, host_array.sync_event) == (1, -1, None)


def test_device_slice_shares_buffers(cuda_session):
    table = upload(cuda_session, mixed().schema, [mixed()])
    for whole, part in zip(table.columns, table.slice(9, 50).columns, strict=True):
        capsules = [column.__arrow_c_device_array__()[1] for column in (whole, part)]
        whole, part = (device_array_in(capsule).array for capsule in capsules)
        assert (part.length, part.offset) == (50, 9)
        if part.null_count and whole.dictionary is None:
            # Compares at most two buffers, because each export of a view array allocates its list
            # of buffer sizes.
            n = min(part.n_buffers, 2)
            assert pointers(part.buffers, n) == pointers(whole.buffers, n)
    assert table.slice(9, 50).to_pyarrow().equals(pa.Table.from_batches([mixed()]).slice(9, 50))


def test_exported_device_matches_the_memory(cuda_session, session):
    on_device = upload(cuda_session, mixed().schema, [mixed()])
    on_host = session.from_arrow(on_device)
    assert (on_device.device, on_host.device) == ("cuda:0", "cpu")
    assert on_host.to_pyarrow().equals(pa.Table.from_batches([mixed()]))
    back = cuda_session.from_arrow(on_host)
    assert back.device == "cuda:0" and back.to_pyarrow().equals(pa.Table.from_batches([mixed()]))
    assert on_device.to("cuda:0").device == "cuda:0"


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_files_are_read_to_and_written_from_the_device(cuda_session, tmp_path, compression):
    sink = io.BytesIO()
    upload(cuda_session, mixed().schema, [mixed()] * 2).write_ipc(sink, compression=compression)
    for source in (sink.getvalue(), io.BytesIO(sink.getvalue())):
        table = cuda_session.read_ipc(source)
        assert table.device == "cuda:0"
        assert table.to_pyarrow().equals(pa.Table.from_batches([mixed()] * 2))
    table.write_ipc(tmp_path / "out.arrow")
    assert pa.ipc.open_file(tmp_path / "out.arrow").read_all().equals(pa.Table.from_batches([mixed()] * 2))


def write_lz4(table, path, blocks):
    """Writes a file with LZ4. pyarrow links the blocks of a buffer."""
    if blocks == "independent":
        cd.Session().from_arrow(table).write_ipc(path, compression="lz4")
        return
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("rows", [8_000, 40_000])
def test_lz4_of_pyarrow_is_read_to_the_device(cuda_session, tmp_path, rows):
    """Buffers of one block, and of several blocks, which are linked."""
    columns = {f"c{i}": pa.array([(k * k + i) % (i + 3) for k in range(rows)], pa.int64()) for i in range(40)}
    table = pa.table(columns | {"text": [f"text {k % 100}" for k in range(rows)]})
    write_lz4(table, tmp_path / "in.arrow", "linked")
    assert cuda_session.read(tmp_path / "in.arrow").to_pyarrow().equals(table)
    part = cuda_session.read(tmp_path / "in.arrow", columns=["c7", "text"])
    assert part.to_pyarrow().equals(table.select(["c7", "text"]))


def test_chains_of_matches_lead_through_all_blocks_of_a_buffer(cuda_session, tmp_path):
    """After the first 50,000 bytes, all bytes are copies of bytes of the block before."""
    values = np.tile(np.random.default_rng(1).integers(0, 256, 50_000, np.uint8), 140)
    table = pa.table({"x": values, "y": values[::-1].copy()})
    write_lz4(table, tmp_path / "in.arrow", "linked")
    assert cuda_session.read(tmp_path / "in.arrow").to_pyarrow().equals(table)


@pytest.mark.parametrize("blocks", ["independent", "linked"])
def test_lz4_is_read_to_the_device_within_a_memory_limit(cuda, tmp_path, blocks):
    """The device needs memory for the compressed bytes too, and scratch memory for linked blocks."""
    table = pa.table({"x": np.arange(2_000_000) ** 2 % 16_000_057})
    write_lz4(table, tmp_path / "in.arrow", blocks)
    for memory in (128, 36):
        with cd.Session(cuda, memory=f"{memory}MiB") as session:
            assert session.read(tmp_path / "in.arrow").to_pyarrow().equals(table)


@pytest.mark.parametrize("blocks", ["independent", "linked"])
def test_lz4_is_decompressed_on_the_host_if_the_device_has_too_little_memory(cuda, tmp_path, blocks):
    """The device has memory for the table, but not for the compressed bytes or the scratch memory too."""
    if not hasattr(ctypes.CDLL("libcuda.so.1"), "crossdock_sim_cuda_violations"):
        pytest.skip("only the simulated driver has little memory")
    table = pa.table({"x": np.arange(2_000_000) ** 2 % 16_000_057})
    path = tmp_path / "in.arrow"
    write_lz4(table, path, blocks)
    memory = table.nbytes + path.stat().st_size * (2 if blocks == "linked" else 1) // 2
    code = f"""
import crossdock as cd, pyarrow.ipc as ipc
table = cd.Session("cuda:0").read({str(path)!r})
print(table.device, table.to_pyarrow().equals(ipc.open_file({str(path)!r}).read_all()))
"""
    environment = {**os.environ, "CROSSDOCK_SIM_CUDA_MEMORY": str(memory), "CROSSDOCK_SIM_CUDA_LEAKS": "ignore"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout == "cuda:0 True\n", done.stderr


def test_repr_copies_only_shown_rows(cuda_session):
    table = upload(cuda_session, *make("views"))
    assert "on cuda:0" in repr(table) and "on cuda:0" in table._repr_html_() and "on cuda:0" in repr(table[0])
    assert "thirteen bytes" in repr(table)


def test_device_budget_is_enforced(cuda):
    big = pa.table({"a": pa.array(range(1_000_000), pa.int64())})
    with cd.Session(cuda, memory="1MiB") as session, pytest.raises(MemoryError):
        session.from_arrow(big)


def test_reads_file_that_just_fits_the_budget(cuda, tmp_path):
    """Only the table counts against the budget, which is hardly larger than the table."""
    batch = pa.record_batch({"a": pa.array(range(1 << 17), pa.int64())})
    with pa.ipc.new_file(tmp_path / "in.arrow", batch.schema) as writer:
        for _ in range(20):
            writer.write(batch)
    for memory in (21 << 20, 200 << 20, None):
        with cd.Session(cuda, memory=memory) as session:
            table = session.read_ipc(tmp_path / "in.arrow")
            assert table.to("cuda:0").num_rows == 20 << 17
            assert table.slice(5 << 17, 100).to_pyarrow()["a"].to_pylist() == list(range(100))
            del table


def test_memory_in_use_is_reported_for_each_device(cuda_session):
    table = upload(cuda_session, mixed().schema, [mixed()])
    assert any("cuda:0" in by_device for by_device in cuda_session.memory_used().values())
    del table


def test_sessions_wait_for_each_others_work(cuda, cuda_session):
    with cd.Session(cuda) as other:
        table = other.from_arrow(upload(cuda_session, mixed().schema, [mixed()]))
        assert table.to_pyarrow().equals(pa.Table.from_batches([mixed()]))
        del table
