"""Import from jax and export to jax on the cpu. jax requests unversioned tensors, which have no read-only
flag."""

import numpy as np
import pytest
from tensors import EXTENSION_NUMBERS, NUMPY_DTYPES, assert_same, number_dtype, sample

jax = pytest.importorskip("jax")

SHAPES = [(24,), (1,), (0,), (4, 6), (0, 3), (2, 3, 4)]


@pytest.fixture(autouse=True)
def all_widths():
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dtypes_and_shapes_round_trip(session, dtype, shape):
    array = jax.device_put(sample(dtype, shape))
    for _ in range(2):
        column = session.from_dlpack(array)
        assert (len(column), column.device) == (shape[0], "cpu")
        assert_same(np.asarray(array), np.from_dlpack(column))
        assert_same(np.asarray(array), np.asarray(jax.dlpack.from_dlpack(column)))


@pytest.mark.parametrize("name", EXTENSION_NUMBERS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numbers_that_only_the_extension_type_has_round_trip(session, name, shape):
    expected = sample(number_dtype(name), shape)
    array = jax.device_put(expected)
    for _ in range(2):
        column = session.from_dlpack(array)
        assert_same(expected, np.asarray(column))
        assert_same(expected, np.asarray(jax.dlpack.from_dlpack(column)))


def test_jax_arrays_are_imported_in_place_and_exported_as_copies(session):
    array = jax.device_put(np.arange(1000))
    column = session.from_dlpack(array)
    assert np.from_dlpack(column).ctypes.data == array.unsafe_buffer_pointer()
    exported = jax.dlpack.from_dlpack(column)
    assert exported.unsafe_buffer_pointer() != array.unsafe_buffer_pointer()
    # jax may write arrays that are donated.
    jax.jit(lambda x: x + 1, donate_argnums=0)(exported)
    assert np.from_dlpack(column).tolist() == list(range(1000))


def test_tables_and_slices_round_trip(session):
    arrays = {"a": jax.numpy.arange(100), "b": jax.numpy.linspace(0, 1, 100)}
    table = session.from_dlpack(arrays)
    assert table.column_names == ["a", "b"]
    part = jax.dlpack.from_dlpack(table.slice(10, 20)["b"])
    assert part.tolist() == arrays["b"][10:30].tolist()


def test_rejects_nulls_and_text(session):
    import pyarrow as pa

    for values in ([1, None], ["text"]):
        with pytest.raises(BufferError):
            jax.dlpack.from_dlpack(session.from_arrow(pa.array(values)))
