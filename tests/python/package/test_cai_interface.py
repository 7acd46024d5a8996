"""`__cuda_array_interface__`, version 3, of columns and of external arrays."""

import gc
import weakref

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from tensors import NUMPY_DTYPES, sample
from tensor_producers import LEGACY, PER_THREAD, CudaArrayInterface, on_device, type_with_exchange_api
from test_dlpack_cuda import BYTES, VALUES, N, driver, late, cuda_session, values

__all__ = ["driver", "late", "cuda_session"]

TYPESTR = {"bool": "|b1", "int8": "|i1", "uint8": "|u1"}


def typestr(dtype):
    return TYPESTR.get(dtype, np.dtype(dtype).str)


# --- Columns ---


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", [(6,), (2, 3), (0,), (0, 3), (2, 3, 4)])
def test_column_has_all_entries_of_version_3(cuda_session, driver, dtype, shape):
    array = sample(dtype, shape)
    column = cuda_session.from_dlpack(array)
    exported = column.__cuda_array_interface__
    assert exported["version"] == 3
    assert exported["shape"] == shape
    assert exported["typestr"] == typestr(dtype)
    assert exported["strides"] is None
    assert exported["mask"] is None
    address, read_only = exported["data"]
    assert read_only is True
    assert (address == 0) == (0 in shape)
    assert exported["stream"] is None or exported["stream"] > 0
    if address:
        stream = exported["stream"] or driver.stream()
        assert driver.download(address, array.nbytes, stream) == array.tobytes()


def test_strides_are_in_bytes(cuda_session):
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4).transpose(0, 2, 1)
    exported = cuda_session.from_dlpack(array).__cuda_array_interface__
    assert (exported["shape"], exported["strides"]) == ((2, 4, 3), (24, 2, 8))


def test_interface_of_pending_column_has_its_stream(cuda_session, driver, late):
    stream, address = late
    tensor = on_device(address, N)
    column = cuda_session.from_dlpack(type_with_exchange_api(lambda _: tensor, stream=stream)())
    exported = column.__cuda_array_interface__
    assert exported["data"] == (address, True)
    assert exported["stream"] not in (None, 0, stream)
    consumer = driver.stream()
    driver.wait(consumer, exported["stream"])
    assert np.frombuffer(driver.download(address, BYTES, consumer), np.int64).tolist() == VALUES.tolist()


def test_slice_has_the_address_of_its_first_element(cuda_session, driver):
    column = cuda_session.from_dlpack(VALUES)
    whole, part = (c.__cuda_array_interface__ for c in (column, column.slice(3, 4)))
    assert part["data"][0] == whole["data"][0] + 24
    assert part["shape"] == (4,)


def test_cpu_column_has_no_interface(session):
    column = session.from_dlpack(np.arange(3))
    assert not hasattr(column, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="the column is on cpu"):
        column.__cuda_array_interface__  # noqa: B018


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (pa.array(["a"]), "numbers and booleans only"),
        (pa.array([1, None]), "1 of 2 rows are null"),
        (pa.array([True]), "bits become bytes"),
        (pa.chunked_array([[1], [2]]), "combine_chunks"),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_error_for_unsupported_column_gives_the_reason(cuda_session, array, message):
    column = cuda_session.from_arrow(array)
    assert not hasattr(column, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match=message):
        column.__cuda_array_interface__  # noqa: B018


# --- External objects ---


@pytest.mark.parametrize("stream", ["a new one", LEGACY, PER_THREAD])
def test_waits_for_the_stream_of_the_interface(cuda_session, driver, stream):
    handle = driver.stream() if stream == "a new one" else stream
    address = driver.alloc(BYTES)
    driver.upload(address, VALUES.tobytes(), handle)
    column = cuda_session.from_cuda_array_interface(CudaArrayInterface(address, N, stream=handle))
    assert column.device == "cuda:0"
    assert values(column) == VALUES.tolist()
    del column
    gc.collect()
    cuda_session.synchronize()
    driver.free(address)


def test_device_waits_for_the_stream_of_the_interface(cuda_session, driver, late):
    stream, address = late
    column = cuda_session.from_cuda_array_interface(CudaArrayInterface(address, N, stream=stream))
    assert not driver.is_idle(stream)
    assert values(column) == VALUES.tolist()


def test_import_does_not_wait_without_a_stream(cuda_session, driver, late):
    """Checks that the tests of this file detect a missing wait."""
    stream, address = late
    # Repeats the import, because a block that an earlier test released may make the session wait
    # for all work on the device.
    for _ in range(5):
        values(cuda_session.from_cuda_array_interface(CudaArrayInterface(address, N)))
        driver.expected = driver.violations() - driver.before
        if driver.expected > 0:
            return
        driver.upload(address, VALUES.tobytes(), stream)
    raise AssertionError("no missing wait was detected")


@pytest.mark.parametrize("way", ["tensor", "table"])
def test_from_dlpack_falls_back_to_the_interface(cuda_session, driver, way):
    stream, address = driver.stream(), driver.alloc(BYTES)
    driver.upload(address, VALUES.tobytes(), stream)
    array = CudaArrayInterface(address, N, stream=stream)
    column = (
        cuda_session.from_dlpack(array) if way == "tensor" else cuda_session.from_dlpack({"a": array, "b": array})["a"]
    )
    assert values(column) == VALUES.tolist()
    del column
    gc.collect()
    cuda_session.synchronize()
    driver.free(address)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_versions_wait_for_the_legacy_default_stream(cuda_session, driver, version):
    address = driver.alloc(BYTES)
    driver.upload(address, VALUES.tobytes(), LEGACY)
    column = cuda_session.from_cuda_array_interface(
        CudaArrayInterface(address, N, version=version, stream=..., strides=...)
    )
    assert values(column) == VALUES.tolist()
    del column
    gc.collect()
    cuda_session.synchronize()
    driver.free(address)


@pytest.mark.parametrize(
    ("more", "index"),
    [
        ({"shape": (10, 100)}, np.s_[:]),
        ({"shape": (N // 2,), "strides": (16,)}, np.s_[::2]),
        ({"shape": (100, 10), "strides": (8, 800)}, np.s_[:]),
        ({"shape": (1, N), "strides": (77 * 8, 8)}, np.s_[:]),
        ({"typestr": "<f8"}, np.s_[:]),
        ({"typestr": "|u1", "shape": (BYTES,)}, np.s_[:]),
        ({"typestr": "<i2", "shape": (N,), "strides": (8,)}, np.s_[:]),
    ],
    ids=str,
)
def test_each_layout_has_the_values_that_numpy_reads(cuda_session, driver, more, index):
    address, stream = driver.alloc(BYTES), driver.stream()
    driver.upload(address, VALUES.tobytes(), stream)
    interface = CudaArrayInterface(address, N, stream=stream, **more)
    exported = interface.__cuda_array_interface__
    expected = np.ndarray(exported["shape"], exported["typestr"], VALUES.tobytes(), strides=exported["strides"])
    got = np.asarray(cuda_session.from_cuda_array_interface(interface).to("cpu"))
    assert got.dtype == expected.dtype
    assert got.tobytes() == np.ascontiguousarray(expected).tobytes()
    gc.collect()
    cuda_session.synchronize()
    driver.free(address)


@pytest.mark.parametrize("address", [0, 8])
def test_imports_empty_array(cuda_session, address):
    column = cuda_session.from_cuda_array_interface(CudaArrayInterface(address, 0))
    assert (len(column), column.type) == (0, "int64")


def test_column_keeps_the_object_alive(cuda_session, driver):
    address, stream = driver.alloc(BYTES), driver.stream()
    driver.upload(address, VALUES.tobytes(), stream)
    interface = CudaArrayInterface(address, N, stream=stream)
    owner = weakref.ref(interface)
    column = cuda_session.from_cuda_array_interface(interface)
    del interface
    gc.collect()
    assert owner() is not None
    moved = column.to("cpu")
    del column
    for _ in range(100):
        gc.collect()
        cuda_session.synchronize()
        if owner() is None:
            break
    assert owner() is None
    assert np.asarray(moved).tolist() == VALUES.tolist()
    driver.free(address)


def test_imports_columns(cuda_session, driver):
    column = cuda_session.from_dlpack(VALUES)
    again = cuda_session.from_cuda_array_interface(column)
    assert again.__cuda_array_interface__["data"] == column.__cuda_array_interface__["data"]
    assert values(again) == VALUES.tolist()


def test_cpu_session_copies_device_memory(cuda, driver):
    address, stream = driver.alloc(BYTES), driver.stream()
    driver.upload(address, VALUES.tobytes(), stream)
    with cd.Session() as session:
        column = session.from_cuda_array_interface(CudaArrayInterface(address, N, stream=stream))
        assert column.device == "cpu"
        assert np.asarray(column).tolist() == VALUES.tolist()
    del column
    gc.collect()
    driver.free(address)


@pytest.mark.parametrize(
    ("more", "kind", "message"),
    [
        ({"stream": 0}, ValueError, "stream=0: expected None"),
        ({"stream": -1}, ValueError, "stream=-1"),
        ({"stream": "x"}, ValueError, "stream=x"),
        ({"mask": "any"}, cd.UsageError, "masks are not supported"),
        ({"typestr": ">i8"}, cd.UsageError, "byte order"),
        ({"typestr": "<V8"}, cd.UsageError, "typestr"),
        ({"typestr": "<M8[us]"}, cd.UsageError, "typestr"),
        ({"typestr": "i8"}, cd.UsageError, "typestr"),
        ({"typestr": "<i0"}, cd.UsageError, "typestr"),
        ({"typestr": ""}, cd.UsageError, "typestr"),
        ({"typestr": "<c32"}, cd.UsageError, "typestr"),
        ({"typestr": "<c4"}, cd.UnsupportedError, "complex32"),
        ({"typestr": "<V2"}, cd.UsageError, "for bfloat16 and float8, which have no typestr, use DLPack"),
        ({"strides": (4,)}, cd.UsageError, "multiple of the 8 bytes"),
        ({"strides": (8, 8)}, cd.UsageError, "one per dimension"),
        ({"shape": ()}, cd.UnsupportedError, "a scalar"),
        ({"shape": (-1,)}, cd.DataError, "-1"),
        ({"shape": ...}, ValueError, "'shape' is missing"),
        ({"typestr": ...}, ValueError, "'typestr' is missing"),
        ({"data": ...}, ValueError, "'data' is missing"),
        ({"version": ...}, ValueError, "'version' is missing"),
        ({"data": 8}, TypeError, ""),
        ({"data": (0, False)}, cd.DataError, "NULL"),
    ],
    ids=str,
)
def test_rejects_invalid_interface(cuda_session, driver, more, kind, message):
    address = driver.alloc(BYTES)
    interface = CudaArrayInterface(address, N, **more)
    with pytest.raises(kind, match=message or None):
        cuda_session.from_cuda_array_interface(interface)
    driver.free(address)


@pytest.mark.parametrize("value", [3, None, "text", np.arange(3)], ids=str)
def test_rejects_object_without_interface(session, value):
    with pytest.raises(TypeError, match="has no __cuda_array_interface__"):
        session.from_cuda_array_interface(value)


def test_rejects_interface_that_is_no_dict(session):
    value = type("Odd", (), {"__cuda_array_interface__": 3})()
    with pytest.raises(TypeError, match="expected a dict, got 3"):
        session.from_cuda_array_interface(value)


def test_rejects_host_memory(cuda_session, driver):
    array = np.arange(N)
    with pytest.raises(cd.DataError, match="the driver reports no device memory"):
        cuda_session.from_cuda_array_interface(CudaArrayInterface(array.ctypes.data, N))
