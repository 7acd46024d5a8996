"""`crossdock.cuda` between processes: one exports memory, another opens it. Skipped if the driver has no
IPC."""

import ctypes
import gc
import random
import subprocess
import sys

import crossdock as cd
import pytest
from crossdock.cuda import Context, IpcMemHandle
from tensor_producers import Driver

BYTES = (3 << 20) + 5
NOT_SUPPORTED = "(801)"
LENGTH = 184
"""Size of a handle in bytes."""

OPENER = """
import sys
from crossdock import cuda

context = cuda.Context(0)
description = bytes.fromhex(sys.stdin.readline())
handle = cuda.IpcMemHandle.from_buffer(description)
assert handle.serialize() == description
with context.open_ipc_buffer(handle) as buffer:
    assert handle.size == buffer.size == len(buffer), (handle.size, buffer.size)
    assert context.bytes_allocated == 0, "memory of the exporter was counted"
    data = buffer.copy_to_host()
    assert data == bytes(i % 251 for i in range(len(data))), "the values differ"
    # Copied to the device again, and changed in place.
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
    """Exports a buffer, or skips the test if the driver has no IPC."""
    try:
        return buffer.export_for_ipc()
    except cd.DeviceError as error:
        if NOT_SUPPORTED in str(error):
            pytest.skip(f"the driver shares no memory between processes: {error}")
        raise


class OpeningProcess:
    """Another process, which opens exported memory."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", OPENER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def send(self, handle):
        self.process.stdin.write(handle.serialize().hex() + "\n")
        self.process.stdin.flush()
        output = self.process.stdout.readline()
        if output != "done\n":
            raise AssertionError(self.process.communicate(timeout=60)[1])

    def finish(self):
        _, errors = self.process.communicate("\n", timeout=60)
        assert (self.process.returncode, errors) == (0, "")


@pytest.fixture
def context(cuda_session):
    return Context(session=cuda_session)


def content(n):
    return bytes(i % 251 for i in range(n))


@pytest.mark.parametrize(("begin", "size"), [(0, BYTES), (4099, 5000)], ids=["all", "a part"])
def test_other_process_reads_and_writes_exported_memory(context, begin, size):
    whole = context.new_buffer(begin + size)
    buffer = whole.slice(begin, size)
    buffer.copy_from_host(content(size))
    # This process does not wait for the copy. The other process must still read the copied bytes.
    buffer.copy_from_device(context.buffer_from_data(content(size)))
    handle = export(buffer)
    assert handle.size == size
    other = OpeningProcess()
    other.send(handle)
    assert buffer.copy_to_host(7, 22) == b"from the other process"
    assert buffer.copy_to_host(29) == content(size)[29:]
    other.finish()


def test_handle_keeps_the_memory_of_a_closed_buffer(context):
    buffer = context.buffer_from_data(content(1000))
    handle = export(buffer)
    buffer.close()
    del buffer
    gc.collect()
    assert context.bytes_allocated == 1000
    other = OpeningProcess()
    other.send(handle)
    other.finish()
    del handle
    gc.collect()
    assert context.bytes_allocated == 0


def test_description_outlives_the_handle(context):
    buffer = context.buffer_from_data(content(1000))
    description = IpcMemHandle.from_buffer(export(buffer).serialize())
    gc.collect()
    other = OpeningProcess()
    other.send(description)
    other.finish()


def test_rejects_handle_of_the_same_process(context):
    handle = export(context.buffer_from_data(b"abc"))
    with pytest.raises(cd.UsageError, match="exported by this very process"):
        context.open_ipc_buffer(handle)


def test_memory_of_tables_is_not_exported(context):
    column = context.session.from_arrow(pytest.importorskip("pyarrow").table({"a": [1, 2, 3]}))["a"]
    buffer = context.buffer_from_object(column)
    with pytest.raises(cd.UsageError, match="is read-only"):
        buffer.export_for_ipc()


def test_failed_export_leaves_the_buffer_unchanged(context):
    buffer = context.buffer_from_data(content(100))
    try:
        buffer.export_for_ipc()
        pytest.skip("this driver shares memory between processes")
    except cd.DeviceError as error:
        assert "memory of cuda:0 cannot be shared with other processes" in str(error)
        assert "cuIpcGetMemHandle" in str(error)
    assert buffer.copy_to_host() == content(100)


def handle_bytes(**changes):
    """Returns the bytes of a handle: magic, number of the exporter, id of the GPU, offset, size, two handles
    of the driver, checksum. `changes` replaces some of these parts."""
    parts = {"magic": b"XDCUIPC1", "process": b"\7" * 8, "gpu": b"no GPU with this", "offset": bytes(8)}
    parts |= {"bytes": (1000).to_bytes(8, "little"), "memory": b"\3" * 64, "event": b"\4" * 64}
    description = b"".join((parts | changes).values())
    return description + xxh64(description).to_bytes(8, "little")


def xxh64(data):
    """Computes XXH64. The data must have at least 32 bytes, and a multiple of 8 bytes."""
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


def test_handle_round_trips_through_bytes():
    description = handle_bytes()
    assert len(description) == LENGTH
    for serialized in (description, bytearray(description), memoryview(description)):
        handle = IpcMemHandle.from_buffer(serialized)
        assert (handle.serialize(), handle.size) == (description, 1000)
    assert repr(handle) == "<crossdock.cuda.IpcMemHandle size=1000>"


def test_rejects_bytes_that_are_no_handle():
    description = handle_bytes()
    for n in (0, 1, 8, LENGTH - 1, LENGTH + 1, 1 << 20):
        with pytest.raises(cd.DataError, match=f"has {n} bytes; expected {LENGTH}"):
            IpcMemHandle.from_buffer((description * (n // LENGTH + 1))[:n])
    for i in range(8):
        with pytest.raises(cd.DataError, match="XDCUIPC1"):
            IpcMemHandle.from_buffer(description[:i] + b"?" + description[i + 1 :])
    for wrong in (None, 7, "text"):
        with pytest.raises(TypeError):
            IpcMemHandle.from_buffer(wrong)


def test_rejects_damaged_handle():
    """Damaged handles must not be passed to the driver, because it may crash."""
    description = handle_bytes()
    for i in range(8, LENGTH):
        with pytest.raises(cd.DataError, match="is damaged: its checksum does not match"):
            IpcMemHandle.from_buffer(description[:i] + bytes([description[i] ^ 0x10]) + description[i + 1 :])


def test_open_ipc_buffer_accepts_only_handles(context):
    for wrong in (handle_bytes(), None, 7):
        with pytest.raises(TypeError, match="expected an IpcMemHandle"):
            context.open_ipc_buffer(wrong)


def test_rejects_handle_of_unknown_memory(context):
    with pytest.raises(cd.DeviceError, match="on a GPU .* that this process does not see; check CUDA_VISIBLE_DEVICES"):
        context.open_ipc_buffer(IpcMemHandle.from_buffer(handle_bytes()))


def test_rejects_handle_with_wrong_range(context):
    """The checksums are valid. The parts that contain the driver's handles are unchanged, because the driver
    does not check its handles."""
    random_bytes = random.Random(5)
    buffer = context.buffer_from_data(content(1000))
    try:
        real = buffer.export_for_ipc().serialize()
    except cd.DeviceError:
        # The handles name an existing GPU, so the driver must reject the other parts of the
        # handles.
        driver, uuid = Driver(), ctypes.create_string_buffer(16)
        driver.call("cuDeviceGetUuid_v2", uuid, ctypes.c_int(0))
        real = handle_bytes(gpu=uuid.raw)
    for _ in range(200):
        description = bytearray(real[:-8])
        # Replaces the exporter's number, because a process cannot open its own exports.
        description[8:16] = random_bytes.randbytes(8)
        # An invalid range.
        description[32:40] = random_bytes.choice([b"\xff" * 8, b"\0\0\0\0\0\0\0\x7f", random_bytes.randbytes(8)])
        description[40:48] = random_bytes.choice([b"\xff" * 8, b"\0\0\0\0\0\0\0\x7f", random_bytes.randbytes(8)])
        description += xxh64(description).to_bytes(8, "little")
        with pytest.raises(cd.Error, match="cannot be opened") as raised:
            context.open_ipc_buffer(IpcMemHandle.from_buffer(description))
        assert isinstance(raised.value, (cd.DeviceError, cd.DataError, cd.UsageError, cd.UnsupportedError))
    assert buffer.copy_to_host() == content(1000)
