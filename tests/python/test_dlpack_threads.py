"""Tensors let go in any order, on any thread, and when the interpreter ends."""

import ctypes
import gc
import itertools
import os
import subprocess
import sys
import threading
from ctypes import CDLL, POINTER, byref, c_int, c_ulong, c_void_p
from pathlib import Path

import capi
import numpy as np
import pytest
from tensors import (
    CAPSULES,
    FORMATS,
    Lender,
    bring,
    collected,
    deleter_address,
    lend,
    numbers,
    owned,
    send,
    take,
    values,
)

pytestmark = pytest.mark.usefixtures("library")
forms = pytest.mark.parametrize("form", FORMATS)


class Held:
    """Everything that a round trip leaves, to be let go by name."""

    def __init__(self, form):
        array, self.witness = owned()
        self.host = capi.Host()
        self.session = self.host.session()
        self.stream = self.session.import_capsules("dlpack", [(CAPSULES[form], lend(array, form))])
        (self.batch,) = self.stream.batches()
        self.writer = self.session.export("dlpack", self.batch.schema)
        (capsule,) = self.writer.write(self.batch)
        self.tensor = np.from_dlpack(Lender(capsule))

    def let_go(self, name):
        if hasattr(each := vars(self).pop(name), "close"):
            each.close()

    def look(self):
        """What is left has its values."""
        if hasattr(self, "batch"):
            assert self.batch.column(0)[999].as_py() == 999
        if hasattr(self, "tensor"):
            assert self.tensor[999] == 999


@forms
@pytest.mark.parametrize("last", ["stream", "writer", "batch", "tensor"])
def test_everything_may_go_in_any_order(form, last):
    """But that the session goes with its host: of the handles any may be the last one."""
    others = [name for name in ("host", "stream", "writer", "batch", "tensor") if name != last]
    for order in itertools.permutations(others):
        held = Held(form)
        for name in (*order, last):
            held.look()
            if name == "host":
                held.let_go("session")
            held.let_go(name)
        assert held.witness() is None, order


def on_a_thread_of_its_own(function, argument):
    """Calls a C function of one pointer on a thread that Python knows nothing of."""
    libc = CDLL(None)
    libc.pthread_create.argtypes = [POINTER(c_ulong), c_void_p, c_void_p, c_void_p]
    libc.pthread_create.restype = libc.pthread_join.restype = c_int
    libc.pthread_join.argtypes = [c_ulong, c_void_p]
    thread = c_ulong()
    assert libc.pthread_create(byref(thread), None, function, argument) == 0
    assert libc.pthread_join(thread, None) == 0


@forms
def test_a_batch_may_be_released_on_a_thread_that_python_does_not_know(session, form):
    """numpy's deleter then takes the GIL by itself."""
    array, witness = owned()
    stream = session.import_capsules("dlpack", [(CAPSULES[form], lend(array, form))])
    raw = stream.next_raw()
    stream.close()
    del array, stream
    assert not collected(witness)
    released = raw.array.array
    on_a_thread_of_its_own(released.release, ctypes.addressof(released))
    assert not released.release
    assert collected(witness)


@forms
def test_our_tensor_may_be_deleted_on_a_thread_that_python_does_not_know(session, form):
    array, witness = owned()
    (batch,) = bring(session, lend(array, form))
    options = {"read_only": "lent"} if form == "legacy" else {}
    (capsule,) = send(session, batch, form, **options)
    tensor = take(capsule)
    del array, batch, capsule
    assert not collected(witness)
    on_a_thread_of_its_own(deleter_address(form, tensor), tensor)
    assert collected(witness)


def test_many_threads_bring_and_send_at_once(host, session):
    failures = []

    def work(number):
        try:
            for turn in range(20):
                array = np.arange(100) + number * turn
                (batch,) = bring(session, lend(array[:: 1 + turn % 2], ("versioned", "legacy")[number % 2]))
                (capsule,) = send(session, batch, copy=("needed", "always")[turn % 2])
                np.testing.assert_array_equal(np.from_dlpack(Lender(capsule)), array[:: 1 + turn % 2])
                np.testing.assert_array_equal(values(batch.column(0)), array[:: 1 + turn % 2])
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    gc.collect()
    assert host.ledger()["live_bytes"] == 0


def test_tensors_are_deleted_by_threads_while_others_are_made(session):
    """What one thread made another one drops."""
    made = [np.from_dlpack(Lender(send(session, numbers(100 + n), copy="always")[0])) for n in range(64)]
    thread = threading.Thread(target=made.clear)
    thread.start()
    more = [send(session, numbers(100 + n), copy="always") for n in range(64)]
    thread.join()
    assert [len(np.from_dlpack(Lender(capsule))) for (capsule,) in more] == [100 + n for n in range(64)]


LEFT_BEHIND = """
import capi, numpy, pyarrow, tensors
host = capi.Host()
session = host.session()
array = numpy.arange(1000)
stream = session.import_capsules("dlpack", [tensors.pair(tensors.lend(array, "{form}"))])
batches = [tensors.bring(session, tensors.lend(part, "{form}"))[0] for part in (array, array[::2])]
writer = session.export("dlpack", batches[0].schema)
untaken = writer.write(batches[0])
taken = [numpy.from_dlpack(tensors.Lender(tensors.send(session, batch, "{form}")[0])) for batch in batches]
assert taken[0][999] == taken[1][-1] + 1 == 999
print("whole")
"""


@forms
@pytest.mark.parametrize("ending", ["", "del array, batches, session, host", "sys.exit(0)", "os._exit(0)"])
def test_the_interpreter_may_end_with_everything_still_alive(library, form, ending):
    script = f"import os, sys\n{LEFT_BEHIND.format(form=form)}\nsys.stdout.flush()\n{ending}\n"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment, timeout=60, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "whole\n", "")
