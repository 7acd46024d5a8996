"""Tables on a CUDA device, as others see them who never look at a byte there: nanoarrow reads the structs. Over the simulated
driver a look at device memory from the host would be a fault, and an access out of order ends the process."""

import ctypes
import io

import crossdock as cd
import pyarrow as pa
import pytest
from capi_structs import ArrowArray, ArrowDeviceArray
from peers import assert_equal
from samples import SAMPLES, make, mixed

CUDA = 2


def sample(name):
    """(schema, batches) as pyarrow itself has them after its own interface: it forgets types that are not registered."""
    reader = pa.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(*make(name)))
    return reader.schema, list(reader)


def upload(there, schema, batches):
    return there.from_arrow(pa.RecordBatchReader.from_batches(schema, batches))


def look(capsule):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ArrowDeviceArray.from_address(pointer(capsule, b"arrow_device_array"))


def pointers(address, n):
    return [*(ctypes.c_void_p * n).from_address(address)] if n else []


def addresses(array):
    """Those of all buffers, and of those of what is below."""
    below = pointers(array.children, array.n_children) + ([array.dictionary] if array.dictionary else [])
    own = pointers(array.buffers, array.n_buffers)
    return own + [address for one in below for address in addresses(ArrowArray.from_address(one))]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_goes_to_the_device_and_comes_back(there, name):
    schema, batches = sample(name)
    table = upload(there, schema, batches)
    # Without a column or a batch there is nothing that lies anywhere else.
    assert table.device == "cuda:0" or not len(schema)
    back = pa.RecordBatchReader.from_stream(table)
    assert_equal((schema, batches), (back.schema, list(back)))
    assert_equal((schema, batches), (schema, [pa.record_batch(batch.to("cpu")) for batch in table.batches()]))
    # In host memory, as `__arrow_c_array__` has to be.
    for batch, host in zip(table.batches(), batches, strict=True):
        got = pa.RecordBatch._import_from_c_capsule(*batch.__arrow_c_array__())
        assert_equal((schema, [host]), (schema, [got]))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_device_array_is_one_to_nanoarrow(there, name):
    schema, batches = sample(name)
    nanoarrow_device = pytest.importorskip("nanoarrow.device")
    if not len(schema):
        pytest.skip("without a column there is nothing on the device")
    for batch in upload(there, schema, batches).batches():
        array = nanoarrow_device.c_device_array(batch)
        assert (array.device_type_id, array.device_id) == (CUDA, 0)
        assert (array.array.length, array.array.n_children) == (batch.num_rows, len(schema))
        for i, column in enumerate(batch.columns):
            alone = nanoarrow_device.c_device_array(column)
            # What has no bytes lies nowhere.
            where = (CUDA, 0) if column.nbytes else (1, -1)
            assert (alone.device_type_id, alone.device_id, alone.array.length) == (*where, batch.num_rows)
            assert alone.array.null_count == column.null_count == array.array.child(i).null_count


@pytest.mark.parametrize("name", SAMPLES)
def test_what_comes_back_from_a_stranger_is_the_same_memory(there, name):
    """Out and in again, an array at a time and as a stream: no byte is copied, and the values are right at the end."""
    schema, batches = sample(name)
    table = upload(there, schema, batches)
    held = there.memory_used()
    again = there.from_arrow(
        type("Stream", (), {"__arrow_c_device_stream__": lambda self: table.__arrow_c_device_stream__()})()
    )
    ones = [there.from_capsules(*batch.__arrow_c_device_array__()) for batch in table.batches()]
    # But for the one offset that empty arrays have, and the sizes of what views point into: these are made with each export.
    for account, by_device in there.memory_used().items():
        assert by_device.get("cuda:0", 0) - held.get(account, {}).get("cuda:0", 0) < 256, "device memory was copied"
    assert_equal((schema, batches), (schema, list(pa.RecordBatchReader.from_stream(again))))
    assert_equal((schema, batches), (schema, [pa.record_batch(one.to("cpu")) for one in ones]))


def test_the_same_addresses_come_back(there):
    batch = mixed().drop_columns("v")
    schema, array = upload(there, batch.schema, [batch]).__arrow_c_device_array__()
    before = addresses(look(array).array)
    again = there.from_capsules(schema, array)
    schema, array = again.__arrow_c_device_array__()
    assert addresses(look(array).array) == before and len(before) > 20


def test_pending_work_has_a_pointer_to_its_event_and_the_rest_is_zero(there):
    table = upload(there, mixed().schema, [mixed()])
    schema, array = table.__arrow_c_device_array__()
    seen = look(array)
    assert (seen.device_type, seen.device_id, list(seen.reserved)) == (CUDA, 0, [0, 0, 0])
    assert seen.sync_event, "the copy to the device is under way"
    # A pointer to the event's handle, as CUDA has it.
    assert ctypes.c_void_p.from_address(seen.sync_event).value
    there.synchronize()
    seen = look(table.__arrow_c_device_array__()[1])
    assert seen.sync_event is None or ctypes.c_void_p.from_address(seen.sync_event).value
    here = look(table.to("cpu").__arrow_c_device_array__()[1])
    assert (here.device_type, here.device_id, here.sync_event) == (1, -1, None)


def test_a_slice_on_the_device_is_the_same_buffers_from_further_on(there):
    table = upload(there, mixed().schema, [mixed()])
    for whole, part in zip(table.columns, table.slice(9, 50).columns, strict=True):
        capsules = [column.__arrow_c_device_array__()[1] for column in (whole, part)]
        whole, part = (look(capsule).array for capsule in capsules)
        assert (part.length, part.offset) == (50, 9)
        if part.null_count and whole.dictionary is None:
            # Not the sizes of what views point into, which are made with each export.
            n = min(part.n_buffers, 2)
            assert pointers(part.buffers, n) == pointers(whole.buffers, n)
    assert table.slice(9, 50).to_pyarrow().equals(pa.Table.from_batches([mixed()]).slice(9, 50))


def test_host_memory_is_not_given_away_as_the_device_s_nor_the_other_way_round(there, session):
    ours = upload(there, mixed().schema, [mixed()])
    on_host = session.from_arrow(ours)
    assert (ours.device, on_host.device) == ("cuda:0", "cpu")
    assert on_host.to_pyarrow().equals(pa.Table.from_batches([mixed()]))
    back = there.from_arrow(on_host)
    assert back.device == "cuda:0" and back.to_pyarrow().equals(pa.Table.from_batches([mixed()]))
    assert ours.to("cuda:0").device == "cuda:0"


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_files_are_read_to_the_device_and_written_from_it(there, tmp_path, compression):
    sink = io.BytesIO()
    upload(there, mixed().schema, [mixed()] * 2).write_ipc(sink, compression=compression)
    for source in (sink.getvalue(), io.BytesIO(sink.getvalue())):
        table = there.read_ipc(source)
        assert table.device == "cuda:0"
        assert table.to_pyarrow().equals(pa.Table.from_batches([mixed()] * 2))
    table.write_ipc(tmp_path / "out.arrow")
    assert pa.ipc.open_file(tmp_path / "out.arrow").read_all().equals(pa.Table.from_batches([mixed()] * 2))


def test_only_what_is_shown_is_copied(there):
    table = upload(there, *make("views"))
    assert "on cuda:0" in repr(table) and "on cuda:0" in table._repr_html_() and "on cuda:0" in repr(table[0])
    assert "thirteen bytes" in repr(table)


def test_a_budget_is_kept_on_the_device(cuda):
    big = pa.table({"a": pa.array(range(1_000_000), pa.int64())})
    with cd.Session(cuda, memory="1MiB") as session, pytest.raises(MemoryError):
        session.from_arrow(big)


def test_a_file_that_just_fits_the_budget_is_read(cuda, tmp_path):
    """Nothing but what it becomes is counted, where there is no room for more."""
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


def test_memory_that_is_held_is_told_by_device(there):
    table = upload(there, mixed().schema, [mixed()])
    assert any("cuda:0" in by_device for by_device in there.memory_used().values())
    del table


def test_a_second_session_waits_for_the_first_one_s_work(cuda, there):
    with cd.Session(cuda) as other:
        table = other.from_arrow(upload(there, mixed().schema, [mixed()]))
        assert table.to_pyarrow().equals(pa.Table.from_batches([mixed()]))
        del table
