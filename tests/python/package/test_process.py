"""Forks, other interpreters, signals, and the interpreter's exit, each in a separate process."""

import os
import signal
import subprocess
import sys
import time

import pytest

PRELUDE = """
import gc, os, sys
import numpy as np
import crossdock as cd
import pyarrow as pa
session = cd.Session(os.environ.get("TEST_DEVICE", "cpu"))
table = session.from_arrow(pa.record_batch({"a": [1, 2, 3], "b": ["x", "y", "z"]}))
"""


def python(code, device="cpu", seconds=60):
    # Objects that live until the interpreter exits are no leaks.
    environment = {**os.environ, "TEST_DEVICE": device, "CROSSDOCK_SIM_CUDA_LEAKS": "ignore"}
    # Newer versions of Python warn if a process with threads forks.
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-W",
        "ignore:This process:DeprecationWarning",
        "-c",
        PRELUDE + code,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment)


def output_of(code, device="cpu"):
    """Runs code in a separate process, and returns its output. It must exit with 0 and an empty stderr."""
    done = python(code, device)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


FORKED = """
column, capsules = table["a"], table.__arrow_c_device_array__()
child = os.fork()
if child == 0:
    for use in (lambda: table.num_rows, lambda: len(column), lambda: session.plugins, lambda: repr(table),
                lambda: table.to_pyarrow(), lambda: np.from_dlpack(column)):
        try:
            use()
        except cd.UsageError as error:
            assert "forked" in str(error) and "spawn" in str(error), error
        else:
            os._exit(1)
    # Dropping it releases nothing, because it belongs to the parent.
    del table, column, session, capsules, use
    gc.collect()
    new_session = cd.Session("cpu")
    assert new_session.from_arrow(pa.table({"c": [1, 2]})).num_rows == 2
    assert cd.default_session().plugins
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(table.num_rows, session.from_capsules(*capsules).num_rows)
"""


def test_forked_child_raises_and_releases_nothing():
    assert output_of(FORKED) == "3 3\n"


def test_forked_child_does_not_touch_the_parents_device(cuda):
    assert output_of(FORKED, cuda) == "3 3\n"


SUBINTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
other = interpreters.create()
code = '''
try:
    import crossdock
except ImportError as error:
    assert "interpreter" in str(error), error
else:
    raise AssertionError("imported")
'''
run = getattr(interpreters, "run_string")
result = run(other, code)
assert result is None, result
interpreters.destroy(other)
print(table.num_rows)
"""


def test_rejects_second_interpreter():
    assert output_of(SUBINTERPRETER) == "3\n"


@pytest.mark.parametrize("what", ["table", "capsule", "stream", "tensor", "foreign", "thread"])
def test_interpreter_ends_with_live_objects(what):
    keep = {
        "table": "sys.kept = (session, table, table['a'])",
        "capsule": "sys.kept = table.__arrow_c_device_array__(); del session, table",
        "stream": "sys.kept = table.__arrow_c_stream__(); del session, table",
        "tensor": "sys.kept = np.from_dlpack(table['a']); del session, table",
        "foreign": "sys.kept = session.from_dlpack({'x': np.arange(9)}); sys.also = pa.table(sys.kept)",
        "thread": """
import threading
def hold(table):
    threading.Event().wait()
threading.Thread(target=hold, args=(table,), daemon=True).start()
del table""",
    }[what]
    assert output_of(keep + "\nprint('kept')") == "kept\n"


@pytest.mark.parametrize(
    "call",
    [
        "session.from_arrow(source)",
        "session.from_dlpack(numbers[::2])",
        "session.from_dlpack({'x': numbers})",
        "table.to_pyarrow()",
        "np.asarray(table['a'])",
        "table.write_ipc(io.BytesIO())",
        "session.read_ipc(io.BytesIO(ipc))",
        "list(table.combine_batches().to_pyarrow())",
    ],
)
def test_interpreter_ends_during_calls_of_daemon_threads(call):
    code = f"""
import io, threading, time
source = pa.table({{"a": list(range(1000)), "b": ["x"] * 1000}})
numbers, written = np.arange(100_000), io.BytesIO()
table.write_ipc(written)
ipc = written.getvalue()
started = threading.Semaphore(0)
def work():
    {call}
    started.release()
    while True:
        {call}
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
for _ in range(4):
    started.acquire()
time.sleep(0.05)
"""
    output_of(code)


def test_interpreter_ends_despite_blocked_pipe():
    code = """
import threading, time
end, _ = os.pipe()
reading = open(end, "rb")
threading.Thread(target=lambda: session.read_ipc(reading), daemon=True).start()
time.sleep(0.1)
"""
    output_of(code)


def test_child_forked_while_sessions_open_can_open_sessions():
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip(
            "GCC 12's sanitizer does not unlock its allocator in a forked child: the child hangs if another thread held the lock"
        )
    # The program does not use pyarrow, because pyarrow's lazy imports would block the child
    # process.
    code = """
import signal, threading
over, numbers = threading.Event(), np.arange(2)
def work():
    while not over.is_set():
        cd.Session().from_dlpack(numbers)
threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads:
    thread.start()
ends = []
for _ in range(40):
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        os._exit(0 if len(cd.Session().from_dlpack(numbers)) == 2 else 1)
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
over.set()
for thread in threads:
    thread.join()
assert ends == [0] * 40, ends
"""
    output_of(code)


KEPT_THREADS = """
import io
from pathlib import Path

def calls():
    names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
    return names.count("crossdock-kept\\n")

ipc = io.BytesIO()
table.write_ipc(ipc)
assert [session.read(ipc.getvalue()).num_rows for _ in range(20)] == [3] * 20
print(calls(), end=" ", flush=True)
child = os.fork()
if child == 0:
    print(calls(), end=" ")
    session = cd.Session("cpu")
    assert [session.read(ipc.getvalue()).num_rows for _ in range(20)] == [3] * 20
    print(calls(), end=" ", flush=True)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(session.read(ipc.getvalue()).num_rows, calls())
"""


def test_calls_that_ctrl_c_cancels_share_a_thread():
    assert output_of(KEPT_THREADS) == "1 0 1 3 1\n"


def test_interpreter_waits_for_pending_releases(cuda):
    # A thread of the host releases the external array after the work, and acquires the
    # interpreter's lock.
    code = """
import time
class Slow:
    def __init__(self):
        self.array = np.arange(100_000)
        self.__array_interface__ = self.array.__array_interface__
    def __del__(self, sleep=time.sleep, write=os.write):
        sleep(0.05)
        write(1, b".")
for _ in range(20):
    session.from_dlpack({"x": np.asarray(Slow())})
"""
    assert output_of(code, cuda) == "." * 20


def interrupted(code, wait_for="ready"):
    """Runs a process, and sends SIGINT after it has printed the line."""
    # Sets the handler, because SIGINT is ignored if the tests were started in the background.
    enable_signal = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", enable_signal + PRELUDE + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline().strip() == wait_for
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def test_ctrl_c_cancels_read_from_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = f"""
print("ready", flush=True)
try:
    session.read_ipc({str(pipe)!r})
except KeyboardInterrupt:
    # The session stays usable.
    print("interrupted", session.from_arrow(pa.table({{"a": [1]}})).num_rows)
"""
    assert interrupted(code) == (0, "interrupted 1\n", "")


def test_ctrl_c_cancels_write_to_blocked_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = f"""
print("ready", flush=True)
try:
    table.write_ipc({str(pipe)!r}, form="stream")
except KeyboardInterrupt:
    print("interrupted")
"""
    assert interrupted(code) == (0, "interrupted\n", "")


def test_ctrl_c_cancels_long_write_and_removes_the_file(tmp_path):
    target = tmp_path / "big.arrow"
    code = f"""
batches = session.from_arrow(pa.Table.from_batches([pa.record_batch({{"x": np.zeros(1 << 20)}})] * 4))
count = 0
def progress(done, total):
    global count
    count += 1
    if count == 1:
        print("ready", flush=True)
    import time
    time.sleep(5)
try:
    batches.write_ipc({str(target)!r}, progress=progress)
except KeyboardInterrupt:
    print("interrupted", count < 4, os.listdir({str(tmp_path)!r}))
"""
    status, out, err = interrupted(code)
    assert (status, err) == (0, ""), err
    assert out == "interrupted True []\n"
