"""Whatever view numpy makes of an array, by slices, turns and broadcasts, goes in and comes back with its values."""

import capi
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from numpy.lib.stride_tricks import as_strided
from tensors import (
    FORMATS,
    NUMPY_DTYPES,
    Lender,
    address,
    assert_same,
    bring,
    elements,
    lend,
    sample,
    send,
    send_one,
    values,
)

dtypes = st.sampled_from(list(NUMPY_DTYPES))
forms = st.sampled_from(list(FORMATS))
# The same cases each time, unless somebody asks for others: a failure must be another's to see too.
settled = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def cut(size):
    """A slice of a dimension, backwards too, and empty too."""
    ends = st.one_of(st.none(), st.integers(-size - 1, size + 1))
    return st.builds(slice, ends, ends, st.sampled_from([None, 1, 2, 3, -1, -2, -5]))


@st.composite
def views(draw):
    """A view of an array: cut, its dimensions in another order, some repeated or of size one."""
    dtype, ndim = draw(dtypes), draw(st.integers(1, 4))
    whole = sample(dtype, tuple(draw(st.integers(1, 7)) for _ in range(ndim)))
    # Half of them keep their rows whole, so that what Arrow has in place is not left to chance.
    if draw(st.booleans()):
        view = whole[draw(cut(len(whole)))].transpose(0, *draw(st.permutations(range(1, ndim))))
    else:
        view = whole[tuple(draw(cut(size)) for size in whole.shape)]
        view = view.transpose(draw(st.permutations(range(ndim))))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, view.ndim))
        repeated = draw(st.sampled_from([1, 1, 2, 3]))
        shape = (*view.shape[:at], repeated, *view.shape[at:])
        stride = 0 if repeated > 1 else draw(st.sampled_from([0, 1, -3, 1000])) * view.itemsize
        # Unlike numpy's own broadcasting, it stays writable, as legacy tensors need it.
        view = as_strided(view, shape, (*view.strides[:at], stride, *view.strides[at:]))
    return view


def lies_as_arrow_has_it(view):
    """Whether the rows lie one after the other, each dense in some order of its dimensions: by numpy's own word."""
    if view.size == 0:
        return True
    counting = [i for i in range(1, view.ndim) if view.shape[i] > 1]
    order = sorted(counting, key=lambda i: -view.strides[i])
    rest = [i for i in range(1, view.ndim) if i not in order]
    return view.transpose(0, *order, *rest).flags.c_contiguous


@settled
@given(view=views(), form=forms)
def test_any_view_comes_in_with_its_values(session, view, form):
    (batch,) = bring(session, lend(view, form))
    batch.validate(full=True)
    column = batch.column(0)
    assert_same(view, values(column))
    if view.size:
        assert (address(column) == view.__array_interface__["data"][0]) == lies_as_arrow_has_it(view)
    else:
        assert len(elements(column)) == 0


@settled
@given(view=views(), form=forms, bools=st.sampled_from(["bytes", "bits"]), data=st.data())
def test_any_part_of_it_goes_out_again(session, view, form, bools, data):
    (batch,) = bring(session, lend(view, form), bools=bools)
    start = data.draw(st.integers(0, len(view)))
    n = data.draw(st.integers(0, len(view) - start))
    copy = data.draw(st.sampled_from(["needed", "always"]))
    out = data.draw(forms)
    got = send_one(session, batch.column(0).slice(start, n), out, copy=copy)
    assert_same(view[start : start + n], got)


@settled
@given(view=views(), form=forms, twice=st.booleans())
def test_there_and_back_and_there_again_changes_nothing(session, view, form, twice):
    (batch,) = bring(session, lend(view, form))
    for _ in range(1 + twice):
        capsules = send(session, batch, form)
        (back,) = bring(session, *capsules, schema=batch.schema)
        assert back.schema.equals(batch.schema, check_metadata=True)
        assert_same(values(batch.column(0)), values(back.column(0)))
        batch = back


@settled
@given(
    kinds=st.lists(dtypes, min_size=1, max_size=5),
    rows=st.integers(0, 70),
    masks=st.integers(0, 2**32 - 1),
    form=forms,
    data=st.data(),
)
def test_nulls_go_there_and_back_by_masks(session, kinds, rows, masks, form, data):
    random = np.random.default_rng(masks)
    arrays, given_masks = [sample(kind, rows) for kind in kinds], [random.random(rows) < 0.3 for _ in kinds]
    capsules = [lend(each, form) for both in zip(arrays, given_masks) for each in both]
    (batch,) = bring(session, *capsules, nulls="mask", bools=data.draw(st.sampled_from(["bytes", "bits"])))
    batch.validate(full=True)
    part = batch.slice(start := data.draw(st.integers(0, rows)))
    back = [np.from_dlpack(Lender(capsule)) for capsule in send(session, part, form, nulls="mask")]
    for array, mask, got, got_mask in zip(arrays, given_masks, back[::2], back[1::2], strict=True):
        assert_same(mask[start:], got_mask)
        assert_same(array[start:][~mask[start:]], got[~got_mask])


@settled
@given(kind=dtypes, wanted=dtypes, rows=st.integers(0, 9), form=forms)
def test_another_dtype_than_the_schema_s_is_refused(session, kind, wanted, rows, form):
    assume(kind != wanted)
    view = sample(kind, rows)
    schema = capi.pa.schema([("c", NUMPY_DTYPES[wanted])])
    with pytest.raises(capi.CrossdockError, match=f"tensor of {kind}, expected {wanted}"):
        bring(session, lend(view, form), schema=schema)
