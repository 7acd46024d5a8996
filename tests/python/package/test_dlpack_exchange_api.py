"""DLPack's C exchange API: the function tables of test types, of tvm-ffi and of columns."""

import ctypes
import gc
import weakref
from ctypes import byref, c_void_p

import capi
import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from tensors import IS_COPIED, READ_ONLY, Producer, Versioned, delete, new_capsule
from tensor_producers import (
    ALLOCATE,
    CPU,
    FROM_PY,
    SET_ERROR,
    STREAM,
    TO_PY,
    ExchangeApi,
    LiveTensor,
    api_capsule,
    name_of,
    type_with_exchange_api,
)


@pytest.fixture
def table():
    """The function table of columns."""
    capsule = cd.Column.__dlpack_c_exchange_api__
    assert name_of(capsule) == "dlpack_exchange_api"
    return ExchangeApi.from_address(capi.capsule_pointer(capsule))


# --- Function tables of other types ---


def test_exchange_api_precedes_the_python_protocol(session):
    tensor = LiveTensor("versioned")
    kind = type_with_exchange_api(lambda _: tensor)
    assert np.asarray(session.from_dlpack(kind())).tolist() == [1, 2, 3]
    gc.collect()
    assert (kind.calls, tensor.deleted) == (1, 1)


def test_exchange_api_is_looked_up_once_for_a_type(session):
    lookups = []

    class Meta(type):
        def __getattribute__(cls, name):
            if name == "__dlpack_c_exchange_api__":
                lookups.append(cls)
            return super().__getattribute__(name)

    base = type_with_exchange_api(lambda _: LiveTensor("versioned"))
    first, second = (Meta(name, (base,), {}) for name in ("First", "Second"))
    for kind in (first, second, first, second, first):
        session.from_dlpack(kind())
    assert lookups == [first, second]


def test_missing_exchange_api_is_looked_up_once(session):
    lookups = []

    class Meta(type):
        def __getattribute__(cls, name):
            if name == "__dlpack_c_exchange_api__":
                lookups.append(cls)
            return super().__getattribute__(name)

    kind = Meta("Bare", (Producer,), {})
    for _ in range(3):
        assert len(session.from_dlpack(kind(LiveTensor("versioned").capsule))) == 3
    assert lookups == [kind]


def test_cache_of_types_is_bounded(session):
    kinds = []
    for i in range(300):
        kind = type("Bare", (Producer,), {})
        producer = kind(LiveTensor("versioned", shape=(i % 3 + 1,)).capsule)
        assert len(session.from_dlpack(producer)) == i % 3 + 1
        if i % 7 == 0:
            assert (
                len(session.from_dlpack(type_with_exchange_api(lambda _: LiveTensor("versioned", shape=(2,)))())) == 2
            )
        kinds.append(weakref.ref(kind))
        del kind, producer
    gc.collect()
    assert sum(kind() is not None for kind in kinds) < 100


@pytest.mark.parametrize("where", ["instance", "name", "number", "none"])
def test_ignores_attribute_that_is_no_exchange_api(session, where):
    class Kind(Producer):
        pass

    tensor = LiveTensor("versioned")
    table = ExchangeApi(major=1, minor=3)
    if where == "instance":
        producer = Kind(tensor.capsule)
        producer.__dlpack_c_exchange_api__ = api_capsule(table)
    else:
        Kind.__dlpack_c_exchange_api__ = {
            "name": api_capsule(table, b"something_else"),
            "number": 8,
            "none": None,
        }[where]
        producer = Kind(tensor.capsule)
    assert np.asarray(session.from_dlpack(producer)).tolist() == [1, 2, 3]


@pytest.mark.parametrize("major", [0, 2, 99])
def test_ignores_exchange_api_of_another_version(session, major):
    """The functions of this version are not read, because their offsets may differ."""

    class Kind(Producer):
        pass

    table = ExchangeApi(major=major, minor=0)
    table.managed_tensor_from_py_object_no_sync = table.current_work_stream = 8
    Kind.__dlpack_c_exchange_api__ = api_capsule(table)
    assert len(session.from_dlpack(Kind(LiveTensor("versioned").capsule))) == 3


def test_finds_older_exchange_api(session):
    tensor = LiveTensor("versioned")
    old = type_with_exchange_api(lambda _: tensor)
    newest = ExchangeApi(major=3, minor=0)
    newer = ExchangeApi(major=2, minor=0, prev_api=ctypes.addressof(old.table))
    newest.prev_api = ctypes.addressof(newer)
    newest.managed_tensor_from_py_object_no_sync = 8
    old.__dlpack_c_exchange_api__ = api_capsule(newest)
    assert len(session.from_dlpack(old())) == 3
    assert (old.calls, len([newer])) == (1, 1)


def test_ignores_exchange_api_without_functions(session):
    class Kind(Producer):
        pass

    Kind.__dlpack_c_exchange_api__ = api_capsule(ExchangeApi(major=1, minor=3))
    assert len(session.from_dlpack(Kind(LiveTensor("versioned").capsule))) == 3


@pytest.mark.parametrize("kind", [BufferError, RuntimeError, MemoryError, KeyboardInterrupt])
def test_exception_of_the_exchange_api_is_raised(session, kind):
    class Raising:
        def __bool__(self):
            raise kind("not this one")

    # This C function calls `__bool__`, and leaves its exception set. A ctypes callback in Python
    # cannot return with an exception.
    table = ExchangeApi(major=1, minor=3, current_work_stream=8)
    table.managed_tensor_from_py_object_no_sync = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, c_void_p).value
    Raising.__dlpack_c_exchange_api__ = api_capsule(table)
    with pytest.raises(kind, match="not this one"):
        session.from_dlpack(Raising())


def test_failure_without_exception_raises_system_error(session):
    def fail(_):
        raise LookupError

    with pytest.raises(SystemError, match="failed without an exception"):
        session.from_dlpack(type_with_exchange_api(fail)())


def test_deletes_tensor_of_another_version(session):
    tensor = LiveTensor("versioned", version=(2, 0), data=8)
    tensor.struct.dl_tensor.shape = 8
    producer = type_with_exchange_api(lambda _: tensor)()
    with pytest.raises(cd.Error, match="version"):
        session.from_dlpack(producer)
    assert tensor.deleted == 1


def test_combines_tensors_with_and_without_exchange_api(session):
    tensor = LiveTensor("versioned", shape=(2,))
    table = session.from_dlpack(
        {
            "a": type_with_exchange_api(lambda _: tensor)(),
            "b": np.arange(2),
            "c": LiveTensor("legacy", shape=(2,)).capsule,
        }
    )
    assert table.to_pyarrow().to_pydict() == {"a": [1, 2], "b": [0, 1], "c": [1, 2]}


# --- Function table of columns ---


def test_exchange_api_is_complete(table):
    assert (table.major, table.prev_api) == (1, None)
    assert table.minor >= 3
    assert table.managed_tensor_allocator
    assert table.managed_tensor_from_py_object_no_sync
    assert table.managed_tensor_to_py_object_no_sync
    assert table.current_work_stream
    # DLTensor has no flags, so it cannot be marked as read-only.
    assert table.dltensor_from_py_object_no_sync is None


def test_exchange_api_is_static(table):
    assert capi.capsule_pointer(cd.Column.__dlpack_c_exchange_api__) == ctypes.addressof(table)


def export_managed(table, producer):
    out = c_void_p()
    code = FROM_PY(table.managed_tensor_from_py_object_no_sync)(producer, ctypes.addressof(out))
    assert code == 0
    return out.value


def test_column_is_exported_as_a_tensor(session, table):
    array = np.arange(6).reshape(3, 2)
    column = session.from_dlpack(array)
    address = export_managed(table, column)
    struct = Versioned.from_address(address)
    assert (struct.major, struct.flags) == (1, READ_ONLY)
    assert struct.dl_tensor.data == array.ctypes.data
    assert (struct.dl_tensor.device.device_type, struct.dl_tensor.ndim) == (CPU, 2)
    del column
    gc.collect()
    assert struct.dl_tensor.data == array.ctypes.data
    delete("versioned", address)


def test_boolean_bits_are_copied(session, table):
    address = export_managed(table, session.from_arrow(pa.array([True, False])))
    assert Versioned.from_address(address).flags == IS_COPIED
    delete("versioned", address)


@pytest.mark.parametrize("source", [pa.array(["a"]), pa.array([None, 1])], ids=lambda source: str(source.type))
def test_unsupported_column_raises_buffer_error(session, table, source):
    column = session.from_arrow(source)
    out = c_void_p(7)
    with pytest.raises(BufferError):
        FROM_PY(table.managed_tensor_from_py_object_no_sync)(column, ctypes.addressof(out))
    assert out.value == 7


def test_object_that_is_no_column_raises_type_error(table):
    with pytest.raises(TypeError, match="expected a crossdock.Column"):
        FROM_PY(table.managed_tensor_from_py_object_no_sync)(3, ctypes.addressof(c_void_p()))


def column_of(table, tensor):
    out = c_void_p()
    code = TO_PY(table.managed_tensor_to_py_object_no_sync)(tensor.address, byref(out))
    assert code == 0
    column = ctypes.cast(out, ctypes.py_object).value
    # The test owns the returned reference.
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(column))
    return column


def test_column_takes_ownership_of_the_tensor(table):
    tensor = LiveTensor("versioned")
    column = column_of(table, tensor)
    assert type(column) is cd.Column
    assert np.from_dlpack(column).ctypes.data == tensor._array.ctypes.data
    assert np.asarray(column).tolist() == [1, 2, 3]
    del column
    gc.collect()
    assert tensor.deleted == 1


@pytest.mark.parametrize(
    "unsupported", [{"dtype": (5, 32, 1)}, {"ndim": 0}, {"version": (2, 0)}, {"device": (9, 0)}], ids=str
)
def test_failed_import_does_not_delete_the_tensor(table, unsupported):
    tensor = LiveTensor("versioned", **unsupported)
    out = c_void_p()
    with pytest.raises(cd.Error):
        TO_PY(table.managed_tensor_to_py_object_no_sync)(tensor.address, byref(out))
    gc.collect()
    assert (tensor.deleted, out.value) == (0, None)


def test_current_work_stream_of_the_cpu_is_null(table):
    out = c_void_p(7)
    assert STREAM(table.current_work_stream)(CPU, 0, byref(out)) == 0
    assert out.value is None


def allocate(table, prototype):
    errors, out = [], c_void_p()
    set_error = SET_ERROR(lambda _, kind, message: errors.append((kind.decode(), message.decode())))
    code = ALLOCATE(table.managed_tensor_allocator)(ctypes.addressof(prototype), ctypes.addressof(out), None, set_error)
    return code, out.value, errors


def prototype(shape, dtype=(2, 32, 1), device=(CPU, 0)):
    tensor = LiveTensor("versioned", shape=shape, strides=(1,) * len(shape), dtype=dtype, device=device, data=8)
    tensor.struct.dl_tensor.strides = None
    return tensor


@pytest.mark.parametrize("shape", [(5,), (2, 3), (0,), (0, 4), (2, 0, 4)])
def test_allocated_tensor_has_shape_and_dtype_of_the_prototype(table, shape):
    tensor = prototype(shape)
    code, address, errors = allocate(table, tensor.struct.dl_tensor)
    assert (code, errors) == (0, [])
    tensor = Versioned.from_address(address).dl_tensor
    assert Versioned.from_address(address).flags == 0
    assert (tensor.data is None) == (0 in shape)
    array = np.from_dlpack(Producer(new_capsule("versioned", address)))
    assert (array.shape, array.dtype) == (shape, np.float32)
    assert array.flags.writeable and array.flags.c_contiguous
    array[...] = 7
    assert (array == 7).all()


@pytest.mark.parametrize(
    ("unsupported", "kind"),
    [
        (prototype((2**62, 2**62)), "UsageError"),
        (prototype((-1,)), "UsageError"),
        (prototype((3,), device=(10, 0)), "UnsupportedError"),
        (prototype((2**50,)), "OutOfMemoryError"),
    ],
    ids=["beyond counting", "negative", "another device", "too much"],
)
def test_failed_allocation_reports_an_error(table, unsupported, kind):
    code, address, errors = allocate(table, unsupported.struct.dl_tensor)
    assert (code, address) == (-1, None)
    assert [which for which, _ in errors] == [kind]
    assert errors[0][1]


def test_null_prototype_reports_an_error(table):
    errors = []
    set_error = SET_ERROR(lambda _, kind, message: errors.append(kind.decode()))
    out = c_void_p()
    assert ALLOCATE(table.managed_tensor_allocator)(None, ctypes.addressof(out), None, set_error) == -1
    assert errors == ["UsageError"]


# --- tvm-ffi ---


def test_tvm_ffi_exchanges_tensors(session):
    tvm_ffi = pytest.importorskip("tvm_ffi")
    array = np.arange(12.0).reshape(3, 4)
    column = session.from_dlpack(array)
    tensor = tvm_ffi.from_dlpack(column)
    assert tensor.data_ptr() == array.ctypes.data
    assert (tuple(tensor.shape), str(tensor.dtype)) == ((3, 4), "float64")
    wrapped = tvm_ffi.core.DLTensorTestWrapper(tensor)
    assert type(wrapped).__dlpack_c_exchange_api__
    again = session.from_dlpack(wrapped)
    assert np.from_dlpack(again).ctypes.data == array.ctypes.data
    assert np.asarray(session.from_dlpack(tensor)).tolist() == array.tolist()


def test_tvm_ffi_functions_accept_and_return_columns(session):
    tvm_ffi = pytest.importorskip("tvm_ffi")
    echo = tvm_ffi.get_global_func("testing.echo", allow_missing=True)
    if echo is None:
        pytest.skip("this build of tvm-ffi has no testing.echo")
    array = np.arange(5, dtype=np.int16)
    result = echo(session.from_dlpack(array))
    assert isinstance(result, cd.Column)
    assert np.from_dlpack(result).ctypes.data == array.ctypes.data
