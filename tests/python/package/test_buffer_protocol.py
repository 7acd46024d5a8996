"""The buffer protocol and `__array__`, of columns on the cpu."""

import array
import ctypes
import gc
import io
import struct
import weakref

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from tensors import NUMPY_DTYPES, assert_same, sample

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}
SIMPLE, WRITABLE, FORMAT, ND, STRIDES = 0, 1, 4, 8, 0x18
C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS = 0x38, 0x58, 0x98


class View(ctypes.Structure):
    """Py_buffer."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


def get(thing, flags):
    """What a C extension gets that asks with these flags."""
    view = View()
    ask = ctypes.pythonapi.PyObject_GetBuffer
    ask.argtypes = [ctypes.py_object, ctypes.POINTER(View), ctypes.c_int]
    assert ask(thing, ctypes.byref(view), flags) == 0
    told = {
        "len": view.len,
        "readonly": view.readonly,
        "format": view.format,
        "shape": view.shape[: view.ndim] if view.shape else None,
        "strides": view.strides[: view.ndim] if view.strides else None,
        "bytes": ctypes.string_at(view.buf, view.len),
        "suboffsets": bool(view.suboffsets),
    }
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return told


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", [(6,), (2, 3), (2, 3, 4), (0,), (0, 3), (3, 0), (1, 1)])
def test_a_memoryview_is_of_the_columns_own_memory(session, dtype, shape):
    values = sample(dtype, shape)
    view = memoryview(session.from_dlpack(values))
    assert (view.format, view.itemsize) == (FORMATS[dtype], values.itemsize)
    assert (view.shape, view.strides) == (values.shape, values.strides) or 0 in shape
    assert (view.readonly, view.ndim, view.nbytes) == (True, len(shape), values.nbytes)
    assert view.tobytes() == values.tobytes()
    assert session.memory_used() == {}
    if values.size:
        assert np.frombuffer(view, dtype).ctypes.data == values.ctypes.data


def test_values_are_read_as_numbers(session):
    assert memoryview(session.from_dlpack(np.arange(3, dtype=np.int16))).tolist() == [0, 1, 2]
    assert memoryview(session.from_dlpack(np.ones((2, 2)))).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert memoryview(session.from_arrow(pa.array([1.5]))).tolist() == [1.5]


def test_whatever_reads_bytes_takes_columns(session, tmp_path):
    column = session.from_dlpack(np.arange(5, dtype=np.uint8))
    assert bytes(column) == bytes(range(5))
    assert struct.unpack("5B", column) == (0, 1, 2, 3, 4)
    assert array.array("B", bytes(column)).tolist() == [0, 1, 2, 3, 4]
    file = io.BytesIO()
    file.write(column)
    assert file.getvalue() == bytes(range(5))
    assert pa.py_buffer(column).to_pybytes() == bytes(range(5))
    (tmp_path / "file").write_bytes(column)


def test_a_slice_is_of_its_own_values(session):
    column = session.from_dlpack(np.arange(10))
    assert memoryview(column.slice(3, 4)).tolist() == [3, 4, 5, 6]
    assert memoryview(column.slice(10)).tolist() == []


@pytest.mark.parametrize(
    "flags", [SIMPLE, FORMAT, ND, FORMAT | ND, STRIDES, C_CONTIGUOUS, ANY_CONTIGUOUS, FORMAT | STRIDES]
)
def test_a_view_tells_what_it_was_asked_for(session, flags):
    values = np.arange(6, dtype=np.int32).reshape(2, 3)
    told = get(session.from_dlpack(values), flags)
    assert (told["len"], told["bytes"], told["readonly"], told["suboffsets"]) == (24, values.tobytes(), 1, False)
    assert told["format"] == (b"i" if flags & FORMAT else None)
    assert told["shape"] == ([2, 3] if flags & ND else None)
    assert told["strides"] == ([12, 4] if flags & STRIDES == STRIDES else None)


@pytest.mark.parametrize("flags", [WRITABLE, WRITABLE | FORMAT | STRIDES])
def test_nobody_writes(session, flags):
    column = session.from_dlpack(np.arange(3))
    with pytest.raises(BufferError, match="a column does not change"):
        get(column, flags)
    with pytest.raises((BufferError, TypeError)):
        io.BytesIO(bytes(24)).readinto(column)
    with pytest.raises(TypeError):
        memoryview(column)[0] = 1


def test_rows_in_another_order_are_for_those_who_look_at_strides(session):
    """As memory has them, and nothing is copied."""
    values = np.arange(24, dtype=np.int16).reshape(2, 3, 4).transpose(0, 2, 1)
    column = session.from_dlpack(values)
    assert get(column, STRIDES)["strides"] == [24, 2, 8]
    assert_same(values, np.asarray(column))
    for flags in (SIMPLE, ND, FORMAT, C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS):
        with pytest.raises(BufferError, match="order"):
            get(column, flags)


def test_column_order_is_given_to_those_who_want_it(session):
    one = session.from_dlpack(np.arange(3))
    assert get(one, F_CONTIGUOUS)["strides"] == [8]
    several = session.from_dlpack(np.arange(6).reshape(2, 3))
    with pytest.raises(BufferError, match="order"):
        get(several, F_CONTIGUOUS)


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (pa.array([1, None]), "1 of 2 rows are null.*fill"),
        (pa.array([True, False]), "bits become bytes"),
        (pa.array(["a"]), "numbers and booleans only"),
        (pa.array([[1]]), "fixed-size list"),
        (pa.array([1], pa.date32()), "no dates and times"),
        (pa.chunked_array([[1], [2]]), "combine_chunks"),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_what_has_no_such_memory_is_a_buffer_error(session, thing, words):
    column = session.from_arrow(thing)
    with pytest.raises(BufferError, match=words):
        memoryview(column)
    with pytest.raises(BufferError, match=words):
        get(column, SIMPLE)


def test_a_view_keeps_the_column_and_is_let_go(session):
    values = np.arange(1000)
    gone = weakref.ref(values)
    view = memoryview(session.from_dlpack(values))
    del values
    gc.collect()
    assert gone() is not None
    assert view[999] == 999
    part = view[5:7]
    view.release()
    gc.collect()
    assert part.tolist() == [5, 6]
    part.release()
    gc.collect()
    assert gone() is None


def test_views_do_not_pile_up(session):
    column = session.from_dlpack(np.arange(1000))
    held = [memoryview(column) for _ in range(1000)]
    assert all(view[7] == 7 for view in held)
    del held, column


# -------------------------------------------------------------------------------------------------------- `__array__` ---


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", [(6,), (2, 3), (0,), (0, 3)])
def test_numpy_sees_the_columns_own_memory(session, dtype, shape):
    values = sample(dtype, shape)
    column = session.from_dlpack(values)
    for got in (np.asarray(column), column.__array__(), np.asarray(column, copy=False), column.__array__(copy=False)):
        assert_same(values, got)
        # What is nowhere may be written, and lies anywhere.
        assert not got.flags.writeable or not values.size
        assert got.ctypes.data == values.ctypes.data or not values.size


def test_a_copy_may_be_written(session):
    values = np.arange(5)
    column = session.from_dlpack(values)
    for got in (np.array(column), column.__array__(copy=True), np.asarray(column, copy=True)):
        got[0] = 77
    assert values[0] == 0
    assert np.asarray(column).tolist() == [0, 1, 2, 3, 4]


def test_another_dtype_is_a_copy(session):
    column = session.from_dlpack(np.arange(5))
    for got in (np.asarray(column, dtype="f4"), column.__array__("f4"), column.__array__(np.float32, copy=True)):
        assert (got.dtype, got.tolist()) == (np.float32, [0, 1, 2, 3, 4])
    assert column.__array__("i8").ctypes.data == np.asarray(column).ctypes.data
    with pytest.raises(ValueError, match="copy=False was given"):
        column.__array__("f4", copy=False)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(column, dtype="f4", copy=False)


def test_what_has_to_be_converted_is_where_a_copy_is_allowed(session):
    bits = session.from_arrow(pa.array([True, False, True]))
    assert_same(np.array([True, False, True]), np.asarray(bits))
    with pytest.raises(ValueError, match="bits become bytes"):
        bits.__array__(copy=False)
    with pytest.raises(ValueError, match="bits become bytes"):
        np.asarray(bits, copy=False)


@pytest.mark.parametrize(
    ("thing", "words"),
    [(pa.array([1, None]), "null"), (pa.array(["a"]), "numbers"), (pa.chunked_array([[1], [2]]), "combine_chunks")],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_what_is_no_array_is_an_error_and_no_array_of_objects(session, thing, words):
    column = session.from_arrow(thing)
    with pytest.raises(cd.ExportError, match=words):
        np.asarray(column)
    assert np.asarray(column.combine_chunks().to_pyarrow()) is not None


def test_numpys_functions_take_columns(session):
    column = session.from_dlpack(np.arange(5.0))
    assert np.add(column, 1).tolist() == [1, 2, 3, 4, 5]
    assert np.sum(column) == 10
    assert np.stack([column, column]).shape == (2, 5)
