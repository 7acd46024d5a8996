"""DLPack with the installed tensor libraries: torch, jax, cupy. The tensors and the columns are in host
memory."""

import numpy as np
import pyarrow as pa
import pytest
import tensors

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64", "bool"]


def numbers(dtype):
    """Returns the values to compare, without NaN."""
    return (np.arange(1000) % 100).astype(dtype)


def column_of(session, array):
    """Imports a library's tensor as a column."""
    (batch,) = tensors.import_batches(session, array.__dlpack__())
    return batch.column(0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_tensor_round_trips_in_place(session, host, dtype):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    expected = numbers(dtype)
    tensor = torch.from_numpy(expected.copy())
    before = tensors.copied_bytes(host)
    column = column_of(session, tensor)
    assert tensors.address(column) == tensor.data_ptr()
    tensors.assert_same(expected, tensors.values(column))
    (capsule,) = tensors.export_batch(session, pa.record_batch([column], names=["c"]))
    back = torch.from_dlpack(capsule)
    assert back.data_ptr() == tensor.data_ptr() and torch.equal(back, tensor)
    assert tensors.copied_bytes(host) == before


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"])
def test_torch_types_without_arrow_equivalent_round_trip(session, dtype):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensor = torch.arange(6).to(getattr(torch, dtype)).reshape(3, 2)
    (batch,) = tensors.import_batches(session, tensor.__dlpack__())
    (capsule,) = tensors.export_batch(session, batch)
    back = torch.from_dlpack(capsule)
    assert back.dtype == tensor.dtype and torch.equal(back.view(torch.uint8), tensor.view(torch.uint8))


def test_torch_views_round_trip(session):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    cube = torch.arange(120).reshape(2, 3, 4, 5)
    for view in [cube[:, 1:, ::2], cube.permute(0, 3, 1, 2), cube[1:].expand(4, 3, 4, 5), cube[:0]]:
        column = column_of(session, view)
        (capsule,) = tensors.export_batch(session, pa.record_batch([column], names=["c"]))
        assert torch.equal(torch.from_dlpack(capsule), view)


@pytest.mark.parametrize("dtype", ["int32", "float32", "bool"])
def test_jax_array_round_trips(session, dtype):
    jax = pytest.importorskip("jax", reason="jax is not installed")
    cpu = jax.devices("cpu")[0]
    expected = numbers(dtype)
    array = jax.device_put(expected, cpu)
    column = column_of(session, array)
    tensors.assert_same(expected, tensors.values(column))
    # jax accepts only the legacy form, and does not write.
    (capsule,) = tensors.export_batch(session, pa.record_batch([column], names=["c"]), "legacy", read_only="lent")
    back = jax.dlpack.from_dlpack(tensors.Producer(capsule))
    np.testing.assert_array_equal(np.asarray(back), expected)


def test_error_for_gpu_tensor_names_its_device(session):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    tensor = torch.arange(10, device="cuda:0")
    with pytest.raises(tensors.capi.CrossdockError, match="cuda:0, expected one of cpu"):
        tensors.import_batches(session, tensor.__dlpack__(stream=-1))
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    with pytest.raises(tensors.capi.CrossdockError, match="cuda:0, expected one of cpu"):
        tensors.import_batches(session, cupy.arange(10).__dlpack__())
    assert int(tensor.sum()) == 45
