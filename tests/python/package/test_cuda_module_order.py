"""`crossdock.cuda` beside other users of a device: arrays that it takes, memory that it shows, and the order of it all. The
simulated driver runs work as late as it may, and tells what was not ordered after what it needs."""

import ctypes
import gc

import crossdock as cd
import numpy as np
import pytest
from crossdock.cuda import Buffer, Context
from tensors_made import CPU, CUDA, LEGACY, Asked, Driver, on_device

N = 3000
OLD, NEW = b"\x11" * N, b"\x22" * N
UNSIGNED = (1, 8, 1)


@pytest.fixture
def driver(there):
    """The driver in another library's hands. In the end nothing was out of order."""
    driver = Driver()
    simulated = hasattr(driver.lib, "crossdock_sim_cuda_violations")
    before = driver.violations() if simulated else 0
    if simulated:
        driver.count_violations()
    yield driver
    gc.collect()
    there.synchronize()
    driver.synchronize(LEGACY)
    driver.close()
    if simulated:
        found = driver.violations() - before
        driver.count_violations(False)
        assert found == 0, f"{found} accesses were not ordered after what they need"


@pytest.fixture
def context(there, driver):
    return Context(session=there)


class Theirs:
    """Memory of another library's, which is given back when the last who keeps it lets go."""

    def __init__(self, driver, data, stream=LEGACY):
        self.driver, self.size = driver, len(data)
        self.address = driver.alloc(len(data))
        driver.upload(self.address, data, stream)

    def __del__(self):
        # On whichever thread that is.
        self.driver.call("cuCtxSetCurrent", self.driver.context)
        self.driver.free(self.address)


def test_what_others_wrote_on_the_default_stream_is_read(context, driver):
    buffer = context.buffer_from_data(OLD)
    driver.upload(buffer.address, NEW, LEGACY)
    assert buffer.copy_to_host() == NEW
    # A slice is the same memory.
    driver.upload(buffer.slice(1000).address, OLD[:10], LEGACY)
    assert buffer.copy_to_host(1000, 11) == OLD[:10] + NEW[:1]


def test_what_was_done_here_is_seen_on_the_default_stream(context, driver):
    # Kept, since memory that goes back has the device waited for.
    old, new = context.buffer_from_data(OLD), context.buffer_from_data(NEW)
    buffer = context.new_buffer(N)
    # Before others know of it, and after.
    buffer.copy_from_device(old)
    address = buffer.address
    assert driver.download(address, N, LEGACY) == OLD
    buffer.copy_from_device(new)
    assert driver.download(address, N, LEGACY) == NEW
    buffer.copy_from_host(OLD)
    assert driver.download(address, N, LEGACY) == OLD


def test_what_others_own_is_kept_until_it_has_been_read(context, driver):
    if not hasattr(driver.lib, "crossdock_sim_cuda_hold"):
        pytest.skip("only the simulated driver can hold a stream up")
    gone = []

    class Owner(Theirs):
        def __del__(self):
            gone.append(True)
            super().__del__()

    owner, copy = Owner(driver, NEW), context.new_buffer(N)
    stream = copy.__cuda_array_interface__["stream"]
    buffer = context.foreign_buffer(owner.address, N, base=owner)
    driver.synchronize(LEGACY)
    driver.hold(stream)
    copy.copy_from_device(buffer)
    del owner, buffer
    gc.collect()
    assert not gone, "it was given back while it was being read"
    driver.hold(stream, False)
    assert copy.copy_to_host() == NEW


def test_what_others_still_read_is_written_afterwards(context, driver):
    buffer, seen = context.buffer_from_data(OLD), (ctypes.c_char * N)()
    read = ctypes.c_uint64(buffer.address)
    driver.call("cuMemcpyDtoHAsync_v2", seen, read, ctypes.c_size_t(N), ctypes.c_void_p(LEGACY))
    buffer.copy_from_host(NEW)
    driver.synchronize(LEGACY)
    assert bytes(seen) == OLD
    assert buffer.copy_to_host() == NEW


def test_only_memory_that_others_were_shown_waits_for_them(context, driver):
    if not hasattr(driver.lib, "crossdock_sim_cuda_calls"):
        pytest.skip("only the simulated driver counts calls")
    buffer, elsewhere = context.buffer_from_data(OLD), Theirs(driver, OLD)
    for shown in (False, True):
        if shown:
            assert buffer.address
        driver.upload(elsewhere.address, NEW, LEGACY)
        before = driver.calls("cuStreamWaitEvent")
        assert buffer.copy_to_host() == OLD
        assert (driver.calls("cuStreamWaitEvent") > before) == shown


def test_the_array_interface_tells_after_which_stream(context, driver):
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


def test_an_array_is_taken_after_the_stream_that_it_tells(context, driver):
    stream = driver.stream()

    class Array(Theirs):
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
    # It is kept until the copy has run that reads it.
    copy = context.new_buffer(N)
    copy.copy_from_device(buffer)
    del buffer
    gc.collect()
    assert copy.copy_to_host() == OLD
    context.synchronize()
    driver.call("cuStreamDestroy_v2", ctypes.c_void_p(stream))


def test_arrays_of_dlpack_are_taken_on_the_sessions_stream(context, driver):
    memory = Theirs(driver, NEW)
    asked = Asked(on_device(memory.address, N, dtype=UNSIGNED), device=(CUDA, 0))
    buffer = context.buffer_from_object(asked)
    assert asked.asked[0]["stream"] == context.new_buffer(1).__cuda_array_interface__["stream"]
    assert (buffer.copy_to_host(), buffer.is_mutable, asked.made.deleted) == (NEW, True, 0)
    del buffer
    gc.collect()
    context.synchronize()
    assert asked.made.deleted == 1


def test_what_may_only_be_read_stays_so(context, driver):
    memory, read_only = Theirs(driver, NEW), 1
    asked = Asked(on_device(memory.address, N, dtype=UNSIGNED, flags=read_only), device=(CUDA, 0))
    column = context.session.from_dlpack(np.arange(10, dtype="u1"))

    class Array:
        __cuda_array_interface__ = {"shape": (N,), "typestr": "|u1", "data": (memory.address, True), "version": 3}

    for obj, expected in ((asked, NEW), (column, bytes(range(10))), (Array(), NEW)):
        buffer = context.buffer_from_object(obj)
        assert not buffer.is_mutable and buffer.copy_to_host() == expected
        assert buffer.slice(1).__cuda_array_interface__["data"][1] is True
        for write in (
            lambda buffer=buffer: buffer.copy_from_host(b"x"),
            lambda buffer=buffer: buffer.slice(2).copy_from_device(context.buffer_from_data(b"x")),
            buffer.export_for_ipc,
        ):
            with pytest.raises(cd.UsageError, match="may only be read"):
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
    "farther than there is": ((3,), (1 << 62,), 0, False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_arrays_without_gaps_are_buffers_in_any_order(context, driver, name):
    shape, strides, first, fits = LAYOUTS[name]
    data = np.arange(30, dtype="i4").tobytes()
    memory = Theirs(driver, data)
    made = on_device(memory.address, 0, dtype=(0, 32, 1), shape=shape, strides=strides, byte_offset=4 * first)
    asked = Asked(made, device=(CUDA, 0))
    if fits:
        buffer = context.buffer_from_object(asked)
        assert (buffer.address, buffer.copy_to_host()) == (memory.address, data)
    else:
        with pytest.raises(cd.UsageError, match="buffer_from_object: an array of shape"):
            context.buffer_from_object(asked)
        assert made.deleted == 1


def test_arrays_that_are_no_memory_here_are_refused(context, driver):
    memory = Theirs(driver, NEW)

    def asked(device=(CUDA, 0), n=N, **more):
        more = {"dtype": UNSIGNED, **more}
        return Asked(on_device(more.pop("address", memory.address), n, device=device, **more), device=device)

    cases = {
        "7 has neither|a int has neither": 7,
        r"device \(1, 0\), and the context is of cuda:0.*buffer_from_data": np.arange(3),
        r"cuda:1 does not exist|device \(2, 1\)": asked(device=(CUDA, 1)),
        r"device \(10, 0\)": asked(device=(10, 0)),
        "is no memory of a CUDA device": asked(address=4096),
        "lie outside their allocation": asked(n=64 << 20),
        "4 bits is no number of bytes": asked(dtype=(1, 4, 1)),
        "has no number of elements": asked(shape=(-1,)),
        "no number of elements": asked(shape=(1 << 40, 1 << 40), strides=(1, 1)),
    }
    for words, obj in cases.items():
        with pytest.raises((cd.Error, TypeError), match=words):
            context.buffer_from_object(obj)
    with pytest.raises(cd.Error):
        context.buffer_from_object(asked(device=(CPU, 0)))


def test_arrays_of_nothing_are_buffers_of_nothing(context, driver):
    nothing = Asked(on_device(0, 0, dtype=UNSIGNED), device=(CUDA, 0))
    assert context.buffer_from_object(nothing).copy_to_host() == b""


def test_a_buffer_is_its_own_object(context, driver):
    buffer = context.buffer_from_data(OLD)
    assert context.buffer_from_object(buffer) is buffer


def test_foreign_memory_is_used_in_place_and_its_owner_kept(context, driver):
    owner = Theirs(driver, OLD)
    buffer = context.foreign_buffer(owner.address + 10, N - 20, base=owner)
    assert context.bytes_allocated == 0
    assert (buffer.size, buffer.address) == (N - 20, owner.address + 10)
    assert buffer.copy_to_host() == OLD[:-20]
    part, copy = buffer.slice(5, 5), context.new_buffer(5)
    del owner, buffer
    part.copy_from_host(b"abcde")
    copy.copy_from_device(part)
    # The owner's end frees the memory, which may not come before the copy has run.
    del part
    gc.collect()
    assert copy.copy_to_host() == b"abcde"


def test_foreign_memory_that_is_none_is_refused(context, driver):
    owner, host = Theirs(driver, OLD), context.new_host_buffer(100)
    assert context.foreign_buffer(0, 0).size == 0
    with pytest.raises(cd.UsageError, match="address 0x1000 is no memory of a CUDA device.*buffer_from_data"):
        context.foreign_buffer(4096, 1)
    with pytest.raises(cd.UsageError, match="is no memory of a CUDA device|is memory of cuda_host"):
        context.foreign_buffer(host.address, 100, base=host)
    with pytest.raises(cd.UsageError, match=f"{64 << 20} bytes at {owner.address:#x} lie outside their allocation"):
        context.foreign_buffer(owner.address, 64 << 20)
    with pytest.raises(cd.UsageError, match="size=-1"):
        context.foreign_buffer(owner.address, -1)
    with pytest.raises(cd.UsageError, match="address=-1"):
        context.foreign_buffer(-1, 1)
    with pytest.raises(OverflowError):
        context.foreign_buffer(1 << 64, 1)


def kernels():
    """numba's module for CUDA, if it is here and works on this driver."""
    cuda = pytest.importorskip("numba.cuda")
    try:
        cuda.current_context()
    except Exception as error:
        pytest.skip(f"numba cannot use this driver: {error}")
    return cuda


def test_numba_takes_a_buffer_and_keeps_it(context, driver):
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


def test_numba_arrays_of_a_buffer_have_a_dtype_and_a_shape(context, driver):
    kernels()
    buffer = context.buffer_from_data(np.arange(12, dtype="f4"))
    array = buffer.to_numba_array("f4", (3, 4))
    assert (array.shape, array.dtype) == ((3, 4), np.dtype("f4"))
    array.copy_to_device(np.ones((3, 4), dtype="f4"))
    assert buffer.copy_to_host() == np.ones(12, dtype="f4").tobytes()
    assert buffer.to_numba_array().shape == (48,)
    assert buffer.to_numba_array("f8").shape == (6,)
    assert buffer.to_numba_array("i2", 3).shape == (3,)
    with pytest.raises(cd.UsageError, match="int32 of shape .4, 4. takes 64 bytes, and the buffer has 48"):
        buffer.to_numba_array("i4", (4, 4))
    with pytest.raises(cd.UsageError, match="7 bytes are no whole number of elements of float32, of 4 bytes each"):
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


def test_numba_contexts_are_the_devices_own(context, driver):
    cuda = kernels()
    assert Context.from_numba().device_number == Context.from_numba(cuda.current_context()).device_number == 0
    assert context.to_numba().device.id == 0


def test_numba_arrays_of_a_column_are_what_the_column_is(context, driver):
    """No shape, strides or dtype has to be put together by hand."""
    cuda = kernels()
    pa = pytest.importorskip("pyarrow")
    table = context.session.from_arrow(pa.table({"a": pa.array([1.5, 2.5, 3.5]), "b": pa.array([1, 2, 3], pa.int16())}))
    arrays = [cuda.as_cuda_array(column) for column in table.columns]
    assert [array.dtype for array in arrays] == [np.dtype("f8"), np.dtype("i2")]
    assert [array.copy_to_host().tolist() for array in arrays] == [[1.5, 2.5, 3.5], [1, 2, 3]]
