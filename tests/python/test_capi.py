"""libcrossdock.so through ctypes: imports and exports pyarrow's capsules through arrow-c-device, without
copies."""

import ctypes
import gc
import os
import subprocess
import sys

import capi
import pyarrow as pa
import pytest
from capi_structs import ArrowArray, ArrowSchema
from peers import assert_equal, read
from samples import mixed


def addresses(batch):
    """Returns the address of each buffer of the batch and of its dictionaries."""
    all_addresses = []
    for column in batch.columns:
        all_addresses += [buffer and buffer.address for buffer in column.buffers()]
        if pa.types.is_dictionary(column.type):
            all_addresses += [buffer and buffer.address for buffer in column.dictionary.buffers()]
    return all_addresses


def capsules_of(batch):
    schema, array = batch.__arrow_c_array__()
    return [("arrow_schema", schema), ("arrow_array", array)]


def test_library_returns_its_version():
    if capi.library_path() is None:
        pytest.skip("neither CROSSDOCK_LIB nor CROSSDOCK_BIN is set")
    assert capi.version().split(".")[0].isdigit()


def test_pyarrow_batch_round_trips_with_the_same_addresses(host, session):
    batch = mixed()
    stream = session.import_capsules("arrow-c-data", capsules_of(batch))
    assert stream.schema.equals(batch.schema, check_metadata=True)
    (back,) = stream.batches()
    assert addresses(back) == addresses(batch)
    assert back.equals(batch)
    back.validate(full=True)
    copied = host.ledger()
    assert [copied[f"copied_{way}"] for way in ("h2d", "d2h", "d2d", "h2h")] == [0, 0, 0, 0]


@pytest.mark.parametrize("method", ["__arrow_c_stream__", "__arrow_c_device_array__"])
def test_stream_and_device_array_of_pyarrow_are_imported(session, method):
    batch = mixed()
    if method == "__arrow_c_stream__":
        table = pa.Table.from_batches([batch, batch])
        stream = session.import_capsules("arrow-c-stream", [("arrow_array_stream", table.__arrow_c_stream__())])
        expected = table.to_batches()
    else:
        schema, array = batch.__arrow_c_device_array__()
        pairs = [("arrow_schema", schema), ("arrow_device_array", array)]
        stream = session.import_capsules("arrow-c-device", pairs)
        expected = [batch]
    assert_equal((batch.schema, expected), (stream.schema, stream.batches()))


def test_exported_capsules_have_the_same_addresses(session):
    batch = mixed()
    writer = session.export("arrow-c-data", batch.schema)
    schema, array = writer.write(batch)
    assert [capi.capsule_name(c) for c in (schema, array)] == [b"arrow_schema", b"arrow_array"]
    back = pa.RecordBatch._import_from_c_capsule(schema, array)
    assert writer.finish() == []
    assert addresses(back) == addresses(batch)
    assert back.equals(batch)


def test_stream_is_exported_when_the_writer_finishes(session):
    batch = mixed()
    writer = session.export("arrow-c-stream", batch.schema)
    assert writer.write(batch) == [] and writer.write(batch.slice(1)) == []
    (capsule,) = writer.finish()
    reader = pa.RecordBatchReader._import_from_c_capsule(capsule)
    assert_equal((batch.schema, [batch, batch.slice(1)]), (reader.schema, list(reader)))


def test_arrays_outlive_stream_session_and_host(sample):
    if capi.library_path() is None:
        pytest.skip("neither CROSSDOCK_LIB nor CROSSDOCK_BIN is set")
    host = capi.Host()
    session = host.session()
    stream = session.read(sample)
    reader = stream.reader()
    schema, batches = reader.schema, list(reader)
    for handle in (reader, stream, session, host):
        handle.close()
    del reader, stream, session, host
    gc.collect()
    assert_equal(read(sample, "file"), (schema, batches))


def test_unconsumed_capsules_release_their_objects(host, session):
    batch = mixed()
    before = pa.total_allocated_bytes()
    copy = pa.RecordBatch.from_arrays([pa.array(range(1000))], names=["n"])
    assert pa.total_allocated_bytes() > before
    writer = session.export("arrow-c-data", copy.schema)
    capsules = writer.write(copy)
    del copy, writer
    gc.collect()
    assert pa.total_allocated_bytes() > before, "the capsules own the batch"
    del capsules
    gc.collect()
    assert pa.total_allocated_bytes() == before
    assert batch.num_rows > 0


def test_rejects_consumed_capsules(session):
    schema, array = mixed().__arrow_c_array__()
    pairs = [("arrow_schema", schema), ("arrow_array", array)]
    session.import_capsules("arrow-c-data", pairs).close()
    with pytest.raises(capi.CrossdockError, match="consumed already") as caught:
        session.import_capsules("arrow-c-data", pairs)
    assert caught.value.code == "invalid_argument"


def test_import_capsules_accepts_integer_addresses(session):
    batch = mixed()
    schema, array = ArrowSchema(), ArrowArray()
    batch._export_to_c(ctypes.addressof(array), ctypes.addressof(schema))
    pairs = [("arrow_schema", ctypes.addressof(schema)), ("arrow_array", ctypes.addressof(array))]
    (back,) = session.import_capsules("arrow-c-data", pairs).batches()
    assert not schema.release and not array.release, "the structs were not moved out"
    assert addresses(back) == addresses(batch)


def test_errors_keep_code_and_message(session):
    with pytest.raises(capi.CrossdockError, match="no-such-format") as caught:
        session.export("no-such-format", mixed().schema)
    assert caught.value.code == "invalid_argument"
    with pytest.raises(capi.CrossdockError, match="option") as caught:
        session.export("arrow-c-data", mixed().schema, {"colour": "red"})
    assert caught.value.code == "invalid_argument"


@pytest.mark.parametrize(("name", "version"), [("dltensor", None), ("dltensor_versioned", (1, 0))])
def test_consumed_tensor_is_deleted_once(name, version):
    """Converts a capsule of numpy into a crossdock_capsule and back, without a plugin."""
    numpy = pytest.importorskip("numpy")

    class Owner(numpy.ndarray):
        deleted = 0

        def __del__(self):
            Owner.deleted += type(self.base) is not Owner

    class Producer:
        def __init__(self, capsule):
            self.capsule = capsule

        def __dlpack__(self, **_):
            return self.capsule

        def __dlpack_device__(self):
            return (1, 0)

    tensor = numpy.arange(6, dtype=numpy.int32).view(Owner)
    capsule = tensor.__dlpack__(max_version=version)
    assert capi.capsule_name(capsule) == name.encode()
    again = capi._to_python(capi._to_crossdock(name, capsule))
    array = numpy.from_dlpack(Producer(again))
    del tensor
    assert array.tolist() == [0, 1, 2, 3, 4, 5]
    assert capi.capsule_name(again) == b"used_" + name.encode()
    del again
    assert capi.capsule_name(capsule) == b"used_" + name.encode(), "the first capsule still owns the tensor"
    del capsule
    assert Owner.deleted == 0
    del array
    gc.collect()
    assert Owner.deleted == 1

    unconsumed = capi._to_python(capi._to_crossdock(name, numpy.arange(6).view(Owner).__dlpack__(max_version=version)))
    assert Owner.deleted == 1
    del unconsumed
    gc.collect()
    assert Owner.deleted == 2


@pytest.mark.parametrize(("name", "version"), [("dltensor", None), ("dltensor_versioned", (1, 0))])
def test_tensor_round_trips_with_the_same_address(session, name, version):
    numpy = pytest.importorskip("numpy")
    tensor = numpy.arange(12, dtype=numpy.int32)
    stream = session.import_capsules("dlpack", [(name, tensor.__dlpack__(max_version=version))])
    (batch,) = stream.batches()
    assert batch.column(0).to_pylist() == tensor.tolist()
    assert batch.column(0).buffers()[1].address == tensor.ctypes.data
    writer = session.export("dlpack", batch.schema)
    (capsule,) = writer.write(batch) + writer.finish()

    class Producer:
        def __dlpack__(self, **_):
            return capsule

        def __dlpack_device__(self):
            return (1, 0)

    back = numpy.from_dlpack(Producer())
    assert back.tolist() == tensor.tolist() and back.ctypes.data == tensor.ctypes.data


def test_truncated_file_is_an_error_if_the_handler_is_installed(tmp_path):
    """Runs in a separate process, because the signal would end the process if it were not handled."""
    code = """
import os, sys
import capi
import pyarrow as pa
path = sys.argv[1]
values = pa.array(range(5000), pa.int64())
with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, pa.schema([("n", pa.int64())])) as writer:
    for _ in range(8):
        writer.write_batch(pa.record_batch([values], ["n"]))
capi.check(capi.library().crossdock_handle_sigbus)
with capi.Host() as host, host.session() as session:
    stream = session.read(path)
    schema = stream.schema
    batches = [stream.next_raw() for _ in range(8)]
    os.truncate(path, 4096)
    writer = session.write(path + ".copy.arrow", schema)
    try:
        for batch in batches:
            writer.write_raw(batch)
    except capi.CrossdockError as error:
        print(error.code, error)
"""
    if capi.library_path() is None:
        pytest.skip("neither CROSSDOCK_LIB nor CROSSDOCK_BIN is set")
    path = tmp_path / "a.arrow"
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(__file__)}
    command = [sys.executable, "-c", code, path]
    out = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert out.returncode == 0, (out.stdout, out.stderr)
    assert str(path) in out.stdout and "truncated while it was mapped" in out.stdout, out.stdout
