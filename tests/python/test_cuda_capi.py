"""libcrossdock.so with a session on a CUDA device, as a process without CUDA code of its own sees it: nanoarrow looks at the
structs, numpy at the capsules, and nobody at a byte that lies on the device."""

import ctypes

import capi
import numpy as np
import pytest
from capi_structs import ArrowArray
from peers import FORMS, assert_equal, read, write
from samples import SAMPLES, make, mixed
from tensors import FORMATS, Lender, assert_same, give, lend, managed, pair, sample, take, values

nanoarrow_device = pytest.importorskip("nanoarrow.device")

CUDA = (2, 0)
"""Arrow's and DLPack's number of the kind, and the device's own."""


@pytest.fixture
def there(cuda, host):
    with host.session(device=CUDA) as session:
        yield session


class Given:
    """What a library takes that knows the C Device interface."""

    def __init__(self, schema, array):
        self.capsules = (schema, array)

    def __arrow_c_device_array__(self, requested_schema=None, **_):
        return self.capsules


def upload(there, batch, folder):
    """The batches that a session makes of one, on its device."""
    write(folder / "in.arrow", "file", batch.schema, [batch])
    return there.read(folder / "in.arrow")


def pointers(address, n):
    return [*(ctypes.c_void_p * n).from_address(address)] if n else []


def differences(raw, array, path="array"):
    """Where nanoarrow's array is another than an ArrowArray: in rows, nulls, buffers' addresses, and all below. Made anew with
    each export are the sizes of what views point into, which lie in host memory, and the one offset of an empty array."""
    at = pointers(raw.buffers, raw.n_buffers)
    if (raw.length, raw.null_count, len(at)) != (array.length, array.null_count, array.n_buffers):
        yield f"{path}: {(raw.length, raw.null_count, len(at))}, {array.length, array.null_count, array.n_buffers}"
    for i, (one, other) in enumerate(zip(at, array.buffers)):
        sizes = array.schema.format in ("vu", "vz") and i == len(at) - 1
        if (one or 0) != other and not sizes and not (array.length == 0 and i == 1):
            yield f"{path}: buffer {i} at {one}, {other}"
    below = pointers(raw.children, raw.n_children) + ([raw.dictionary] if raw.dictionary else [])
    children = [*array.children, *([] if array.dictionary is None else [array.dictionary])]
    if len(below) != len(children):
        yield f"{path}: {len(below)} below it, {len(children)}"
    for i, (one, other) in enumerate(zip(below, children)):
        yield from differences(ArrowArray.from_address(one), other, f"{path}[{i}]")


@pytest.mark.parametrize("name", SAMPLES)
def test_nanoarrow_sees_a_device_array_of_every_type(host, there, tmp_path, name):
    schema, batches = make(name)
    write(tmp_path / "in.arrow", "file", schema, batches)
    stream, rows = there.read(tmp_path / "in.arrow"), []
    writer = there.export("arrow-c-device", stream.schema)
    while (raw := stream.next_raw()) is not None:
        # Rows without a column too.
        assert (raw.array.device_type, raw.array.device_id) == CUDA
        # The struct is moved; what it points at stays where it is, for as long as it is not released.
        before = ArrowArray.from_buffer_copy(raw.array.array)
        array = nanoarrow_device.c_device_array(Given(*writer.write_raw(raw)))
        assert (array.device_type_id, array.device_id) == CUDA
        assert list(differences(before, array.array)) == []
        rows.append(array.array.length)
        del array
    assert rows == [batch.num_rows for batch in batches]


def test_pending_work_has_an_event_and_no_work_has_none(host, there):
    stream = there.import_capsules("dlpack", [pair(lend(np.arange(100_000), "versioned"))])
    raw = stream.next_raw()
    assert (raw.array.device_type, raw.array.device_id) == CUDA
    # A pointer to the event's handle, as CUDA has it.
    assert raw.array.sync_event, "the copy to the device is under way"
    assert ctypes.c_void_p.from_address(raw.array.sync_event).value
    capi.release(raw.array.array)
    with host.session() as here:
        raw = here.import_capsules("dlpack", [pair(lend(np.arange(100_000), "versioned"))]).next_raw()
        assert (raw.array.device_type, raw.array.sync_event) == (1, None)
        capi.release(raw.array.array)


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_goes_to_the_device_out_in_and_into_a_file(there, tmp_path, form):
    batch = mixed()
    stream = upload(there, batch, tmp_path)
    schema = stream.schema
    out, target = there.export("arrow-c-device", schema), tmp_path / f"out{FORMS[form]}"
    capsules = out.write_raw(stream.next_raw())
    again = there.import_capsules("arrow-c-device", list(zip(["arrow_schema", "arrow_device_array"], capsules)))
    into = there.write(target, schema)
    assert into.write_raw(again.next_raw()) == [] and again.next_raw() is None
    into.finish()
    assert_equal((schema, [batch]), read(target, form))


def test_a_host_array_cannot_be_had_of_a_device_s_batch_without_a_copy(host, there, tmp_path):
    batch = mixed()
    stream = upload(there, batch, tmp_path)
    with pytest.raises(ValueError, match="device type 2"):
        next(iter(stream))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("layout", ["whole", "every second", "backwards"])
@pytest.mark.parametrize("dtype", ["int16", "float64", "bool"])
def test_tensors_on_the_device_say_so_and_come_back_with_their_values(there, tmp_path, dtype, layout, form):
    array = sample(dtype, (9, 8))
    array = {"whole": array, "every second": array[:, ::2], "backwards": array[::-1]}[layout]
    stream = there.import_capsules("dlpack", [pair(lend(array, "versioned"))])
    raw = stream.next_raw()
    assert (raw.array.device_type, raw.array.device_id) == CUDA
    (capsule,) = there.export(FORMATS[form], stream.schema).write_raw(raw)
    device = managed(capsule).dl_tensor.device
    assert (device.device_type, device.device_id) == CUDA
    with pytest.raises((RuntimeError, BufferError), match="Unsupported device"):
        np.from_dlpack(Lender(capsule, CUDA))
    # Taken back by the session whose stream it is ready on.
    back = there.import_capsules("dlpack", [pair(give(form, take(capsule)))])
    writer = there.write(tmp_path / "out.arrow", back.schema)
    writer.write_raw(back.next_raw())
    writer.finish()
    (batch,) = read(tmp_path / "out.arrow", "file")[1]
    assert_same(array, values(batch.column(0)))
