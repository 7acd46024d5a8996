"""Malformed tensors: each tensor is rejected with an error that names the fault, and is freed once."""

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
    Producer,
    ManagedTensor,
    assert_same,
    import_batches,
    copied_bytes,
    elements,
    capsule_of,
    sample,
    export_batch,
    values,
)

forms = pytest.mark.parametrize("form", FORMATS)
HUGE = 2**63 - 1

MALFORMED = {
    "no shape": (dict(shape=None), "bad_data", "shape is NULL with 1 dimensions"),
    "a negative size": (dict(shape=(-3,)), "bad_data", "dimension 0 has size -3, expected 0 or more"),
    "a negative size after a size of 0": (dict(shape=(0, -1), strides=(1, 1)), "bad_data", "dimension 1 has size -1"),
    "the minimum of int64 as size": (dict(shape=(-HUGE - 1,)), "bad_data", "dimension 0 has size -9223372036854775808"),
    "a size in bytes that overflows": (dict(shape=(HUGE,)), "bad_data", "size in bytes overflows int64"),
    "a number of elements that wraps": (
        dict(shape=(2**32, 2**32), strides=(1, 1)),
        "bad_data",
        "size in bytes overflows int64",
    ),
    "a number of elements that wraps to 0, after a size of 0": (
        dict(shape=(0, 2**32, 2**32), strides=(1, 1, 1)),
        "bad_data",
        "size in bytes overflows int64",
    ),
    "no dimensions": (dict(shape=(), strides=()), "unsupported", r"the tensor is a scalar, .* reshape it to \(1,\)"),
    "-1 dimensions": (dict(ndim=-1), "bad_data", "-1 dimensions, expected 1 to 64"),
    "65 dimensions": (dict(shape=(1,) * 65, strides=(1,) * 65), "bad_data", "65 dimensions, expected 1 to 64"),
    "very many dimensions": (dict(ndim=2**31 - 1), "bad_data", "2147483647 dimensions"),
    "the maximum stride": (dict(strides=(HUGE,)), "bad_data", "reach beyond the address space"),
    "the minimum stride": (dict(strides=(-HUGE - 1,)), "bad_data", "reach beyond the address space"),
    "strides whose sum overflows": (
        dict(shape=(3, 3), strides=(2**60, 2**60)),
        "bad_data",
        "reach beyond the address space",
    ),
    "a stride that reaches below address 0": (
        dict(shape=(2,), strides=(-(2**50),)),
        "bad_data",
        "reach beyond the address space",
    ),
    "a byte offset that wraps": (dict(byte_offset=2**64 - 1), "bad_data", "byte_offset 18446744073709551615 reaches"),
    "a byte offset of 2^63": (dict(byte_offset=2**63), "bad_data", "reach beyond the address space"),
    "NULL data": (dict(data=0), "bad_data", r"data is NULL with shape \[3\]"),
    "NULL data with a byte offset": (dict(data=0, byte_offset=4096), "bad_data", r"data is NULL with shape \[3\]"),
    "an unknown dtype code": (dict(dtype=(99, 32, 1)), "unsupported", "dtype with code 99 and 32 bits: .*cast it to"),
    "four lanes": (
        dict(dtype=(FLOAT, 32, 4)),
        "unsupported",
        "dtype float32 with 4 lanes: .*make the lanes a dimension",
    ),
    "no lanes": (dict(dtype=(FLOAT, 32, 0)), "unsupported", "dtype float32 with 0 lanes"),
    "the maximum number of lanes": (dict(dtype=(INT, 8, 65535)), "unsupported", "dtype int8 with 65535 lanes"),
    "four bits": (dict(dtype=(INT, 4, 1)), "unsupported", "dtype int4: .*cast it to one of"),
    "four bits, padded": (dict(dtype=(UINT, 4, 1), flags=SUBBYTE_PADDED), "unsupported", "dtype uint4: "),
    "no bits": (dict(dtype=(INT, 0, 1)), "unsupported", "dtype int0: "),
    "255 bits": (dict(dtype=(UINT, 255, 1)), "unsupported", "dtype uint255: "),
    "a boolean of one bit": (dict(dtype=(BOOL, 1, 1)), "unsupported", "dtype bool1: "),
    "bfloat of 32 bits": (dict(dtype=(BFLOAT, 32, 1)), "unsupported", "dtype bfloat32: .*cast it to one of"),
    "complex32": (dict(dtype=(COMPLEX, 32, 1)), "unsupported", "dtype complex32: .*cast it to one of"),
    "float4": (dict(dtype=(17, 4, 1)), "unsupported", "dtype float4_e2m1fn: .*view the bytes as uint8"),
    "a missing GPU": (dict(device=(2, 99)), "device", "the tensor is on cuda:99, expected one of cpu"),
    "OpenCL": (dict(device=(4, 0)), "device", "expected one of cpu"),
    "an unknown device type": (dict(device=(99, 5)), "device", "99.*expected one of cpu"),
    "a negative device type": (dict(device=(-1, 0)), "device", "expected one of cpu"),
}


@forms
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_tensor_is_rejected_and_freed_once(session, case, form):
    fields, code, message = MALFORMED[case]
    tensor = ManagedTensor(form, **fields)
    with pytest.raises(capi.CrossdockError, match=message) as caught:
        import_batches(session, tensor.capsule)
    assert caught.value.code == code
    assert "tensor 0 of 1" in str(caught.value)
    gc.collect()
    assert tensor.deleted == 1


@forms
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_tensor_is_rejected_even_if_a_schema_is_passed(session, case, form):
    fields, code, _ = MALFORMED[case]
    tensor = ManagedTensor(form, **fields)
    with pytest.raises(capi.CrossdockError) as caught:
        import_batches(session, tensor.capsule, schema=pa.schema([("c", pa.int32())]))
    assert caught.value.code == code
    gc.collect()
    assert tensor.deleted == 1


@forms
@pytest.mark.parametrize("case", ["no shape", "a number of elements that wraps", "NULL data", "an unknown dtype code"])
def test_malformed_mask_is_rejected(session, case, form):
    good, mask = ManagedTensor(form), ManagedTensor(form, **{"dtype": (BOOL, 8, 1), **MALFORMED[case][0]})
    with pytest.raises(capi.CrossdockError, match="tensor 1 of 2"):
        import_batches(session, good.capsule, mask.capsule, nulls="mask")
    gc.collect()
    assert (good.deleted, mask.deleted) == (1, 1)


@forms
@pytest.mark.parametrize("which", ["shape", "strides"])
def test_rejects_misaligned_shape_and_strides(session, which, form):
    tensor = ManagedTensor(form)
    setattr(tensor.struct.dl_tensor, which, getattr(tensor.struct.dl_tensor, which) + 1)
    with pytest.raises(capi.CrossdockError, match="tensor 0 of 1: shape or strides are not aligned") as caught:
        import_batches(session, tensor.capsule)
    assert caught.value.code == "bad_data"
    gc.collect()
    assert tensor.deleted == 1


@pytest.mark.parametrize("version", [(2, 0), (0, 8), (2**32 - 1, 0)])
def test_tensor_of_unknown_major_version_is_only_deleted(session, version):
    tensor = ManagedTensor("versioned", version=version, data=8, device=(77, 77), ndim=2**31 - 1, dtype=(200, 200, 9))
    tensor.struct.dl_tensor.shape = tensor.struct.dl_tensor.strides = 8
    with pytest.raises(capi.CrossdockError, match=f"version.* expected 1, got {version[0]}") as caught:
        import_batches(session, tensor.capsule)
    assert caught.value.code == "version"
    gc.collect()
    assert tensor.deleted == 1


def test_accepts_later_minor_version(session):
    tensor = ManagedTensor("versioned", version=(1, 999), flags=2**63 | READ_ONLY)
    assert import_batches(session, tensor.capsule)[0].column(0).to_pylist() == [1, 2, 3]
    gc.collect()
    assert tensor.deleted == 1


@forms
def test_accepts_missing_deleter(session, form):
    tensor = ManagedTensor(form, deleter=False)
    pointer = (("dltensor_versioned" if form == "versioned" else "dltensor"), tensor.address)
    (batch,) = session.import_capsules("dlpack", [pointer]).batches()
    assert batch.column(0).to_pylist() == [1, 2, 3]
    del batch
    gc.collect()
    bad = ManagedTensor(form, deleter=False, ndim=-1)
    with pytest.raises(capi.CrossdockError, match="-1 dimensions"):
        session.import_capsules("dlpack", [(pointer[0], bad.address)])


@forms
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 2)])
def test_tensor_without_strides_is_row_major(session, shape, form):
    tensor = ManagedTensor(form, shape=shape, strides=None)
    (batch,) = import_batches(session, tensor.capsule)
    n = int(np.prod(shape))
    assert_same(np.arange(1, n + 1, dtype=np.int32).reshape(shape), values(batch.column(0)))
    assert elements(batch.column(0)).buffers()[1].address == tensor.struct.dl_tensor.data
    del batch
    gc.collect()
    assert tensor.deleted == 1


@forms
def test_empty_tensor_may_have_invalid_fields(session, form):
    tensor = ManagedTensor(form, data=0, shape=(0, 3), strides=(HUGE, -HUGE), byte_offset=0)
    (batch,) = import_batches(session, tensor.capsule)
    batch.validate(full=True)
    assert batch.num_rows == 0
    tensor = ManagedTensor(form, data=8, shape=(3, 0), strides=(HUGE, -HUGE))
    (batch,) = import_batches(session, tensor.capsule)
    batch.validate(full=True)
    assert batch.num_rows == 3


@forms
def test_stride_of_dimension_of_size_1_is_ignored(session, form):
    tensor = ManagedTensor(form, shape=(1, 3, 1), strides=(HUGE, 1, -HUGE - 1))
    (batch,) = import_batches(session, tensor.capsule)
    assert_same(np.array([[[1], [2], [3]]], np.int32), values(batch.column(0)))


@forms
def test_byte_offset_is_relative_to_data(session, form):
    tensor = ManagedTensor(form, byte_offset=8, shape=(4,), strides=(2,))
    assert import_batches(session, tensor.capsule)[0].column(0).to_pylist() == [3, 5, 7, 9]
    tensor = ManagedTensor(form, byte_offset=16)
    column = import_batches(session, tensor.capsule)[0].column(0)
    assert column.to_pylist() == [5, 6, 7]
    assert column.buffers()[1].address == tensor.struct.dl_tensor.data + 16


@forms
@pytest.mark.parametrize("device", [(1, 0), (1, 7), (1, -1), (3, 0), (3, 1), (13, 0)])
def test_pinned_and_managed_host_memory_is_accepted(session, device, form):
    tensor = ManagedTensor(form, device=device)
    (batch,) = import_batches(session, tensor.capsule)
    assert batch.column(0).to_pylist() == [1, 2, 3]
    assert batch.column(0).buffers()[1].address == tensor.struct.dl_tensor.data


@forms
@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shift", [1, 2, 3, 4])
def test_misaligned_elements_are_read(session, dtype, shift, form):
    array = sample(dtype, 50)
    shifted = np.zeros(array.nbytes + shift, np.uint8)
    shifted[shift:] = array.view(np.uint8)
    code = {"i": INT, "u": UINT, "f": FLOAT, "b": BOOL}[array.dtype.kind]
    for strides, expected in (((1,), array), ((-1,), array[::-1])):
        offset = shift if strides == (1,) else shift + array.nbytes - array.itemsize
        tensor = ManagedTensor(
            form, shifted, shape=(50,), strides=strides, byte_offset=offset, dtype=(code, array.itemsize * 8, 1)
        )
        (batch,) = import_batches(session, tensor.capsule)
        batch.validate(full=True)
        assert_same(expected, values(batch.column(0)))
        address = elements(batch.column(0)).buffers()[1].address
        assert address % array.itemsize == 0, "Arrow's buffers are aligned to their elements"
        in_place = strides == (1,) and (tensor.struct.dl_tensor.data + offset) % array.itemsize == 0
        assert (address == tensor.struct.dl_tensor.data + offset) == in_place
        del batch
        gc.collect()
        assert tensor.deleted == 1


@forms
@pytest.mark.parametrize("bools", ["bytes", "bits"])
@pytest.mark.parametrize("dtype", [(UINT, 8, 1), (BOOL, 8, 1)])
def test_rejects_broadcast_that_is_too_large_to_gather(session, dtype, bools, form):
    """One byte broadcast to 2^50 elements: valid, but too large to gather."""
    tensor = ManagedTensor(form, shape=(2**50,), strides=(0,), dtype=dtype)
    with pytest.raises(capi.CrossdockError, match=f"column 'col_0': .* {2**50} bytes") as caught:
        import_batches(session, tensor.capsule, bools=bools)
    assert caught.value.code == "out_of_memory"
    gc.collect()
    assert tensor.deleted == 1


@forms
@pytest.mark.parametrize("shape", [(0, 2**31), (1, 2**31)])
def test_rejects_row_longer_than_arrow_lists(session, shape, form):
    tensor = ManagedTensor(form, shape=shape, strides=(1, 0))
    with pytest.raises(capi.CrossdockError, match="a row has 2147483648 values, expected at most 2147483647") as caught:
        import_batches(session, tensor.capsule)
    assert caught.value.code == "unsupported"
    gc.collect()
    assert tensor.deleted == 1


def test_deleter_may_call_crossdock(host, session):
    """The deleter drops the tensor's owner. The owner is another exported tensor, whose deleter drops the
    next owner, through a hundred levels."""
    array = first = sample("int32", 9)
    for _ in range(100):
        (batch,) = import_batches(session, capsule_of(array, "versioned"))
        array = np.from_dlpack(Producer(export_batch(session, batch)[0]))
    assert_same(first, array)
    assert copied_bytes(host) == 0
    witness = weakref.ref(first)
    del first, batch
    assert witness() is not None
    del array
    gc.collect()
    assert witness() is None
