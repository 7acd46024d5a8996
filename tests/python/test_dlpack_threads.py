"""Release of tensors in any order, on any thread, and at the end of the interpreter."""

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
    Producer,
    import_batches,
    is_collected,
    deleter_address,
    capsule_of,
    numbers,
    witnessed_array,
    export_batch,
    consume,
    values,
)

pytestmark = pytest.mark.usefixtures("library")
forms = pytest.mark.parametrize("form", FORMATS)


class RoundTrip:
    """Has all objects of a round trip as attributes."""

    def __init__(self, form):
        array, self.witness = witnessed_array()
        self.host = capi.Host()
        self.session = self.host.session()
        self.stream = self.session.import_capsules("dlpack", [(CAPSULES[form], capsule_of(array, form))])
        (self.batch,) = self.stream.batches()
        self.writer = self.session.export("dlpack", self.batch.schema)
        (capsule,) = self.writer.write(self.batch)
        self.tensor = np.from_dlpack(Producer(capsule))

    def release(self, name):
        if hasattr(each := vars(self).pop(name), "close"):
            each.close()

    def check_values(self):
        """Checks the values of the remaining objects."""
        if hasattr(self, "batch"):
            assert self.batch.column(0)[999].as_py() == 999
        if hasattr(self, "tensor"):
            assert self.tensor[999] == 999


@forms
@pytest.mark.parametrize("last", ["stream", "writer", "batch", "tensor"])
def test_objects_may_be_released_in_any_order(form, last):
    """Any of the objects may be released last. The session is released together with its host."""
    others = [name for name in ("host", "stream", "writer", "batch", "tensor") if name != last]
    for order in itertools.permutations(others):
        objects = RoundTrip(form)
        for name in (*order, last):
            objects.check_values()
            if name == "host":
                objects.release("session")
            objects.release(name)
        assert objects.witness() is None, order


def call_on_foreign_thread(function, argument):
    """Calls a C function with one pointer on a thread that Python did not create."""
    libc = CDLL(None)
    libc.pthread_create.argtypes = [POINTER(c_ulong), c_void_p, c_void_p, c_void_p]
    libc.pthread_create.restype = libc.pthread_join.restype = c_int
    libc.pthread_join.argtypes = [c_ulong, c_void_p]
    thread = c_ulong()
    assert libc.pthread_create(byref(thread), None, function, argument) == 0
    assert libc.pthread_join(thread, None) == 0


@forms
def test_batch_may_be_released_on_a_foreign_thread(session, form):
    """numpy's deleter acquires the GIL."""
    array, witness = witnessed_array()
    stream = session.import_capsules("dlpack", [(CAPSULES[form], capsule_of(array, form))])
    raw = stream.next_raw()
    stream.close()
    del array, stream
    assert not is_collected(witness)
    released = raw.array.array
    call_on_foreign_thread(released.release, ctypes.addressof(released))
    assert not released.release
    assert is_collected(witness)


@forms
def test_tensor_may_be_deleted_on_a_foreign_thread(session, form):
    array, witness = witnessed_array()
    (batch,) = import_batches(session, capsule_of(array, form))
    options = {"read_only": "lent"} if form == "legacy" else {}
    (capsule,) = export_batch(session, batch, form, **options)
    tensor = consume(capsule)
    del array, batch, capsule
    assert not is_collected(witness)
    call_on_foreign_thread(deleter_address(form, tensor), tensor)
    assert is_collected(witness)


def test_threads_import_and_export_concurrently(host, session):
    failures = []

    def work(number):
        try:
            for turn in range(20):
                array = np.arange(100) + number * turn
                (batch,) = import_batches(
                    session, capsule_of(array[:: 1 + turn % 2], ("versioned", "legacy")[number % 2])
                )
                (capsule,) = export_batch(session, batch, copy=("needed", "always")[turn % 2])
                np.testing.assert_array_equal(np.from_dlpack(Producer(capsule)), array[:: 1 + turn % 2])
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


def test_threads_delete_tensors_during_exports(session):
    """One thread creates objects, and another drops them."""
    tensors = [np.from_dlpack(Producer(export_batch(session, numbers(100 + n), copy="always")[0])) for n in range(64)]
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    more = [export_batch(session, numbers(100 + n), copy="always") for n in range(64)]
    thread.join()
    assert [len(np.from_dlpack(Producer(capsule))) for (capsule,) in more] == [100 + n for n in range(64)]


LIVE_OBJECTS = """
import capi, numpy, pyarrow, tensors
host = capi.Host()
session = host.session()
array = numpy.arange(1000)
stream = session.import_capsules("dlpack", [tensors.named_capsule(tensors.capsule_of(array, "{form}"))])
batches = [tensors.import_batches(session, tensors.capsule_of(part, "{form}"))[0] for part in (array, array[::2])]
writer = session.export("dlpack", batches[0].schema)
unconsumed = writer.write(batches[0])
arrays = [numpy.from_dlpack(tensors.Producer(tensors.export_batch(session, batch, "{form}")[0])) for batch in batches]
assert arrays[0][999] == arrays[1][-1] + 1 == 999
print("whole")
"""


@forms
@pytest.mark.parametrize("end", ["", "del array, batches, session, host", "sys.exit(0)", "os._exit(0)"])
def test_interpreter_ends_with_live_objects(library, form, end):
    script = f"import os, sys\n{LIVE_OBJECTS.format(form=form)}\nsys.stdout.flush()\n{end}\n"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment, timeout=60, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "whole\n", "")
