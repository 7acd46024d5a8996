"""Files of tensors for tests: arrays, the reference encoding of safetensors, and comparisons."""

import io
import json
import struct

import numpy as np
import pyarrow as pa
from tensors import assert_same, number_dtype

SIZES = (0, 1, 1000)
ROW_SHAPES = ((), (3,), (2, 5), (4, 1, 2), (0,))
NUMBERS = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")
TIMES = ("M8[s]", "M8[ms]", "M8[us]", "M8[ns]", "m8[s]", "m8[ms]", "m8[us]", "m8[ns]")
SAFETENSORS = dict(zip(NUMBERS, ("F64", "F32", "F16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")))

EXTENSION_NUMBERS = {
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2": "F8_E5M2",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "complex64": "C64",
}
"""The names in safetensors of the types that are stored as the extension type crossdock.number."""


def array(dtype, shape):
    """Returns an array whose bytes are random, except that booleans are 0 or 1, and that floats are no NaN."""
    generator = np.random.default_rng(len(shape))
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return generator.random(shape) < 0.5
    if dtype.kind == "f":
        return generator.normal(size=shape).astype(dtype)
    n = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(generator.bytes(n), dtype).reshape(shape)


def leaf_type(type):
    """Returns the type of a column's elements."""
    while isinstance(type, pa.BaseExtensionType) or pa.types.is_fixed_size_list(type):
        type = type.storage_type if isinstance(type, pa.BaseExtensionType) else type.value_type
    return type


def to_numpy(column):
    """Returns a column that is not empty as an array. Times become integers."""
    values = column.to_pyarrow().combine_chunks()
    shape = [len(values)]
    if isinstance(values.type, pa.FixedShapeTensorType):
        shape += values.type.shape
        values = values.storage
    if pa.types.is_fixed_size_list(values.type):
        values = values.flatten()
    if isinstance(values.type, pa.BaseExtensionType):
        return np.asarray(values.storage).reshape(shape).astype(bool)
    assert values.null_count == 0
    if pa.types.is_fixed_size_binary(values.type):
        return np.array(values.to_pylist(), f"S{values.type.byte_width}").reshape(shape)
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int64())
    return values.to_numpy(zero_copy_only=False).reshape(shape)


def assert_equal(column, expected):
    expected = expected.astype(expected.dtype.newbyteorder("="))
    kind, width = expected.dtype.kind, expected.dtype.itemsize
    types = {"b": pa.int8(), "S": pa.binary(width)}
    assert leaf_type(column.to_pyarrow().type) == (types.get(kind) or pa.from_numpy_dtype(expected.dtype))
    if len(expected) == 0:
        assert len(column) == 0
        return
    got = to_numpy(column)
    expected = expected.view("i8") if kind in "mM" else expected
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert got.tobytes() == expected.tobytes()


def assert_equal_numbers(column, expected):
    """Compares a column of the extension type crossdock.number with an array."""
    if len(expected) == 0:
        # A column without rows may have no chunk to export.
        assert len(column) == 0 and f'"{expected.dtype.name}"' in str(column.field.metadata)
    else:
        assert_same(expected, np.asarray(column.to("cpu")))


def safetensors(tensors, metadata=None):
    """Returns the bytes of a file as the reference implementation writes them."""
    header, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        begin, data = len(data), data + tensor.tobytes()
        dtype = tensor.dtype
        dtype = EXTENSION_NUMBERS.get(dtype.name) or SAFETENSORS[dtype.str[1:].replace("b1", "?")]
        header[name] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": [begin, len(data)]}
    header = json.dumps(header, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def read_safetensors(path):
    """Returns the tensors and the metadata of a file."""
    content = path.read_bytes()
    (n,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + n])
    metadata, tensors, ends = header.pop("__metadata__", None), {}, [0]
    dtypes = {name: dtype for dtype, name in SAFETENSORS.items()}
    dtypes |= {name: dtype for dtype, name in EXTENSION_NUMBERS.items()}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        dtype = dtypes[info["dtype"]]
        dtype = number_dtype(dtype) if dtype in EXTENSION_NUMBERS else np.dtype(dtype)
        assert (8 + n + begin) % dtype.itemsize == 0, "the tensor is not aligned"
        tensors[name] = np.frombuffer(content[8 + n + begin : 8 + n + end], dtype).reshape(info["shape"])
        ends.append(end)
    assert max(ends) == len(content) - 8 - n
    return tensors, metadata


def assert_same_elements(got, expected):
    """Compares arrays. A list of booleans has lost its shape."""
    assert list(got) == list(expected)
    for name, values in expected.items():
        assert got[name].dtype == values.dtype
        assert got[name].shape == values.shape or (values.dtype == bool and got[name].size == values.size)
        assert got[name].tobytes() == values.tobytes(), name


class CountedFile(io.FileIO):
    """A file that counts the bytes that are read."""

    n_bytes = 0

    def read(self, size=-1):
        data = super().read(size)
        self.n_bytes += len(data)
        return data

    def readinto(self, buffer):
        n = super().readinto(buffer)
        self.n_bytes += n
        return n
