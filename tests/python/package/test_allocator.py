"""`Session(allocator=)`: memory of another library's pool."""

import ctypes
import gc
import pickle
import threading
import time

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest


@pytest.fixture
def driver(cuda):
    """The driver, real or simulated."""
    return ctypes.CDLL("libcuda.so.1")


class Pool:
    """An allocator that counts its blocks, on the stream-ordered allocator of the driver."""

    def __init__(self, driver, fail_at=None):
        self.driver, self.fail_at = driver, fail_at
        self.live, self.streams, self.allocated = {}, set(), 0
        self.lock = threading.Lock()

    def allocate(self, nbytes, stream):
        with self.lock:
            self.allocated += 1
            if self.fail_at is not None and self.allocated >= self.fail_at:
                raise MemoryError(f"the pool has no {nbytes} bytes left")
        address = ctypes.c_uint64()
        code = self.driver.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(nbytes), ctypes.c_void_p(stream))
        assert code == 0, code
        with self.lock:
            self.live[address.value] = nbytes
            self.streams.add(stream)
        return address.value

    def deallocate(self, address, nbytes, stream):
        with self.lock:
            assert self.live.pop(address) == nbytes
        code = self.driver.cuMemFreeAsync(ctypes.c_uint64(address), ctypes.c_void_p(stream))
        assert code == 0, code


def wait_until_empty(pool):
    until = time.monotonic() + 20
    while pool.live and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert pool.live == {}


def test_all_device_memory_comes_from_the_allocator(cuda, driver):
    pool = Pool(driver)
    with cd.Session(cuda, allocator=pool) as session:
        source = pa.table({"a": np.arange(100_000), "b": [f"text {i}" for i in range(100_000)]})
        table = session.from_arrow(source)
        assert pool.live, "the table is in other memory"
        # The ledger counts the requested bytes.
        used = session.memory_used()
        assert sum(devices.get(cuda, 0) for devices in used.values()) == sum(pool.live.values())
        taken = table.filter([("a", ">=", 50_000)]).to("cpu").to_pyarrow()
        assert taken.equals(source.slice(50_000))
        column = table["a"]
        del table, taken, source
    # A column outlives its session, and its memory the column's last use.
    assert column.to("cpu").to_pyarrow()[99_999].as_py() == 99_999
    del column
    wait_until_empty(pool)
    assert pool.allocated > 2


def test_memory_is_freed_after_its_uses_on_several_threads(cuda, driver):
    pool = Pool(driver)
    with cd.Session(cuda, allocator=pool) as session:

        def work(seed):
            numbers = np.random.default_rng(seed).integers(0, 1000, 10_000)
            for _ in range(5):
                column = session.from_dlpack(numbers)
                assert np.array_equal(np.asarray(column.take(np.arange(9_999, -1, -1)).to("cpu")), numbers[::-1])

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    wait_until_empty(pool)


def test_failure_of_the_allocator_is_an_error_and_leaks_nothing(cuda, driver):
    pool = Pool(driver, fail_at=1)
    with cd.Session(cuda, allocator=pool) as session:
        with pytest.warns(cd.Warning, match="the session's allocator failed: MemoryError: the pool has no"):
            with pytest.raises(
                cd.OutOfMemoryError, match="the allocator that was given for the device returned the code 1"
            ):
                session.from_arrow(pa.table({str(i): np.arange(10_000) for i in range(8)}))
        gc.collect()
        pool.fail_at = None
        assert len(session.from_dlpack(np.arange(10)).to("cpu")) == 10
    wait_until_empty(pool)


@pytest.mark.parametrize("wrong", [0, 4096, -1, "x", None])
def test_wrong_address_is_an_error(cuda, driver, wrong):
    class Wrong(Pool):
        def allocate(self, nbytes, stream):
            return wrong

        def deallocate(self, address, nbytes, stream):
            pass

    with cd.Session(cuda, allocator=Wrong(driver)) as session:
        with pytest.raises((cd.DeviceError, cd.OutOfMemoryError), match="the allocator that was given for the device"):
            session.from_dlpack(np.arange(10))


def test_memory_of_another_device_is_an_error(cuda, driver):
    if cd._native.cuda_device_count() < 2:
        pytest.skip("needs two devices")

    class Other(Pool):
        def allocate(self, nbytes, stream):
            device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
            assert driver.cuDeviceGet(ctypes.byref(device), 1) == 0
            assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
            assert driver.cuCtxPushCurrent_v2(context) == 0
            assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)) == 0
            assert driver.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
            self.live[address.value] = nbytes
            return address.value

        def deallocate(self, address, nbytes, stream):
            assert self.live.pop(address) == nbytes
            assert driver.cuMemFree_v2(ctypes.c_uint64(address)) == 0

    pool = Other(driver)
    with cd.Session(cuda, allocator=pool) as session:
        with pytest.raises(cd.DeviceError, match="expected memory of device 0"):
            session.from_dlpack(np.arange(10))
    wait_until_empty(pool)


def test_memory_limit_applies_to_the_allocator(cuda, driver):
    pool = Pool(driver)
    with cd.Session(cuda, memory="1MiB", allocator=pool) as session:
        with pytest.raises(cd.OutOfMemoryError, match="limit of 1048576 bytes"):
            session.from_dlpack(np.arange(1_000_000))
    wait_until_empty(pool)


ALLOCATE = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)
)
DEALLOCATE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Functions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("allocate", ALLOCATE),
        ("deallocate", DEALLOCATE),
        ("release", RELEASE),
    ]


class Native:
    """An allocator as a C function table in a capsule."""

    def __init__(self, pool, struct_size=None):
        self.released = 0

        def allocate(_context, nbytes, stream, address):
            address[0] = pool.allocate(nbytes, stream or 0)
            return 0

        def release(_context):
            self.released += 1

        self.functions = Functions(
            struct_size or ctypes.sizeof(Functions), 0, None, ALLOCATE(allocate),
            DEALLOCATE(lambda _context, address, nbytes, stream: pool.deallocate(address, nbytes, stream or 0)),
            RELEASE(release),
        )  # fmt: skip

    def __crossdock_allocator__(self):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.functions), b"crossdock_allocator", None)


def test_function_table_in_a_capsule(cuda, driver):
    pool = Pool(driver)
    native = Native(pool)
    with cd.Session(cuda, allocator=native) as session:
        column = session.from_dlpack(np.arange(1000))
        assert pool.live
        assert column.to("cpu").to_pylist()[-1] == 999
        del column
    wait_until_empty(pool)
    until = time.monotonic() + 20
    while native.released == 0 and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert native.released == 1
    with pytest.raises(cd.UsageError, match="expected a struct of at least 40 bytes, got 8"):
        cd.Session(cuda, allocator=Native(pool, struct_size=8))


def test_wrong_arguments_are_errors(cuda):
    with pytest.raises(cd.UsageError, match="allocator: expected a memory resource of rmm"):
        cd.Session(cuda, allocator=5)

    class NoCapsule:
        def __crossdock_allocator__(self):
            return 5

    with pytest.raises(cd.UsageError, match="expected a capsule"):
        cd.Session(cuda, allocator=NoCapsule())


def test_an_allocator_needs_a_cuda_session():
    with pytest.raises(cd.UsageError, match="allocator: expected a session on a CUDA device, got cpu"):
        cd.Session(allocator=object())


def test_session_with_an_allocator_is_not_pickled(cuda, driver):
    with cd.Session(cuda, allocator=Pool(driver)) as session:
        with pytest.raises(cd.UsageError, match="cannot be pickled"):
            pickle.dumps(session)
