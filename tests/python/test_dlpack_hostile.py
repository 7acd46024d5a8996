"""Tensors that no library should make: each is answered by an error that says what is wrong, and freed once."""

import gc
import weakref

import capi
import numpy as np
import pyarrow as pa
import pytest
from tensors import (
    BFLOAT,
    BOOL,
    COMPLEX,
    FLOAT,
    FORMATS,
    INT,
    NUMPY_DTYPES,
    READ_ONLY,
    SUBBYTE_PADDED,
    UINT,
    Lender,
    Made,
    assert_same,
    bring,
    copied,
    elements,
    lend,
    sample,
    send,
    values,
)

forms = pytest.mark.parametrize("form", FORMATS)
HUGE = 2**63 - 1

REFUSED = {
    "no shape": (dict(shape=None), "bad_data", "a NULL shape with 1 dimensions"),
    "a negative size": (dict(shape=(-3,)), "bad_data", "dimension 0 has size -3, expected 0 or more"),
    "a negative size behind a zero": (dict(shape=(0, -1), strides=(1, 1)), "bad_data", "dimension 1 has size -1"),
    "the smallest size": (dict(shape=(-HUGE - 1,)), "bad_data", "dimension 0 has size -9223372036854775808"),
    "more than can be counted": (dict(shape=(HUGE,)), "bad_data", "beyond what can be counted"),
    "a product that wraps": (dict(shape=(2**32, 2**32), strides=(1, 1)), "bad_data", "beyond what can be counted"),
    "a product that wraps to 0 behind a zero": (
        dict(shape=(0, 2**32, 2**32), strides=(1, 1, 1)),
        "bad_data",
        "beyond what can be counted",
    ),
    "no dimensions": (dict(shape=(), strides=()), "unsupported", r"a scalar: .* reshape it to \(1,\)"),
    "-1 dimensions": (dict(ndim=-1), "bad_data", "-1 dimensions, expected 1 to 64"),
    "65 dimensions": (dict(shape=(1,) * 65, strides=(1,) * 65), "bad_data", "65 dimensions, expected 1 to 64"),
    "very many dimensions": (dict(ndim=2**31 - 1), "bad_data", "2147483647 dimensions"),
    "a stride beyond all": (dict(strides=(HUGE,)), "bad_data", "reach beyond the address space"),
    "a stride below all": (dict(strides=(-HUGE - 1,)), "bad_data", "reach beyond the address space"),
    "strides that add up to too much": (
        dict(shape=(3, 3), strides=(2**60, 2**60)),
        "bad_data",
        "reach beyond the address space",
    ),
    "a stride that reaches below address 0": (
        dict(shape=(2,), strides=(-(2**50),)),
        "bad_data",
        "reach beyond the address space",
    ),
    "an offset that wraps": (dict(byte_offset=2**64 - 1), "bad_data", "byte_offset 18446744073709551615 reaches"),
    "an offset beyond the half": (dict(byte_offset=2**63), "bad_data", "reach beyond the address space"),
    "no data": (dict(data=0), "bad_data", r"data is NULL with shape \[3\]"),
    "an offset from no data": (dict(data=0, byte_offset=4096), "bad_data", r"data is NULL with shape \[3\]"),
    "a code of the future": (dict(dtype=(99, 32, 1)), "unsupported", "dtype code 99 of 32 bits: .*cast it to one of"),
    "four lanes": (dict(dtype=(FLOAT, 32, 4)), "unsupported", "dtype float32 with 4 lanes: .*dimension of their own"),
    "no lanes": (dict(dtype=(FLOAT, 32, 0)), "unsupported", "dtype float32 with 0 lanes"),
    "the most lanes": (dict(dtype=(INT, 8, 65535)), "unsupported", "dtype int8 with 65535 lanes"),
    "four bits": (dict(dtype=(INT, 4, 1)), "unsupported", "dtype int4: .*cast it to one of"),
    "four bits, padded": (dict(dtype=(UINT, 4, 1), flags=SUBBYTE_PADDED), "unsupported", "dtype uint4: "),
    "no bits": (dict(dtype=(INT, 0, 1)), "unsupported", "dtype int0: "),
    "255 bits": (dict(dtype=(UINT, 255, 1)), "unsupported", "dtype uint255: "),
    "a boolean of one bit": (dict(dtype=(BOOL, 1, 1)), "unsupported", "dtype bool1: "),
    "bfloat16": (dict(dtype=(BFLOAT, 16, 1)), "unsupported", "dtype bfloat16: .*cast it to one of"),
    "complex64": (dict(dtype=(COMPLEX, 64, 1)), "unsupported", "dtype complex64: .*cast it to one of"),
    "a GPU that is not there": (dict(device=(2, 99)), "device", "it lies on cuda:99, expected one of cpu"),
    "OpenCL": (dict(device=(4, 0)), "device", "expected one of cpu"),
    "a device of the future": (dict(device=(99, 5)), "device", "99.*expected one of cpu"),
    "a negative device type": (dict(device=(-1, 0)), "device", "expected one of cpu"),
}


@forms
@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_and_freed_once(session, case, form):
    fields, code, words = REFUSED[case]
    made = Made(form, **fields)
    with pytest.raises(capi.CrossdockError, match=words) as caught:
        bring(session, made.capsule)
    assert caught.value.code == code
    assert "tensor 0 of 1" in str(caught.value)
    gc.collect()
    assert made.deleted == 1


@forms
@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_where_a_schema_tells_what_it_should_be(session, case, form):
    fields, code, _ = REFUSED[case]
    made = Made(form, **fields)
    with pytest.raises(capi.CrossdockError) as caught:
        bring(session, made.capsule, schema=pa.schema([("c", pa.int32())]))
    assert caught.value.code == code
    gc.collect()
    assert made.deleted == 1


@forms
@pytest.mark.parametrize("case", ["no shape", "a product that wraps", "no data", "a code of the future"])
def test_a_mask_is_looked_at_as_closely(session, case, form):
    good, mask = Made(form), Made(form, **{"dtype": (BOOL, 8, 1), **REFUSED[case][0]})
    with pytest.raises(capi.CrossdockError, match="tensor 1 of 2"):
        bring(session, good.capsule, mask.capsule, nulls="mask")
    gc.collect()
    assert (good.deleted, mask.deleted) == (1, 1)


@forms
@pytest.mark.parametrize("which", ["shape", "strides"])
def test_a_shape_or_strides_where_no_integers_may_lie_are_refused(session, which, form):
    made = Made(form)
    setattr(made.struct.dl_tensor, which, getattr(made.struct.dl_tensor, which) + 1)
    with pytest.raises(capi.CrossdockError, match="tensor 0 of 1: a shape or strides at an address") as caught:
        bring(session, made.capsule)
    assert caught.value.code == "bad_data"
    gc.collect()
    assert made.deleted == 1


@pytest.mark.parametrize("version", [(2, 0), (0, 8), (2**32 - 1, 0)])
def test_of_another_major_version_nothing_is_touched_but_the_deleter(session, version):
    made = Made("versioned", version=version, data=8, device=(77, 77), ndim=2**31 - 1, dtype=(200, 200, 9))
    made.struct.dl_tensor.shape = made.struct.dl_tensor.strides = 8
    with pytest.raises(capi.CrossdockError, match=f"version.* expected 1, got {version[0]}") as caught:
        bring(session, made.capsule)
    assert caught.value.code == "version"
    gc.collect()
    assert made.deleted == 1


def test_a_later_minor_version_is_read(session):
    made = Made("versioned", version=(1, 999), flags=2**63 | READ_ONLY)
    assert bring(session, made.capsule)[0].column(0).to_pylist() == [1, 2, 3]
    gc.collect()
    assert made.deleted == 1


@forms
def test_a_deleter_may_be_missing(session, form):
    made = Made(form, deleter=False)
    pointer = (("dltensor_versioned" if form == "versioned" else "dltensor"), made.address)
    (batch,) = session.import_capsules("dlpack", [pointer]).batches()
    assert batch.column(0).to_pylist() == [1, 2, 3]
    del batch
    gc.collect()
    bad = Made(form, deleter=False, ndim=-1)
    with pytest.raises(capi.CrossdockError, match="-1 dimensions"):
        session.import_capsules("dlpack", [(pointer[0], bad.address)])


@forms
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 2)])
def test_without_strides_a_tensor_is_row_major(session, shape, form):
    made = Made(form, shape=shape, strides=None)
    (batch,) = bring(session, made.capsule)
    n = int(np.prod(shape))
    assert_same(np.arange(1, n + 1, dtype=np.int32).reshape(shape), values(batch.column(0)))
    assert elements(batch.column(0)).buffers()[1].address == made.struct.dl_tensor.data
    del batch
    gc.collect()
    assert made.deleted == 1


@forms
def test_without_elements_nothing_else_needs_to_be_right(session, form):
    made = Made(form, data=0, shape=(0, 3), strides=(HUGE, -HUGE), byte_offset=0)
    (batch,) = bring(session, made.capsule)
    batch.validate(full=True)
    assert batch.num_rows == 0
    made = Made(form, data=8, shape=(3, 0), strides=(HUGE, -HUGE))
    (batch,) = bring(session, made.capsule)
    batch.validate(full=True)
    assert batch.num_rows == 3


@forms
def test_of_a_size_of_one_the_stride_says_nothing(session, form):
    made = Made(form, shape=(1, 3, 1), strides=(HUGE, 1, -HUGE - 1))
    (batch,) = bring(session, made.capsule)
    assert_same(np.array([[[1], [2], [3]]], np.int32), values(batch.column(0)))


@forms
def test_the_offset_counts_from_the_data(session, form):
    made = Made(form, byte_offset=8, shape=(4,), strides=(2,))
    assert bring(session, made.capsule)[0].column(0).to_pylist() == [3, 5, 7, 9]
    made = Made(form, byte_offset=16)
    column = bring(session, made.capsule)[0].column(0)
    assert column.to_pylist() == [5, 6, 7]
    assert column.buffers()[1].address == made.struct.dl_tensor.data + 16


@forms
@pytest.mark.parametrize("device", [(1, 0), (1, 7), (1, -1), (3, 0), (3, 1), (13, 0)])
def test_host_memory_of_any_number_pinned_or_called_managed_is_the_cpu_s(session, device, form):
    made = Made(form, device=device)
    (batch,) = bring(session, made.capsule)
    assert batch.column(0).to_pylist() == [1, 2, 3]
    assert batch.column(0).buffers()[1].address == made.struct.dl_tensor.data


@forms
@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shift", [1, 2, 3, 4])
def test_misaligned_elements_have_their_values(session, dtype, shift, form):
    array = sample(dtype, 50)
    shifted = np.zeros(array.nbytes + shift, np.uint8)
    shifted[shift:] = array.view(np.uint8)
    code = {"i": INT, "u": UINT, "f": FLOAT, "b": BOOL}[array.dtype.kind]
    for strides, expected in (((1,), array), ((-1,), array[::-1])):
        offset = shift if strides == (1,) else shift + array.nbytes - array.itemsize
        made = Made(
            form, shifted, shape=(50,), strides=strides, byte_offset=offset, dtype=(code, array.itemsize * 8, 1)
        )
        (batch,) = bring(session, made.capsule)
        batch.validate(full=True)
        assert_same(expected, values(batch.column(0)))
        place = elements(batch.column(0)).buffers()[1].address
        assert place % array.itemsize == 0, "Arrow's buffers are aligned to their elements"
        in_place = strides == (1,) and (made.struct.dl_tensor.data + offset) % array.itemsize == 0
        assert (place == made.struct.dl_tensor.data + offset) == in_place
        del batch
        gc.collect()
        assert made.deleted == 1


@forms
@pytest.mark.parametrize("bools", ["bytes", "bits"])
@pytest.mark.parametrize("dtype", [(UINT, 8, 1), (BOOL, 8, 1)])
def test_a_broadcast_beyond_all_memory_is_an_error(session, dtype, bools, form):
    """One byte that is called 2^50: legal, and nothing that could be gathered."""
    made = Made(form, shape=(2**50,), strides=(0,), dtype=dtype)
    with pytest.raises(capi.CrossdockError, match=f"column 'col_0': .* {2**50} bytes") as caught:
        bring(session, made.capsule, bools=bools)
    assert caught.value.code == "out_of_memory"
    gc.collect()
    assert made.deleted == 1


@forms
@pytest.mark.parametrize("shape", [(0, 2**31), (1, 2**31)])
def test_a_row_longer_than_arrow_s_lists_is_refused(session, shape, form):
    made = Made(form, shape=shape, strides=(1, 0))
    with pytest.raises(capi.CrossdockError, match="a row of 2147483648 values, expected at most 2147483647") as caught:
        bring(session, made.capsule)
    assert caught.value.code == "unsupported"
    gc.collect()
    assert made.deleted == 1


def test_a_deleter_may_come_back_to_crossdock(host, session):
    """As one does that holds a tensor of ours itself: here a hundred deep."""
    array = first = sample("int32", 9)
    for _ in range(100):
        (batch,) = bring(session, lend(array, "versioned"))
        array = np.from_dlpack(Lender(send(session, batch)[0]))
    assert_same(first, array)
    assert copied(host) == 0
    witness = weakref.ref(first)
    del first, batch
    assert witness() is not None
    del array
    gc.collect()
    assert witness() is None
