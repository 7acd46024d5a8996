"""Producers of tensors, and the CUDA driver as an external library uses it."""

import collections
import ctypes
from ctypes import PYFUNCTYPE, Structure, byref, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

import capi
import numpy as np
import tensors

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
LEGACY, PER_THREAD = 1, 2
"""CUDA's numbers for the default streams."""
VERSIONED = {"max_version": (1, 3)}


def name_of(capsule):
    return capi.capsule_name(capsule).decode()


class LiveTensor(tensors.ManagedTensor):
    """A managed tensor that Python keeps alive until its deleter is called."""

    _alive = set()
    # Keeps deleted tensors for a while, because a deleter must outlive its own call.
    _gone = collections.deque(maxlen=100)

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self._alive.add(self)

    def _delete(self, address):
        super()._delete(address)
        self._alive.discard(self)
        self._gone.append(self)


def tensor_of(array, form="versioned"):
    """Returns a tensor that refers to a numpy array of a type in `tensors.EXTENSION_NUMBERS`. numpy exports only
    complex numbers itself."""
    strides = [stride // array.itemsize for stride in array.strides]
    dtype = tensors.EXTENSION_NUMBERS[array.dtype.name]
    return LiveTensor(form, array, dtype=dtype, shape=array.shape, strides=strides)


def import_every_dtype(session):
    """Imports a tensor of each dtype, so that the session imports later tensors in place without the
    plugin."""
    for dtype in tensors.NUMPY_DTYPES:
        # The inner call copies the values to the session's device, so the outer call imports in
        # place.
        session.from_dlpack(session.from_dlpack(tensors.sample(dtype, 3)))
    for dtype in tensors.EXTENSION_NUMBERS.values():
        tensor = LiveTensor("versioned", np.zeros(6), dtype=dtype)
        session.from_dlpack(session.from_dlpack(tensor.capsule))


class RecordingProducer:
    """A producer of one tensor, which records the arguments of the calls. `parameters`: names of the
    parameters of its `__dlpack__`."""

    def __init__(self, tensor, device=(CPU, 0), parameters=("stream", "max_version", "dl_device", "copy")):
        self.tensor, self.device, self.parameters = tensor, device, parameters
        self.calls = []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **arguments):
        self.calls.append(arguments)
        if unknown := set(arguments) - set(self.parameters):
            raise TypeError(f"unexpected keyword arguments {unknown}")
        return self.tensor.capsule


class ExchangeApi(Structure):
    """The C struct DLPackExchangeAPI of DLPack 1.3."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("prev_api", c_void_p),
        ("managed_tensor_allocator", c_void_p),
        ("managed_tensor_from_py_object_no_sync", c_void_p),
        ("managed_tensor_to_py_object_no_sync", c_void_p),
        ("dltensor_from_py_object_no_sync", c_void_p),
        ("current_work_stream", c_void_p),
    ]


FROM_PY = PYFUNCTYPE(c_int, ctypes.py_object, c_void_p)
TO_PY = PYFUNCTYPE(c_int, c_void_p, ctypes.POINTER(c_void_p))
STREAM = PYFUNCTYPE(c_int, c_int32, c_int32, ctypes.POINTER(c_void_p))
SET_ERROR = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)
ALLOCATE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, SET_ERROR)

_alive = []
"""Function tables, which must live as long as the process."""


def api_capsule(table, name=b"dlpack_exchange_api"):
    _alive.append(table)
    return capi._new(ctypes.addressof(table), capi._interned_name(name), capi._DESTROY())


def type_with_exchange_api(export, stream=0, version=(1, 3), name=b"dlpack_exchange_api", prev=None):
    """Returns a new type with its own exchange API. `export(object)` returns a LiveTensor. If it raises
    LookupError, the API fails without setting an exception. `stream` is the work stream."""

    class TypeWithApi:
        calls = 0

        def __dlpack_device__(self):
            raise AssertionError("the exchange API has precedence")

    def from_py(obj, out):
        TypeWithApi.calls += 1
        c_void_p.from_address(out).value = export(obj).address
        return 0

    def work_stream(_type, _id, out):
        out[0] = stream
        return 0

    def from_py_or_fail(obj, out):
        try:
            return from_py(obj, out)
        except LookupError:
            return -1

    functions = FROM_PY(from_py_or_fail), STREAM(work_stream)
    table = ExchangeApi(major=version[0], minor=version[1], prev_api=prev)
    table.managed_tensor_from_py_object_no_sync = ctypes.cast(functions[0], c_void_p).value
    table.current_work_stream = ctypes.cast(functions[1], c_void_p).value
    _alive.append(functions)
    TypeWithApi.__dlpack_c_exchange_api__ = api_capsule(table, name)
    TypeWithApi.table = table
    return TypeWithApi


class Driver:
    """The CUDA driver as an external library uses it: memory, streams, delayed work."""

    H2D_BYTES = 4096

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", c_uint32(0))
        context = c_void_p()
        self.call("cuDevicePrimaryCtxRetain", byref(context), c_int(0))
        self.context = context
        self.call("cuCtxSetCurrent", context)
        self._pinned = []

    def call(self, name, *arguments):
        code = getattr(self.lib, name)(*arguments)
        assert code == 0, f"{name}: CUresult {code}"

    def stream(self):
        stream = c_void_p()
        self.call("cuStreamCreate", byref(stream), c_uint32(1))
        return stream.value

    def alloc(self, bytes_):
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), c_size_t(bytes_))
        return address.value

    def free(self, address):
        self.call("cuMemFree_v2", c_uint64(address))

    def upload(self, address, data, stream):
        """Submits an upload to the stream."""
        pinned = c_void_p()
        self.call("cuMemHostAlloc", byref(pinned), c_size_t(max(len(data), 1)), c_uint32(1))
        ctypes.memmove(pinned, data, len(data))
        self._pinned.append(pinned.value)
        self.call("cuMemcpyHtoDAsync_v2", c_uint64(address), pinned, c_size_t(len(data)), c_void_p(stream))

    def download(self, address, bytes_, stream):
        """Downloads the memory after the earlier work of the stream, and waits for the download."""
        to = (ctypes.c_char * bytes_)()
        self.call("cuMemcpyDtoHAsync_v2", to, c_uint64(address), c_size_t(bytes_), c_void_p(stream))
        self.call("cuStreamSynchronize", c_void_p(stream))
        return bytes(to)

    def wait(self, stream, for_stream):
        """Makes `stream` wait for the work submitted to `for_stream`."""
        event = c_void_p()
        self.call("cuEventCreate", byref(event), c_uint32(2))
        self.call("cuEventRecord", event, c_void_p(for_stream))
        self.call("cuStreamWaitEvent", c_void_p(stream), event, c_uint32(0))
        self.call("cuEventDestroy_v2", event)

    def is_idle(self, stream):
        """Returns whether all work submitted to the stream has run."""
        code = self.lib.cuStreamQuery(c_void_p(stream))
        assert code in (0, 600), code
        return code == 0

    def synchronize(self, stream):
        self.call("cuStreamSynchronize", c_void_p(stream))

    def violations(self):
        """Returns the number of unordered accesses that the simulated driver counted."""
        self.lib.crossdock_sim_cuda_violations.restype = c_uint64
        return self.lib.crossdock_sim_cuda_violations()

    def count_violations(self, only=True):
        self.lib.crossdock_sim_cuda_on_violation(c_int(1 if only else 0))

    def hold(self, stream, is_held=True):
        """Delays the stream's work until a wait needs it. Has no effect on a real driver."""
        if not hasattr(self.lib, "crossdock_sim_cuda_hold"):
            return
        assert self.lib.crossdock_sim_cuda_hold(c_size_t(stream), c_int(1 if is_held else 0)) == 0

    def calls(self, name):
        self.lib.crossdock_sim_cuda_calls.restype = c_uint64
        return self.lib.crossdock_sim_cuda_calls(name.encode())

    def close(self):
        for pinned in self._pinned:
            self.call("cuMemFreeHost", c_void_p(pinned))
        self._pinned.clear()


class CudaArrayInterface:
    """An object with a `__cuda_array_interface__` of version 3, with 64-bit integers by default. `more`
    replaces entries. The value `...` removes an entry."""

    def __init__(self, address, n, **more):
        whole = {
            "shape": (n,),
            "typestr": "<i8",
            "data": (address, False),
            "version": 3,
            "strides": None,
            "stream": None,
        }
        self.__cuda_array_interface__ = {k: v for k, v in {**whole, **more}.items() if v is not ...}


def on_device(address, n, *, dtype=(0, 64, 1), form="versioned", device=(CUDA, 0), **more):
    """Returns a tensor on a device."""
    return LiveTensor(form, data=address, device=device, dtype=dtype, shape=more.pop("shape", (n,)), **more)
