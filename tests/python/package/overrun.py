"""Makes the extension module read past an allocation, to check that a sanitizer is active: imports an array
that declares more rows than its buffer has. Has no visible effect without a sanitizer."""

import ctypes

import crossdock as cd
import pyarrow as pa

ROWS, BYTES = 16, 8

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
with cd.Session(validate="layout") as session:
    values = pa.foreign_buffer(libc.malloc(BYTES), ROWS)
    column = session.from_arrow(pa.Array.from_buffers(pa.int8(), ROWS, [None, values]))
    print(column.slice(BYTES, 4))
