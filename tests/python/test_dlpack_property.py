"""Round trips of random numpy views: slices, transpositions and broadcasts."""

import capi
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from numpy.lib.stride_tricks import as_strided
from tensors import (
    FORMATS,
    NUMPY_DTYPES,
    Producer,
    address,
    assert_same,
    import_batches,
    elements,
    capsule_of,
    sample,
    export_batch,
    export_column,
    values,
)

dtypes = st.sampled_from(list(NUMPY_DTYPES))
forms = st.sampled_from(list(FORMATS))
# By default each run tests the same cases, so that failures can be reproduced.
reproducible = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def slices_of(size):
    """Returns slices of a dimension, which may be reversed or empty."""
    ends = st.one_of(st.none(), st.integers(-size - 1, size + 1))
    return st.builds(slice, ends, ends, st.sampled_from([None, 1, 2, 3, -1, -2, -5]))


@st.composite
def views(draw):
    """Draws a view of an array: sliced, transposed, with broadcast dimensions and dimensions of size 1."""
    dtype, ndim = draw(dtypes), draw(st.integers(1, 4))
    whole = sample(dtype, tuple(draw(st.integers(1, 7)) for _ in range(ndim)))
    # Half of the views keep rows contiguous, so that imports in place are tested often.
    if draw(st.booleans()):
        view = whole[draw(slices_of(len(whole)))].transpose(0, *draw(st.permutations(range(1, ndim))))
    else:
        view = whole[tuple(draw(slices_of(size)) for size in whole.shape)]
        view = view.transpose(draw(st.permutations(range(ndim))))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, view.ndim))
        repeated = draw(st.sampled_from([1, 1, 2, 3]))
        shape = (*view.shape[:at], repeated, *view.shape[at:])
        stride = 0 if repeated > 1 else draw(st.sampled_from([0, 1, -3, 1000])) * view.itemsize
        # Unlike the result of numpy.broadcast_to, this view is writable, as legacy tensors require.
        view = as_strided(view, shape, (*view.strides[:at], stride, *view.strides[at:]))
    return view


def is_in_arrow_layout(view):
    """Returns whether the rows are consecutive and each is contiguous in some order of its dimensions."""
    if view.size == 0:
        return True
    dimensions = [i for i in range(1, view.ndim) if view.shape[i] > 1]
    order = sorted(dimensions, key=lambda i: -view.strides[i])
    others = [i for i in range(1, view.ndim) if i not in order]
    return view.transpose(0, *order, *others).flags.c_contiguous


@reproducible
@given(view=views(), form=forms)
def test_random_numpy_views_are_imported_with_their_values(session, view, form):
    (batch,) = import_batches(session, capsule_of(view, form))
    batch.validate(full=True)
    column = batch.column(0)
    assert_same(view, values(column))
    if view.size:
        assert (address(column) == view.__array_interface__["data"][0]) == is_in_arrow_layout(view)
    else:
        assert len(elements(column)) == 0


@reproducible
@given(view=views(), form=forms, bools=st.sampled_from(["bytes", "bits"]), data=st.data())
def test_any_slice_is_exported(session, view, form, bools, data):
    (batch,) = import_batches(session, capsule_of(view, form), bools=bools)
    start = data.draw(st.integers(0, len(view)))
    n = data.draw(st.integers(0, len(view) - start))
    copy = data.draw(st.sampled_from(["needed", "always"]))
    out = data.draw(forms)
    got = export_column(session, batch.column(0).slice(start, n), out, copy=copy)
    assert_same(view[start : start + n], got)


@reproducible
@given(view=views(), form=forms, twice=st.booleans())
def test_repeated_round_trips_keep_values_and_schema(session, view, form, twice):
    (batch,) = import_batches(session, capsule_of(view, form))
    for _ in range(1 + twice):
        capsules = export_batch(session, batch, form)
        (back,) = import_batches(session, *capsules, schema=batch.schema)
        assert back.schema.equals(batch.schema, check_metadata=True)
        assert_same(values(batch.column(0)), values(back.column(0)))
        batch = back


@reproducible
@given(
    kinds=st.lists(dtypes, min_size=1, max_size=5),
    rows=st.integers(0, 70),
    masks=st.integers(0, 2**32 - 1),
    form=forms,
    data=st.data(),
)
def test_nulls_round_trip_with_masks(session, kinds, rows, masks, form, data):
    random = np.random.default_rng(masks)
    arrays, bool_masks = [sample(kind, rows) for kind in kinds], [random.random(rows) < 0.3 for _ in kinds]
    capsules = [capsule_of(array_or_mask, form) for pair in zip(arrays, bool_masks) for array_or_mask in pair]
    (batch,) = import_batches(session, *capsules, nulls="mask", bools=data.draw(st.sampled_from(["bytes", "bits"])))
    batch.validate(full=True)
    part = batch.slice(start := data.draw(st.integers(0, rows)))
    back = [np.from_dlpack(Producer(capsule)) for capsule in export_batch(session, part, form, nulls="mask")]
    for array, mask, got, got_mask in zip(arrays, bool_masks, back[::2], back[1::2], strict=True):
        assert_same(mask[start:], got_mask)
        assert_same(array[start:][~mask[start:]], got[~got_mask])


@reproducible
@given(kind=dtypes, expected=dtypes, rows=st.integers(0, 9), form=forms)
def test_rejects_dtype_that_differs_from_the_schema(session, kind, expected, rows, form):
    assume(kind != expected)
    view = sample(kind, rows)
    schema = capi.pa.schema([("c", NUMPY_DTYPES[expected])])
    with pytest.raises(capi.CrossdockError, match=f"tensor of {kind}, expected {expected}"):
        import_batches(session, capsule_of(view, form), schema=schema)
