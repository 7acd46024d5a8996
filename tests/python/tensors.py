"""Uses DLPack through ctypes: exchanges tensors as Python libraries do, and builds malformed tensors."""

import ctypes
import gc
import weakref
from ctypes import CFUNCTYPE, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

import capi
import numpy as np
import pyarrow as pa
import pytest
from numpy.lib.stride_tricks import as_strided

READ_ONLY, IS_COPIED, SUBBYTE_PADDED = 1, 2, 4
INT, UINT, FLOAT, OPAQUE, BFLOAT, COMPLEX, BOOL = range(7)

CAPSULES = {"versioned": "dltensor_versioned", "legacy": "dltensor"}
"""The names of the capsules of each form of a managed tensor."""
FORMATS = {"versioned": "dlpack", "legacy": "dlpack-legacy"}
NUMPY_DTYPES = {
    **{name: pa.type_for_alias(name) for name in "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()},
    **{name: pa.type_for_alias(name) for name in "float16 float32 float64".split()},
    "bool": pa.bool8(),
}
"""The Arrow type of each dtype that both numpy and Arrow support."""

EXTENSION_NUMBERS = {
    "bfloat16": (BFLOAT, 16, 1),
    "float8_e3m4": (7, 8, 1),
    "float8_e4m3": (8, 8, 1),
    "float8_e4m3b11fnuz": (9, 8, 1),
    "float8_e4m3fn": (10, 8, 1),
    "float8_e4m3fnuz": (11, 8, 1),
    "float8_e5m2": (12, 8, 1),
    "float8_e5m2fnuz": (13, 8, 1),
    "float8_e8m0fnu": (14, 8, 1),
    "complex64": (COMPLEX, 64, 1),
    "complex128": (COMPLEX, 128, 1),
}
"""The dtype in DLPack of each type that Arrow stores as the extension type crossdock.number."""


class DLDevice(Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("byte_offset", c_uint64),
    ]


DELETER = CFUNCTYPE(None, c_void_p)


class Legacy(Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", DELETER)]


class Versioned(Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", DELETER),
        ("flags", c_uint64),
        ("dl_tensor", DLTensor),
    ]


STRUCTS = {"versioned": Versioned, "legacy": Legacy}


def form_of(capsule):
    name = capi.capsule_name(capsule).decode()
    return next(form for form, known in CAPSULES.items() if known == name)


def managed(capsule):
    """Returns the struct of a capsule. The capsule still owns the struct."""
    return STRUCTS[form_of(capsule)].from_address(capi.capsule_pointer(capsule))


# --- Capsules ---


def consume(capsule):
    """Consumes a capsule, and returns the address of its tensor. The caller must delete the tensor."""
    form, address = form_of(capsule), capi.capsule_pointer(capsule)
    capi._set_name(id(capsule), capi._interned_name(b"used_" + CAPSULES[form].encode()))
    return address


def delete(form, address):
    """Calls a tensor's deleter, with the GIL released."""
    DELETER(deleter_address(form, address))(address)


def deleter_address(form, address):
    return ctypes.cast(STRUCTS[form].from_address(address).deleter, c_void_p).value


@capi._DESTROY
def _destroy(address):
    """Deletes the tensor if the capsule was not consumed, as numpy's destructor does."""
    name = ctypes.string_at(capi._name_of(address)).decode()
    for form, known in CAPSULES.items():
        if name == known:
            delete(form, capi._pointer_of(address, capi._name_of(address)))


def new_capsule(form, address):
    """Returns a capsule that owns the tensor."""
    return capi._new(address, capi._interned_name(CAPSULES[form].encode()), _destroy)


class Producer:
    """An object that `from_dlpack` of other libraries accepts."""

    def __init__(self, capsule, device=(1, 0)):
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


# --- Import and export ---


def capsule_of(array, form):
    """Returns the capsule that numpy exports of an array, in one of the two forms."""
    return array.__dlpack__(max_version=(1, 0)) if form == "versioned" else array.__dlpack__()


def named_capsule(capsule):
    """Returns (name, capsule) with the capsule's current name."""
    return capi.capsule_name(capsule).decode(), capsule


def import_batches(session, *capsules, schema=None, **options):
    """Imports capsules as batches."""
    options = {key.replace("_", "-"): value for key, value in options.items()}
    stream = session.import_capsules("dlpack", [named_capsule(c) for c in capsules], schema=schema, options=options)
    return stream.batches()


def export_batch(session, batch, form="versioned", **options):
    """Exports a batch as capsules, which own only their tensors."""
    options = {key.replace("_", "-"): value for key, value in options.items()}
    writer = session.export(FORMATS[form], batch.schema, options)
    capsules = writer.write(batch)
    assert writer.finish() == []
    return [new_capsule(form, consume(capsule)) for capsule in capsules]


def import_array(session, array, form="versioned", **options):
    """Imports a numpy array as a column."""
    (batch,) = import_batches(session, capsule_of(array, form), **options)
    return batch.column(0)


def export_column(session, column, form="versioned", **options):
    """Exports one column as a tensor, and imports it with numpy."""
    (capsule,) = export_batch(session, pa.record_batch([column], names=["c"]), form, **options)
    return np.from_dlpack(Producer(capsule))


# --- Values, addresses ---


def elements(column):
    """Returns the innermost array of a column: the storage of extension types, and the elements of fixed-size
    lists."""
    while True:
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        elif pa.types.is_fixed_size_list(column.type):
            column = column.flatten()
        else:
            return column


def address(column):
    """Returns the address of a column's first element."""
    inner = elements(column)
    return inner.buffers()[1].address + inner.offset * (inner.type.bit_width // 8)


def values(column):
    """Returns the expected numpy array of a column, read by pyarrow if possible."""
    kind = column.type
    # pyarrow 26.0 has no tensors of booleans, and misreads permutations that are not their own
    # inverse.
    if isinstance(kind, pa.FixedShapeTensorType) and kind.value_type not in (pa.bool_(), pa.bool8()):
        order = kind.permutation or range(len(kind.shape))
        if all(order[to] == i for i, to in enumerate(order)):
            return column.to_numpy_ndarray()
    return values_by_the_specification(column)


def values_by_the_specification(column):
    """Reads the values from the elements. Dimension i of a row is dimension permutation[i] of the row's shape
    in memory."""
    inner, shape, order = column.type, (), None
    if isinstance(inner, pa.FixedShapeTensorType):
        inner, shape, order = inner.value_type, tuple(inner.shape), inner.permutation
    while pa.types.is_fixed_size_list(inner):
        inner, shape = inner.value_type, (*shape, inner.list_size)
    flat = elements(column).to_numpy(zero_copy_only=False)
    flat = flat.astype(bool) if inner == pa.bool8() else flat
    return flat.reshape(len(column), *shape).transpose(0, *(i + 1 for i in order or range(len(shape))))


def assert_same(expected, got):
    """Compares dtype, shape and the bits of all values: a NaN equals itself, and 0 is not -0."""
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(expected).tobytes()


def copied_bytes(host):
    """Returns the number of bytes that the host copied, in any direction, according to its ledger."""
    return sum(value for name, value in host.ledger().items() if name.startswith("copied_"))


def sample(dtype, shape):
    """Returns reproducible random bits. Floats include NaN, infinities and both zeros."""
    dtype, n = np.dtype(dtype), int(np.prod(shape))
    random = np.random.default_rng(n)
    if dtype == np.bool_:
        return random.integers(0, 2, n).astype(bool).reshape(shape)
    return np.frombuffer(random.bytes(n * dtype.itemsize), dtype).copy().reshape(shape)


def number_dtype(name):
    """Returns the dtype of numpy of a type in EXTENSION_NUMBERS. Skips the test if ml_dtypes is missing."""
    if name.startswith("complex"):
        return np.dtype(name)
    return np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))


def assert_nothing_copied(host):
    """Checks that the host has neither copied nor allocated."""
    assert copied_bytes(host) == 0
    assert host.ledger()["live_bytes"] == 0


def cube(dtype=np.int32):
    return np.arange(2 * 3 * 4 * 5, dtype=dtype).reshape(2, 3, 4, 5)


IN_PLACE = {
    "a slice of rows": cube()[1:],
    "row-major": cube(),
    "rows in column-major order": np.ascontiguousarray(cube().transpose(0, 3, 2, 1)).transpose(0, 3, 2, 1),
    "rows with permuted dimensions": np.ascontiguousarray(cube().transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    "a dimension of size 1 with any stride": as_strided(cube(), (2, 1, 20), (80, 77 * 4, 4)),
    "one row with any stride": as_strided(cube(), (1, 20), (12, 4)),
}
"""Layouts that are imported in place. Their rows are in order, and the dimensions of a row are in any
order."""


def witnessed_array():
    """Returns a numpy array, and a weak reference to its owner."""
    array = np.arange(1000)
    return array, weakref.ref(array)


def is_collected(witness):
    gc.collect()
    return witness() is None


def numbers(n=1000):
    """Returns a batch of one column."""
    return pa.record_batch([pa.array(np.arange(n).copy())], names=["n"])


# --- Arbitrary tensors ---


class ManagedTensor:
    """A managed tensor with arbitrary fields. `deleted` counts the calls of its deleter."""

    def __init__(
        self,
        form,
        array=None,
        *,
        data=None,
        device=(1, 0),
        ndim=None,
        dtype=(INT, 32, 1),
        shape=(3,),
        strides=(1,),
        byte_offset=0,
        version=(1, 0),
        flags=0,
        deleter=True,
    ):
        self.form, self.deleted = form, 0
        self._array = np.arange(1, 13, dtype=np.int32) if array is None else array
        self._shape = None if shape is None else (c_int64 * max(len(shape), 1))(*shape)
        self._strides = None if strides is None else (c_int64 * max(len(strides), 1))(*strides)
        self._deleter = DELETER(self._delete) if deleter else DELETER()
        tensor = DLTensor(
            data=self._array.ctypes.data if data is None else data,
            device=DLDevice(*device),
            ndim=ndim if ndim is not None else 1 if shape is None else len(shape),
            dtype=DLDataType(*dtype),
            shape=None if shape is None else ctypes.addressof(self._shape),
            strides=None if strides is None else ctypes.addressof(self._strides),
            byte_offset=byte_offset,
        )
        self.struct = STRUCTS[form](dl_tensor=tensor, deleter=self._deleter)
        if form == "versioned":
            self.struct.major, self.struct.minor = version
            self.struct.flags = flags

    def _delete(self, address):
        assert address == self.address
        self.deleted += 1

    @property
    def address(self):
        return ctypes.addressof(self.struct)

    @property
    def capsule(self):
        """A capsule that owns the tensor until it is consumed."""
        return new_capsule(self.form, self.address)
