"""Ownership of tensors: each tensor is deleted once."""

import gc
import itertools

import capi
import numpy as np
import pyarrow as pa
import pytest
from tensors import (
    CAPSULES,
    FORMATS,
    Producer,
    ManagedTensor,
    import_batches,
    is_collected,
    new_capsule,
    capsule_of,
    numbers,
    witnessed_array,
    export_batch,
)

forms = pytest.mark.parametrize("form", FORMATS)


# --- Import ---


@forms
def test_numpy_array_lives_as_long_as_the_batch(session, form):
    array, witness = witnessed_array()
    capsule = capsule_of(array, form)
    stream = session.import_capsules("dlpack", [(CAPSULES[form], capsule)])
    assert capi.capsule_name(capsule).decode() == "used_" + CAPSULES[form]
    del array, capsule
    assert not is_collected(witness)
    (batch,) = stream.batches()
    stream.close()
    part = batch.column(0).slice(998)
    del batch, stream
    assert not is_collected(witness)
    assert part.to_pylist() == [998, 999]
    del part
    assert is_collected(witness)


@forms
def test_unread_stream_frees_its_tensors(session, form):
    array, witness = witnessed_array()
    stream = session.import_capsules("dlpack", [(CAPSULES[form], capsule_of(array, form))])
    del array
    assert not is_collected(witness)
    stream.close()
    assert is_collected(witness)


@forms
def test_gathered_tensor_is_freed_after_the_gather(session, form):
    array, witness = witnessed_array()
    (batch,) = import_batches(session, capsule_of(array[::2], form))
    del array
    assert is_collected(witness)
    assert batch.column(0).to_pylist() == list(range(0, 1000, 2))


@forms
def test_rejecting_one_tensor_frees_each_tensor_once(session, form):
    good = [ManagedTensor(form), ManagedTensor(form)]
    bad = ManagedTensor(form, ndim=-1)
    with pytest.raises(capi.CrossdockError, match="tensor 1 of 3: the tensor has -1 dimensions"):
        import_batches(session, good[0].capsule, bad.capsule, good[1].capsule)
    gc.collect()
    assert [tensor.deleted for tensor in (*good, bad)] == [1, 1, 1]


@forms
def test_invalid_options_free_the_tensors(session, form):
    tensor = ManagedTensor(form)
    with pytest.raises(capi.CrossdockError, match="colour"):
        import_batches(session, tensor.capsule, colour="red")
    gc.collect()
    assert tensor.deleted == 1


@forms
def test_rejects_consumed_capsule(session, form):
    array, witness = witnessed_array()
    capsule = capsule_of(array, form)
    first = import_batches(session, capsule)
    with pytest.raises(capi.CrossdockError, match=f"a capsule named 'used_{CAPSULES[form]}'") as caught:
        import_batches(session, capsule)
    assert caught.value.code == "invalid_argument"
    del array, capsule, caught
    assert not is_collected(witness)
    del first
    assert is_collected(witness)


def test_rejected_capsule_with_another_name_is_not_consumed(session):
    schema, array = numbers().__arrow_c_array__()
    for capsule in (schema, array):
        with pytest.raises(capi.CrossdockError, match="expected 'dltensor_versioned' or 'dltensor'"):
            import_batches(session, capsule)
    assert pa.RecordBatch._import_from_c_capsule(schema, array).num_rows == 1000


def test_arrow_importer_does_not_consume_rejected_tensor(session):
    tensor = ManagedTensor("versioned")
    capsule = new_capsule("versioned", tensor.address)
    with pytest.raises(capi.CrossdockError):
        session.import_capsules("arrow-c-data", [("dltensor_versioned", capsule)])
    assert tensor.deleted == 0
    del capsule
    assert tensor.deleted == 1


# --- Export ---


@forms
def test_exported_capsule_is_consumed_once(session, form):
    (capsule,) = export_batch(session, numbers(), form)
    first = np.from_dlpack(Producer(capsule))
    assert capi.capsule_name(capsule).decode() == "used_" + CAPSULES[form]
    with pytest.raises(ValueError):
        np.from_dlpack(Producer(capsule))
    with pytest.raises(capi.CrossdockError, match="a capsule named 'used_"):
        import_batches(session, capsule)
    assert first[999] == 999


@forms
@pytest.mark.parametrize("consumed", [True, False])
def test_exported_tensor_keeps_the_batch(session, form, consumed):
    before = pa.total_allocated_bytes()
    batch = pa.record_batch([pa.array(range(1000))], names=["n"])
    options = {"read_only": "lent"} if form == "legacy" else {}
    (exported,) = export_batch(session, batch, form, **options)
    if consumed:
        exported = np.from_dlpack(Producer(exported))[900:]
    del batch
    gc.collect()
    assert pa.total_allocated_bytes() > before
    if consumed:
        assert exported[-1] == 999
    del exported
    gc.collect()
    assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_tensors_of_one_batch_are_independent(session, order):
    arrays, witnesses = zip(*(witnessed_array() for _ in range(3)))
    (batch,) = import_batches(session, *(capsule_of(array, "versioned") for array in arrays))
    tensors = {i: np.from_dlpack(Producer(capsule)) for i, capsule in enumerate(export_batch(session, batch))}
    del arrays, batch
    for i in order:
        assert all(tensor[999] == 999 for tensor in tensors.values())
        assert all(witnesses[remaining]() is not None for remaining in tensors)
        del tensors[i]
    assert all(is_collected(witness) for witness in witnesses)


@forms
def test_copy_is_freed_with_its_tensor(host, session, form):
    (capsule,) = export_batch(session, numbers(), form, copy="always")
    assert host.ledger()["live_bytes"] == 8000
    array = np.from_dlpack(Producer(capsule))
    del capsule
    gc.collect()
    assert host.ledger()["live_bytes"] == 8000
    del array
    gc.collect()
    assert host.ledger()["live_bytes"] == 0


@forms
def test_tensors_outlive_their_writer(session, form):
    writer = session.export(FORMATS[form], numbers().schema)
    (first,), (second,) = writer.write(numbers()), writer.write(numbers(3))
    writer.close()
    assert np.from_dlpack(Producer(second)).tolist() == [0, 1, 2]
    assert np.from_dlpack(Producer(first))[999] == 999
