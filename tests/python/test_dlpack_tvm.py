"""DLPack with tvm-ffi at the other end, through capsules and through the C exchange API."""

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
    Made,
    address,
    assert_same,
    bring,
    copied,
    delete,
    give,
    lend,
    sample,
    send,
    take,
    values,
)

forms = pytest.mark.parametrize("form", FORMATS)
dtypes = pytest.mark.parametrize("dtype", NUMPY_DTYPES)


FROM_PY_OBJECT = PYFUNCTYPE(c_int, ctypes.py_object, c_void_p)


class ExchangeApi(Structure):
    """DLPackExchangeAPI of version 1.3."""

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
    """The table of a tensor type, as a consumer looks it up."""
    capsule = kind.__dlpack_c_exchange_api__
    assert capi.capsule_name(capsule) == b"dlpack_exchange_api"
    table = ExchangeApi.from_address(capi.capsule_pointer(capsule))
    assert table.major == 1
    return table


THEIRS = tvm_ffi.core.DLTensorTestWrapper
"""The type of tvm-ffi that has the API: a wrapper of its tensors."""


@capi._DESTROY
def NOTHING(_):
    """The destructor of a capsule that owns nothing."""


@forms
@dtypes
def test_our_capsules_become_its_tensors(host, session, dtype, form):
    array = sample(dtype, (7, 4))
    (batch,) = bring(session, lend(array, form))
    options = {"read_only": "lent"} if form == "legacy" else {}
    (capsule,) = send(session, batch, form, **options)
    tensor = tvm_ffi.from_dlpack(capsule)
    assert capi.capsule_name(capsule).decode() == "used_" + CAPSULES[form]
    assert (str(tensor.dtype), tensor.shape, tensor.strides) == (dtype, (7, 4), (4, 1))
    assert tensor.data_ptr() == array.__array_interface__["data"][0]
    assert_same(array, np.from_dlpack(tensor))
    assert copied(host) == 0


@forms
@dtypes
def test_its_tensors_become_columns(host, session, dtype, form):
    array = sample(dtype, (5, 3))
    tensor = tvm_ffi.from_dlpack(array)
    capsule = tensor.__dlpack__(max_version=(1, 0)) if form == "versioned" else tensor.__dlpack__()
    assert capi.capsule_name(capsule).decode() == CAPSULES[form]
    (batch,) = bring(session, capsule)
    assert_same(array, values(batch.column(0)))
    assert address(batch.column(0)) == tensor.data_ptr() == array.__array_interface__["data"][0]
    assert copied(host) == 0


@forms
def test_a_strided_tensor_of_its_is_gathered(session, form):
    array = np.arange(60, dtype=np.int16).reshape(5, 4, 3)[::2, :, 1:]
    tensor = tvm_ffi.from_dlpack(array)
    assert tensor.strides == (24, 3, 1)
    (batch,) = bring(session, lend(tensor, form))
    assert_same(array, values(batch.column(0)))


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ((BFLOAT, 16, 1), "bfloat16"),
        ((10, 8, 1), "code 10 of 8 bits"),  # float8_e4m3fn
        ((17, 4, 2), "code 17 of 4 bits"),  # float4_e2m1fnx2
        ((OPAQUE, 64, 1), "handle64"),
    ],
)
def test_dtypes_that_only_tensors_have_are_refused_by_name(session, dtype, name):
    made = Made("versioned", dtype=dtype)
    tensor = tvm_ffi.from_dlpack(give("versioned", made.address))
    with pytest.raises(capi.CrossdockError, match=f"tensor 0 of 1: dtype {name}") as caught:
        bring(session, tensor.__dlpack__(max_version=(1, 0)))
    assert caught.value.code == "unsupported"
    assert re.search("cast it to one of int8, |make the lanes a dimension", str(caught.value))
    del tensor
    gc.collect()
    assert made.deleted == 1


# ---------------------------------------------------------------------------------------------- the C exchange API ---


@dtypes
def test_its_managed_tensors_come_in_by_the_c_exchange_api(host, session, dtype):
    array = sample(dtype, (6, 2))
    theirs = THEIRS(tvm_ffi.from_dlpack(array))
    tensor = c_void_p()
    assert exchange_api(THEIRS).managed_tensor_from_py_object_no_sync(theirs, byref(tensor)) == 0
    del theirs
    (batch,) = session.import_capsules("dlpack", [("dltensor_versioned", tensor.value)]).batches()
    assert_same(array, values(batch.column(0)))
    assert address(batch.column(0)) == array.__array_interface__["data"][0]
    assert copied(host) == 0


@dtypes
def test_our_managed_tensors_become_its_objects_by_the_c_exchange_api(host, session, dtype):
    array = sample(dtype, (6, 2))
    (batch,) = bring(session, lend(array, "versioned"))
    (capsule,) = send(session, batch)
    made = ctypes.py_object()
    assert exchange_api(THEIRS).managed_tensor_to_py_object_no_sync(take(capsule), byref(made)) == 0
    tensor = made.value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(tensor))
    assert isinstance(tensor, tvm_ffi.Tensor)
    assert tensor.data_ptr() == array.__array_interface__["data"][0]
    assert_same(array, np.from_dlpack(tensor))
    assert copied(host) == 0
    owner = weakref.ref(array)
    del array, batch, capsule, made
    gc.collect()
    assert owner() is not None, "the tensor holds what it lies in"
    del tensor
    gc.collect()
    assert owner() is None


def test_an_object_of_ours_with_the_c_exchange_api_is_read_through_it(host, session):
    """As an extension would have it: its type has the table, and the table's function gives a managed tensor."""
    array = sample("float32", (6, 2))
    (batch,) = bring(session, lend(array, "versioned"))
    asked = []

    @FROM_PY_OBJECT
    def from_py_object(column, out):
        asked.append(column)
        (capsule,) = send(session, column.batch)
        c_void_p.from_address(out).value = take(capsule)
        return 0

    table = ExchangeApi(major=1, minor=3, managed_tensor_from_py_object_no_sync=from_py_object)

    class Column:
        __dlpack_c_exchange_api__ = capi._new(ctypes.addressof(table), capi._kept(b"dlpack_exchange_api"), NOTHING)

        def __init__(self, batch):
            self.batch = batch

        def __dlpack__(self, **_):
            raise AssertionError("the C exchange API goes first")

    column = Column(batch)
    tensor = tvm_ffi.from_dlpack(column)
    assert asked == [column]
    assert_same(array, np.from_dlpack(tensor))
    assert tensor.data_ptr() == array.__array_interface__["data"][0]
    assert copied(host) == 0


def test_a_function_of_tvm_ffi_takes_our_tensors(session):
    (capsule,) = send(session, pa.record_batch([pa.array([1.5, 2.5])], names=["x"]), copy="always")
    seen = []
    function = tvm_ffi.convert(lambda tensor: seen.append(np.from_dlpack(tensor).tolist()))
    function(tvm_ffi.from_dlpack(capsule))
    assert seen == [[1.5, 2.5]]


def test_a_managed_tensor_that_nobody_takes_is_deleted_by_hand(session):
    array = sample("int64", 5)
    (batch,) = bring(session, lend(array, "versioned"))
    (capsule,) = send(session, batch)
    owner, tensor = weakref.ref(array), take(capsule)
    del array, batch, capsule
    gc.collect()
    assert owner() is not None
    delete("versioned", tensor)
    assert owner() is None
