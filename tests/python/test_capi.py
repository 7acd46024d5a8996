"""libcrossdock.so through ctypes: pyarrow's capsules in and out through arrow-c-device, with the bytes where they were."""

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
    """Where each buffer of the batch lies, dictionaries included."""
    found = []
    for column in batch.columns:
        found += [buffer and buffer.address for buffer in column.buffers()]
        if pa.types.is_dictionary(column.type):
            found += [buffer and buffer.address for buffer in column.dictionary.buffers()]
    return found


def capsules_of(batch):
    schema, array = batch.__arrow_c_array__()
    return [("arrow_schema", schema), ("arrow_array", array)]


def test_the_library_tells_its_version():
    if capi.library_path() is None:
        pytest.skip("neither CROSSDOCK_LIB nor CROSSDOCK_BIN is set")
    assert capi.version().split(".")[0].isdigit()


def test_a_batch_of_pyarrow_goes_in_and_comes_back_from_the_same_addresses(host, session):
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
def test_the_other_interfaces_of_pyarrow_go_in(session, method):
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


def test_a_batch_comes_out_as_capsules_that_pyarrow_takes_from_the_same_addresses(session):
    batch = mixed()
    writer = session.export("arrow-c-data", batch.schema)
    schema, array = writer.write(batch)
    assert [capi.capsule_name(c) for c in (schema, array)] == [b"arrow_schema", b"arrow_array"]
    back = pa.RecordBatch._import_from_c_capsule(schema, array)
    assert writer.finish() == []
    assert addresses(back) == addresses(batch)
    assert back.equals(batch)


def test_a_stream_comes_out_at_the_end(session):
    batch = mixed()
    writer = session.export("arrow-c-stream", batch.schema)
    assert writer.write(batch) == [] and writer.write(batch.slice(1)) == []
    (capsule,) = writer.finish()
    reader = pa.RecordBatchReader._import_from_c_capsule(capsule)
    assert_equal((batch.schema, [batch, batch.slice(1)]), (reader.schema, list(reader)))


def test_what_pyarrow_holds_outlives_stream_session_and_host(sample):
    if capi.library_path() is None:
        pytest.skip("neither CROSSDOCK_LIB nor CROSSDOCK_BIN is set")
    host = capi.Host()
    session = host.session()
    stream = session.read(sample)
    reader = stream.reader()
    schema, batches = reader.schema, list(reader)
    for each in (reader, stream, session, host):
        each.close()
    del reader, stream, session, host
    gc.collect()
    assert_equal(read(sample, "file"), (schema, batches))


def test_capsules_that_nobody_takes_are_released_with_their_objects(host, session):
    batch = mixed()
    before = pa.total_allocated_bytes()
    copy = pa.RecordBatch.from_arrays([pa.array(range(1000))], names=["n"])
    assert pa.total_allocated_bytes() > before
    writer = session.export("arrow-c-data", copy.schema)
    capsules = writer.write(copy)
    del copy, writer
    gc.collect()
    assert pa.total_allocated_bytes() > before, "the capsules hold the batch"
    del capsules
    gc.collect()
    assert pa.total_allocated_bytes() == before
    assert batch.num_rows > 0


def test_capsules_that_were_consumed_are_refused(session):
    schema, array = mixed().__arrow_c_array__()
    pairs = [("arrow_schema", schema), ("arrow_array", array)]
    session.import_capsules("arrow-c-data", pairs).close()
    with pytest.raises(capi.CrossdockError, match="consumed already") as caught:
        session.import_capsules("arrow-c-data", pairs)
    assert caught.value.code == "invalid_argument"


def test_an_address_is_taken_as_a_capsule_is(session):
    batch = mixed()
    schema, array = ArrowSchema(), ArrowArray()
    batch._export_to_c(ctypes.addressof(array), ctypes.addressof(schema))
    pairs = [("arrow_schema", ctypes.addressof(schema)), ("arrow_array", ctypes.addressof(array))]
    (back,) = session.import_capsules("arrow-c-data", pairs).batches()
    assert not schema.release and not array.release, "both were moved out of there"
    assert addresses(back) == addresses(batch)


def test_errors_keep_their_code_and_their_words(session):
    with pytest.raises(capi.CrossdockError, match="no-such-format") as caught:
        session.export("no-such-format", mixed().schema)
    assert caught.value.code == "invalid_argument"
    with pytest.raises(capi.CrossdockError, match="option") as caught:
        session.export("arrow-c-data", mixed().schema, {"colour": "red"})
    assert caught.value.code == "invalid_argument"


@pytest.mark.parametrize(("name", "version"), [("dltensor", None), ("dltensor_versioned", (1, 0))])
def test_a_tensor_that_python_takes_is_deleted_once(name, version):
    """The two ends of this wrapper, without a plugin between them: numpy's capsule in, a capsule out, numpy again."""
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
    inward = tensor.__dlpack__(max_version=version)
    assert capi.capsule_name(inward) == name.encode()
    outward = capi._to_python(capi._to_crossdock(name, inward))
    taken = numpy.from_dlpack(Producer(outward))
    del tensor
    assert taken.tolist() == [0, 1, 2, 3, 4, 5]
    assert capi.capsule_name(outward) == b"used_" + name.encode()
    del outward
    assert capi.capsule_name(inward) == b"used_" + name.encode(), "it is not the first capsule's to delete any more"
    del inward
    assert Owner.deleted == 0
    del taken
    gc.collect()
    assert Owner.deleted == 1

    untaken = capi._to_python(capi._to_crossdock(name, numpy.arange(6).view(Owner).__dlpack__(max_version=version)))
    assert Owner.deleted == 1
    del untaken
    gc.collect()
    assert Owner.deleted == 2


@pytest.mark.parametrize(("name", "version"), [("dltensor", None), ("dltensor_versioned", (1, 0))])
def test_a_tensor_goes_through_the_plugin_dlpack_and_back_from_the_same_address(session, name, version):
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


def test_a_mapped_file_that_is_truncated_is_an_error_of_the_call_once_the_program_asked_for_it(tmp_path):
    """In a process of its own, which the signal would end."""
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
