"""`crossdock.cuda` with other users of a device: imported arrays, exported memory, and the order of their
work. The simulated driver runs work as late as possible, and reports accesses that are not ordered."""

import ctypes
import gc

import crossdock as cd
import numpy as np
import pytest
from crossdock.cuda import Buffer, Context
from tensor_producers import CPU, CUDA, LEGACY, RecordingProducer, Driver, on_device

N = 3000
OLD, NEW = b"\x11" * N, b"\x22" * N
UNSIGNED = (1, 8, 1)


@pytest.fixture
def driver(cuda_session):
    """The driver as an external library uses it. At the end of the test, the driver must have counted no
    unordered access."""
    driver = Driver()
    simulated = hasattr(driver.lib, "crossdock_sim_cuda_violations")
    before = driver.violations() if simulated else 0
    if simulated:
        driver.count_violations()
    yield driver
    gc.collect()
    cuda_session.synchronize()
    driver.synchronize(LEGACY)
    driver.close()
    if simulated:
        n_violations = driver.violations() - before
        driver.count_violations(False)
        assert n_violations == 0, f"{n_violations} accesses were not ordered after what they need"


@pytest.fixture
def context(cuda_session, driver):
    return Context(session=cuda_session)


class ExternalMemory:
    """Memory of an external library. It is freed with the last reference to this object."""

    def __init__(self, driver, data, stream=LEGACY):
        self.driver, self.size = driver, len(data)
        self.address = driver.alloc(len(data))
        driver.upload(self.address, data, stream)

    def __del__(self):
        # Sets the context of the thread, because any thread may run this destructor.
        self.driver.call("cuCtxSetCurrent", self.driver.context)
        self.driver.free(self.address)


def test_copy_to_host_waits_for_the_default_stream(context, driver):
    buffer = context.buffer_from_data(OLD)
    driver.upload(buffer.address, NEW, LEGACY)
    assert buffer.copy_to_host() == NEW
    # A slice shares the memory.
    driver.upload(buffer.slice(1000).address, OLD[:10], LEGACY)
    assert buffer.copy_to_host(1000, 11) == OLD[:10] + NEW[:1]


def test_default_stream_waits_for_copies(context, driver):
    # The variables keep the buffers alive, because freeing memory waits for the device.
    old, new = context.buffer_from_data(OLD), context.buffer_from_data(NEW)
    buffer = context.new_buffer(N)
    # The first copy is before the export of the address, and the other copies are after it.
    buffer.copy_from_device(old)
    address = buffer.address
    assert driver.download(address, N, LEGACY) == OLD
    buffer.copy_from_device(new)
    assert driver.download(address, N, LEGACY) == NEW
    buffer.copy_from_host(OLD)
    assert driver.download(address, N, LEGACY) == OLD


def test_external_memory_is_kept_until_it_is_read(context, driver):
    if not hasattr(driver.lib, "crossdock_sim_cuda_hold"):
        pytest.skip("only the simulated driver can delay a stream")
    freed = []

    class Owner(ExternalMemory):
        def __del__(self):
            freed.append(True)
            super().__del__()

    owner, copy = Owner(driver, NEW), context.new_buffer(N)
    stream = copy.__cuda_array_interface__["stream"]
    buffer = context.foreign_buffer(owner.address, N, base=owner)
    driver.synchronize(LEGACY)
    driver.hold(stream)
    copy.copy_from_device(buffer)
    del owner, buffer
    gc.collect()
    assert not freed, "the memory was freed during the read"
    driver.hold(stream, False)
    assert copy.copy_to_host() == NEW


def test_copy_from_host_waits_for_external_readers(context, driver):
    buffer, read_values = context.buffer_from_data(OLD), (ctypes.c_char * N)()
    read = ctypes.c_uint64(buffer.address)
    driver.call("cuMemcpyDtoHAsync_v2", read_values, read, ctypes.c_size_t(N), ctypes.c_void_p(LEGACY))
    buffer.copy_from_host(NEW)
    driver.synchronize(LEGACY)
    assert bytes(read_values) == OLD
    assert buffer.copy_to_host() == NEW


def test_buffer_waits_for_default_stream_only_after_export_of_its_address(context, driver):
    if not hasattr(driver.lib, "crossdock_sim_cuda_calls"):
        pytest.skip("only the simulated driver counts calls")
    buffer, other_memory = context.buffer_from_data(OLD), ExternalMemory(driver, OLD)
    for is_exported in (False, True):
        if is_exported:
            assert buffer.address
        driver.upload(other_memory.address, NEW, LEGACY)
        before = driver.calls("cuStreamWaitEvent")
        assert buffer.copy_to_host() == OLD
        assert (driver.calls("cuStreamWaitEvent") > before) == is_exported


def test_cuda_array_interface_of_buffer_has_the_sessions_stream(context, driver):
    buffer = context.new_buffer(N)
    buffer.copy_from_device(context.buffer_from_data(OLD))
    interface = buffer.__cuda_array_interface__
    assert (
        interface.pop("stream") == context.session.from_cuda_array_interface(buffer).__cuda_array_interface__["stream"]
    )
    assert interface == {
        "shape": (N,),
        "typestr": "|u1",
        "data": (buffer.address, False),
        "strides": None,
        "mask": None,
        "version": 3,
    }
    stream = driver.stream()
    driver.wait(stream, buffer.__cuda_array_interface__["stream"])
    assert driver.download(buffer.address, N, stream) == OLD
    driver.call("cuStreamDestroy_v2", ctypes.c_void_p(stream))
    assert context.new_buffer(0).__cuda_array_interface__["data"] == (0, False)


def test_import_waits_for_the_arrays_stream(context, driver):
    stream = driver.stream()

    class Array(ExternalMemory):
        @property
        def __cuda_array_interface__(self):
            data = (self.address, False)
            return {"shape": (N,), "typestr": "|u1", "data": data, "version": 3, "stream": stream}

    array = Array(driver, NEW, stream)
    buffer = context.buffer_from_object(array)
    assert (buffer.size, buffer.address, buffer.is_mutable) == (N, array.address, True)
    del array
    assert buffer.copy_to_host() == NEW
    buffer.copy_from_host(OLD)
    assert buffer.copy_to_host() == OLD
    # The array is kept until the copy that reads it has run.
    copy = context.new_buffer(N)
    copy.copy_from_device(buffer)
    del buffer
    gc.collect()
    assert copy.copy_to_host() == OLD
    context.synchronize()
    driver.call("cuStreamDestroy_v2", ctypes.c_void_p(stream))


def test_dlpack_producers_receive_the_sessions_stream(context, driver):
    memory = ExternalMemory(driver, NEW)
    producer = RecordingProducer(on_device(memory.address, N, dtype=UNSIGNED), device=(CUDA, 0))
    buffer = context.buffer_from_object(producer)
    assert producer.calls[0]["stream"] == context.new_buffer(1).__cuda_array_interface__["stream"]
    assert (buffer.copy_to_host(), buffer.is_mutable, producer.tensor.deleted) == (NEW, True, 0)
    del buffer
    gc.collect()
    context.synchronize()
    assert producer.tensor.deleted == 1


def test_read_only_arrays_stay_read_only(context, driver):
    memory, read_only = ExternalMemory(driver, NEW), 1
    producer = RecordingProducer(on_device(memory.address, N, dtype=UNSIGNED, flags=read_only), device=(CUDA, 0))
    column = context.session.from_dlpack(np.arange(10, dtype="u1"))

    class Array:
        __cuda_array_interface__ = {"shape": (N,), "typestr": "|u1", "data": (memory.address, True), "version": 3}

    for obj, expected in ((producer, NEW), (column, bytes(range(10))), (Array(), NEW)):
        buffer = context.buffer_from_object(obj)
        assert not buffer.is_mutable and buffer.copy_to_host() == expected
        assert buffer.slice(1).__cuda_array_interface__["data"][1] is True
        for write in (
            lambda buffer=buffer: buffer.copy_from_host(b"x"),
            lambda buffer=buffer: buffer.slice(2).copy_from_device(context.buffer_from_data(b"x")),
            buffer.export_for_ipc,
        ):
            with pytest.raises(cd.UsageError, match="is read-only"):
                write()
        assert context.buffer_from_data(buffer).is_mutable


LAYOUTS = {
    "rows first": ((5, 6), (6, 1), 0, True),
    "columns first": ((5, 6), (1, 5), 0, True),
    "backwards": ((5, 6), (-6, 1), 24, True),
    "no strides": ((30,), None, 0, True),
    "of one": ((30, 1), (1, 77), 0, True),
    "every second": ((15,), (2,), 0, False),
    "a part of each row": ((5, 3), (6, 1), 0, False),
    "one for all": ((5, 6), (0, 1), 0, False),
    "beyond the memory": ((3,), (1 << 62,), 0, False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_accepts_contiguous_arrays_of_any_order(context, driver, name):
    shape, strides, first, fits = LAYOUTS[name]
    data = np.arange(30, dtype="i4").tobytes()
    memory = ExternalMemory(driver, data)
    tensor = on_device(memory.address, 0, dtype=(0, 32, 1), shape=shape, strides=strides, byte_offset=4 * first)
    producer = RecordingProducer(tensor, device=(CUDA, 0))
    if fits:
        buffer = context.buffer_from_object(producer)
        assert (buffer.address, buffer.copy_to_host()) == (memory.address, data)
    else:
        with pytest.raises(cd.UsageError, match="buffer_from_object: an array of shape"):
            context.buffer_from_object(producer)
        assert tensor.deleted == 1


def test_rejects_array_outside_memory_of_the_device(context, driver):
    memory = ExternalMemory(driver, NEW)

    def producer_of(device=(CUDA, 0), n=N, **more):
        more = {"dtype": UNSIGNED, **more}
        return RecordingProducer(
            on_device(more.pop("address", memory.address), n, device=device, **more), device=device
        )

    cases = {
        "int has neither": 7,
        r"device \(1, 0\), expected cuda:0.*buffer_from_data": np.arange(3),
        r"cuda:1 does not exist|device \(2, 1\)": producer_of(device=(CUDA, 1)),
        r"device \(10, 0\)": producer_of(device=(10, 0)),
        "is not device memory": producer_of(address=4096),
        "exceed their allocation": producer_of(n=64 << 20),
        "elements of 4 bits, expected whole bytes": producer_of(dtype=(1, 4, 1)),
        "has a negative size": producer_of(shape=(-1,)),
        "too many elements": producer_of(shape=(1 << 40, 1 << 40), strides=(1, 1)),
    }
    for message, obj in cases.items():
        with pytest.raises((cd.Error, TypeError), match=message):
            context.buffer_from_object(obj)
    with pytest.raises(cd.Error):
        context.buffer_from_object(producer_of(device=(CPU, 0)))


def test_empty_arrays_become_empty_buffers(context, driver):
    nothing = RecordingProducer(on_device(0, 0, dtype=UNSIGNED), device=(CUDA, 0))
    assert context.buffer_from_object(nothing).copy_to_host() == b""


def test_buffer_from_object_returns_a_buffer_unchanged(context, driver):
    buffer = context.buffer_from_data(OLD)
    assert context.buffer_from_object(buffer) is buffer


def test_foreign_buffer_copies_nothing_and_keeps_its_owner_alive(context, driver):
    owner = ExternalMemory(driver, OLD)
    buffer = context.foreign_buffer(owner.address + 10, N - 20, base=owner)
    assert context.bytes_allocated == 0
    assert (buffer.size, buffer.address) == (N - 20, owner.address + 10)
    assert buffer.copy_to_host() == OLD[:-20]
    part, copy = buffer.slice(5, 5), context.new_buffer(5)
    del owner, buffer
    part.copy_from_host(b"abcde")
    copy.copy_from_device(part)
    # Dropping the owner frees the memory, which must not happen before the copy has run.
    del part
    gc.collect()
    assert copy.copy_to_host() == b"abcde"


def test_rejects_foreign_buffer_outside_device_memory(context, driver):
    owner, host = ExternalMemory(driver, OLD), context.new_host_buffer(100)
    assert context.foreign_buffer(0, 0).size == 0
    with pytest.raises(cd.UsageError, match="address 0x1000 is not device memory.*buffer_from_data"):
        context.foreign_buffer(4096, 1)
    with pytest.raises(cd.UsageError, match="is not device memory|is memory of cuda_host"):
        context.foreign_buffer(host.address, 100, base=host)
    with pytest.raises(cd.UsageError, match=f"{64 << 20} bytes at {owner.address:#x} exceed their allocation"):
        context.foreign_buffer(owner.address, 64 << 20)
    with pytest.raises(cd.UsageError, match="size=-1"):
        context.foreign_buffer(owner.address, -1)
    with pytest.raises(cd.UsageError, match="address=-1"):
        context.foreign_buffer(-1, 1)
    with pytest.raises(OverflowError):
        context.foreign_buffer(1 << 64, 1)


def kernels():
    """Returns numba's CUDA module, or skips the test if it does not work with this driver."""
    cuda = pytest.importorskip("numba.cuda")
    try:
        cuda.current_context()
    except Exception as error:
        pytest.skip(f"numba cannot use this driver: {error}")
    return cuda


def test_numba_array_keeps_the_buffer(context, driver):
    kernels()
    from numba.cuda.cudadrv.devicearray import DeviceNDArray

    data = np.arange(10, dtype="i4")
    buffer = context.buffer_from_data(data)
    pointer = buffer.to_numba()
    assert (pointer.size, int(pointer.device_pointer_value)) == (40, buffer.address)
    array = DeviceNDArray((10,), (4,), data.dtype, gpu_data=pointer)
    del buffer, pointer
    gc.collect()
    assert context.bytes_allocated == 40
    np.testing.assert_array_equal(array.copy_to_host(), data)
    del array
    gc.collect()
    assert context.bytes_allocated == 0


def test_to_numba_array_applies_dtype_and_shape(context, driver):
    kernels()
    buffer = context.buffer_from_data(np.arange(12, dtype="f4"))
    array = buffer.to_numba_array("f4", (3, 4))
    assert (array.shape, array.dtype) == ((3, 4), np.dtype("f4"))
    array.copy_to_device(np.ones((3, 4), dtype="f4"))
    assert buffer.copy_to_host() == np.ones(12, dtype="f4").tobytes()
    assert buffer.to_numba_array().shape == (48,)
    assert buffer.to_numba_array("f8").shape == (6,)
    assert buffer.to_numba_array("i2", 3).shape == (3,)
    with pytest.raises(cd.UsageError, match="int32 of shape .4, 4.: expected 64 bytes, the buffer has 48"):
        buffer.to_numba_array("i4", (4, 4))
    with pytest.raises(cd.UsageError, match="7 bytes: expected a multiple of 4 bytes, the size of a float32"):
        buffer.slice(0, 7).to_numba_array("f4")


def test_numba_arrays_become_buffers(context, driver):
    cuda = kernels()
    array = cuda.to_device(np.arange(6, dtype="f8"))
    for buffer in (Buffer.from_numba(array.gpu_data), context.buffer_from_object(array)):
        assert buffer.address == array.__cuda_array_interface__["data"][0]
        np.testing.assert_array_equal(np.frombuffer(buffer.copy_to_host(0, 48)), np.arange(6))
        buffer.copy_from_host(np.array([7.0]))
        assert array.copy_to_host()[0] == 7
        array[:1].copy_to_device(np.array([0.0]))
        assert np.frombuffer(buffer.copy_to_host(0, 8))[0] == 0
    assert context.buffer_from_object(array).size == 48


def test_numba_context_round_trips(context, driver):
    cuda = kernels()
    assert Context.from_numba().device_number == Context.from_numba(cuda.current_context()).device_number == 0
    assert context.to_numba().device.id == 0


def test_numba_array_of_a_column_has_its_values(context, driver):
    """The array has the shape, strides and dtype of the column."""
    cuda = kernels()
    pa = pytest.importorskip("pyarrow")
    table = context.session.from_arrow(pa.table({"a": pa.array([1.5, 2.5, 3.5]), "b": pa.array([1, 2, 3], pa.int16())}))
    arrays = [cuda.as_cuda_array(column) for column in table.columns]
    assert [array.dtype for array in arrays] == [np.dtype("f8"), np.dtype("i2")]
    assert [array.copy_to_host().tolist() for array in arrays] == [[1.5, 2.5, 3.5], [1, 2, 3]]
