"""DLPack with tvm-ffi, through capsules and through the C exchange API."""

import ctypes
import gc
import re
import weakref
from ctypes import PYFUNCTYPE, Structure, byref, c_int, c_int32, c_uint32, c_void_p

import capi
import numpy as np
import pyarrow as pa
import pytest
import tvm_ffi
from tensors import (
    BFLOAT,
    CAPSULES,
    FORMATS,
    NUMPY_DTYPES,
    OPAQUE,
    ManagedTensor,
    address,
    assert_same,
    import_batches,
    copied_bytes,
    delete,
    new_capsule,
    capsule_of,
    sample,
    export_batch,
    consume,
    values,
)

forms = pytest.mark.parametrize("form", FORMATS)
dtypes = pytest.mark.parametrize("dtype", NUMPY_DTYPES)


FROM_PY_OBJECT = PYFUNCTYPE(c_int, ctypes.py_object, c_void_p)


class ExchangeApi(Structure):
    """The C struct DLPackExchangeAPI of DLPack 1.3."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("prev_api", c_void_p),
        ("managed_tensor_allocator", c_void_p),
        ("managed_tensor_from_py_object_no_sync", FROM_PY_OBJECT),
        ("managed_tensor_to_py_object_no_sync", PYFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("dltensor_from_py_object_no_sync", c_void_p),
        ("current_work_stream", PYFUNCTYPE(c_int, c_int32, c_int32, c_void_p)),
    ]


def exchange_api(kind):
    """Returns the function table of a tensor type, as a consumer does."""
    capsule = kind.__dlpack_c_exchange_api__
    assert capi.capsule_name(capsule) == b"dlpack_exchange_api"
    table = ExchangeApi.from_address(capi.capsule_pointer(capsule))
    assert table.major == 1
    return table


WRAPPER = tvm_ffi.core.DLTensorTestWrapper
"""The type of tvm-ffi that has the exchange API: a wrapper of its tensors."""


@capi._DESTROY
def no_destructor(_):
    """The destructor of a capsule that does not own its tensor. Does nothing."""


@forms
@dtypes
def test_tvm_ffi_imports_capsules(host, session, dtype, form):
    array = sample(dtype, (7, 4))
    (batch,) = import_batches(session, capsule_of(array, form))
    options = {"read_only": "lent"} if form == "legacy" else {}
    (capsule,) = export_batch(session, batch, form, **options)
    tensor = tvm_ffi.from_dlpack(capsule)
    assert capi.capsule_name(capsule).decode() == "used_" + CAPSULES[form]
    assert (str(tensor.dtype), tensor.shape, tensor.strides) == (dtype, (7, 4), (4, 1))
    assert tensor.data_ptr() == array.__array_interface__["data"][0]
    assert_same(array, np.from_dlpack(tensor))
    assert copied_bytes(host) == 0


@forms
@dtypes
def test_imports_tvm_ffi_tensors(host, session, dtype, form):
    array = sample(dtype, (5, 3))
    tensor = tvm_ffi.from_dlpack(array)
    capsule = tensor.__dlpack__(max_version=(1, 0)) if form == "versioned" else tensor.__dlpack__()
    assert capi.capsule_name(capsule).decode() == CAPSULES[form]
    (batch,) = import_batches(session, capsule)
    assert_same(array, values(batch.column(0)))
    assert address(batch.column(0)) == tensor.data_ptr() == array.__array_interface__["data"][0]
    assert copied_bytes(host) == 0


@forms
def test_gathers_strided_tvm_ffi_tensor(session, form):
    array = np.arange(60, dtype=np.int16).reshape(5, 4, 3)[::2, :, 1:]
    tensor = tvm_ffi.from_dlpack(array)
    assert tensor.strides == (24, 3, 1)
    (batch,) = import_batches(session, capsule_of(tensor, form))
    assert_same(array, values(batch.column(0)))


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ((BFLOAT, 16, 2), "bfloat16 with 2 lanes"),
        ((17, 4, 2), "float4_e2m1fn with 2 lanes"),
        ((OPAQUE, 64, 1), "handle64"),
    ],
)
def test_error_for_unsupported_dtype_names_it(session, dtype, name):
    unsupported = ManagedTensor("versioned", dtype=dtype)
    tensor = tvm_ffi.from_dlpack(new_capsule("versioned", unsupported.address))
    with pytest.raises(capi.CrossdockError, match=f"tensor 0 of 1: dtype {name}") as caught:
        import_batches(session, tensor.__dlpack__(max_version=(1, 0)))
    assert caught.value.code == "unsupported"
    assert re.search("cast it to one of int8, |make the lanes a dimension", str(caught.value))
    del tensor
    gc.collect()
    assert unsupported.deleted == 1


# --- The C exchange API ---


@dtypes
def test_imports_managed_tensors_of_the_exchange_api(host, session, dtype):
    array = sample(dtype, (6, 2))
    wrapper = WRAPPER(tvm_ffi.from_dlpack(array))
    tensor = c_void_p()
    assert exchange_api(WRAPPER).managed_tensor_from_py_object_no_sync(wrapper, byref(tensor)) == 0
    del wrapper
    (batch,) = session.import_capsules("dlpack", [("dltensor_versioned", tensor.value)]).batches()
    assert_same(array, values(batch.column(0)))
    assert address(batch.column(0)) == array.__array_interface__["data"][0]
    assert copied_bytes(host) == 0


@dtypes
def test_exchange_api_accepts_exported_tensors(host, session, dtype):
    array = sample(dtype, (6, 2))
    (batch,) = import_batches(session, capsule_of(array, "versioned"))
    (capsule,) = export_batch(session, batch)
    out = ctypes.py_object()
    assert exchange_api(WRAPPER).managed_tensor_to_py_object_no_sync(consume(capsule), byref(out)) == 0
    tensor = out.value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(tensor))
    assert isinstance(tensor, tvm_ffi.Tensor)
    assert tensor.data_ptr() == array.__array_interface__["data"][0]
    assert_same(array, np.from_dlpack(tensor))
    assert copied_bytes(host) == 0
    owner = weakref.ref(array)
    del array, batch, capsule, out
    gc.collect()
    assert owner() is not None, "the tensor keeps its memory alive"
    del tensor
    gc.collect()
    assert owner() is None


def test_tvm_ffi_uses_the_exchange_api_of_an_object(host, session):
    """A type with the function table, as an extension module would define it."""
    array = sample("float32", (6, 2))
    (batch,) = import_batches(session, capsule_of(array, "versioned"))
    columns = []

    @FROM_PY_OBJECT
    def from_py_object(column, out):
        columns.append(column)
        (capsule,) = export_batch(session, column.batch)
        c_void_p.from_address(out).value = consume(capsule)
        return 0

    table = ExchangeApi(major=1, minor=3, managed_tensor_from_py_object_no_sync=from_py_object)

    class Column:
        __dlpack_c_exchange_api__ = capi._new(
            ctypes.addressof(table), capi._interned_name(b"dlpack_exchange_api"), no_destructor
        )

        def __init__(self, batch):
            self.batch = batch

        def __dlpack__(self, **_):
            raise AssertionError("the C exchange API has precedence")

    column = Column(batch)
    tensor = tvm_ffi.from_dlpack(column)
    assert columns == [column]
    assert_same(array, np.from_dlpack(tensor))
    assert tensor.data_ptr() == array.__array_interface__["data"][0]
    assert copied_bytes(host) == 0


def test_tvm_ffi_function_accepts_tensors(session):
    (capsule,) = export_batch(session, pa.record_batch([pa.array([1.5, 2.5])], names=["x"]), copy="always")
    received = []
    function = tvm_ffi.convert(lambda tensor: received.append(np.from_dlpack(tensor).tolist()))
    function(tvm_ffi.from_dlpack(capsule))
    assert received == [[1.5, 2.5]]


def test_unconsumed_managed_tensor_is_deleted_by_its_owner(session):
    array = sample("int64", 5)
    (batch,) = import_batches(session, capsule_of(array, "versioned"))
    (capsule,) = export_batch(session, batch)
    owner, tensor = weakref.ref(array), consume(capsule)
    del array, batch, capsule
    gc.collect()
    assert owner() is not None
    delete("versioned", tensor)
    assert owner() is None
