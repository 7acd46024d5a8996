"""The order of work on tensors of a CUDA device, between a session and a test library with its own streams
and memory.

The simulated driver runs work as late as possible, and counts accesses that are not ordered. So the tests
detect a missing wait even if the values are correct."""

import ctypes
import gc
import os
import subprocess
import sys
import time
from ctypes import byref, c_void_p
from pathlib import Path

import capi
import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from tensors import IS_COPIED, READ_ONLY, Producer, Versioned, delete, managed
from tensor_producers import (
    CPU,
    CUDA,
    CUDA_HOST,
    CUDA_MANAGED,
    FROM_PY,
    LEGACY,
    PER_THREAD,
    STREAM,
    VERSIONED,
    RecordingProducer,
    Driver,
    ExchangeApi,
    name_of,
    on_device,
    import_every_dtype,
    type_with_exchange_api,
)

N = 1000
VALUES = np.arange(N)
BYTES = VALUES.nbytes


@pytest.fixture(params=["the first", "one more"])
def cuda_session(request, cuda_session):
    if request.param == "one more":
        import_every_dtype(cuda_session)
        # The tests count only the calls after this one.
        cuda_session.synchronize()
    return cuda_session


@pytest.fixture
def driver(cuda_session):
    driver = Driver()
    simulated = hasattr(driver.lib, "crossdock_sim_cuda_violations")
    if not simulated:
        pytest.skip("only the simulated driver checks the order of accesses")
    driver.count_violations()
    driver.before, driver.expected = driver.violations(), 0
    yield driver
    gc.collect()
    cuda_session.synchronize()
    driver.close()
    assert driver.violations() - driver.before == driver.expected
    driver.count_violations(False)


@pytest.fixture
def late(driver):
    """Returns (stream, address): a stream of the library, and memory that pending work on it writes."""
    stream, address = driver.stream(), driver.alloc(BYTES)
    driver.hold(stream)
    driver.upload(address, VALUES.tobytes(), stream)
    yield stream, address
    driver.hold(stream, False)
    driver.synchronize(stream)
    driver.free(address)


class StreamProducer(RecordingProducer):
    """A producer whose tensor is ready on the producer's stream. The export makes the consumer's stream wait
    for the producer's stream."""

    def __init__(self, driver, stream, tensor, **more):
        super().__init__(tensor, **{"device": (CUDA, 0), **more})
        self.driver, self.stream = driver, stream

    def __dlpack__(self, **arguments):
        if "stream" in arguments and arguments["stream"] not in (None, -1):
            self.driver.wait(arguments["stream"], self.stream)
        return super().__dlpack__(**arguments)


def values(column):
    return np.asarray(column.to("cpu")).tolist()


def test_producer_receives_the_sessions_stream(cuda_session, driver, late):
    stream, address = late
    producer = StreamProducer(driver, stream, on_device(address, N))
    column = cuda_session.from_dlpack(producer)
    (arguments,) = producer.calls
    assert arguments["max_version"] == (1, 3)
    assert isinstance(arguments["stream"], int) and arguments["stream"] > 2
    assert column.device == "cuda:0"
    assert values(column) == VALUES.tolist()


def test_simulated_driver_reports_read_of_producer_data_without_a_wait(cuda_session, driver, late):
    """Checks that the tests of this file detect a missing wait."""
    stream, address = late
    producer = RecordingProducer(on_device(address, N), device=(CUDA, 0))
    values(cuda_session.from_dlpack(producer))
    driver.expected = driver.violations() - driver.before
    assert driver.expected > 0


class FakeTorch:
    """A stand-in for torch without an exchange API, with tensors in the driver's memory."""

    def __init__(self, driver, late):
        self.calls = calls = []

        class Tensor:
            is_cuda, requires_grad, conj, neg = True, False, False, False

            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack__(self, *, stream=None, max_version=None):
                calls.append("__dlpack__")
                driver.wait(stream, late)
                return self.tensor.capsule

            def __dlpack_device__(self):
                return (CUDA, 0)

            def get_device(self):
                return 0

            def is_conj(self):
                return self.conj

            def is_neg(self):
                return self.neg

        class C:
            @staticmethod
            def _cuda_getCurrentRawStream(device):
                calls.append(device)
                return late

        self.Tensor, self._C = Tensor, C

    def to_dlpack(self, tensor):
        self.calls.append("to_dlpack")
        return tensor.tensor.capsule


@pytest.fixture
def torch(driver, late, monkeypatch):
    fake = FakeTorch(driver, late[0])
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_import_without_exchange_api_waits_for_torchs_stream(cuda_session, torch, late):
    column = cuda_session.from_dlpack(torch.Tensor(on_device(late[1], N)))
    assert torch.calls == [0, "to_dlpack"]
    assert values(column) == VALUES.tolist()


def test_waits_for_torch_on_the_default_stream(cuda_session, driver, monkeypatch):
    torch = FakeTorch(driver, 0)
    monkeypatch.setitem(sys.modules, "torch", torch)
    address = driver.alloc(BYTES)
    driver.upload(address, VALUES.tobytes(), LEGACY)
    assert values(cuda_session.from_dlpack(torch.Tensor(on_device(address, N)))) == VALUES.tolist()
    driver.synchronize(LEGACY)
    driver.free(address)


@pytest.mark.parametrize(
    ("what", "instead"), [("requires_grad", "detach"), ("conj", "resolve_conj"), ("neg", "resolve_neg")]
)
@pytest.mark.parametrize("kind", ["one", "a dict", "derived"])
def test_rejects_lazy_torch_tensors(cuda_session, torch, late, what, instead, kind):
    tensor = (type("Subclass", (torch.Tensor,), {}) if kind == "derived" else torch.Tensor)(on_device(late[1], N))
    setattr(tensor, what, True)
    with pytest.raises(BufferError, match=rf"tensor\.{instead}\(\)"):
        cuda_session.from_dlpack({"x": tensor} if kind == "a dict" else tensor)
    assert torch.calls == []


def test_subclass_of_torch_tensor_uses_its_own_protocol(cuda_session, torch, late):
    class Subclass(torch.Tensor):
        pass

    assert values(cuda_session.from_dlpack(Subclass(on_device(late[1], N)))) == VALUES.tolist()
    assert torch.calls == ["__dlpack__"]


def test_producer_without_max_version_receives_the_stream(cuda_session, driver, late):
    stream, address = late
    producer = StreamProducer(driver, stream, on_device(address, N, form="legacy"), parameters=("stream",))
    column = cuda_session.from_dlpack(producer)
    assert [sorted(arguments) for arguments in producer.calls] == [["max_version", "stream"], ["stream"]]
    assert values(column) == VALUES.tolist()


def test_rejects_producer_without_stream_argument(cuda_session, driver, late):
    producer = RecordingProducer(on_device(late[1], N), device=(CUDA, 0), parameters=("max_version",))
    with pytest.raises(TypeError, match="stream"):
        cuda_session.from_dlpack(producer)
    assert all("stream" in arguments for arguments in producer.calls)
    tensor = producer.tensor
    delete(tensor.form, tensor.address)


def test_gather_waits_for_the_producer(cuda_session, driver, late):
    stream, address = late
    tensor = on_device(address, N, shape=(N // 2,), strides=(2,))
    column = cuda_session.from_dlpack(StreamProducer(driver, stream, tensor))
    assert values(column) == VALUES[::2].tolist()


@pytest.mark.parametrize("handle", ["a stream", "the default"])
def test_waits_for_the_exchange_apis_work_stream(cuda_session, driver, handle):
    stream = driver.stream() if handle == "a stream" else 0
    address = driver.alloc(BYTES)
    driver.upload(address, VALUES.tobytes(), stream or LEGACY)
    tensor = on_device(address, N)
    column = cuda_session.from_dlpack(type_with_exchange_api(lambda _: tensor, stream=stream)())
    assert values(column) == VALUES.tolist()
    del column
    gc.collect()
    cuda_session.synchronize()
    assert tensor.deleted == 1
    driver.free(address)


def test_device_waits_for_the_exchange_apis_work_stream(cuda_session, driver, late):
    stream, address = late
    tensor = on_device(address, N)
    column = cuda_session.from_dlpack(type_with_exchange_api(lambda _: tensor, stream=stream)())
    assert not driver.is_idle(stream)
    assert values(column) == VALUES.tolist()


def test_capsule_is_ready_on_the_legacy_default_stream(cuda_session, driver):
    address = driver.alloc(BYTES)
    driver.upload(address, VALUES.tobytes(), LEGACY)
    column = cuda_session.from_dlpack(on_device(address, N).capsule)
    assert values(column) == VALUES.tolist()
    del column
    gc.collect()
    cuda_session.synchronize()
    driver.free(address)


@pytest.mark.parametrize("way", ["protocol", "table"])
def test_cpu_session_waits_for_device_tensor(cuda, driver, late, way):
    stream, address = late
    with cd.Session() as session:
        tensor = on_device(address, N)
        if way == "protocol":
            producer = StreamProducer(driver, stream, tensor)
        else:
            producer = type_with_exchange_api(lambda _: tensor, stream=stream)()
        column = session.from_dlpack(producer)
        assert column.device == "cpu"
        assert np.asarray(column).tolist() == VALUES.tolist()
        del column
        gc.collect()
        assert tensor.deleted == 1


BETWEEN_DEVICES = """
import gc, sys
import numpy as np
import crossdock as cd
from tensor_producers import CudaArrayInterface, Driver, on_device, type_with_exchange_api
from test_dlpack_cuda import BYTES, N, VALUES, StreamProducer, values

with cd.Session("cuda:1") as session:
    driver = Driver()
    stream, address = driver.stream(), driver.alloc(BYTES)
    driver.hold(stream)
    driver.upload(address, VALUES.tobytes(), stream)
    way = sys.argv[1]
    tensor = on_device(address, N, **({"strides": (2,), "shape": (N // 2,)} if way == "gathered" else {}))
    if way == "table":
        column = session.from_dlpack(type_with_exchange_api(lambda _: tensor, stream=stream)())
    elif way == "interface":
        column = session.from_cuda_array_interface(CudaArrayInterface(address, N, stream=stream))
    else:
        column = session.from_dlpack(StreamProducer(driver, stream, tensor))
    assert column.device == "cuda:1", column.device
    assert values(column) == VALUES[:: 2 if way == "gathered" else 1].tolist()
    del column
    gc.collect()
    driver.hold(stream, False)
    driver.synchronize(stream)
    driver.close()
    driver.free(address)
    print("in order")
"""


@pytest.mark.parametrize("way", ["protocol", "gathered", "table", "interface"])
def test_copy_from_another_device_waits_for_the_producer(cuda, way):
    """Runs in a separate process with two devices. A wrong order of accesses ends that process."""
    here = Path(__file__).resolve().parent
    path = os.pathsep.join([str(here), str(here.parent), *sys.path])
    environment = {**os.environ, "CROSSDOCK_SIM_CUDA_DEVICES": "2", "PYTHONPATH": path}
    command = [sys.executable, "-c", BETWEEN_DEVICES, way]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    if "cuda:1" in done.stderr and "DeviceError" in done.stderr:
        pytest.skip("a real driver, with one device")
    assert (done.stdout, done.returncode) == ("in order\n", 0), done.stderr


def test_host_tensor_is_copied_to_the_sessions_device(cuda_session, driver):
    column = cuda_session.from_dlpack(VALUES)
    assert column.device == "cuda:0"
    assert values(column) == VALUES.tolist()


@pytest.mark.parametrize("kind", [CUDA_HOST, CUDA_MANAGED])
def test_managed_memory_has_a_stream_and_pinned_memory_has_none(cuda_session, driver, kind):
    """`__dlpack__` receives a stream if the memory is managed, and no stream if the memory is pinned."""
    pinned = c_void_p()
    driver.call("cuMemHostAlloc", byref(pinned), ctypes.c_size_t(BYTES), ctypes.c_uint32(1))
    ctypes.memmove(pinned, VALUES.tobytes(), BYTES)
    producer = RecordingProducer(on_device(pinned.value, N, device=(kind, 0)), device=(kind, 0))
    assert values(cuda_session.from_dlpack(producer)) == VALUES.tolist()
    (arguments,) = producer.calls
    assert ("stream" in arguments) == (kind == CUDA_MANAGED)
    gc.collect()
    cuda_session.synchronize()
    driver.call("cuMemFreeHost", pinned)


def test_deleter_runs_after_the_last_use(cuda_session, driver, late):
    stream, address = late
    tensor = on_device(address, N)
    column = cuda_session.from_dlpack(StreamProducer(driver, stream, tensor))
    moved = column.to("cpu")
    del column
    gc.collect()
    cuda_session.synchronize()
    assert np.asarray(moved).tolist() == VALUES.tolist()
    for _ in range(100):
        if tensor.deleted:
            break
        cuda_session.synchronize()
        time.sleep(0.02)
    assert tensor.deleted == 1


def test_rejects_memory_unknown_to_the_driver(cuda_session, driver):
    tensor = on_device(0x7000_0000_0000, N)
    producer = RecordingProducer(tensor, device=(CUDA, 0))
    with pytest.raises(cd.DataError, match="the driver reports no device memory"):
        cuda_session.from_dlpack(producer)
    assert tensor.deleted == 1


def test_rejects_missing_device(cuda_session, driver):
    producer = RecordingProducer(on_device(8, N, device=(CUDA, 99)), device=(CUDA, 99))
    with pytest.raises(cd.Error, match="cuda:99"):
        cuda_session.from_dlpack(producer)
    assert producer.calls == []
    tensor = producer.tensor
    delete(tensor.form, tensor.address)


@pytest.fixture
def column(cuda_session, driver, late):
    """A column with pending values."""
    stream, address = late
    column = cuda_session.from_dlpack(StreamProducer(driver, stream, on_device(address, N)))
    yield column
    del column
    gc.collect()


def download_values(driver, capsule, stream):
    tensor = managed(capsule).dl_tensor
    assert (tensor.device.device_type, tensor.device.device_id) == (CUDA, 0)
    return np.frombuffer(driver.download(tensor.data, BYTES, stream), np.int64).tolist()


@pytest.mark.parametrize("consumer", ["its own", None, LEGACY, PER_THREAD])
@pytest.mark.parametrize("arguments", [VERSIONED, {**VERSIONED, "copy": True}, {}], ids=str)
def test_consumers_stream_waits_for_the_column(driver, column, consumer, arguments):
    stream = driver.stream() if consumer == "its own" else consumer
    capsule = column.__dlpack__(stream=stream, **arguments)
    assert download_values(driver, capsule, stream or LEGACY) == VALUES.tolist()
    is_copy = not arguments or "copy" in arguments
    assert (managed(capsule).dl_tensor.data == managed(column.__dlpack__(**VERSIONED)).dl_tensor.data) != is_copy
    if arguments:
        assert managed(capsule).flags == (IS_COPIED if is_copy else READ_ONLY)
    else:
        assert name_of(capsule) == "dltensor"


@pytest.mark.parametrize("arguments", [{**VERSIONED, "copy": True}, {}, {**VERSIONED, "dl_device": (CPU, 0)}], ids=str)
def test_rejects_copy_under_capture_and_keeps_the_capture(cuda_session, driver, arguments):
    column, stream, graph = cuda_session.from_dlpack(VALUES), driver.stream(), c_void_p()
    cuda_session.synchronize()
    driver.call("cuStreamBeginCapture_v2", c_void_p(stream), 2)  # relaxed
    with pytest.raises(BufferError, match="under graph capture"):
        column.__dlpack__(stream=stream, **arguments)
    driver.call("cuStreamEndCapture", c_void_p(stream), byref(graph))
    assert download_values(driver, column.__dlpack__(stream=stream, **VERSIONED), stream) == VALUES.tolist()


TRUTHS = [bool(i % 3) for i in range(N)]


@pytest.mark.parametrize("session_on", ["cuda", "cpu"])
@pytest.mark.parametrize("how", ["plain", "schema", "masks", "list"])
def test_tensors_of_several_devices_become_one_table(request, session_on, how):
    device = request.getfixturevalue("cuda")
    with cd.Session(device) as cuda_session, cd.Session(device if session_on == "cuda" else "cpu") as session:
        device_column = cuda_session.from_dlpack(VALUES * 2)
        tensors = {"on_host": VALUES, "on_device": device_column, "truths": np.array(TRUTHS)}
        expected = {
            "on_host": VALUES.tolist(),
            "on_device": (VALUES * 2).tolist(),
            "truths": [int(truth) for truth in TRUTHS],
        }
        more = {}
        if how == "schema":
            more["schema"] = pa.schema([("truths", pa.bool_()), ("on_device", pa.int64()), ("on_host", pa.int64())])
            expected = {"truths": TRUTHS, "on_device": expected["on_device"], "on_host": expected["on_host"]}
        if how == "masks":
            # Each column has the address of its tensor.
            more["masks"] = {name: np.array(TRUTHS) for name in tensors} | {
                "on_device": cuda_session.from_dlpack(np.array(TRUTHS))
            }
            expected = {
                name: [None if truth else v for v, truth in zip(column, TRUTHS)] for name, column in expected.items()
            }
        if how == "list":
            tensors, expected = list(tensors.values()), {f"col_{i}": v for i, v in enumerate(expected.values())}
        table = session.from_dlpack(tensors, **more)
        assert table.device == session.device
        assert table.to("cpu").to_pyarrow().to_pydict() == expected
        with pytest.raises(cd.UsageError, match="column 'on_device': expected 3 rows, got 1000"):
            session.from_dlpack({"on_host": np.arange(3), "on_device": device_column})
        with pytest.raises(cd.DataError, match="column 'on_device': .* buffers on .* move them to one device"):
            session.from_dlpack(
                {"on_host": VALUES, "on_device": device_column},
                masks={"on_host": np.array(TRUTHS), "on_device": np.array(TRUTHS)},
            )
        del table, device_column, tensors, more


def test_stream_minus_1_exports_a_capsule_without_synchronization(driver, column):
    capsule = column.__dlpack__(stream=-1, **VERSIONED)
    before = driver.violations()
    download_values(driver, capsule, driver.stream())
    driver.expected = driver.violations() - before
    assert driver.expected > 0


def test_every_consumer_waits_until_the_data_is_ready(driver, column):
    streams = [driver.stream() for _ in range(4)]
    capsules = [column.__dlpack__(stream=stream, **VERSIONED) for stream in streams]
    # The check of one consumer waits for the data, so that later checks would succeed without a
    # wait. Therefore the last consumer is checked first.
    for stream, capsule in reversed([*zip(streams, capsules)]):
        assert download_values(driver, capsule, stream) == VALUES.tolist()


def test_consumer_does_not_wait_for_ready_column(cuda_session, driver, column, late):
    """The export of a ready column calls none of the driver's event functions."""
    producer, consumer = late[0], driver.stream()
    capsules = [column.__dlpack__(stream=consumer, **VERSIONED) for _ in range(3)]
    driver.hold(producer, False)
    driver.synchronize(producer)
    cuda_session.synchronize()
    column.__dlpack__(stream=consumer, **VERSIONED)
    names = ("cuEventRecord", "cuEventQuery", "cuStreamWaitEvent")
    before = {name: driver.calls(name) for name in names}
    capsules += [column.__dlpack__(stream=consumer, **VERSIONED) for _ in range(3)]
    assert {name: driver.calls(name) for name in names} == before
    assert download_values(driver, capsules[0], consumer) == VALUES.tolist()
    assert column.__cuda_array_interface__["stream"] is None


def test_rejects_invalid_stream_handles(driver, column):
    with pytest.raises(ValueError, match="stream=0 is ambiguous"):
        column.__dlpack__(stream=0, **VERSIONED)
    with pytest.raises(ValueError, match="stream=-2"):
        column.__dlpack__(stream=-2, **VERSIONED)
    with pytest.raises(ValueError, match=f"stream={2**70}"):
        column.__dlpack__(stream=2**70, **VERSIONED)
    for stream in ("1", 1.5, object()):
        with pytest.raises(TypeError, match="expected an integer, or None"):
            column.__dlpack__(stream=stream, **VERSIONED)


def test_dlpack_device_is_the_columns_device(column):
    assert column.__dlpack_device__() == (CUDA, 0)


@pytest.mark.parametrize("max_version", [None, (1, 0)])
@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("stream", [None, -1, LEGACY])
def test_cpu_copy_is_ready_and_writable(driver, column, max_version, copy, stream):
    capsule = column.__dlpack__(dl_device=(1, 0), max_version=max_version, copy=copy, stream=stream)
    struct = managed(capsule)
    assert struct.dl_tensor.device.device_type == 1
    if max_version:
        assert struct.flags == IS_COPIED
    got = np.from_dlpack(Producer(capsule))
    assert got.tolist() == VALUES.tolist()


def test_rejects_cpu_export_without_copy(driver, column):
    with pytest.raises(BufferError, match="a tensor on cpu needs a copy"):
        column.__dlpack__(dl_device=(1, 0), copy=False, **VERSIONED)
    assert column.__dlpack__(dl_device=(CUDA, 0), copy=False, **VERSIONED) is not None
    with pytest.raises(BufferError, match="expected the column's device, cuda:0"):
        column.__dlpack__(dl_device=(CUDA, 1), **VERSIONED)


def test_numpy_copies_device_column_on_request(driver, column):
    assert np.from_dlpack(column, device="cpu").tolist() == VALUES.tolist()
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(column)


def test_consumer_waits_for_the_conversion_of_booleans(cuda_session, driver):
    bits = cuda_session.from_dlpack(VALUES % 3 == 0, bools="bits")
    assert bits.type == "bool"
    stream = driver.stream()
    capsule = bits.__dlpack__(stream=stream, **VERSIONED)
    tensor = managed(capsule).dl_tensor
    assert np.frombuffer(driver.download(tensor.data, N, stream), bool).tolist() == (VALUES % 3 == 0).tolist()
    assert managed(capsule).flags == IS_COPIED


def test_exchange_api_exports_are_ready_on_its_work_stream(driver, column):
    table = ExchangeApi.from_address(capi.capsule_pointer(cd.Column.__dlpack_c_exchange_api__))
    stream, out = c_void_p(7), c_void_p()
    assert STREAM(table.current_work_stream)(CUDA, 0, byref(stream)) == 0
    assert FROM_PY(table.managed_tensor_from_py_object_no_sync)(column, ctypes.addressof(out)) == 0
    tensor = Versioned.from_address(out.value).dl_tensor
    got = np.frombuffer(driver.download(tensor.data, BYTES, stream.value or LEGACY), np.int64)
    assert got.tolist() == VALUES.tolist()
    delete("versioned", out.value)


def test_memory_is_freed_after_the_consumers_work(cuda_session, driver):
    column = cuda_session.from_dlpack(VALUES)
    capsule = column.__dlpack__(stream=LEGACY, **VERSIONED)
    del column
    gc.collect()
    assert download_values(driver, capsule, LEGACY) == VALUES.tolist()
    # The consumer submits work and deletes the tensor. The memory must not be reused before the
    # work has run.
    stream = driver.stream()
    driver.wait(stream, LEGACY)
    driver.hold(stream)
    to = (ctypes.c_char * BYTES)()
    address = managed(capsule).dl_tensor.data
    driver.call("cuMemcpyDtoHAsync_v2", to, ctypes.c_uint64(address), ctypes.c_size_t(BYTES), c_void_p(stream))
    del capsule
    gc.collect()
    others = [cuda_session.from_dlpack(np.zeros(N, np.int64)) for _ in range(4)]
    driver.hold(stream, False)
    driver.synchronize(stream)
    cuda_session.synchronize()
    assert np.frombuffer(bytes(to), np.int64).tolist() == VALUES.tolist()
    del others


def test_device_column_rejects_host_protocols(driver, column):
    with pytest.raises(BufferError, match="cuda:0, and the buffer protocol needs host memory"):
        memoryview(column)
    with pytest.raises(TypeError, match="cuda:0"):
        np.asarray(column)


def test_combined_chunks_are_one_tensor_on_the_device(cuda_session, driver):
    chunks = cuda_session.from_arrow(pa.chunked_array([VALUES[:100], VALUES[100:]]))
    assert (chunks.device, chunks.num_chunks) == ("cuda:0", 2)
    with pytest.raises(BufferError, match="combine_chunks"):
        chunks.__dlpack__(copy=False, **VERSIONED)
    stream = driver.stream()
    for column in (chunks, chunks.combine_chunks()):
        capsule = column.__dlpack__(stream=stream, **VERSIONED)
        assert download_values(driver, capsule, stream) == VALUES.tolist()
