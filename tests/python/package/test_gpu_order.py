"""Pending writers and slow readers on a GPU, on the streams of other libraries: the values are correct, and
the host does not wait. The pending work takes 0.2 s, so a call that returns before its end did not wait."""

import gc

import crossdock as cd
import numpy as np
import pytest
from gpu_libraries import LIBRARIES, IMPORTS, library_of

N = 1 << 20
LATE = 7


@pytest.fixture(scope="module", params=["torch", "cupy"])
def library(request, gpu):
    library = library_of(request.param)
    # Initialises the library, which waits for the device.
    with library.on(library.stream()):
        array = library.to_gpu(np.zeros(N, np.int64))
        library.fill(array, 1)
        array[:] = array * 1
        library.sleep()
    return library


@pytest.fixture
def copy(library):
    """Allocates memory before the pending work is submitted, because allocations may wait for the device."""
    return library.to_gpu(np.zeros(N, np.int64))


@pytest.fixture(params=["a stream", "the default"])
def late(library, request, cuda_session):
    """Returns (array, stream). The array is written on the stream after 0.2 s of other work."""
    # The session's first copy and event, and the library's first import, run before the pending
    # work.
    column = cuda_session.from_dlpack(np.zeros(N, np.int64))
    library.to_host(library.import_column(column)), column.to("cpu")
    array = library.to_gpu(np.zeros(N, np.int64))
    if request.param == "a stream":
        stream = library.stream()
        library.finish(stream)
    else:
        stream = library.module.cuda.current_stream() if hasattr(library.module.cuda, "current_stream") else None
        stream = stream or library.module.cuda.get_current_stream()
    library.finish(stream)
    with library.on(stream):
        library.sleep()
        library.fill(array, LATE)
    return array, stream


def is_right(column):
    return bool((np.asarray(column.to("cpu")) == LATE).all())


@pytest.mark.parametrize("way", IMPORTS)
def test_device_waits_for_pending_writer(library, cuda_session, late, way):
    array, stream = late
    if way == "by its interface" and isinstance(library, LIBRARIES["torch"]):
        pytest.skip("torch's interface has no stream")
    with library.on(stream):
        column = IMPORTS[way](cuda_session, array)
    assert not library.is_done(stream), "the call waited on the host"
    assert is_right(column)
    assert library.is_done(stream)


def test_consumers_stream_waits_for_pending_column(library, cuda_session, copy, late):
    (array, stream), other = late, library.stream()
    with library.on(stream):
        column = cuda_session.from_dlpack(array)
    with library.on(other):
        copy[:] = library.import_column(column)
        assert not library.is_done(stream), "the call waited on the host"
    library.finish(other)
    assert library.is_done(stream)
    assert (library.to_host(copy) == LATE).all()


def test_library_reads_pending_column(library, cuda_session, late):
    """The other library makes its own stream wait for the session's stream."""
    array, stream = late
    with library.on(stream):
        column = cuda_session.from_dlpack(array)
    name = "cupy" if isinstance(library, LIBRARIES["torch"]) else "torch"
    try:
        other = LIBRARIES[name]()
    except ImportError as error:
        pytest.skip(str(error))
    with other.on(other.stream()):
        copy = other.import_column(column) * 1
        assert (other.to_host(copy) == LATE).all()


def test_computation_on_pending_numbers_is_correct(library, cuda_session, late, tmp_path):
    """Tests a gather, a conversion and the writing of a file."""
    array, stream = late
    with library.on(stream):
        every_other = cuda_session.from_dlpack(array[::2])
        table = cuda_session.from_dlpack({"a": array[::2], "b": array[1::2]})
    table.write_ipc(tmp_path / "late.arrow")
    assert is_right(every_other)
    assert all(is_right(column) for column in cuda_session.read_ipc(tmp_path / "late.arrow").columns)


def test_memory_is_not_reused_before_slow_reader_ends(library, cuda_session):
    """The array is dropped before its reader begins, and a new allocation is written at once."""
    column = cuda_session.from_dlpack(np.full(N, LATE, np.int64))
    stream = library.stream()
    out = library.to_gpu(np.zeros(N, np.int64))
    library.finish(stream)
    with library.on(stream):
        array = library.import_column(column)
        library.sleep()
        out[:] = array
        del array
    del column
    gc.collect()
    others = [cuda_session.from_dlpack(np.full(N, 1, np.int64)) for _ in range(16)]
    cuda_session.synchronize()
    library.finish(stream)
    assert (library.to_host(out) == LATE).all()
    del others


def test_array_is_released_after_pending_work(library, cuda_session, late):
    """The library may reuse the array's memory only after the session's last copy."""
    array, stream = late
    with library.on(stream):
        column = cuda_session.from_dlpack(array)
        copies = [column.to("cpu") for _ in range(2)]
        del column, array
    gc.collect()
    assert all((np.asarray(copy) == LATE).all() for copy in copies)


def test_pending_column_passes_through_two_sessions(gpu, library, cuda_session, late):
    array, stream = late
    with library.on(stream):
        column = cuda_session.from_dlpack(array)
    with cd.Session(gpu) as other:
        again = other.from_dlpack(column)
        assert is_right(again)
        del again
