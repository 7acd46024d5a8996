"""Columns on a GPU and the libraries that have arrays there: every way in and out that they have, with the values looked at by
them, on the device. What no order ever made right is in test_gpu_order.py."""

import gc

import crossdock as cd
import numpy as np
import pytest
from gpu_libraries import DTYPES, LIBRARIES, WAYS, library_of, numbers

SHAPES = [(1000,), (0,), (50, 20), (0, 3), (7, 5, 3)]


@pytest.fixture(scope="module", params=LIBRARIES)
def library(request, gpu):
    return library_of(request.param)


WAYS_IN = {**WAYS, "in a table": lambda session, array: session.from_dlpack({"a": array})["a"]}


def column_of(session, way, array):
    if way == "by its interface" and not hasattr(array, "__cuda_array_interface__"):
        pytest.skip(f"{type(array).__name__} of {array.dtype} has no __cuda_array_interface__")
    if way == "by the Python protocol" and not hasattr(array, "__dlpack__"):
        pytest.skip(f"{type(array).__name__} has no __dlpack__")
    return WAYS_IN[way](session, array)


def address(column):
    return column.__cuda_array_interface__["data"][0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", WAYS_IN)
def test_every_dtype_comes_in_and_goes_out_in_place(library, there, way, dtype):
    values = numbers(dtype)
    array = library.put(values)
    column = column_of(there, way, array)
    assert column.device == "cuda:0"
    assert np.asarray(column.to("cpu")).tolist() == values.tolist()
    back = library.take(column)
    got = library.host(back)
    assert got.tolist() == values.tolist() and got.dtype == values.dtype
    assert address(column) == library.pointer(array), "it was copied on its way in"
    assert (library.pointer(back) == address(column)) == library.takes_in_place, "on its way out"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("way", WAYS_IN)
def test_every_shape_comes_in_and_goes_out(library, there, way, shape):
    values = numbers("float32", shape)
    column = column_of(there, way, library.put(values))
    back = library.take(column)
    assert tuple(back.shape) == shape
    assert library.host(back).tolist() == values.tolist()


@pytest.mark.parametrize("dtype", ["int8", "float16", "int32", "float64"])
@pytest.mark.parametrize("layout", ["every other", "backwards", "transposed", "a corner", "broadcast"])
@pytest.mark.parametrize("way", WAYS_IN)
def test_strides_are_honoured(library, there, way, layout, dtype):
    values = numbers(dtype, (64, 48))
    cut = {
        "every other": lambda a: a[::2, ::3],
        "backwards": lambda a: a[::-1],
        "transposed": lambda a: a.T,
        "a corner": lambda a: a[3:, 5:],
        "broadcast": lambda a: a[:, :1],
    }[layout]
    try:
        array = cut(library.put(values))
    except (ValueError, NotImplementedError) as error:
        pytest.skip(f"no such array: {error}")
    if array_is_cupys(array) and layout == "backwards" and way != "by its interface" and dtype != "int8":
        # Its strides are divided as numbers without a sign: what it says lies nowhere.
        with pytest.raises(cd.DataError, match="reach beyond the address space"):
            WAYS_IN[way](there, array)
        return
    column = column_of(there, way, array)
    assert library.host(library.take(column)).tolist() == cut(values).tolist()


def array_is_cupys(array):
    return type(array).__module__.startswith("cupy")


def test_every_other_way_out(library, there):
    values = numbers("int32")
    column = there.from_dlpack(values)
    for name, take in library.ends().items():
        assert library.host(take(column)).tolist() == values.tolist(), name


@pytest.mark.parametrize("bits", [False, True])
def test_booleans(library, there, bits):
    values = numbers("bool")
    column = there.from_dlpack(values, bools="bits" if bits else "bytes")
    if bits and not isinstance(library, (LIBRARIES["torch"], LIBRARIES["cupy"], LIBRARIES["jax"])):
        pytest.skip("the interface has no words for bits that become bytes")
    assert library.host(library.take(column)).tolist() == values.tolist()


def test_what_was_cut_from_a_file_goes_to_the_library(library, there, flights):
    table = there.read_ipc(flights).select(["distance"]).slice(1001, 5000)
    column = table["distance"].combine_chunks()
    expected = cd.Session().read_ipc(flights)["distance"].to_pyarrow().combine_chunks().slice(1001, 5000)
    assert library.host(library.take(column)).tolist() == expected.to_pylist()


def test_the_memory_is_the_librarys_until_the_column_ends_and_ours_until_the_array_ends(library, there):
    values = numbers("int64", (1 << 16,))
    column = there.from_dlpack(values)
    back = library.take(column)
    del column
    gc.collect()
    others = [there.from_dlpack(np.zeros_like(values)) for _ in range(8)]
    assert library.host(back).tolist() == values.tolist()
    del back, others


def test_numbers_go_through_the_table_and_its_file(library, there, tmp_path):
    """A table of what a library has calculated: written, read, and given to it again."""
    values = {dtype: numbers(dtype) for dtype in DTYPES}
    arrays = {dtype: library.put(one) for dtype, one in values.items()}
    table = there.from_dlpack(arrays)
    table.write_ipc(tmp_path / "out.arrow", compression="lz4")
    again = there.read_ipc(tmp_path / "out.arrow")
    assert again.to_pyarrow().equals(table.to_pyarrow())
    for dtype, expected in values.items():
        assert library.host(library.take(again[dtype])).tolist() == expected.tolist(), dtype


def test_torch_and_cupy_are_one_memory(gpu, there):
    torch, cupy = pytest.importorskip("torch"), pytest.importorskip("cupy")
    x = torch.arange(1000, device="cuda")
    column = there.from_dlpack(x)
    y = cupy.from_dlpack(column)
    assert address(column) == x.data_ptr() == y.data.ptr


def test_torchs_bfloat16_is_refused_in_words(gpu, there):
    torch = pytest.importorskip("torch")
    x = torch.arange(100, device="cuda").to(torch.bfloat16)
    with pytest.raises(cd.Error, match="(?i)bfloat"):
        there.from_dlpack(x)


# ------------------------------------------------------------------------------------------------------- cuda.core ---


@pytest.fixture
def core(gpu):
    core = pytest.importorskip("cuda.core")
    core.Device(0).set_current()
    return core


def test_cuda_core_views_a_column(core, there):
    utils = pytest.importorskip("cuda.core.utils")
    values = numbers("float32", (50, 20))
    column = there.from_dlpack(values)
    stream = core.Device(0).create_stream()
    for make in ("from_any_interface", "from_dlpack", "from_cuda_array_interface"):
        view = getattr(utils.StridedMemoryView, make)(column, stream_ptr=int(stream.handle))
        assert (view.ptr, tuple(view.shape), view.readonly) == (address(column), (50, 20), True)
        assert view.dtype == np.float32 and view.device_id == 0 and view.is_device_accessible
        again = there.from_dlpack(values) if view.exporting_obj is None else view.exporting_obj
        assert again is column
    stream.sync()


def test_cuda_cores_buffers_become_columns_and_buffers(core, there):
    device = core.Device(0)
    stream = device.create_stream()
    buffer = device.allocate(4096, stream=stream)
    host = np.arange(1024, dtype=np.int32)
    source = there.from_dlpack(host.view(np.uint8))
    from_bytes = core.Buffer.from_handle(address(source), 4096)
    buffer.copy_from(from_bytes, stream=stream)
    stream.sync()
    column = there.from_dlpack(buffer)
    assert address(column) == int(buffer.handle)
    assert np.asarray(column.to("cpu")).tobytes() == host.tobytes()
    del column
    gc.collect()
    there.synchronize()
    del from_bytes
    buffer.close(stream)
    stream.sync()
