"""Columns on a GPU, and libraries with arrays on a GPU: every import and export, compared on the device.
test_gpu_order.py tests the order of work."""

import gc

import crossdock as cd
import numpy as np
import pytest
from gpu_libraries import DTYPES, LIBRARIES, IMPORTS, library_of, numbers

SHAPES = [(1000,), (0,), (50, 20), (0, 3), (7, 5, 3)]


@pytest.fixture(scope="module", params=LIBRARIES)
def library(request, gpu):
    return library_of(request.param)


ALL_IMPORTS = {**IMPORTS, "in a table": lambda session, array: session.from_dlpack({"a": array})["a"]}


def column_of(session, way, array):
    if way == "by its interface" and not hasattr(array, "__cuda_array_interface__"):
        pytest.skip(f"{type(array).__name__} of {array.dtype} has no __cuda_array_interface__")
    if way == "by the Python protocol" and not hasattr(array, "__dlpack__"):
        pytest.skip(f"{type(array).__name__} has no __dlpack__")
    return ALL_IMPORTS[way](session, array)


def address(column):
    return column.__cuda_array_interface__["data"][0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", ALL_IMPORTS)
def test_dtypes_round_trip_in_place(library, cuda_session, way, dtype):
    values = numbers(dtype)
    array = library.to_gpu(values)
    column = column_of(cuda_session, way, array)
    assert column.device == "cuda:0"
    assert np.asarray(column.to("cpu")).tolist() == values.tolist()
    back = library.import_column(column)
    got = library.to_host(back)
    assert got.tolist() == values.tolist() and got.dtype == values.dtype
    assert address(column) == library.pointer(array), "the import copied"
    assert (library.pointer(back) == address(column)) == library.imports_in_place, "the export copied, or did not"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("way", ALL_IMPORTS)
def test_shapes_round_trip(library, cuda_session, way, shape):
    values = numbers("float32", shape)
    column = column_of(cuda_session, way, library.to_gpu(values))
    back = library.import_column(column)
    assert tuple(back.shape) == shape
    assert library.to_host(back).tolist() == values.tolist()


@pytest.mark.parametrize("dtype", ["int8", "float16", "int32", "float64"])
@pytest.mark.parametrize("layout", ["every other", "backwards", "transposed", "a corner", "broadcast"])
@pytest.mark.parametrize("way", ALL_IMPORTS)
def test_strides_are_applied(library, cuda_session, way, layout, dtype):
    values = numbers(dtype, (64, 48))
    view = {
        "every other": lambda a: a[::2, ::3],
        "backwards": lambda a: a[::-1],
        "transposed": lambda a: a.T,
        "a corner": lambda a: a[3:, 5:],
        "broadcast": lambda a: a[:, :1],
    }[layout]
    try:
        array = view(library.to_gpu(values))
    except (ValueError, NotImplementedError) as error:
        pytest.skip(f"no such array: {error}")
    if is_cupy_array(array) and layout == "backwards" and way != "by its interface" and dtype != "int8":
        # cupy divides strides as unsigned numbers, so negative strides are wrong.
        with pytest.raises(cd.DataError, match="reach beyond the address space"):
            ALL_IMPORTS[way](cuda_session, array)
        return
    column = column_of(cuda_session, way, array)
    assert library.to_host(library.import_column(column)).tolist() == view(values).tolist()


def is_cupy_array(array):
    return type(array).__module__.startswith("cupy")


def test_each_import_function_of_the_library_returns_the_values(library, cuda_session):
    values = numbers("int32")
    column = cuda_session.from_dlpack(values)
    for name, import_column in library.other_imports().items():
        assert library.to_host(import_column(column)).tolist() == values.tolist(), name


@pytest.mark.parametrize("bits", [False, True])
def test_booleans_are_exported_as_bytes(library, cuda_session, bits):
    values = numbers("bool")
    column = cuda_session.from_dlpack(values, bools="bits" if bits else "bytes")
    if bits and not isinstance(library, (LIBRARIES["torch"], LIBRARIES["cupy"], LIBRARIES["jax"])):
        pytest.skip("the interface cannot export bits")
    assert library.to_host(library.import_column(column)).tolist() == values.tolist()


def test_library_imports_slices_of_files(library, cuda_session, flights):
    table = cuda_session.read_ipc(flights).select(["distance"]).slice(1001, 5000)
    column = table["distance"].combine_chunks()
    expected = cd.Session().read_ipc(flights)["distance"].to_pyarrow().combine_chunks().slice(1001, 5000)
    assert library.to_host(library.import_column(column)).tolist() == expected.to_pylist()


def test_memory_lives_as_long_as_column_and_array(library, cuda_session):
    values = numbers("int64", (1 << 16,))
    column = cuda_session.from_dlpack(values)
    back = library.import_column(column)
    del column
    gc.collect()
    others = [cuda_session.from_dlpack(np.zeros_like(values)) for _ in range(8)]
    assert library.to_host(back).tolist() == values.tolist()
    del back, others


def test_numbers_round_trip_through_a_file(library, cuda_session, tmp_path):
    """A table of a library's arrays is written to a file, read, and exported to the library again."""
    values = {dtype: numbers(dtype) for dtype in DTYPES}
    arrays = {dtype: library.to_gpu(one) for dtype, one in values.items()}
    table = cuda_session.from_dlpack(arrays)
    table.write_ipc(tmp_path / "out.arrow", compression="lz4")
    again = cuda_session.read_ipc(tmp_path / "out.arrow")
    assert again.to_pyarrow().equals(table.to_pyarrow())
    for dtype, expected in values.items():
        assert library.to_host(library.import_column(again[dtype])).tolist() == expected.tolist(), dtype


def test_torch_and_cupy_share_memory(gpu, cuda_session):
    torch, cupy = pytest.importorskip("torch"), pytest.importorskip("cupy")
    x = torch.arange(1000, device="cuda")
    column = cuda_session.from_dlpack(x)
    y = cupy.from_dlpack(column)
    assert address(column) == x.data_ptr() == y.data.ptr


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"])
def test_torch_types_without_arrow_equivalent_round_trip(gpu, cuda_session, dtype):
    torch = pytest.importorskip("torch")
    x = torch.arange(100, device="cuda").to(getattr(torch, dtype))
    for tensor in (x, x[3:], x[::2], x.reshape(10, 5, 2), x.reshape(10, 5, 2).permute(0, 2, 1), x[:0]):
        for _ in range(2):
            back = torch.from_dlpack(cuda_session.from_dlpack(tensor))
            assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
            bits = [values.contiguous().view(torch.uint8) for values in (back, tensor)]
            assert torch.equal(*bits)


# --- cuda.core ---


@pytest.fixture
def core(gpu):
    core = pytest.importorskip("cuda.core")
    core.Device(0).set_current()
    return core


def test_cuda_core_views_a_column(core, cuda_session):
    utils = pytest.importorskip("cuda.core.utils")
    values = numbers("float32", (50, 20))
    column = cuda_session.from_dlpack(values)
    stream = core.Device(0).create_stream()
    for make in ("from_any_interface", "from_dlpack", "from_cuda_array_interface"):
        view = getattr(utils.StridedMemoryView, make)(column, stream_ptr=int(stream.handle))
        assert (view.ptr, tuple(view.shape), view.readonly) == (address(column), (50, 20), True)
        assert view.dtype == np.float32 and view.device_id == 0 and view.is_device_accessible
        again = cuda_session.from_dlpack(values) if view.exporting_obj is None else view.exporting_obj
        assert again is column
    stream.sync()


def test_imports_cuda_core_buffers(core, cuda_session):
    device = core.Device(0)
    stream = device.create_stream()
    buffer = device.allocate(4096, stream=stream)
    host = np.arange(1024, dtype=np.int32)
    source = cuda_session.from_dlpack(host.view(np.uint8))
    from_bytes = core.Buffer.from_handle(address(source), 4096)
    buffer.copy_from(from_bytes, stream=stream)
    stream.sync()
    column = cuda_session.from_dlpack(buffer)
    assert address(column) == int(buffer.handle)
    assert np.asarray(column.to("cpu")).tobytes() == host.tobytes()
    del column
    gc.collect()
    cuda_session.synchronize()
    del from_bytes
    buffer.close(stream)
    stream.sync()
