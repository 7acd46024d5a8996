"""The buffer protocol and `__array__` of columns on the cpu."""

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
    """The C struct Py_buffer."""

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


def buffer_fields(source, flags):
    """Requests a view with these flags as a C extension does, and returns its fields."""
    view = View()
    get_buffer = ctypes.pythonapi.PyObject_GetBuffer
    get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(View), ctypes.c_int]
    assert get_buffer(source, ctypes.byref(view), flags) == 0
    fields = {
        "len": view.len,
        "readonly": view.readonly,
        "format": view.format,
        "shape": view.shape[: view.ndim] if view.shape else None,
        "strides": view.strides[: view.ndim] if view.strides else None,
        "bytes": ctypes.string_at(view.buf, view.len),
        "suboffsets": bool(view.suboffsets),
    }
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return fields


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", [(6,), (2, 3), (2, 3, 4), (0,), (0, 3), (3, 0), (1, 1)])
def test_memoryview_shares_the_memory(session, dtype, shape):
    values = sample(dtype, shape)
    view = memoryview(session.from_dlpack(values))
    assert (view.format, view.itemsize) == (FORMATS[dtype], values.itemsize)
    assert (view.shape, view.strides) == (values.shape, values.strides) or 0 in shape
    assert (view.readonly, view.ndim, view.nbytes) == (True, len(shape), values.nbytes)
    assert view.tobytes() == values.tobytes()
    assert session.memory_used() == {}
    if values.size:
        assert np.frombuffer(view, dtype).ctypes.data == values.ctypes.data


def test_memoryview_has_the_values(session):
    assert memoryview(session.from_dlpack(np.arange(3, dtype=np.int16))).tolist() == [0, 1, 2]
    assert memoryview(session.from_dlpack(np.ones((2, 2)))).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert memoryview(session.from_arrow(pa.array([1.5]))).tolist() == [1.5]


def test_consumers_of_bytes_accept_columns(session, tmp_path):
    column = session.from_dlpack(np.arange(5, dtype=np.uint8))
    assert bytes(column) == bytes(range(5))
    assert struct.unpack("5B", column) == (0, 1, 2, 3, 4)
    assert array.array("B", bytes(column)).tolist() == [0, 1, 2, 3, 4]
    file = io.BytesIO()
    file.write(column)
    assert file.getvalue() == bytes(range(5))
    assert pa.py_buffer(column).to_pybytes() == bytes(range(5))
    (tmp_path / "file").write_bytes(column)


def test_memoryview_of_slice_has_its_values(session):
    column = session.from_dlpack(np.arange(10))
    assert memoryview(column.slice(3, 4)).tolist() == [3, 4, 5, 6]
    assert memoryview(column.slice(10)).tolist() == []


@pytest.mark.parametrize(
    "flags", [SIMPLE, FORMAT, ND, FORMAT | ND, STRIDES, C_CONTIGUOUS, ANY_CONTIGUOUS, FORMAT | STRIDES]
)
def test_view_has_the_requested_fields(session, flags):
    values = np.arange(6, dtype=np.int32).reshape(2, 3)
    fields = buffer_fields(session.from_dlpack(values), flags)
    assert (fields["len"], fields["bytes"], fields["readonly"], fields["suboffsets"]) == (
        24,
        values.tobytes(),
        1,
        False,
    )
    assert fields["format"] == (b"i" if flags & FORMAT else None)
    assert fields["shape"] == ([2, 3] if flags & ND else None)
    assert fields["strides"] == ([12, 4] if flags & STRIDES == STRIDES else None)


@pytest.mark.parametrize("flags", [WRITABLE, WRITABLE | FORMAT | STRIDES])
def test_rejects_writable_view(session, flags):
    column = session.from_dlpack(np.arange(3))
    with pytest.raises(BufferError, match="a column is immutable"):
        buffer_fields(column, flags)
    with pytest.raises((BufferError, TypeError)):
        io.BytesIO(bytes(24)).readinto(column)
    with pytest.raises(TypeError):
        memoryview(column)[0] = 1


def test_column_that_is_not_contiguous_needs_strides(session):
    """The view has the strides of the memory. Nothing is copied."""
    values = np.arange(24, dtype=np.int16).reshape(2, 3, 4).transpose(0, 2, 1)
    column = session.from_dlpack(values)
    assert buffer_fields(column, STRIDES)["strides"] == [24, 2, 8]
    assert_same(values, np.asarray(column))
    for flags in (SIMPLE, ND, FORMAT, C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS):
        with pytest.raises(BufferError, match="order"):
            buffer_fields(column, flags)


def test_column_major_order_is_exported_on_request(session):
    one = session.from_dlpack(np.arange(3))
    assert buffer_fields(one, F_CONTIGUOUS)["strides"] == [8]
    several = session.from_dlpack(np.arange(6).reshape(2, 3))
    with pytest.raises(BufferError, match="order"):
        buffer_fields(several, F_CONTIGUOUS)


@pytest.mark.parametrize(
    ("source", "message"),
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
def test_raises_buffer_error_for_unsupported_columns(session, source, message):
    column = session.from_arrow(source)
    with pytest.raises(BufferError, match=message):
        memoryview(column)
    with pytest.raises(BufferError, match=message):
        buffer_fields(column, SIMPLE)


def test_view_keeps_the_column_until_released(session):
    values = np.arange(1000)
    owner = weakref.ref(values)
    view = memoryview(session.from_dlpack(values))
    del values
    gc.collect()
    assert owner() is not None
    assert view[999] == 999
    part = view[5:7]
    view.release()
    gc.collect()
    assert part.tolist() == [5, 6]
    part.release()
    gc.collect()
    assert owner() is None


def test_views_are_freed(session):
    column = session.from_dlpack(np.arange(1000))
    views = [memoryview(column) for _ in range(1000)]
    assert all(view[7] == 7 for view in views)
    del views, column


# --- `__array__` ---


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", [(6,), (2, 3), (0,), (0, 3)])
def test_numpy_shares_the_memory(session, dtype, shape):
    values = sample(dtype, shape)
    column = session.from_dlpack(values)
    for got in (np.asarray(column), column.__array__(), np.asarray(column, copy=False), column.__array__(copy=False)):
        assert_same(values, got)
        # An empty array may be writable, and may have any address.
        assert not got.flags.writeable or not values.size
        assert got.ctypes.data == values.ctypes.data or not values.size


def test_copy_is_writable(session):
    values = np.arange(5)
    column = session.from_dlpack(values)
    for got in (np.array(column), column.__array__(copy=True), np.asarray(column, copy=True)):
        got[0] = 77
    assert values[0] == 0
    assert np.asarray(column).tolist() == [0, 1, 2, 3, 4]


def test_conversion_to_another_dtype_makes_a_copy(session):
    column = session.from_dlpack(np.arange(5))
    for got in (np.asarray(column, dtype="f4"), column.__array__("f4"), column.__array__(np.float32, copy=True)):
        assert (got.dtype, got.tolist()) == (np.float32, [0, 1, 2, 3, 4])
    assert column.__array__("i8").ctypes.data == np.asarray(column).ctypes.data
    with pytest.raises(ValueError, match="copy=False forbids"):
        column.__array__("f4", copy=False)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(column, dtype="f4", copy=False)


def test_rejects_conversion_without_copy(session):
    bits = session.from_arrow(pa.array([True, False, True]))
    assert_same(np.array([True, False, True]), np.asarray(bits))
    with pytest.raises(ValueError, match="bits become bytes"):
        bits.__array__(copy=False)
    with pytest.raises(ValueError, match="bits become bytes"):
        np.asarray(bits, copy=False)


@pytest.mark.parametrize(
    ("source", "message"),
    [(pa.array([1, None]), "null"), (pa.array(["a"]), "numbers")],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_raises_instead_of_making_object_arrays(session, source, message):
    column = session.from_arrow(source)
    with pytest.raises(cd.ExportError, match=message):
        np.asarray(column)
    assert np.asarray(column.combine_chunks().to_pyarrow()) is not None


def test_numpy_functions_accept_columns(session):
    column = session.from_dlpack(np.arange(5.0))
    assert np.add(column, 1).tolist() == [1, 2, 3, 4, 5]
    assert np.sum(column) == 10
    assert np.stack([column, column]).shape == (2, 5)
