"""Late writers and slow readers on a GPU, with the libraries' own streams: values are right, and nobody waited on the host.
That nobody waited is seen by the work itself, which is not done when the call returns; it takes a fifth of a second."""

import gc

import crossdock as cd
import numpy as np
import pytest
from gpu_libraries import LIBRARIES, WAYS, library_of

N = 1 << 20
LATE = 7


@pytest.fixture(scope="module", params=["torch", "cupy"])
def library(request, gpu):
    library = library_of(request.param)
    # What is loaded with the first use is loaded: that waits for the device.
    with library.on(library.stream()):
        array = library.put(np.zeros(N, np.int64))
        library.fill(array, 1)
        array[:] = array * 1
        library.sleep()
    return library


@pytest.fixture
def copy(library):
    """Memory that is there before anything is late: a library's allocation may wait for the device."""
    return library.put(np.zeros(N, np.int64))


@pytest.fixture(params=["a stream", "the default"])
def late(library, request, there):
    """(array, stream): written after a long sleep on that stream, or on the one that everything is on."""
    # The session's first copy and first event are behind it too, and the library's first look at a column.
    column = there.from_dlpack(np.zeros(N, np.int64))
    library.host(library.take(column)), column.to("cpu")
    array = library.put(np.zeros(N, np.int64))
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


@pytest.mark.parametrize("way", WAYS)
def test_a_late_writer_is_waited_for_by_the_device_alone(library, there, late, way):
    array, stream = late
    if way == "by its interface" and isinstance(library, LIBRARIES["torch"]):
        pytest.skip("torch tells no stream by its interface")
    with library.on(stream):
        column = WAYS[way](there, array)
    assert not library.is_done(stream), "somebody waited"
    assert is_right(column)
    assert library.is_done(stream)


def test_a_late_column_is_waited_for_by_the_consumers_stream(library, there, copy, late):
    (array, stream), other = late, library.stream()
    with library.on(stream):
        column = there.from_dlpack(array)
    with library.on(other):
        copy[:] = library.take(column)
        assert not library.is_done(stream), "somebody waited"
    library.finish(other)
    assert library.is_done(stream)
    assert (library.host(copy) == LATE).all()


def test_a_late_column_is_there_for_another_library(library, there, late):
    """By the interface's stream, and by a library that knows nothing of the first one's."""
    array, stream = late
    with library.on(stream):
        column = there.from_dlpack(array)
    name = "cupy" if isinstance(library, LIBRARIES["torch"]) else "torch"
    try:
        other = LIBRARIES[name]()
    except ImportError as error:
        pytest.skip(str(error))
    with other.on(other.stream()):
        copy = other.take(column) * 1
        assert (other.host(copy) == LATE).all()


def test_what_is_calculated_from_late_numbers_is_right(library, there, late, tmp_path):
    """A gather, a conversion and a file."""
    array, stream = late
    with library.on(stream):
        every_other = there.from_dlpack(array[::2])
        table = there.from_dlpack({"a": array[::2], "b": array[1::2]})
    table.write_ipc(tmp_path / "late.arrow")
    assert is_right(every_other)
    assert all(is_right(column) for column in there.read_ipc(tmp_path / "late.arrow").columns)


def test_a_slow_reader_keeps_the_memory_from_whoever_is_next(library, there):
    """The array ends while its reader has not begun; what is allocated then is written at once."""
    column = there.from_dlpack(np.full(N, LATE, np.int64))
    stream = library.stream()
    out = library.put(np.zeros(N, np.int64))
    library.finish(stream)
    with library.on(stream):
        taken = library.take(column)
        library.sleep()
        out[:] = taken
        del taken
    del column
    gc.collect()
    others = [there.from_dlpack(np.full(N, 1, np.int64)) for _ in range(16)]
    there.synchronize()
    library.finish(stream)
    assert (library.host(out) == LATE).all()
    del others


def test_an_array_that_ends_is_given_back_after_our_slow_work(library, there, late):
    """The library's memory is its own again after the last copy of ours, not before."""
    array, stream = late
    with library.on(stream):
        column = there.from_dlpack(array)
        copies = [column.to("cpu") for _ in range(2)]
        del column, array
    gc.collect()
    assert all((np.asarray(copy) == LATE).all() for copy in copies)


def test_two_sessions_pass_a_late_column_on(gpu, library, there, late):
    array, stream = late
    with library.on(stream):
        column = there.from_dlpack(array)
    with cd.Session(gpu) as other:
        again = other.from_dlpack(column)
        assert is_right(again)
        del again
