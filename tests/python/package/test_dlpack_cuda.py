"""Tensors on a CUDA device: whose stream waits for whom. The other side is a library of the test's own, which has streams,
memory and late work by the driver; nobody looks at a byte on the device from the host.

The simulated driver runs work as late as it may, and counts each access that is not ordered after what it needs: so a stream
that nobody made wait is seen, whatever came of it."""

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
from tensors import IS_COPIED, READ_ONLY, Lender, Versioned, delete, managed
from tensors_made import (
    CPU,
    CUDA,
    CUDA_HOST,
    CUDA_MANAGED,
    FROM_PY,
    LEGACY,
    PER_THREAD,
    STREAM,
    VERSIONED,
    Asked,
    Driver,
    ExchangeApi,
    name_of,
    on_device,
    show_every_dtype,
    speaker,
)

N = 1000
VALUES = np.arange(N)
BYTES = VALUES.nbytes


@pytest.fixture(params=["the first", "one more"])
def there(request, there):
    if request.param == "one more":
        show_every_dtype(there)
        # What the tests count begins after this.
        there.synchronize()
    return there


@pytest.fixture
def driver(there):
    driver = Driver()
    simulated = hasattr(driver.lib, "crossdock_sim_cuda_violations")
    if not simulated:
        pytest.skip("order is checked by the simulated driver alone, and this is a real one")
    driver.count_violations()
    driver.before, driver.expected = driver.violations(), 0
    yield driver
    gc.collect()
    there.synchronize()
    driver.close()
    assert driver.violations() - driver.before == driver.expected
    driver.count_violations(False)


@pytest.fixture
def late(driver):
    """Memory that a stream of the library writes late: (stream, address)."""
    stream, address = driver.stream(), driver.alloc(BYTES)
    driver.hold(stream)
    driver.upload(address, VALUES.tobytes(), stream)
    yield stream, address
    driver.hold(stream, False)
    driver.synchronize(stream)
    driver.free(address)


class Producer(Asked):
    """A library's tensor: it makes the consumer's stream wait, as it is asked to."""

    def __init__(self, driver, stream, made, **more):
        super().__init__(made, **{"device": (CUDA, 0), **more})
        self.driver, self.stream = driver, stream

    def __dlpack__(self, **arguments):
        if "stream" in arguments and arguments["stream"] not in (None, -1):
            self.driver.wait(arguments["stream"], self.stream)
        return super().__dlpack__(**arguments)


def values(column):
    return np.asarray(column.to("cpu")).tolist()


# ------------------------------------------------------------------------------------------------------------------- in ---


def test_a_producer_is_told_our_stream_and_what_it_wrote_late_is_there(there, driver, late):
    stream, address = late
    producer = Producer(driver, stream, on_device(address, N))
    column = there.from_dlpack(producer)
    (asked,) = producer.asked
    assert asked["max_version"] == (1, 3)
    assert isinstance(asked["stream"], int) and asked["stream"] > 2
    assert column.device == "cuda:0"
    assert values(column) == VALUES.tolist()


def test_without_its_waiting_the_order_would_be_wrong(there, driver, late):
    """That these tests see what they are for."""
    stream, address = late
    asked = Asked(on_device(address, N), device=(CUDA, 0))
    values(there.from_dlpack(asked))
    driver.expected = driver.violations() - driver.before
    assert driver.expected > 0


class FakeTorch:
    """What a torch without an exchange API has; its tensors are the driver's memory."""

    def __init__(self, driver, late):
        self.seen = seen = []

        class Tensor:
            is_cuda, requires_grad, conj, neg = True, False, False, False

            def __init__(self, made):
                self.made = made

            def __dlpack__(self, *, stream=None, max_version=None):
                seen.append("__dlpack__")
                driver.wait(stream, late)
                return self.made.capsule

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
                seen.append(device)
                return late

        self.Tensor, self._C = Tensor, C

    def to_dlpack(self, tensor):
        self.seen.append("to_dlpack")
        return tensor.made.capsule


@pytest.fixture
def torch(driver, late, monkeypatch):
    fake = FakeTorch(driver, late[0])
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_torch_without_an_exchange_api_is_waited_for_on_its_own_stream(there, torch, late):
    column = there.from_dlpack(torch.Tensor(on_device(late[1], N)))
    assert torch.seen == [0, "to_dlpack"]
    assert values(column) == VALUES.tolist()


def test_torch_on_the_default_stream_is_waited_for_there(there, driver, monkeypatch):
    torch = FakeTorch(driver, 0)
    monkeypatch.setitem(sys.modules, "torch", torch)
    address = driver.alloc(BYTES)
    driver.upload(address, VALUES.tobytes(), LEGACY)
    assert values(there.from_dlpack(torch.Tensor(on_device(address, N)))) == VALUES.tolist()
    driver.synchronize(LEGACY)
    driver.free(address)


@pytest.mark.parametrize(
    ("what", "instead"), [("requires_grad", "detach"), ("conj", "resolve_conj"), ("neg", "resolve_neg")]
)
@pytest.mark.parametrize("kind", ["one", "a dict", "derived"])
def test_what_a_tensor_of_torch_is_beyond_its_memory_is_refused(there, torch, late, what, instead, kind):
    tensor = (type("Own", (torch.Tensor,), {}) if kind == "derived" else torch.Tensor)(on_device(late[1], N))
    setattr(tensor, what, True)
    with pytest.raises(BufferError, match=rf"tensor\.{instead}\(\)"):
        there.from_dlpack({"x": tensor} if kind == "a dict" else tensor)
    assert torch.seen == []


def test_a_type_derived_from_torch_s_is_asked_its_own_way(there, torch, late):
    class Own(torch.Tensor):
        pass

    assert values(there.from_dlpack(Own(on_device(late[1], N)))) == VALUES.tolist()
    assert torch.seen == ["__dlpack__"]


def test_a_producer_that_knows_no_versions_is_told_the_stream_all_the_same(there, driver, late):
    stream, address = late
    producer = Producer(driver, stream, on_device(address, N, form="legacy"), knows=("stream",))
    column = there.from_dlpack(producer)
    assert [sorted(asked) for asked in producer.asked] == [["max_version", "stream"], ["stream"]]
    assert values(column) == VALUES.tolist()


def test_a_producer_that_knows_no_stream_is_refused(there, driver, late):
    asked = Asked(on_device(late[1], N), device=(CUDA, 0), knows=("max_version",))
    with pytest.raises(TypeError, match="stream"):
        there.from_dlpack(asked)
    assert all("stream" in arguments for arguments in asked.asked)
    made = asked.made
    delete(made.form, made.address)


def test_what_has_to_be_gathered_is_gathered_after_the_producer(there, driver, late):
    stream, address = late
    made = on_device(address, N, shape=(N // 2,), strides=(2,))
    column = there.from_dlpack(Producer(driver, stream, made))
    assert values(column) == VALUES[::2].tolist()


@pytest.mark.parametrize("handle", ["a stream", "the default"])
def test_of_a_table_the_work_stream_is_waited_for(there, driver, handle):
    stream = driver.stream() if handle == "a stream" else 0
    address = driver.alloc(BYTES)
    driver.upload(address, VALUES.tobytes(), stream or LEGACY)
    made = on_device(address, N)
    column = there.from_dlpack(speaker(lambda _: made, stream=stream)())
    assert values(column) == VALUES.tolist()
    del column
    gc.collect()
    there.synchronize()
    assert made.deleted == 1
    driver.free(address)


def test_of_a_table_work_that_is_late_is_waited_for_by_the_device(there, driver, late):
    stream, address = late
    made = on_device(address, N)
    column = there.from_dlpack(speaker(lambda _: made, stream=stream)())
    assert not driver.is_idle(stream)
    assert values(column) == VALUES.tolist()


def test_a_bare_capsule_is_ready_on_the_legacy_default_stream(there, driver):
    address = driver.alloc(BYTES)
    driver.upload(address, VALUES.tobytes(), LEGACY)
    column = there.from_dlpack(on_device(address, N).capsule)
    assert values(column) == VALUES.tolist()
    del column
    gc.collect()
    there.synchronize()
    driver.free(address)


@pytest.mark.parametrize("way", ["protocol", "table"])
def test_a_session_on_the_cpu_waits_for_a_tensor_of_a_device(cuda, driver, late, way):
    stream, address = late
    with cd.Session() as session:
        made = on_device(address, N)
        if way == "protocol":
            producer = Producer(driver, stream, made)
        else:
            producer = speaker(lambda _: made, stream=stream)()
        column = session.from_dlpack(producer)
        assert column.device == "cpu"
        assert np.asarray(column).tolist() == VALUES.tolist()
        del column
        gc.collect()
        assert made.deleted == 1


BETWEEN_DEVICES = """
import gc, sys
import numpy as np
import crossdock as cd
from tensors_made import Driver, Interface, on_device, speaker
from test_dlpack_cuda import BYTES, N, VALUES, Producer, values

with cd.Session("cuda:1") as session:
    driver = Driver()
    stream, address = driver.stream(), driver.alloc(BYTES)
    driver.hold(stream)
    driver.upload(address, VALUES.tobytes(), stream)
    way = sys.argv[1]
    made = on_device(address, N, **({"strides": (2,), "shape": (N // 2,)} if way == "gathered" else {}))
    if way == "table":
        column = session.from_dlpack(speaker(lambda _: made, stream=stream)())
    elif way == "interface":
        column = session.from_cuda_array_interface(Interface(address, N, stream=stream))
    else:
        column = session.from_dlpack(Producer(driver, stream, made))
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
def test_a_tensor_of_another_device_is_carried_over_after_its_producer(cuda, way):
    """In a process of its own, with two devices, which a violation ends."""
    here = Path(__file__).resolve().parent
    path = os.pathsep.join([str(here), str(here.parent), *sys.path])
    environment = {**os.environ, "CROSSDOCK_SIM_CUDA_DEVICES": "2", "PYTHONPATH": path}
    command = [sys.executable, "-c", BETWEEN_DEVICES, way]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    if "cuda:1" in done.stderr and "DeviceError" in done.stderr:
        pytest.skip("a real driver, with one device")
    assert (done.stdout, done.returncode) == ("in order\n", 0), done.stderr


def test_host_memory_goes_to_the_device_of_the_session(there, driver):
    column = there.from_dlpack(VALUES)
    assert column.device == "cuda:0"
    assert values(column) == VALUES.tolist()


@pytest.mark.parametrize("kind", [CUDA_HOST, CUDA_MANAGED])
def test_pinned_and_managed_memory_is_asked_for_as_its_library_expects(there, driver, kind):
    """Managed memory lies where streams matter, pinned memory where they do not."""
    pinned = c_void_p()
    driver.call("cuMemHostAlloc", byref(pinned), ctypes.c_size_t(BYTES), ctypes.c_uint32(1))
    ctypes.memmove(pinned, VALUES.tobytes(), BYTES)
    asked = Asked(on_device(pinned.value, N, device=(kind, 0)), device=(kind, 0))
    assert values(there.from_dlpack(asked)) == VALUES.tolist()
    (arguments,) = asked.asked
    assert ("stream" in arguments) == (kind == CUDA_MANAGED)
    gc.collect()
    there.synchronize()
    driver.call("cuMemFreeHost", pinned)


def test_a_deleter_is_called_after_our_last_use(there, driver, late):
    stream, address = late
    made = on_device(address, N)
    column = there.from_dlpack(Producer(driver, stream, made))
    moved = column.to("cpu")
    del column
    gc.collect()
    there.synchronize()
    assert np.asarray(moved).tolist() == VALUES.tolist()
    for _ in range(100):
        if made.deleted:
            break
        there.synchronize()
        time.sleep(0.02)
    assert made.deleted == 1


def test_memory_that_the_driver_does_not_know_is_refused(there, driver):
    made = on_device(0x7000_0000_0000, N)
    asked = Asked(made, device=(CUDA, 0))
    with pytest.raises(cd.DataError, match="the driver knows of no memory"):
        there.from_dlpack(asked)
    assert made.deleted == 1


def test_a_device_that_there_is_not_is_refused(there, driver):
    asked = Asked(on_device(8, N, device=(CUDA, 99)), device=(CUDA, 99))
    with pytest.raises(cd.Error, match="cuda:99"):
        there.from_dlpack(asked)
    assert asked.asked == []
    made = asked.made
    delete(made.form, made.address)


# ------------------------------------------------------------------------------------------------------------------ out ---


@pytest.fixture
def column(there, driver, late):
    """One whose values come late."""
    stream, address = late
    column = there.from_dlpack(Producer(driver, stream, on_device(address, N)))
    yield column
    del column
    gc.collect()


def look(driver, capsule, stream):
    tensor = managed(capsule).dl_tensor
    assert (tensor.device.device_type, tensor.device.device_id) == (CUDA, 0)
    return np.frombuffer(driver.download(tensor.data, BYTES, stream), np.int64).tolist()


@pytest.mark.parametrize("consumer", ["its own", None, LEGACY, PER_THREAD])
@pytest.mark.parametrize("arguments", [VERSIONED, {**VERSIONED, "copy": True}, {}], ids=str)
def test_the_consumers_stream_waits(driver, column, consumer, arguments):
    stream = driver.stream() if consumer == "its own" else consumer
    capsule = column.__dlpack__(stream=stream, **arguments)
    assert look(driver, capsule, stream or LEGACY) == VALUES.tolist()
    is_copy = not arguments or "copy" in arguments
    assert (managed(capsule).dl_tensor.data == managed(column.__dlpack__(**VERSIONED)).dl_tensor.data) != is_copy
    if arguments:
        assert managed(capsule).flags == (IS_COPIED if is_copy else READ_ONLY)
    else:
        assert name_of(capsule) == "dltensor"


@pytest.mark.parametrize("arguments", [{**VERSIONED, "copy": True}, {}, {**VERSIONED, "dl_device": (CPU, 0)}], ids=str)
def test_a_copy_for_a_stream_under_capture_is_refused_and_the_capture_goes_on(there, driver, arguments):
    column, stream, graph = there.from_dlpack(VALUES), driver.stream(), c_void_p()
    there.synchronize()
    driver.call("cuStreamBeginCapture_v2", c_void_p(stream), 2)  # relaxed
    with pytest.raises(BufferError, match="under graph capture"):
        column.__dlpack__(stream=stream, **arguments)
    driver.call("cuStreamEndCapture", c_void_p(stream), byref(graph))
    assert look(driver, column.__dlpack__(stream=stream, **VERSIONED), stream) == VALUES.tolist()


# What a consumer's tensors are on the host.
TRUTHS = [bool(i % 3) for i in range(N)]


@pytest.mark.parametrize("session_on", ["cuda", "cpu"])
@pytest.mark.parametrize("how", ["plain", "schema", "masks", "list"])
def test_tensors_of_several_devices_become_one_table(request, session_on, how):
    device = request.getfixturevalue("cuda")
    with cd.Session(device) as there, cd.Session(device if session_on == "cuda" else "cpu") as session:
        lies_there = there.from_dlpack(VALUES * 2)
        tensors = {"here": VALUES, "there": lies_there, "truths": np.array(TRUTHS)}
        expected = {"here": VALUES.tolist(), "there": (VALUES * 2).tolist(), "truths": [int(truth) for truth in TRUTHS]}
        more = {}
        if how == "schema":
            more["schema"] = pa.schema([("truths", pa.bool_()), ("there", pa.int64()), ("here", pa.int64())])
            expected = {"truths": TRUTHS, "there": expected["there"], "here": expected["here"]}
        if how == "masks":
            # Each lies where its tensor does.
            more["masks"] = {name: np.array(TRUTHS) for name in tensors} | {
                "there": there.from_dlpack(np.array(TRUTHS))
            }
            expected = {
                name: [None if truth else v for v, truth in zip(column, TRUTHS)] for name, column in expected.items()
            }
        if how == "list":
            tensors, expected = list(tensors.values()), {f"col_{i}": v for i, v in enumerate(expected.values())}
        table = session.from_dlpack(tensors, **more)
        assert table.device == session.device
        assert table.to("cpu").to_pyarrow().to_pydict() == expected
        with pytest.raises(cd.UsageError, match="column 'there' is 1000 rows long, expected 3"):
            session.from_dlpack({"here": np.arange(3), "there": lies_there})
        with pytest.raises(cd.DataError, match="column 'there': .* buffers on .* move them to one device"):
            session.from_dlpack(
                {"here": VALUES, "there": lies_there}, masks={"here": np.array(TRUTHS), "there": np.array(TRUTHS)}
            )
        del table, lies_there, tensors, more


def test_a_consumer_that_wants_no_order_gets_none(driver, column):
    capsule = column.__dlpack__(stream=-1, **VERSIONED)
    before = driver.violations()
    look(driver, capsule, driver.stream())
    driver.expected = driver.violations() - before
    assert driver.expected > 0


def test_each_consumer_waits_as_long_as_it_is_not_there(driver, column):
    streams = [driver.stream() for _ in range(4)]
    capsules = [column.__dlpack__(stream=stream, **VERSIONED) for stream in streams]
    # The first look waits, and then the host knows: so the last one to ask looks first.
    for stream, capsule in reversed([*zip(streams, capsules)]):
        assert look(driver, capsule, stream) == VALUES.tolist()


def test_what_was_seen_to_be_there_is_not_waited_for(there, driver, column, late):
    """Nor is anything else asked of the driver."""
    producer, consumer = late[0], driver.stream()
    capsules = [column.__dlpack__(stream=consumer, **VERSIONED) for _ in range(3)]
    driver.hold(producer, False)
    driver.synchronize(producer)
    there.synchronize()
    column.__dlpack__(stream=consumer, **VERSIONED)
    names = ("cuEventRecord", "cuEventQuery", "cuStreamWaitEvent")
    before = {name: driver.calls(name) for name in names}
    capsules += [column.__dlpack__(stream=consumer, **VERSIONED) for _ in range(3)]
    assert {name: driver.calls(name) for name in names} == before
    assert look(driver, capsules[0], consumer) == VALUES.tolist()
    assert column.__cuda_array_interface__["stream"] is None


def test_stream_zero_is_illegal_and_what_is_no_stream_is_told(driver, column):
    with pytest.raises(ValueError, match="stream=0 may mean either"):
        column.__dlpack__(stream=0, **VERSIONED)
    with pytest.raises(ValueError, match="stream=-2"):
        column.__dlpack__(stream=-2, **VERSIONED)
    with pytest.raises(ValueError, match=f"stream={2**70}"):
        column.__dlpack__(stream=2**70, **VERSIONED)
    for stream in ("1", 1.5, object()):
        with pytest.raises(TypeError, match="expected a number, or None"):
            column.__dlpack__(stream=stream, **VERSIONED)


def test_the_device_is_told(column):
    assert column.__dlpack_device__() == (CUDA, 0)


@pytest.mark.parametrize("max_version", [None, (1, 0)])
@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("stream", [None, -1, LEGACY])
def test_a_copy_on_the_cpu_is_there_and_may_be_written(driver, column, max_version, copy, stream):
    capsule = column.__dlpack__(dl_device=(1, 0), max_version=max_version, copy=copy, stream=stream)
    struct = managed(capsule)
    assert struct.dl_tensor.device.device_type == 1
    if max_version:
        assert struct.flags == IS_COPIED
    got = np.from_dlpack(Lender(capsule))
    assert got.tolist() == VALUES.tolist()


def test_no_copy_on_the_cpu_is_a_buffer_error(driver, column):
    with pytest.raises(BufferError, match="on cpu it is a copy"):
        column.__dlpack__(dl_device=(1, 0), copy=False, **VERSIONED)
    assert column.__dlpack__(dl_device=(CUDA, 0), copy=False, **VERSIONED) is not None
    with pytest.raises(BufferError, match="lies on cuda:0"):
        column.__dlpack__(dl_device=(CUDA, 1), **VERSIONED)


def test_numpy_takes_a_device_column_as_a_copy_where_it_says_so(driver, column):
    assert np.from_dlpack(column, device="cpu").tolist() == VALUES.tolist()
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(column)


def test_booleans_are_converted_on_the_device_before_the_consumer(there, driver):
    bits = there.from_dlpack(VALUES % 3 == 0, bools="bits")
    assert bits.type == "Boolean"
    stream = driver.stream()
    capsule = bits.__dlpack__(stream=stream, **VERSIONED)
    tensor = managed(capsule).dl_tensor
    assert np.frombuffer(driver.download(tensor.data, N, stream), bool).tolist() == (VALUES % 3 == 0).tolist()
    assert managed(capsule).flags == IS_COPIED


def test_our_table_gives_what_is_ready_on_the_stream_that_it_tells(driver, column):
    table = ExchangeApi.from_address(capi.capsule_pointer(cd.Column.__dlpack_c_exchange_api__))
    stream, out = c_void_p(7), c_void_p()
    assert STREAM(table.current_work_stream)(CUDA, 0, byref(stream)) == 0
    assert FROM_PY(table.managed_tensor_from_py_object_no_sync)(column, ctypes.addressof(out)) == 0
    tensor = Versioned.from_address(out.value).dl_tensor
    got = np.frombuffer(driver.download(tensor.data, BYTES, stream.value or LEGACY), np.int64)
    assert got.tolist() == VALUES.tolist()
    delete("versioned", out.value)


def test_a_tensor_outlives_its_column_and_its_memory_goes_back_after_the_consumer(there, driver):
    column = there.from_dlpack(VALUES)
    capsule = column.__dlpack__(stream=LEGACY, **VERSIONED)
    del column
    gc.collect()
    assert look(driver, capsule, LEGACY) == VALUES.tolist()
    # Late work of the consumer's, and then the end of the tensor: its memory is not another's before that has run.
    stream = driver.stream()
    driver.wait(stream, LEGACY)
    driver.hold(stream)
    to = (ctypes.c_char * BYTES)()
    address = managed(capsule).dl_tensor.data
    driver.call("cuMemcpyDtoHAsync_v2", to, ctypes.c_uint64(address), ctypes.c_size_t(BYTES), c_void_p(stream))
    del capsule
    gc.collect()
    others = [there.from_dlpack(np.zeros(N, np.int64)) for _ in range(4)]
    driver.hold(stream, False)
    driver.synchronize(stream)
    there.synchronize()
    assert np.frombuffer(bytes(to), np.int64).tolist() == VALUES.tolist()
    del others


def test_the_hosts_ways_are_closed(driver, column):
    with pytest.raises(BufferError, match="cuda:0, where the host cannot look"):
        memoryview(column)
    with pytest.raises(TypeError, match="cuda:0"):
        np.asarray(column)


def test_combined_chunks_are_one_tensor_on_the_device(there, driver):
    chunks = there.from_arrow(pa.chunked_array([VALUES[:100], VALUES[100:]]))
    assert (chunks.device, chunks.num_chunks) == ("cuda:0", 2)
    with pytest.raises(BufferError, match="combine_chunks"):
        chunks.__dlpack__(**VERSIONED)
    one = chunks.combine_chunks()
    stream = driver.stream()
    capsule = one.__dlpack__(stream=stream, **VERSIONED)
    assert look(driver, capsule, stream) == VALUES.tolist()
