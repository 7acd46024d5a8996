"""DLPack with pyarrow's tensors, with tensors on another device, and with columns of tensor types."""

import capi
import numpy as np
import pyarrow as pa
import pytest
from tensors import (
    FORMATS,
    NUMPY_DTYPES,
    Producer,
    address,
    assert_same,
    import_batches,
    import_array,
    copied_bytes,
    form_of,
    capsule_of,
    managed,
    named_capsule,
    sample,
    export_batch,
    values,
)

numbers = pytest.mark.parametrize("dtype", [dtype for dtype in NUMPY_DTYPES if dtype != "bool"])


# --- Tensors of pyarrow ---


@numbers
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.filterwarnings("ignore:Exporting an unversioned DLPack")
def test_pyarrow_array_is_imported_as_a_tensor(host, session, dtype, form):
    column = pa.array(sample(dtype, 131)).slice(7)
    capsule = capsule_of(column, form)
    assert form_of(capsule) == form
    (batch,) = import_batches(session, capsule)
    assert_same(values(column), values(batch.column(0)))
    assert address(batch.column(0)) == address(column)
    assert copied_bytes(host) == 0


@numbers
def test_pyarrow_imports_exported_tensors(host, session, dtype):
    array = sample(dtype, 131)
    column = pa.array(array)
    (capsule,) = export_batch(session, pa.record_batch([column], names=["c"]))
    back = pa.Array.from_dlpack(Producer(capsule))
    assert back.type == column.type
    assert_same(array, values(back))
    assert address(back) == address(column)
    assert copied_bytes(host) == 0


@numbers
def test_pyarrow_imports_tensors_of_several_dimensions(session, dtype):
    array = sample(dtype, (4, 2, 3))
    batch = pa.record_batch([import_array(session, array)], names=["c"])
    tensor = pa.Tensor.from_dlpack(Producer(export_batch(session, batch)[0]))
    assert_same(array, tensor.to_numpy())
    column = pa.FixedShapeTensorArray.from_dlpack(Producer(export_batch(session, batch)[0]))
    assert column.type == batch.column(0).type
    assert_same(array, values(column))


# --- Columns of tensor types ---


def schema_with(metadata, size=6):
    """Returns a schema with one column of tensors, whose metadata pyarrow does not check."""
    extension = {"ARROW:extension:name": "arrow.fixed_shape_tensor", "ARROW:extension:metadata": metadata}
    return pa.schema([pa.field("c", pa.list_(pa.int32(), size), metadata=extension)])


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ("", "EOF"),
        ("{", "EOF"),
        ("{}", "missing field `shape`"),
        ('{"shape": 6}', "invalid type"),
        ('{"shape": [2, 2]}', r"shape \[2, 2\] does not match a row of 6 values"),
        ('{"shape": []}', r"shape \[\] does not match a row of 6 values"),
        ('{"shape": [-2, -3]}', "-2"),
        (f'{{"shape": [{2**64 - 1}, {2**64 - 1}]}}', "does not match a row of 6 values"),
        (f'{{"shape": [{"1, " * 70} 6]}}', "71 dimensions, expected fewer than 64"),
        ('{"shape": [2, 3], "permutation": [0, 0]}', r"\[0, 0\] is not a permutation of 2 dimensions"),
        ('{"shape": [2, 3], "permutation": [0]}', r"\[0\] is not a permutation"),
        ('{"shape": [2, 3], "permutation": [1, 2]}', r"\[1, 2\] is not a permutation"),
    ],
)
def test_rejects_invalid_shape_metadata(session, metadata, message):
    with pytest.raises(
        capi.CrossdockError, match=f"column 'c'.*arrow.fixed_shape_tensor metadata is invalid: .*{message}"
    ):
        session.export("dlpack", schema_with(metadata))
    with pytest.raises(capi.CrossdockError, match="column 'c'.*arrow.fixed_shape_tensor metadata is invalid"):
        import_batches(session, capsule_of(np.zeros((3, 6), np.int32), "versioned"), schema=schema_with(metadata))


@pytest.mark.parametrize(
    ("metadata", "shape"),
    [
        ('{"shape": [2, 3]}', (4, 2, 3)),
        ('{"shape": [2, 3], "permutation": null, "of the future": 1}', (4, 2, 3)),
        ('{"shape": [2, 3], "permutation": [1, 0]}', (4, 3, 2)),
        ('{"shape": [2, 3], "permutations": [1, 0]}', (4, 3, 2)),
        ('{"shape": [1, 2, 3], "permutation": [2, 0, 1], "dim_names": ["a", "b", "c"]}', (4, 3, 1, 2)),
    ],
)
def test_shape_metadata_determines_the_tensors_shape(session, metadata, shape):
    flat = sample("int32", 24)
    column = pa.FixedSizeListArray.from_arrays(pa.array(flat), 6)
    batch = pa.record_batch([column], schema=schema_with(metadata))
    (capsule,) = export_batch(session, batch)
    got = np.from_dlpack(Producer(capsule))
    assert got.shape == shape
    in_memory = {(4, 2, 3): flat.reshape(4, 2, 3), (4, 3, 2): flat.reshape(4, 2, 3).transpose(0, 2, 1)}
    in_memory[(4, 3, 1, 2)] = flat.reshape(4, 1, 2, 3).transpose(0, 3, 1, 2)
    assert_same(in_memory[shape], got)


def test_exports_rows_without_values(session):
    column = pa.FixedSizeListArray.from_buffers(pa.list_(pa.int32(), 0), 3, [None], children=[pa.array([], pa.int32())])
    (capsule,) = export_batch(session, pa.record_batch([column], names=["c"]))
    assert np.from_dlpack(Producer(capsule)).shape == (3, 0)


def test_rejects_table_without_columns(session):
    with pytest.raises(capi.CrossdockError, match="the table has no columns"):
        session.export("dlpack", pa.schema([]))


def test_error_names_first_unsupported_column_and_counts_the_others(session):
    schema = pa.schema([("a", pa.string()), ("b", pa.int8()), ("c", pa.binary()), ("d", pa.date32())])
    with pytest.raises(capi.CrossdockError, match="column 'a' of type .*; 2 more columns are unsupported too"):
        session.export("dlpack", schema)


# --- Another device ---


UNTOUCHABLE = (12, 0)
"""A device whose addresses fault when the host dereferences them."""


@pytest.mark.parametrize("bools", ["bytes", "bits"])
@pytest.mark.parametrize("layout", ["whole", "every second", "backwards"])
@pytest.mark.parametrize("dtype", ["int16", "float64", "bool"])
def test_tensors_round_trip_through_another_device(library, dtype, layout, bools):
    array = sample(dtype, (9, 8))
    array = {"whole": array, "every second": array[:, ::2], "backwards": array[::-1]}[layout]
    with (
        capi.Host(untouchable=True) as host,
        host.session(device=UNTOUCHABLE) as device_session,
        host.session() as cpu_session,
    ):
        stream = device_session.import_capsules(
            "dlpack", [named_capsule(capsule_of(array, "versioned"))], options={"bools": bools}
        )
        raw = stream.next_raw()
        assert (raw.array.device_type, raw.array.device_id) == UNTOUCHABLE
        (capsule,) = device_session.export("dlpack", stream.schema).write_raw(raw)
        device = managed(capsule).dl_tensor.device
        assert (device.device_type, device.device_id) == UNTOUCHABLE
        with pytest.raises((RuntimeError, BufferError), match="Unsupported device"):
            np.from_dlpack(Producer(capsule, UNTOUCHABLE))
        (batch,) = import_batches(cpu_session, capsule)
        assert_same(array, values(batch.column(0)))
        assert host.ledger()["copied_d2h"] == array.nbytes
        del raw, capsule, batch, stream
        assert host.settle() == []


def test_gathered_tensor_counts_against_the_budget(library):
    with capi.Host(memory_limit=1000) as host, host.session() as session:
        array = sample("int64", 1000)
        assert_same(array, values(import_array(session, array)))
        with pytest.raises(capi.CrossdockError, match="column 'col_0': .*4000 bytes.*limit of 1000") as caught:
            import_array(session, array[::2])
        assert caught.value.code == "out_of_memory"
