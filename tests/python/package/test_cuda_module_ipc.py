"""`crossdock.cuda` between processes: what is exported is opened by another one. A driver that has no such thing is skipped."""

import ctypes
import gc
import random
import subprocess
import sys

import crossdock as cd
import pytest
from crossdock.cuda import Context, IpcMemHandle
from tensors_made import Driver

BYTES = (3 << 20) + 5
NOT_SUPPORTED = "(801)"
LENGTH = 184
"""Of a handle's bytes."""

OPENER = """
import sys
from crossdock import cuda

context = cuda.Context(0)
told = bytes.fromhex(sys.stdin.readline())
handle = cuda.IpcMemHandle.from_buffer(told)
assert handle.serialize() == told
with context.open_ipc_buffer(handle) as buffer:
    assert handle.size == buffer.size == len(buffer), (handle.size, buffer.size)
    assert context.bytes_allocated == 0, "it is the exporter's"
    data = buffer.copy_to_host()
    assert data == bytes(i % 251 for i in range(len(data))), "not what was written"
    # Onto the device again, and changed in place.
    copy = context.new_buffer(100)
    copy.copy_from_device(buffer.slice(500, 100))
    assert copy.copy_to_host() == data[500:600]
    buffer.copy_from_host(b"from the other process", 7)
    array = buffer.__cuda_array_interface__
    assert array["data"] == (buffer.address, False)
context.synchronize()
print("done", flush=True)
sys.stdin.readline()
"""


def export(buffer):
    """The handle, where the driver can make one."""
    try:
        return buffer.export_for_ipc()
    except cd.DeviceError as error:
        if NOT_SUPPORTED in str(error):
            pytest.skip(f"the driver shares no memory between processes: {error}")
        raise


class Other:
    """Another process, which opens what it is told of."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", OPENER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def tell(self, handle):
        self.process.stdin.write(handle.serialize().hex() + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        if said != "done\n":
            raise AssertionError(self.process.communicate(timeout=60)[1])

    def end(self):
        _, errors = self.process.communicate("\n", timeout=60)
        assert (self.process.returncode, errors) == (0, "")


@pytest.fixture
def context(there):
    return Context(session=there)


def content(n):
    return bytes(i % 251 for i in range(n))


@pytest.mark.parametrize(("begin", "size"), [(0, BYTES), (4099, 5000)], ids=["all", "a part"])
def test_another_process_reads_and_writes_what_was_exported(context, begin, size):
    whole = context.new_buffer(begin + size)
    buffer = whole.slice(begin, size)
    buffer.copy_from_host(content(size))
    # Nobody waits here for this copy, which the other process has to see.
    buffer.copy_from_device(context.buffer_from_data(content(size)))
    handle = export(buffer)
    assert handle.size == size
    other = Other()
    other.tell(handle)
    assert buffer.copy_to_host(7, 22) == b"from the other process"
    assert buffer.copy_to_host(29) == content(size)[29:]
    other.end()


def test_the_handle_holds_the_memory_and_so_does_any_slice(context):
    buffer = context.buffer_from_data(content(1000))
    handle = export(buffer)
    buffer.close()
    del buffer
    gc.collect()
    assert context.bytes_allocated == 1000
    other = Other()
    other.tell(handle)
    other.end()
    del handle
    gc.collect()
    assert context.bytes_allocated == 0


def test_a_handle_that_was_dropped_leaves_what_it_told(context):
    buffer = context.buffer_from_data(content(1000))
    told = IpcMemHandle.from_buffer(export(buffer).serialize())
    gc.collect()
    other = Other()
    other.tell(told)
    other.end()


def test_the_process_that_exported_it_uses_the_buffer_itself(context):
    handle = export(context.buffer_from_data(b"abc"))
    with pytest.raises(cd.UsageError, match="exported by this very process"):
        context.open_ipc_buffer(handle)


def test_memory_of_tables_is_not_exported(context):
    column = context.session.from_arrow(pytest.importorskip("pyarrow").table({"a": [1, 2, 3]}))["a"]
    buffer = context.buffer_from_object(column)
    with pytest.raises(cd.UsageError, match="may only be read"):
        buffer.export_for_ipc()


def test_a_driver_without_ipc_says_so_and_the_buffer_is_as_it_was(context):
    buffer = context.buffer_from_data(content(100))
    try:
        buffer.export_for_ipc()
        pytest.skip("this driver shares memory between processes")
    except cd.DeviceError as error:
        assert "memory of cuda:0 cannot be shared with other processes" in str(error)
        assert "cuIpcGetMemHandle" in str(error)
    assert buffer.copy_to_host() == content(100)


def example(**changes):
    """A handle's bytes: a mark, the exporter's number, a GPU, where, how much, two handles of the driver. Their sum is not
    known here."""
    parts = {"mark": b"XDCUIPC1", "process": b"\7" * 8, "gpu": b"no GPU of theirs", "offset": bytes(8)}
    parts |= {"bytes": (1000).to_bytes(8, "little"), "memory": b"\3" * 64, "event": b"\4" * 64}
    told = b"".join((parts | changes).values())
    return told + xxh64(told).to_bytes(8, "little")


def xxh64(data):
    """Its definition, over a whole number of 8-byte words and more than 31 bytes."""
    primes = [0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5]
    p1, p2, p3, p4, p5 = primes
    mask = (1 << 64) - 1

    def rotate(x, n):
        return (x << n | x >> (64 - n)) & mask

    def step(lane, word):
        return rotate((lane + word * p2) & mask, 31) * p1 & mask

    words = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]
    lanes = [(p1 + p2) & mask, p2, 0, -p1 & mask]
    while len(words) >= 4:
        lanes = [step(lane, words.pop(0)) for lane in lanes]
    h = sum(rotate(lane, n) for lane, n in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    for lane in lanes:
        h = ((h ^ step(0, lane)) * p1 + p4) & mask
    h = (h + len(data)) & mask
    for word in words:
        h = (rotate(h ^ step(0, word), 27) * p1 + p4) & mask
    h = (h ^ h >> 33) * p2 & mask
    h = (h ^ h >> 29) * p3 & mask
    return h ^ h >> 32


def test_handles_are_read_and_told_as_they_are():
    told = example()
    assert len(told) == LENGTH
    for given in (told, bytearray(told), memoryview(told)):
        handle = IpcMemHandle.from_buffer(given)
        assert (handle.serialize(), handle.size) == (told, 1000)
    assert repr(handle) == "<crossdock.cuda.IpcMemHandle size=1000>"


def test_bytes_that_are_no_handle_are_refused():
    told = example()
    for n in (0, 1, 8, LENGTH - 1, LENGTH + 1, 1 << 20):
        with pytest.raises(cd.DataError, match=f"has {n} bytes; expected {LENGTH}"):
            IpcMemHandle.from_buffer((told * (n // LENGTH + 1))[:n])
    for i in range(8):
        with pytest.raises(cd.DataError, match="XDCUIPC1"):
            IpcMemHandle.from_buffer(told[:i] + b"?" + told[i + 1 :])
    for wrong in (None, 7, "text"):
        with pytest.raises(TypeError):
            IpcMemHandle.from_buffer(wrong)


def test_handles_that_were_damaged_on_their_way_are_refused():
    """Whatever the driver would do with them: one that opens a damaged handle may crash."""
    told = example()
    for i in range(8, LENGTH):
        with pytest.raises(cd.DataError, match="is damaged: its checksum is another"):
            IpcMemHandle.from_buffer(told[:i] + bytes([told[i] ^ 0x10]) + told[i + 1 :])


def test_a_context_opens_handles_and_nothing_else(context):
    for wrong in (example(), None, 7):
        with pytest.raises(TypeError, match="expected an IpcMemHandle"):
            context.open_ipc_buffer(wrong)


def test_handles_of_nothing_that_is_here_are_refused(context):
    with pytest.raises(cd.DeviceError, match="on a GPU .* that this process does not see; check CUDA_VISIBLE_DEVICES"):
        context.open_ipc_buffer(IpcMemHandle.from_buffer(example()))


def test_handles_that_lie_about_their_range_are_refused_and_change_nothing(context):
    """As others may write them, whole. The driver's own handles in them are the driver's: it trusts who gives them to it."""
    random_bytes = random.Random(5)
    buffer = context.buffer_from_data(content(1000))
    try:
        real = buffer.export_for_ipc().serialize()
    except cd.DeviceError:
        # Of a GPU that is here: the rest is the driver's to refuse.
        driver, uuid = Driver(), ctypes.create_string_buffer(16)
        driver.call("cuDeviceGetUuid_v2", uuid, ctypes.c_int(0))
        real = example(gpu=uuid.raw)
    for _ in range(200):
        told = bytearray(real[:-8])
        # Not the exporter's number alone, which is what makes it another process's.
        told[8:16] = random_bytes.randbytes(8)
        # A range that lies nowhere.
        told[32:40] = random_bytes.choice([b"\xff" * 8, b"\0\0\0\0\0\0\0\x7f", random_bytes.randbytes(8)])
        told[40:48] = random_bytes.choice([b"\xff" * 8, b"\0\0\0\0\0\0\0\x7f", random_bytes.randbytes(8)])
        told += xxh64(told).to_bytes(8, "little")
        with pytest.raises(cd.Error, match="cannot be opened") as raised:
            context.open_ipc_buffer(IpcMemHandle.from_buffer(told))
        assert isinstance(raised.value, (cd.DeviceError, cd.DataError, cd.UsageError, cd.UnsupportedError))
    assert buffer.copy_to_host() == content(1000)
