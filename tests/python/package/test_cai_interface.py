"""`__cuda_array_interface__`, version 3, of columns and of others' arrays."""

import gc
import weakref

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from tensors import NUMPY_DTYPES, sample
from tensors_made import LEGACY, PER_THREAD, Interface, on_device, speaker
from test_dlpack_cuda import BYTES, VALUES, N, driver, late, there, values

__all__ = ["driver", "late", "there"]

TYPESTR = {"bool": "|b1", "int8": "|i1", "uint8": "|u1"}


def typestr(dtype):
    return TYPESTR.get(dtype, np.dtype(dtype).str)


# ----------------------------------------------------------------------------------------------------------- columns' ---


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", [(6,), (2, 3), (0,), (0, 3), (2, 3, 4)])
def test_a_column_tells_all_that_version_3_has(there, driver, dtype, shape):
    array = sample(dtype, shape)
    column = there.from_dlpack(array)
    told = column.__cuda_array_interface__
    assert told["version"] == 3
    assert told["shape"] == shape
    assert told["typestr"] == typestr(dtype)
    assert told["strides"] is None
    assert told["mask"] is None
    address, read_only = told["data"]
    assert read_only is True
    assert (address == 0) == (0 in shape)
    assert told["stream"] is None or told["stream"] > 0
    if address:
        stream = told["stream"] or driver.stream()
        assert driver.download(address, array.nbytes, stream) == array.tobytes()


def test_strides_are_bytes_where_rows_are_not_one_after_the_other(there):
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4).transpose(0, 2, 1)
    told = there.from_dlpack(array).__cuda_array_interface__
    assert (told["shape"], told["strides"]) == ((2, 4, 3), (24, 2, 8))


def test_what_comes_late_tells_the_stream_after_which_it_is_there(there, driver, late):
    stream, address = late
    made = on_device(address, N)
    column = there.from_dlpack(speaker(lambda _: made, stream=stream)())
    told = column.__cuda_array_interface__
    assert told["data"] == (address, True)
    assert told["stream"] not in (None, 0, stream)
    consumer = driver.stream()
    driver.wait(consumer, told["stream"])
    assert np.frombuffer(driver.download(address, BYTES, consumer), np.int64).tolist() == VALUES.tolist()


def test_a_slice_begins_where_it_lies(there, driver):
    column = there.from_dlpack(VALUES)
    whole, part = (c.__cuda_array_interface__ for c in (column, column.slice(3, 4)))
    assert part["data"][0] == whole["data"][0] + 24
    assert part["shape"] == (4,)


def test_on_the_cpu_there_is_none(session):
    column = session.from_dlpack(np.arange(3))
    assert not hasattr(column, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="the column lies on cpu"):
        column.__cuda_array_interface__  # noqa: B018


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (pa.array(["a"]), "numbers and booleans only"),
        (pa.array([1, None]), "1 of 2 rows are null"),
        (pa.array([True]), "bits become bytes"),
        (pa.chunked_array([[1], [2]]), "combine_chunks"),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_a_column_that_is_no_array_has_none_and_says_why(there, array, words):
    column = there.from_arrow(array)
    assert not hasattr(column, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match=words):
        column.__cuda_array_interface__  # noqa: B018


# ------------------------------------------------------------------------------------------------------------- others' ---


@pytest.mark.parametrize("stream", ["its own", LEGACY, PER_THREAD])
def test_the_stream_that_is_told_is_waited_for(there, driver, stream):
    handle = driver.stream() if stream == "its own" else stream
    address = driver.alloc(BYTES)
    driver.upload(address, VALUES.tobytes(), handle)
    column = there.from_cuda_array_interface(Interface(address, N, stream=handle))
    assert column.device == "cuda:0"
    assert values(column) == VALUES.tolist()
    del column
    gc.collect()
    there.synchronize()
    driver.free(address)


def test_a_stream_that_is_late_is_waited_for_by_the_device(there, driver, late):
    stream, address = late
    column = there.from_cuda_array_interface(Interface(address, N, stream=stream))
    assert not driver.is_idle(stream)
    assert values(column) == VALUES.tolist()


def test_an_interface_without_a_stream_is_taken_at_its_word(there, driver, late):
    """That these tests see what they are for."""
    values(there.from_cuda_array_interface(Interface(late[1], N)))
    driver.expected = driver.violations() - driver.before
    assert driver.expected > 0


@pytest.mark.parametrize("way", ["tensor", "table"])
def test_who_has_nothing_else_is_taken_by_it_where_tensors_are(there, driver, way):
    stream, address = driver.stream(), driver.alloc(BYTES)
    driver.upload(address, VALUES.tobytes(), stream)
    array = Interface(address, N, stream=stream)
    column = there.from_dlpack(array) if way == "tensor" else there.from_dlpack({"a": array, "b": array})["a"]
    assert values(column) == VALUES.tolist()
    del column
    gc.collect()
    there.synchronize()
    driver.free(address)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_it_is_the_legacy_default_stream(there, driver, version):
    address = driver.alloc(BYTES)
    driver.upload(address, VALUES.tobytes(), LEGACY)
    column = there.from_cuda_array_interface(Interface(address, N, version=version, stream=..., strides=...))
    assert values(column) == VALUES.tolist()
    del column
    gc.collect()
    there.synchronize()
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
def test_every_layout_is_read_as_numpy_reads_it(there, driver, more, index):
    address, stream = driver.alloc(BYTES), driver.stream()
    driver.upload(address, VALUES.tobytes(), stream)
    interface = Interface(address, N, stream=stream, **more)
    told = interface.__cuda_array_interface__
    expected = np.ndarray(told["shape"], told["typestr"], VALUES.tobytes(), strides=told["strides"])
    got = np.asarray(there.from_cuda_array_interface(interface).to("cpu"))
    assert got.dtype == expected.dtype
    assert got.tobytes() == np.ascontiguousarray(expected).tobytes()
    gc.collect()
    there.synchronize()
    driver.free(address)


@pytest.mark.parametrize("address", [0, 8])
def test_an_empty_array_lies_nowhere(there, address):
    column = there.from_cuda_array_interface(Interface(address, 0))
    assert (len(column), column.type) == (0, "Int64")


def test_the_object_is_kept_as_long_as_the_column(there, driver):
    address, stream = driver.alloc(BYTES), driver.stream()
    driver.upload(address, VALUES.tobytes(), stream)
    interface = Interface(address, N, stream=stream)
    gone = weakref.ref(interface)
    column = there.from_cuda_array_interface(interface)
    del interface
    gc.collect()
    assert gone() is not None
    moved = column.to("cpu")
    del column
    for _ in range(100):
        gc.collect()
        there.synchronize()
        if gone() is None:
            break
    assert gone() is None
    assert np.asarray(moved).tolist() == VALUES.tolist()
    driver.free(address)


def test_columns_take_columns(there, driver):
    column = there.from_dlpack(VALUES)
    again = there.from_cuda_array_interface(column)
    assert again.__cuda_array_interface__["data"] == column.__cuda_array_interface__["data"]
    assert values(again) == VALUES.tolist()


def test_a_session_on_the_cpu_takes_a_copy(cuda, driver):
    address, stream = driver.alloc(BYTES), driver.stream()
    driver.upload(address, VALUES.tobytes(), stream)
    with cd.Session() as session:
        column = session.from_cuda_array_interface(Interface(address, N, stream=stream))
        assert column.device == "cpu"
        assert np.asarray(column).tolist() == VALUES.tolist()
    del column
    gc.collect()
    driver.free(address)


@pytest.mark.parametrize(
    ("more", "kind", "words"),
    [
        ({"stream": 0}, ValueError, "stream=0: expected None"),
        ({"stream": -1}, ValueError, "stream=-1"),
        ({"stream": "x"}, ValueError, "stream=x"),
        ({"mask": "any"}, cd.UsageError, "with a mask"),
        ({"typestr": ">i8"}, cd.UsageError, "byte order"),
        ({"typestr": "<V8"}, cd.UsageError, "typestr"),
        ({"typestr": "<M8[us]"}, cd.UsageError, "typestr"),
        ({"typestr": "i8"}, cd.UsageError, "typestr"),
        ({"typestr": "<i0"}, cd.UsageError, "typestr"),
        ({"typestr": ""}, cd.UsageError, "typestr"),
        ({"typestr": "<c16"}, cd.UnsupportedError, "complex128"),
        ({"strides": (4,)}, cd.UsageError, "multiple of the 8 bytes"),
        ({"strides": (8, 8)}, cd.UsageError, "one a dimension"),
        ({"shape": ()}, cd.UnsupportedError, "a scalar"),
        ({"shape": (-1,)}, cd.DataError, "-1"),
        ({"shape": ...}, ValueError, "no 'shape'"),
        ({"typestr": ...}, ValueError, "no 'typestr'"),
        ({"data": ...}, ValueError, "no 'data'"),
        ({"version": ...}, ValueError, "no 'version'"),
        ({"data": 8}, TypeError, ""),
        ({"data": (0, False)}, cd.DataError, "NULL"),
    ],
    ids=str,
)
def test_an_interface_that_makes_no_sense_is_refused(there, driver, more, kind, words):
    address = driver.alloc(BYTES)
    interface = Interface(address, N, **more)
    with pytest.raises(kind, match=words or None):
        there.from_cuda_array_interface(interface)
    driver.free(address)


@pytest.mark.parametrize("thing", [3, None, "text", np.arange(3)], ids=str)
def test_an_object_without_one_is_told(session, thing):
    with pytest.raises(TypeError, match="has no __cuda_array_interface__"):
        session.from_cuda_array_interface(thing)


def test_one_that_is_no_dict_is_told(session):
    thing = type("Odd", (), {"__cuda_array_interface__": 3})()
    with pytest.raises(TypeError, match="expected a dict, got 3"):
        session.from_cuda_array_interface(thing)


def test_memory_that_is_the_hosts_is_refused(there, driver):
    array = np.arange(N)
    with pytest.raises(cd.DataError, match="the driver knows of no memory"):
        there.from_cuda_array_interface(Interface(array.ctypes.data, N))
