"""Decompresses LZ4 blocks with nvCOMP."""

import ctypes
import ctypes.util
import importlib.util
from pathlib import Path

import numpy as np
import pyarrow as pa

BLOCK_BYTES = 1 << 16


def find():
    """The path of the library, or `None` if it is not installed."""
    package = importlib.util.find_spec("nvidia")
    folders = package.submodule_search_locations if package else []
    paths = [path for folder in folders for path in Path(folder).glob("libnvcomp/lib*/libnvcomp.so.*")]
    return str(paths[0]) if paths else ctypes.util.find_library("nvcomp")


class Options(ctypes.Structure):
    """nvcompBatchedLZ4DecompressOpts_t, with the default options."""

    _fields_ = [("values", ctypes.c_int * 4), ("reserved", ctypes.c_char * 48)]


class Lz4:
    """The buffers of a table in blocks of 64 KiB. They are compressed in pinned memory. Needs cupy."""

    def __init__(self, library, table):
        import cupy

        codec = pa.Codec("lz4_raw")
        content = [memoryview(b) for column in table.itercolumns() for c in column.chunks for b in c.buffers() if b]
        blocks = [buffer[i : i + BLOCK_BYTES] for buffer in content for i in range(0, len(buffer), BLOCK_BYTES)]
        stored = [bytes(codec.compress(block)) for block in blocks]
        lengths, sizes = np.array([len(b) for b in stored], "u8"), np.array([len(b) for b in blocks], "u8")
        self.synchronize = cupy.cuda.Device().synchronize
        self.host = np.frombuffer(cupy.cuda.alloc_pinned_memory(int(lengths.sum())), "u1", int(lengths.sum()))
        self.host[:] = np.frombuffer(b"".join(stored), "u1")
        self.source, self.target = cupy.asarray(self.host), cupy.zeros(int(sizes.sum()), "u1")
        starts = cupy.asarray(np.cumsum(lengths) - lengths + self.source.data.ptr)
        targets = cupy.asarray(np.cumsum(sizes) - sizes + self.target.data.ptr)
        actual, status = cupy.zeros(len(blocks), "u8"), cupy.zeros(len(blocks), "i4")
        self.status, pointer, size = status, ctypes.c_void_p, ctypes.c_size_t
        library = ctypes.CDLL(library)
        temporary = size()
        if hasattr(library, "nvcompBatchedLZ4DecompressGetTempSizeAsync"):
            needed, stream = library.nvcompBatchedLZ4DecompressGetTempSizeAsync, []
        else:
            # Version 6.
            needed, stream = library.nvcompBatchedLZ4DecompressGetTempSize, [None]
        needed.argtypes = [size, size, Options, pointer, size] + [pointer] * len(stream)
        at = ctypes.addressof(temporary)
        assert needed(len(blocks), BLOCK_BYTES, Options(), at, self.target.size, *stream) == 0
        scratch = cupy.zeros(max(1, temporary.value), "u1")
        arrays = [starts, cupy.asarray(lengths), cupy.asarray(sizes), actual, scratch, targets, status]
        # The call refers to these arrays.
        self.arrays = arrays
        at = [array.data.ptr for array in arrays]
        self.run = library.nvcompBatchedLZ4DecompressAsync
        self.run.argtypes = [pointer] * 4 + [size, pointer, size, pointer, Options, pointer, pointer]
        self.arguments = [*at[:4], len(blocks), at[4], temporary.value, at[5], Options(), at[6], None]

    def decompress(self):
        """Decompresses all blocks, which are on the device, with one call."""
        assert self.run(*self.arguments) == 0
        self.synchronize()

    def copy_and_decompress(self):
        """Copies the compressed blocks to the device first."""
        self.source.set(self.host)
        self.decompress()

    def is_right(self):
        """Whether the last call decompressed all blocks."""
        return not self.status.any()
