"""libcrossdock.so with a session on a CUDA device, in a process without CUDA code. nanoarrow reads the
structs, and numpy reads the capsules. The host never reads device memory."""

import ctypes

import capi
import numpy as np
import pytest
from capi_structs import ArrowArray
from peers import FORMS, assert_equal, read, write
from samples import SAMPLES, make, mixed
from tensors import (
    FORMATS,
    Producer,
    assert_same,
    new_capsule,
    capsule_of,
    managed,
    named_capsule,
    sample,
    consume,
    values,
)

nanoarrow_device = pytest.importorskip("nanoarrow.device")

CUDA = (2, 0)
"""The device type in Arrow and DLPack, and the index of the device."""


@pytest.fixture
def cuda_session(cuda, host):
    with host.session(device=CUDA) as session:
        yield session


class DeviceArrayProducer:
    """An object with __arrow_c_device_array__."""

    def __init__(self, schema, array):
        self.capsules = (schema, array)

    def __arrow_c_device_array__(self, requested_schema=None, **_):
        return self.capsules


def upload(cuda_session, batch, folder):
    """Imports a batch, and returns the session's batches on its device."""
    write(folder / "in.arrow", "file", batch.schema, [batch])
    return cuda_session.read(folder / "in.arrow")


def pointers(address, n):
    return [*(ctypes.c_void_p * n).from_address(address)] if n else []


def differences(raw, array, path="array"):
    """Yields the differences between an ArrowArray and nanoarrow's array in length, null count, buffer
    addresses and children. Does not compare buffers that each export allocates: the sizes of a view array's
    buffers, and the offset of an empty array."""
    addresses = pointers(raw.buffers, raw.n_buffers)
    if (raw.length, raw.null_count, len(addresses)) != (array.length, array.null_count, array.n_buffers):
        yield f"{path}: {(raw.length, raw.null_count, len(addresses))}, {array.length, array.null_count, array.n_buffers}"
    for i, (actual, expected) in enumerate(zip(addresses, array.buffers)):
        is_sizes = array.schema.format in ("vu", "vz") and i == len(addresses) - 1
        if (actual or 0) != expected and not is_sizes and not (array.length == 0 and i == 1):
            yield f"{path}: buffer {i} at {actual}, {expected}"
    below = pointers(raw.children, raw.n_children) + ([raw.dictionary] if raw.dictionary else [])
    children = [*array.children, *([] if array.dictionary is None else [array.dictionary])]
    if len(below) != len(children):
        yield f"{path}: {len(below)} children and dictionaries, expected {len(children)}"
    for i, (actual, expected) in enumerate(zip(below, children)):
        yield from differences(ArrowArray.from_address(actual), expected, f"{path}[{i}]")


@pytest.mark.parametrize("name", SAMPLES)
def test_nanoarrow_reads_device_arrays_of_every_type(host, cuda_session, tmp_path, name):
    schema, batches = make(name)
    write(tmp_path / "in.arrow", "file", schema, batches)
    stream, rows = cuda_session.read(tmp_path / "in.arrow"), []
    writer = cuda_session.export("arrow-c-device", stream.schema)
    while (raw := stream.next_raw()) is not None:
        # Batches without columns are tested too.
        assert (raw.array.device_type, raw.array.device_id) == CUDA
        # The struct is moved. Its pointers stay valid until it is released.
        before = ArrowArray.from_buffer_copy(raw.array.array)
        array = nanoarrow_device.c_device_array(DeviceArrayProducer(*writer.write_raw(raw)))
        assert (array.device_type_id, array.device_id) == CUDA
        assert list(differences(before, array.array)) == []
        rows.append(array.array.length)
        del array
    assert rows == [batch.num_rows for batch in batches]


def test_only_pending_work_has_an_event(host, cuda_session):
    stream = cuda_session.import_capsules("dlpack", [named_capsule(capsule_of(np.arange(100_000), "versioned"))])
    raw = stream.next_raw()
    assert (raw.array.device_type, raw.array.device_id) == CUDA
    # A pointer to CUDA's handle of the event.
    assert raw.array.sync_event, "the copy to the device is pending"
    assert ctypes.c_void_p.from_address(raw.array.sync_event).value
    capi.release(raw.array.array)
    with host.session() as cpu_session:
        raw = cpu_session.import_capsules(
            "dlpack", [named_capsule(capsule_of(np.arange(100_000), "versioned"))]
        ).next_raw()
        assert (raw.array.device_type, raw.array.sync_event) == (1, None)
        capi.release(raw.array.array)


@pytest.mark.parametrize("form", FORMS)
def test_batch_round_trips_through_device_and_file(cuda_session, tmp_path, form):
    batch = mixed()
    stream = upload(cuda_session, batch, tmp_path)
    schema = stream.schema
    out, target = cuda_session.export("arrow-c-device", schema), tmp_path / f"out{FORMS[form]}"
    capsules = out.write_raw(stream.next_raw())
    again = cuda_session.import_capsules("arrow-c-device", list(zip(["arrow_schema", "arrow_device_array"], capsules)))
    into = cuda_session.write(target, schema)
    assert into.write_raw(again.next_raw()) == [] and again.next_raw() is None
    into.finish()
    assert_equal((schema, [batch]), read(target, form))


def test_rejects_zero_copy_host_export_of_device_batch(host, cuda_session, tmp_path):
    batch = mixed()
    stream = upload(cuda_session, batch, tmp_path)
    with pytest.raises(ValueError, match="device type 2"):
        next(iter(stream))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("layout", ["whole", "every second", "backwards"])
@pytest.mark.parametrize("dtype", ["int16", "float64", "bool"])
def test_device_tensors_round_trip(cuda_session, tmp_path, dtype, layout, form):
    array = sample(dtype, (9, 8))
    array = {"whole": array, "every second": array[:, ::2], "backwards": array[::-1]}[layout]
    stream = cuda_session.import_capsules("dlpack", [named_capsule(capsule_of(array, "versioned"))])
    raw = stream.next_raw()
    assert (raw.array.device_type, raw.array.device_id) == CUDA
    (capsule,) = cuda_session.export(FORMATS[form], stream.schema).write_raw(raw)
    device = managed(capsule).dl_tensor.device
    assert (device.device_type, device.device_id) == CUDA
    with pytest.raises((RuntimeError, BufferError), match="Unsupported device"):
        np.from_dlpack(Producer(capsule, CUDA))
    # The session can import a tensor that it exported, because the tensor is ready on the session's
    # stream.
    back = cuda_session.import_capsules("dlpack", [named_capsule(new_capsule(form, consume(capsule)))])
    writer = cuda_session.write(tmp_path / "out.arrow", back.schema)
    writer.write_raw(back.next_raw())
    writer.finish()
    (batch,) = read(tmp_path / "out.arrow", "file")[1]
    assert_same(array, values(batch.column(0)))
