"""Who holds a tensor, and when it is deleted: once, on any thread, in any order."""

import ctypes
import gc
import itertools
import threading
import weakref
from ctypes import CDLL, POINTER, byref, c_int, c_ulong, c_void_p

import capi
import numpy as np
import pyarrow as pa
import pytest
from tensors import CAPSULES, FORMATS, Lender, Made, bring, deleter_address, give, lend, send, take, values

pytestmark = pytest.mark.usefixtures("library")
forms = pytest.mark.parametrize("form", FORMATS)


def owned():
    """An array of numpy's, and a witness of its life."""
    array = np.arange(1000)
    return array, weakref.ref(array)


def collected(witness):
    gc.collect()
    return witness() is None


def batch_of(n=1000):
    return pa.record_batch([pa.array(np.arange(n).copy())], names=["n"])


# -------------------------------------------------------------------------------------------------------- inwards ---


@forms
def test_numpy_s_array_lives_as_long_as_the_batch(session, form):
    array, witness = owned()
    capsule = lend(array, form)
    stream = session.import_capsules("dlpack", [(CAPSULES[form], capsule)])
    assert capi.capsule_name(capsule).decode() == "used_" + CAPSULES[form]
    del array, capsule
    assert not collected(witness)
    (batch,) = stream.batches()
    stream.close()
    part = batch.column(0).slice(998)
    del batch, stream
    assert not collected(witness)
    assert part.to_pylist() == [998, 999]
    del part
    assert collected(witness)


@forms
def test_a_stream_that_is_never_read_frees_its_tensors(session, form):
    array, witness = owned()
    stream = session.import_capsules("dlpack", [(CAPSULES[form], lend(array, form))])
    del array
    assert not collected(witness)
    stream.close()
    assert collected(witness)


@forms
def test_a_tensor_that_is_gathered_is_freed_when_it_has_been(session, form):
    array, witness = owned()
    (batch,) = bring(session, lend(array[::2], form))
    del array
    assert collected(witness)
    assert batch.column(0).to_pylist() == list(range(0, 1000, 2))


@forms
def test_a_refused_tensor_takes_the_others_with_it_each_once(session, form):
    good = [Made(form), Made(form)]
    bad = Made(form, ndim=-1)
    with pytest.raises(capi.CrossdockError, match="tensor 1 of 3: -1 dimensions"):
        bring(session, good[0].capsule, bad.capsule, good[1].capsule)
    gc.collect()
    assert [made.deleted for made in (*good, bad)] == [1, 1, 1]


@forms
def test_wrong_options_free_the_tensors_too(session, form):
    made = Made(form)
    with pytest.raises(capi.CrossdockError, match="colour"):
        bring(session, made.capsule, colour="red")
    gc.collect()
    assert made.deleted == 1


@forms
def test_a_capsule_is_consumed_once(session, form):
    array, witness = owned()
    capsule = lend(array, form)
    first = bring(session, capsule)
    with pytest.raises(capi.CrossdockError, match=f"a capsule named 'used_{CAPSULES[form]}'") as caught:
        bring(session, capsule)
    assert caught.value.code == "invalid_argument"
    del array, capsule, caught
    assert not collected(witness)
    del first
    assert collected(witness)


def test_a_capsule_of_another_name_is_refused_and_left_alone(session):
    schema, array = batch_of().__arrow_c_array__()
    for capsule in (schema, array):
        with pytest.raises(capi.CrossdockError, match="expected 'dltensor' or 'dltensor_versioned'"):
            bring(session, capsule)
    assert pa.RecordBatch._import_from_c_capsule(schema, array).num_rows == 1000


def test_arrow_s_importer_refuses_a_tensor_and_leaves_it_alone(session):
    made = Made("versioned")
    capsule = give("versioned", made.address)
    with pytest.raises(capi.CrossdockError):
        session.import_capsules("arrow-c-data", [("dltensor_versioned", capsule)])
    assert made.deleted == 0
    del capsule
    assert made.deleted == 1


# ------------------------------------------------------------------------------------------------------- outwards ---


@forms
def test_our_capsule_is_consumed_once(session, form):
    (capsule,) = send(session, batch_of(), form)
    first = np.from_dlpack(Lender(capsule))
    assert capi.capsule_name(capsule).decode() == "used_" + CAPSULES[form]
    with pytest.raises(ValueError):
        np.from_dlpack(Lender(capsule))
    with pytest.raises(capi.CrossdockError, match="a capsule named 'used_"):
        bring(session, capsule)
    assert first[999] == 999


@forms
@pytest.mark.parametrize("consumed", [True, False])
def test_what_is_exported_holds_the_batch_until_it_is_deleted(session, form, consumed):
    before = pa.total_allocated_bytes()
    batch = pa.record_batch([pa.array(range(1000))], names=["n"])
    options = {"read_only": "lent"} if form == "legacy" else {}
    (held,) = send(session, batch, form, **options)
    if consumed:
        held = np.from_dlpack(Lender(held))[900:]
    del batch
    gc.collect()
    assert pa.total_allocated_bytes() > before
    if consumed:
        assert held[-1] == 999
    del held
    gc.collect()
    assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_tensors_of_one_batch_each_hold_their_own(session, order):
    arrays, witnesses = zip(*(owned() for _ in range(3)))
    (batch,) = bring(session, *(lend(array, "versioned") for array in arrays))
    tensors = {i: np.from_dlpack(Lender(capsule)) for i, capsule in enumerate(send(session, batch))}
    del arrays, batch
    for i in order:
        assert all(tensor[999] == 999 for tensor in tensors.values())
        assert all(witnesses[left]() is not None for left in tensors)
        del tensors[i]
    assert all(collected(witness) for witness in witnesses)


@forms
def test_a_copy_s_memory_is_given_back_when_the_tensor_is_deleted(host, session, form):
    (capsule,) = send(session, batch_of(), form, copy="always")
    assert host.ledger()["live_bytes"] == 8000
    array = np.from_dlpack(Lender(capsule))
    del capsule
    gc.collect()
    assert host.ledger()["live_bytes"] == 8000
    del array
    gc.collect()
    assert host.ledger()["live_bytes"] == 0


@forms
def test_a_writer_s_earlier_tensors_live_on_without_it(session, form):
    writer = session.export(FORMATS[form], batch_of().schema)
    (first,), (second,) = writer.write(batch_of()), writer.write(batch_of(3))
    writer.close()
    assert np.from_dlpack(Lender(second)).tolist() == [0, 1, 2]
    assert np.from_dlpack(Lender(first))[999] == 999


# ------------------------------------------------------------------------------ any order, and any thread at all ---


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
    made = [np.from_dlpack(Lender(send(session, batch_of(100 + n), copy="always")[0])) for n in range(64)]
    thread = threading.Thread(target=made.clear)
    thread.start()
    more = [send(session, batch_of(100 + n), copy="always") for n in range(64)]
    thread.join()
    assert [len(np.from_dlpack(Lender(capsule))) for (capsule,) in more] == [100 + n for n in range(64)]
