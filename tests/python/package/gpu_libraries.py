"""Libraries with arrays on a GPU, behind one interface. They need a real GPU: the simulated driver cannot run
their kernels."""

import importlib

import numpy as np
import pytest

DTYPES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bool".split()


def numbers(dtype, shape=(1000,)):
    """Returns numbers that every dtype can represent, each different from its neighbours."""
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 251 % 127
    return (values % 3 == 0) if dtype == "bool" else values.astype(dtype)


class Torch:
    """Uses torch's streams. `__dlpack__` makes only the passed stream wait for the data."""

    imports_in_place = True

    def __init__(self):
        self.module = importlib.import_module("torch")
        if not self.module.cuda.is_available():
            raise ImportError("torch finds no GPU")

    def to_gpu(self, values):
        return self.module.from_numpy(values).cuda()

    def to_host(self, array):
        return array.cpu().numpy()

    def pointer(self, array):
        return array.data_ptr()

    def import_column(self, column):
        return self.module.from_dlpack(column)

    def other_imports(self):
        return {
            "utils": lambda column: self.module.utils.dlpack.from_dlpack(column.__dlpack__()),
            "on the cpu": lambda column: self.module.from_dlpack(column, device="cpu"),
            "a copy": lambda column: self.module.from_dlpack(column, copy=True),
        }

    def stream(self):
        return self.module.cuda.Stream()

    def on(self, stream):
        return self.module.cuda.stream(stream)

    def sleep(self):
        self.module.cuda._sleep(400_000_000)

    def is_done(self, stream):
        return stream.query()

    def finish(self, stream):
        stream.synchronize()

    def fill(self, array, value):
        array.fill_(value)


class Cupy:
    imports_in_place = True

    def __init__(self):
        self.module = importlib.import_module("cupy")
        spin = 'extern "C" __global__ void spin(long long n) { long long t = clock64(); while (clock64() - t < n) {} }'
        self.spin = self.module.RawKernel(spin, "spin")
        # The first launch compiles the kernel, so later launches do not wait for the compiler.
        self.spin((1,), (1,), (np.int64(1),))

    def to_gpu(self, values):
        return self.module.asarray(values)

    def to_host(self, array):
        return self.module.asnumpy(array)

    def pointer(self, array):
        return array.data.ptr

    def import_column(self, column):
        return self.module.from_dlpack(column)

    def other_imports(self):
        return {
            "by its interface": self.module.asarray,
            "a copy": lambda column: self.module.from_dlpack(column, copy=True),
        }

    def stream(self):
        return self.module.cuda.Stream(non_blocking=True)

    def on(self, stream):
        return stream

    def sleep(self):
        self.spin((1,), (1,), (np.int64(400_000_000),))

    def is_done(self, stream):
        return stream.done

    def finish(self, stream):
        stream.synchronize()

    def fill(self, array, value):
        array.fill(value)


class Jax:
    """Uses internal streams. An export makes the host wait for the data. Requests unversioned tensors, which
    have no read-only flag, so Crossdock exports copies."""

    imports_in_place = False

    def __init__(self):
        self.module = importlib.import_module("jax")
        if self.module.default_backend() != "gpu":
            raise ImportError("jax finds no GPU")
        self.module.config.update("jax_enable_x64", True)

    def to_gpu(self, values):
        return self.module.device_put(values)

    def to_host(self, array):
        return np.asarray(array)

    def pointer(self, array):
        return array.unsafe_buffer_pointer()

    def import_column(self, column):
        return self.module.dlpack.from_dlpack(column)

    def other_imports(self):
        return {}


class Numba:
    """Implements the CUDA array interface, but not DLPack."""

    imports_in_place = True

    def __init__(self):
        self.module = importlib.import_module("numba.cuda")
        # Fails if the installed versions of numba-cuda and numpy do not work together.
        self.module.jit(lambda: None)[1, 1]()

    def to_gpu(self, values):
        return self.module.to_device(values)

    def to_host(self, array):
        return array.copy_to_host()

    def pointer(self, array):
        return array.__cuda_array_interface__["data"][0]

    def import_column(self, column):
        return self.module.as_cuda_array(column)

    def other_imports(self):
        return {}


LIBRARIES = {"torch": Torch, "cupy": Cupy, "jax": Jax, "numba": Numba}


class ByProtocol:
    """An array that implements only the Python protocol."""

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


IMPORTS = {
    "as it is": lambda session, array: session.from_dlpack(array),
    "by the Python protocol": lambda session, array: session.from_dlpack(ByProtocol(array)),
    "by its interface": lambda session, array: session.from_cuda_array_interface(array),
}
"""The ways to import an array as a column."""


def library_of(name):
    """Returns the library, or skips the test with the reason."""
    try:
        return LIBRARIES[name]()
    except Exception as error:
        pytest.skip(f"{name}: {type(error).__name__}: {error}")
