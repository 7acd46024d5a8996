"""`crossdock.cuda`: buffers on a device, their errors, and the lifetime of their memory."""

import array
import gc
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import crossdock as cd
import numpy as np
import pytest
from conftest import assert_all_memory_freed
from crossdock.cuda import Buffer, Context, IpcMemHandle, get_num_devices, new_host_buffer

ALPHABET = b"abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def context(cuda_session):
    """A context of a session. At the end of the test, all memory must be freed."""
    context = Context(session=cuda_session)
    yield context
    gc.collect()
    assert context.bytes_allocated == 0


@pytest.fixture
def buffer(context):
    """A buffer with the alphabet. It is closed at the end of the test, because pytest keeps the object longer
    than the test."""
    with context.buffer_from_data(ALPHABET) as buffer:
        yield buffer


def test_context_has_a_device_and_a_session(context, cuda_session, cuda):
    assert (context.device_number, context.session) == (0, cuda_session)
    assert get_num_devices() == Context.get_num_devices() == context.num_devices >= 1
    # Contexts that are created without a session share one session for each device.
    assert Context(0).session is Context().session is not cuda_session
    assert repr(context) == "<crossdock.cuda.Context device_number=0>"


def test_rejects_invalid_context_arguments(cuda, cuda_session):
    beyond = get_num_devices() + 3
    with pytest.raises(cd.DeviceError, match=f"cuda:{beyond} does not exist on this host; the host has cpu, cuda:0"):
        Context(beyond)
    with pytest.raises(cd.UsageError, match=r"device_number=-1: expected 0 or more"):
        Context(-1)
    with pytest.raises(cd.UsageError, match=r"device_number=1: the session is on cuda:0"):
        Context(1, session=cuda_session)
    with pytest.raises(cd.UsageError, match="the session is on cpu, expected a CUDA device"):
        Context(session=cd.Session())
    closed = cd.Session(cuda)
    closed.close()
    with pytest.raises(cd.UsageError, match="the session is closed"):
        Context(session=closed)


def test_error_without_driver_says_what_is_missing(tmp_path):
    code = """
from crossdock import cuda
for call in cuda.get_num_devices, cuda.Context, lambda: cuda.new_host_buffer(1):
    try:
        call()
        print("no error")
    except cuda._native.DeviceError as error:
        print(error)
"""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    messages = done.stdout.splitlines()
    if messages[0] == "no error":
        pytest.skip("this machine's driver is found without a search path")
    missing = (
        "no CUDA driver: libcuda.so was not found; install the NVIDIA driver, or put its folder into LD_LIBRARY_PATH"
    )
    assert messages == [
        missing,
        f"cannot work on cuda:0: cuda:0: {missing}",
        f"cannot work on cuda:0: cuda:0: {missing}",
    ]


HOST_DATA = {
    "bytes": ALPHABET,
    "bytearray": bytearray(ALPHABET),
    "memoryview": memoryview(ALPHABET)[1:-1],
    "array": array.array("d", [1.5, 2.5]),
    "numpy": np.arange(12, dtype="i4").reshape(3, 4),
    "numpy of columns": np.asfortranarray(np.arange(12, dtype="i2").reshape(3, 4)).T,
    "complex": np.array([1 + 2j, 3]),
    "structs": np.array([(1, 2.0)], dtype=[("a", "u1"), ("b", "f8")]),
    "nothing": b"",
    "no rows": np.zeros((0, 3)),
    "a large one": np.arange(1 << 20, dtype="u4"),
}


@pytest.mark.parametrize("name", HOST_DATA)
def test_host_bytes_round_trip(context, name):
    data = HOST_DATA[name]
    expected = data.tobytes() if hasattr(data, "tobytes") else bytes(data)
    buffer = context.buffer_from_data(data)
    assert (buffer.size, len(buffer), buffer.is_cpu, buffer.is_mutable) == (len(expected), len(expected), False, True)
    assert buffer.context is context
    assert context.bytes_allocated == len(expected)
    assert buffer.copy_to_host() == expected
    other = context.new_buffer(len(expected))
    assert other.copy_from_host(data) == len(expected)
    assert other.copy_to_host() == expected


def test_accepts_cpu_columns(context):
    with cd.Session() as cpu:
        column = cpu.from_dlpack(np.arange(5, dtype="i8"))
        assert context.buffer_from_data(column).copy_to_host() == np.arange(5, dtype="i8").tobytes()


def test_rejects_non_contiguous_host_data(context, buffer):
    for gaps in (np.arange(10)[::2], memoryview(ALPHABET)[::2]):
        with pytest.raises(cd.UsageError, match="are not contiguous"):
            context.buffer_from_data(gaps)
        with pytest.raises(cd.UsageError, match="are not contiguous"):
            buffer.copy_from_host(gaps)
    for wrong in (7, "text", None, [1, 2]):
        with pytest.raises(TypeError):
            context.buffer_from_data(wrong)


def test_reads_and_writes_ranges(context, buffer):
    assert buffer.to_pybytes() == ALPHABET
    assert buffer.copy_to_host(3, 4) == b"defg"
    assert buffer.copy_to_host(20) == b"uvwxyz"
    assert buffer.copy_to_host(26) == buffer.copy_to_host(5, 0) == b""
    assert buffer.copy_from_host(b"ABC", position=1) == 3
    assert buffer.copy_from_host(b"DEFGHI", 4, 2) == 2
    # Without a size, only the bytes that fit into the buffer are copied.
    assert buffer.copy_from_host(b"XYZ-and-more", 23) == 3
    assert buffer.copy_from_host(b"much", 26) == 0
    assert buffer.copy_to_host() == b"aABCDEghijklmnopqrstuvwXYZ"
    parts = (
        context.buffer_from_data(ALPHABET, 2, 3),
        context.buffer_from_data(buffer, 1, 3),
        context.buffer_from_data(buffer, 24),
    )
    assert [part.copy_to_host() for part in parts] == [b"cde", b"ABC", b"YZ"]


def test_copy_to_host_fills_a_buffer(context, buffer):
    into = bytearray(30)
    assert buffer.copy_to_host(1, 3, into) is into
    assert into == b"bcd" + bytes(27)
    numbers = np.zeros(26, dtype="u1")
    assert buffer.copy_to_host(buf=numbers).tobytes() == ALPHABET
    assert buffer.copy_to_host(26, buf=b"") == b""
    with pytest.raises(cd.UsageError, match="buffer of at least 26 bytes, got a read-only buffer of 30 bytes"):
        buffer.copy_to_host(buf=bytes(30))
    with pytest.raises(cd.UsageError, match="buffer of at least 26 bytes, got a buffer of 25 bytes"):
        buffer.copy_to_host(buf=bytearray(25))


def test_slices_share_memory(buffer):
    part = buffer.slice(10, 5)
    assert (part.size, part.copy_to_host(), part.slice(1, 2).copy_to_host()) == (5, b"klmno", b"lm")
    assert part.address == buffer.address + 10
    part.copy_from_host(b"KLMNO")
    assert buffer.copy_to_host() == b"abcdefghijKLMNOpqrstuvwxyz"
    assert buffer.slice(20, 100).copy_to_host() == buffer.slice(20).copy_to_host() == b"uvwxyz"
    assert (buffer.slice(26).size, buffer.slice().size) == (0, 26)
    del buffer
    assert part.copy_to_host() == b"KLMNO"


def test_error_for_range_outside_the_buffer_has_range_and_size(context, buffer):
    part = buffer.slice(4, 10)
    cases = {
        lambda: part.copy_to_host(-1): ("position=-1", "10 bytes"),
        lambda: part.copy_to_host(11): ("position=11", "10 bytes"),
        lambda: part.copy_to_host(4, 7): ("nbytes=7", "position=4", "expected 0 to 6", "10 bytes"),
        lambda: part.copy_to_host(0, -2): ("nbytes=-2", "10 bytes"),
        lambda: part.copy_from_host(b"abc", -1): ("position=-1", "10 bytes"),
        lambda: part.copy_from_host(b"abc", 11): ("position=11", "10 bytes"),
        lambda: part.copy_from_host(b"abc", 0, 4): ("nbytes=4", "3 bytes"),
        lambda: part.copy_from_host(b"abc", 8, 3): ("nbytes=3", "position=8", "2 bytes"),
        lambda: part.copy_from_host(b"abc", 0, -7): ("nbytes=-7", "3 bytes"),
        lambda: part.copy_from_device(buffer, 0, 27): ("nbytes=27", "26 bytes"),
        lambda: part.copy_from_device(buffer, 5, 6): ("nbytes=6", "position=5", "5 bytes"),
        lambda: part.slice(-1): ("offset=-1", "10 bytes"),
        lambda: part.slice(11): ("offset=11", "10 bytes"),
        lambda: part.slice(0, -1): ("length=-1", "10 bytes"),
        lambda: context.buffer_from_data(b"abc", 4): ("offset=4", "3 bytes"),
        lambda: context.buffer_from_data(b"abc", 1, 3): ("size=3", "offset=1", "expected 0 to 2", "3 bytes"),
        lambda: context.new_buffer(-1): ("size=-1", "0 or more"),
        lambda: context.new_host_buffer(-1): ("size=-1", "0 or more"),
    }
    for i, (call, texts) in enumerate(cases.items()):
        with pytest.raises(cd.UsageError) as raised:
            call()
        assert all(text in str(raised.value) for text in texts), (i, str(raised.value))
    assert buffer.copy_to_host() == ALPHABET


def test_rejects_allocation_beyond_the_budget(cuda):
    with cd.Session(cuda, memory="1MiB") as session:
        context = Context(session=session)
        with pytest.raises(MemoryError, match="'cuda buffers' asked for 2097152 bytes on cuda:0"):
            context.new_buffer(2 << 20)
        for absurd in (1 << 62, 1 << 80):
            with pytest.raises((MemoryError, OverflowError)):
                context.new_buffer(absurd)
        assert context.bytes_allocated == 0


def test_copies_ranges_between_buffers(context, buffer, cuda):
    other = context.buffer_from_data(bytes(10))
    assert other.copy_from_device(buffer.slice(3), 2, 4) == 4
    assert other.copy_to_host() == b"\0\0defg\0\0\0\0"
    assert other.copy_from_device(buffer) == 10
    assert other.copy_to_host() == b"abcdefghij"
    assert other.copy_from_device(buffer, 10) == 0
    # A copy within one buffer is possible if the ranges do not overlap.
    assert buffer.copy_from_device(buffer.slice(20, 6), 14) == 6
    assert buffer.slice(14).copy_to_host() == b"uvwxyzuvwxyz"
    with pytest.raises(cd.UsageError, match="overlap"):
        buffer.copy_from_device(buffer.slice(0, 6), 3)
    with pytest.raises(TypeError, match=r"expected a crossdock.cuda.Buffer, got bytes; use copy_from_host"):
        buffer.copy_from_device(b"abc")


def test_copies_between_sessions_are_ordered(context, cuda):
    with cd.Session(cuda) as other_session:
        other_context = Context(session=other_session)
        for i in range(20):
            source = other_context.buffer_from_data(bytes([i]) * 5000)
            middle = other_context.new_buffer(5000)
            # Only the next copy, which runs in another session, waits for this copy.
            middle.copy_from_device(source)
            target = context.new_buffer(5000)
            target.copy_from_device(middle)
            # The other session overwrites the buffer after the read, and frees it.
            middle.copy_from_device(other_context.buffer_from_data(b"\xff" * 5000))
            del middle, source
            assert target.copy_to_host() == bytes([i]) * 5000
        del other_context, target
        assert_all_memory_freed(other_session)


def test_buffer_raises_where_host_memory_is_needed(buffer):
    """A buffer has neither the buffer protocol nor `__array__`."""
    assert not hasattr(buffer, "__array__") and not hasattr(buffer, "__array_interface__")
    for use in (bytes, bytearray, memoryview, np.frombuffer, int.from_bytes, b"".join):
        with pytest.raises((TypeError, BufferError)):
            use(buffer)
    with pytest.raises((TypeError, BufferError, ValueError)):
        np.asarray(buffer, dtype="u1")
    with pytest.raises(TypeError):
        buffer[0]
    with pytest.raises(TypeError):
        iter(buffer)
    with pytest.raises(TypeError, match="copy_to_host"):
        buffer.copy_from_host(buffer)
    with pytest.raises(TypeError, match="copy_to_host"):
        buffer.copy_to_host(buf=buffer)
    with pytest.raises(TypeError):
        buffer.context.session.read_ipc(buffer)


def test_pyarrow_rejects_device_buffers(buffer):
    pa = pytest.importorskip("pyarrow")
    for use in (pa.py_buffer, pa.BufferReader, pa.array, lambda b: pa.Array.from_buffers(pa.uint8(), 26, [None, b])):
        with pytest.raises((TypeError, pa.ArrowInvalid)):
            use(buffer)


def test_pinned_memory_has_the_buffer_protocol(context, buffer):
    pinned = context.new_host_buffer(26)
    assert (pinned.size, len(pinned), pinned.is_cpu) == (26, 26, True)
    assert bytes(pinned) == bytes(26), "the memory is not zeroed"
    view = memoryview(pinned)
    assert (view.readonly, view.format, view.nbytes) == (False, "B", 26)
    assert np.frombuffer(pinned, dtype="u1").__array_interface__["data"] == (pinned.address, False)
    buffer.copy_to_host(buf=pinned)
    assert bytes(pinned) == ALPHABET
    view[:3] = b"xyz"
    del pinned
    buffer.copy_from_host(view)
    # The buffer has the bytes at the time of the call.
    view[:] = bytes(26)
    assert buffer.copy_to_host() == b"xyz" + ALPHABET[3:]
    assert bytes(context.new_host_buffer(0)) == b""


def test_pinned_memory_is_freed_with_its_last_view(cuda_session):
    view = memoryview(Context(session=cuda_session).new_host_buffer(1000))
    assert cuda_session.memory_used() == {"host": {"cuda_host:0": 1000}}
    view[:] = b"x" * 1000
    view.release()
    assert_all_memory_freed(cuda_session)


def test_module_allocates_zeroed_pinned_memory(cuda):
    assert bytes(new_host_buffer(3)) == bytes(3)


def test_close_keeps_slices_open(context, buffer):
    part = buffer.slice(1, 2)
    assert not buffer.closed
    with buffer as same:
        assert same is buffer
    buffer.close()
    assert buffer.closed and "closed" in repr(buffer)
    assert part.copy_to_host() == b"bc"
    uses = [
        buffer.copy_to_host,
        lambda: buffer.copy_from_host(b"a"),
        lambda: part.copy_from_device(buffer, 0, 1),
        buffer.slice,
        buffer.export_for_ipc,
        lambda: buffer.address,
        lambda: buffer.__cuda_array_interface__,
        lambda: context.buffer_from_data(buffer),
    ]
    for use in uses:
        with pytest.raises(cd.UsageError, match="the buffer is closed"):
            use()
    assert context.bytes_allocated == 26
    part.close()
    assert context.bytes_allocated == 0


def test_buffers_outlive_their_session_and_context(cuda):
    session = cd.Session(cuda)
    buffer = Context(session=session).buffer_from_data(ALPHABET)
    session.close()
    del session
    gc.collect()
    assert buffer.copy_to_host() == ALPHABET
    assert buffer.context.new_buffer(3).size == 3


def test_buffers_and_handles_have_no_constructor():
    for kind, message in ((Buffer, "use a method of Context"), (IpcMemHandle, "export_for_ipc")):
        with pytest.raises(TypeError, match=message):
            kind()


def test_forked_child_does_not_release_buffers(buffer):
    """A forked child cannot use the driver. Its calls raise, and it frees no memory of its parent."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            buffer.copy_to_host()
            message = "no error"
        except cd.UsageError as error:
            message = str(error)
        os.write(write, message.encode())
        os._exit(0)
    os.close(write)
    assert b"created before the process was forked" in os.read(read, 1000)
    assert os.waitpid(child, 0)[1] == 0
    os.close(read)
    assert buffer.copy_to_host() == ALPHABET


def test_threads_use_buffers_concurrently(context):
    whole, rounds, size = context.new_buffer(8 * 5000), 20, 5000

    def work(i):
        part = whole.slice(i * size, size)
        for k in range(rounds):
            data = bytes([i * rounds + k]) * size
            part.copy_from_host(data)
            copy = context.buffer_from_data(part)
            assert copy.slice(10).copy_to_host() == data[10:]
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(8)))


def test_copies_release_the_interpreters_lock(context):
    """The switch interval is so long that the other thread counts only if a copy releases the lock. The
    system decides when the other thread runs, so the test repeats the copy until the other thread has
    counted."""
    data, counted, done = bytes(4 << 20), [0], []
    buffer = context.buffer_from_data(data)

    def count():
        while not done:
            counted[0] += 1
            time.sleep(0)

    interval, counter = sys.getswitchinterval(), Thread(target=count)
    counter.start()
    sys.setswitchinterval(1000)
    try:
        for copy in (buffer.copy_to_host, lambda: buffer.copy_from_host(data), context.synchronize):
            before, end = counted[0], time.monotonic() + 60
            while counted[0] == before and time.monotonic() < end:
                copy()
            assert counted[0] > before
    finally:
        sys.setswitchinterval(interval)
        done.append(True)
        counter.join()
