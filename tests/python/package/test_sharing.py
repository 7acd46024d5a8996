"""Tables that another process opens, in host memory and in memory of a CUDA device."""

import multiprocessing
import os
import pathlib
import pickle
import subprocess
import sys

import pyarrow as pa
import pytest
from samples import SAMPLES, make

import crossdock as cd
import crossdock.multiprocessing

ROWS = 1000

OPEN = """
import sys
import crossdock as cd

description = bytes.fromhex(sys.stdin.readline())
with cd.Session(sys.argv[1]) as session:
    table = session.open_shared(description)
    print(table.device, sum(v or 0 for v in table["n"].to_pyarrow().to_pylist()), flush=True)
    sys.stdin.readline()
    print(sum(v or 0 for v in table["n"].to_pyarrow().to_pylist()), flush=True)
"""

SHARE = """
import sys
import crossdock as cd
import pyarrow as pa

session = cd.Session(sys.argv[1])
table = session.from_arrow(pa.table({"n": list(range(1000))}))
shared = table.share()
print(shared.description.hex(), flush=True)
sys.stdin.readline()
"""


def numbers(rows=ROWS):
    return pa.table(
        {
            "n": [None if i % 7 == 0 else i for i in range(rows)],
            "t": [None if i % 5 == 0 else f"text {i}" for i in range(rows)],
            "d": pa.array(["a", "b", None, "a"] * (rows // 4)).dictionary_encode(),
        }
    )


def total(table):
    return sum(value or 0 for value in table["n"].to_pylist())


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def say(process, line):
    process.stdin.write(line + "\n")
    process.stdin.flush()
    answer = process.stdout.readline().strip()
    if not answer:
        raise AssertionError(process.communicate(timeout=60)[1])
    return answer


@pytest.fixture
def table(cuda):
    with cd.Session(cuda) as session:
        yield session.from_arrow(numbers())


@pytest.mark.parametrize("name", SAMPLES)
def test_opened_table_equals_the_shared_one(any_session, name):
    schema, batches = make(name)
    arrow = pa.Table.from_batches(batches, schema)
    try:
        table = any_session.from_arrow(arrow)
    except cd.UnsupportedError as error:
        pytest.skip(str(error))
    for part in (table, table.slice(1, table.num_rows // 2), table.slice(0, 0)):
        with part.share() as shared:
            opened = any_session.open_shared(shared.description)
        assert opened.device == any_session.device and opened.schema == part.schema
        # The texts of NaNs are equal.
        actual, expected = (
            [column.to_string(window=1000) for column in table.to_pyarrow().columns] for table in (opened, part)
        )
        assert actual == expected


def test_several_batches_share_a_dictionary(any_session):
    arrow = numbers()
    batches = pa.Table.from_batches(arrow.to_batches(max_chunksize=100))
    table = any_session.from_arrow(batches)
    with table.share() as shared:
        opened = any_session.open_shared(shared.description)
    assert opened.num_batches == table.num_batches and opened.to_pyarrow().equals(table.to_pyarrow())


def test_processes_use_the_memory_after_it_was_withdrawn(any_session):
    expected = str(total(numbers()))
    with any_session.from_arrow(numbers()).share() as shared:
        processes = [start(OPEN, any_session.device) for _ in range(2)]
        for process in processes:
            assert say(process, shared.description.hex()) == f"{any_session.device} {expected}"
    # Other tables must not reuse the memory.
    others = [any_session.from_arrow(pa.table({"n": [7] * ROWS, "t": ["x"] * ROWS})).share() for _ in range(3)]
    for process in processes:
        assert say(process, "") == expected
        assert process.communicate(timeout=60) == ("", "")
    for other in others:
        other.close()


def test_opened_table_outlives_the_process_that_shared_it(any_session):
    process = start(SHARE, any_session.device)
    description = bytes.fromhex(process.stdout.readline())
    opened = any_session.open_shared(description)
    assert process.communicate("\n", timeout=60) == ("", "")
    assert opened["n"].to_pyarrow().to_pylist() == list(range(1000))
    with pytest.raises(cd.DeviceError, match="cannot reach process .* must still run"):
        any_session.open_shared(description)


def test_closed_table_cannot_be_opened(any_session):
    shared = any_session.from_arrow(numbers()).share()
    description = shared.description
    shared.close()
    shared.close()
    with pytest.raises(cd.DeviceError, match="has withdrawn it"):
        any_session.open_shared(description)
    with pytest.raises(cd.UsageError, match="closed"):
        _ = shared.description


def test_damaged_descriptions_are_errors(any_session):
    with any_session.from_arrow(numbers()).share() as shared:
        description = shared.description
        for n in range(0, len(description), 7):
            with pytest.raises(cd.DataError):
                any_session.open_shared(description[:n])
        other_version = description[:8] + b"\x09" + description[9:]
        with pytest.raises(cd.UnsupportedError, match="shared memory of version 9"):
            any_session.open_shared(other_version)
        for i in range(12, len(description)):
            damaged = description[:i] + bytes([description[i] ^ 0x41]) + description[i + 1 :]
            try:
                any_session.open_shared(damaged)
            except cd.Error:
                pass
        assert any_session.open_shared(description).to_pyarrow().equals(numbers())


def test_gpu_that_the_process_does_not_see_is_an_error(table):
    with table.share() as shared:
        code = OPEN.replace("cd.Session(sys.argv[1])", 'cd.Session("cpu")')
        process = subprocess.run(
            [sys.executable, "-c", code],
            input=shared.description.hex() + "\n",
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "CROSSDOCK_SIM_CUDA_DEVICES": "0"},
            capture_output=True,
            text=True,
        )
    assert process.returncode != 0
    assert "DeviceError" in process.stderr and "cuda" in process.stderr.lower(), process.stderr


def test_session_on_another_device_copies_the_table(cuda):
    with cd.Session("cpu") as host, cd.Session(cuda) as gpu:
        for sender, receiver in [(gpu, host), (host, gpu)]:
            with sender.from_arrow(numbers()).share() as shared:
                opened = receiver.open_shared(shared.description)
            assert opened.device == receiver.device and opened.to_pyarrow().equals(numbers())


def test_memory_on_the_host_is_reused_and_limited(session):
    small = session.from_arrow(numbers())
    for _ in range(100):
        assert session.open_shared(small._share_once()).num_rows == ROWS
    # A thread frees the memory of an opened table, possibly after the next one was shared.
    files = [pathlib.Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert 0 < sum(file.is_symlink() and "crossdock-shared" in os.readlink(file) for file in files) < 20
    with cd.Session(memory=1 << 20) as limited:
        table = limited.from_arrow(pa.table({"n": list(range(140_000))}))
        with pytest.raises(cd.OutOfMemoryError, match="limit"):
            table.share()
        assert table.slice(0, 1000)._share_once()


def test_second_gpu_copies_the_table(table):
    try:
        second = cd.Session("cuda:1")
    except cd.Error as error:
        pytest.skip(str(error))
    with table.share() as shared, second:
        opened = second.open_shared(shared.description)
        assert opened.device == "cuda:1" and opened.to_pyarrow().equals(numbers())


def test_table_is_rebuilt_from_one_buffer_of_device_memory(cuda, table):
    context = cd.cuda.Context(0)
    for thing in (table, table.slice(3, 20), table["t"], table.slice(0, 0)):
        header, memory = cd._native.device_parts(thing)
        sent = cd.cuda.Buffer._of(memory, context)
        received = context.buffer_from_data(sent)
        rebuilt = context._native.rebuild(header, received._memory)
        assert type(rebuilt) is type(thing) and rebuilt.to_pyarrow().equals(thing.to_pyarrow())
    header, memory = cd._native.device_parts(table)
    shorter = context.new_buffer(memory.size - 1)
    with pytest.raises(cd.DataError, match="expected .* bytes, got"):
        context._native.rebuild(header, shorter._memory)
    shifted = context.new_buffer(memory.size + 1).slice(1)
    with pytest.raises(cd.DataError, match="do not begin at a multiple"):
        context._native.rebuild(header, shifted._memory)
    with cd.Session("cpu") as host, pytest.raises(cd.UnsupportedError, match="expected a CUDA device"):
        cd._native.device_parts(host.from_arrow(numbers()))


def test_memory_to_send_can_be_shared_by_cuda_ipc(cuda, table):
    # UCX opens such memory in the other process, and sends other memory through the host.
    _, memory = cd._native.device_parts(table)
    buffer = cd.cuda.Buffer._of(memory, cd.cuda.Context(0))
    try:
        assert buffer.export_for_ipc().size == memory.size
    except cd.DeviceError as error:
        # The driver accepts the memory, but supports no IPC.
        assert "from cuIpcGetMemHandle" in str(error)


def echo(tasks, results):
    """Runs in another process."""
    while (task := tasks.get(timeout=60)) is not None:
        results.put((task.device, task, type(task).__name__))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_queues_of_multiprocessing_pass_device_memory(cuda_session, table, method):
    assert crossdock.multiprocessing.plan(table) == "device"
    context = multiprocessing.get_context(method)
    tasks, results = context.Queue(), context.Queue()
    process = context.Process(target=echo, args=(tasks, results))
    process.start()
    try:
        for sent in (table, table["t"], table.slice(5, 17)):
            tasks.put(sent)
            device, received, kind = results.get(timeout=60)
            assert (device, kind, received.device) == ("cuda:0", type(sent).__name__, "cuda:0")
            assert received.to_pyarrow().equals(sent.to_pyarrow())
        tasks.put(None)
        process.join(60)
        assert process.exitcode == 0
    finally:
        process.kill()


def test_description_that_is_sent_is_small(table):
    reduced = multiprocessing.reduction.ForkingPickler.dumps(table)
    assert len(reduced) < 1500
    assert pickle.loads(reduced).to_pyarrow().equals(numbers())
    with pytest.raises(cd.DeviceError, match="another process has received it"):
        pickle.loads(reduced)


def test_tables_on_the_host_are_passed_through_the_host():
    with cd.Session("cpu") as session:
        table = session.from_arrow(numbers())
        assert crossdock.multiprocessing.plan(table) == "host: the table is on cpu"
        reduced = multiprocessing.reduction.ForkingPickler.dumps(table)
        assert pickle.loads(reduced).to_pyarrow().equals(numbers())
