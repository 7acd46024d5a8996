"""Who holds a tensor, and when it is deleted: once."""

import gc
import itertools

import capi
import numpy as np
import pyarrow as pa
import pytest
from tensors import CAPSULES, FORMATS, Lender, Made, bring, collected, give, lend, numbers, owned, send

forms = pytest.mark.parametrize("form", FORMATS)


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
    schema, array = numbers().__arrow_c_array__()
    for capsule in (schema, array):
        with pytest.raises(capi.CrossdockError, match="expected 'dltensor_versioned' or 'dltensor'"):
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
    (capsule,) = send(session, numbers(), form)
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
    (capsule,) = send(session, numbers(), form, copy="always")
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
    writer = session.export(FORMATS[form], numbers().schema)
    (first,), (second,) = writer.write(numbers()), writer.write(numbers(3))
    writer.close()
    assert np.from_dlpack(Lender(second)).tolist() == [0, 1, 2]
    assert np.from_dlpack(Lender(first))[999] == 999
