"""Makes the extension module read past an allocation, so that a sanitizer that sees it is known to be at work: an array that
claims more rows than it has bytes. Without a sanitizer nothing is noticed."""

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
