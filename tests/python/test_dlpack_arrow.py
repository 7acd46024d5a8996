"""DLPack with pyarrow's own tensors at the other end, on another device, and as columns that types describe."""

import capi
import numpy as np
import pyarrow as pa
import pytest
from tensors import (
    FORMATS,
    NUMPY_DTYPES,
    Lender,
    address,
    assert_same,
    bring,
    bring_one,
    copied,
    form_of,
    lend,
    managed,
    pair,
    sample,
    send,
    values,
)

numbers = pytest.mark.parametrize("dtype", [dtype for dtype in NUMPY_DTYPES if dtype != "bool"])


# --------------------------------------------------------------------------------------------- pyarrow's tensors ---


@numbers
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.filterwarnings("ignore:Exporting an unversioned DLPack")
def test_an_array_of_pyarrow_comes_in_as_a_tensor(host, session, dtype, form):
    column = pa.array(sample(dtype, 131)).slice(7)
    capsule = lend(column, form)
    assert form_of(capsule) == form
    (batch,) = bring(session, capsule)
    assert_same(values(column), values(batch.column(0)))
    assert address(batch.column(0)) == address(column)
    assert copied(host) == 0


@numbers
def test_pyarrow_takes_our_tensors(host, session, dtype):
    array = sample(dtype, 131)
    column = pa.array(array)
    (capsule,) = send(session, pa.record_batch([column], names=["c"]))
    back = pa.Array.from_dlpack(Lender(capsule))
    assert back.type == column.type
    assert_same(array, values(back))
    assert address(back) == address(column)
    assert copied(host) == 0


@numbers
def test_pyarrow_takes_our_tensors_of_several_dimensions(session, dtype):
    array = sample(dtype, (4, 2, 3))
    batch = pa.record_batch([bring_one(session, array)], names=["c"])
    tensor = pa.Tensor.from_dlpack(Lender(send(session, batch)[0]))
    assert_same(array, tensor.to_numpy())
    column = pa.FixedShapeTensorArray.from_dlpack(Lender(send(session, batch)[0]))
    assert column.type == batch.column(0).type
    assert_same(array, values(column))


# ------------------------------------------------------------------------------------------- columns, as types tell ---


def told(metadata, size=6):
    """A schema whose one column says that it is of tensors, without pyarrow's having looked at what it says."""
    extension = {"ARROW:extension:name": "arrow.fixed_shape_tensor", "ARROW:extension:metadata": metadata}
    return pa.schema([pa.field("c", pa.list_(pa.int32(), size), metadata=extension)])


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ("", "EOF"),
        ("{", "EOF"),
        ("{}", "missing field `shape`"),
        ('{"shape": 6}', "invalid type"),
        ('{"shape": [2, 2]}', r"shape \[2, 2\] is not one of the 6 values"),
        ('{"shape": []}', r"shape \[\] is not one of the 6 values"),
        ('{"shape": [-2, -3]}', "-2"),
        (f'{{"shape": [{2**64 - 1}, {2**64 - 1}]}}', "is not one of the 6 values"),
        (f'{{"shape": [{"1, " * 70} 6]}}', "71 dimensions, expected fewer than 64"),
        ('{"shape": [2, 3], "permutation": [0, 0]}', r"\[0, 0\] is no permutation of 2 dimensions"),
        ('{"shape": [2, 3], "permutation": [0]}', r"\[0\] is no permutation"),
        ('{"shape": [2, 3], "permutation": [1, 2]}', r"\[1, 2\] is no permutation"),
    ],
)
def test_a_shape_that_is_none_is_refused(session, metadata, words):
    with pytest.raises(capi.CrossdockError, match=f"column 'c'.*arrow.fixed_shape_tensor metadata is wrong: .*{words}"):
        session.export("dlpack", told(metadata))
    with pytest.raises(capi.CrossdockError, match="column 'c'.*arrow.fixed_shape_tensor metadata is wrong"):
        bring(session, lend(np.zeros((3, 6), np.int32), "versioned"), schema=told(metadata))


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
def test_a_shape_is_the_tensor_s(session, metadata, shape):
    flat = sample("int32", 24)
    column = pa.FixedSizeListArray.from_arrays(pa.array(flat), 6)
    batch = pa.record_batch([column], schema=told(metadata))
    (capsule,) = send(session, batch)
    got = np.from_dlpack(Lender(capsule))
    assert got.shape == shape
    in_memory = {(4, 2, 3): flat.reshape(4, 2, 3), (4, 3, 2): flat.reshape(4, 2, 3).transpose(0, 2, 1)}
    in_memory[(4, 3, 1, 2)] = flat.reshape(4, 1, 2, 3).transpose(0, 3, 1, 2)
    assert_same(in_memory[shape], got)


def test_rows_of_no_values_go_out(session):
    column = pa.FixedSizeListArray.from_buffers(pa.list_(pa.int32(), 0), 3, [None], children=[pa.array([], pa.int32())])
    (capsule,) = send(session, pa.record_batch([column], names=["c"]))
    assert np.from_dlpack(Lender(capsule)).shape == (3, 0)


def test_a_table_without_columns_is_refused(session):
    with pytest.raises(capi.CrossdockError, match="a table without columns"):
        session.export("dlpack", pa.schema([]))


def test_of_several_columns_without_a_place_the_first_is_named_and_the_rest_counted(session):
    schema = pa.schema([("a", pa.string()), ("b", pa.int8()), ("c", pa.binary()), ("d", pa.date32())])
    with pytest.raises(capi.CrossdockError, match="column 'a' of type .*; 2 more columns have no place either"):
        session.export("dlpack", schema)


# ------------------------------------------------------------------------------------------------- another device ---


UNTOUCHABLE = (12, 0)
"""Host memory that faults when the host dereferences its published addresses."""


@pytest.mark.parametrize("bools", ["bytes", "bits"])
@pytest.mark.parametrize("layout", ["whole", "every second", "backwards"])
@pytest.mark.parametrize("dtype", ["int16", "float64", "bool"])
def test_tensors_go_to_another_device_and_back_with_their_values(library, dtype, layout, bools):
    array = sample(dtype, (9, 8))
    array = {"whole": array, "every second": array[:, ::2], "backwards": array[::-1]}[layout]
    with capi.Host(untouchable=True) as host, host.session(device=UNTOUCHABLE) as there, host.session() as here:
        stream = there.import_capsules("dlpack", [pair(lend(array, "versioned"))], options={"bools": bools})
        raw = stream.next_raw()
        assert (raw.array.device_type, raw.array.device_id) == UNTOUCHABLE
        (capsule,) = there.export("dlpack", stream.schema).write_raw(raw)
        device = managed(capsule).dl_tensor.device
        assert (device.device_type, device.device_id) == UNTOUCHABLE
        with pytest.raises((RuntimeError, BufferError), match="Unsupported device"):
            np.from_dlpack(Lender(capsule, UNTOUCHABLE))
        (batch,) = bring(here, capsule)
        assert_same(array, values(batch.column(0)))
        assert host.ledger()["copied_d2h"] == array.nbytes
        del raw, capsule, batch, stream
        assert host.settle() == []


def test_a_gathered_tensor_counts_against_the_host_s_memory(library):
    with capi.Host(memory_limit=1000) as host, host.session() as session:
        array = sample("int64", 1000)
        assert_same(array, values(bring_one(session, array)))
        with pytest.raises(capi.CrossdockError, match="column 'col_0': .*4000 bytes.*limit of 1000") as caught:
            bring_one(session, array[::2])
        assert caught.value.code == "out_of_memory"
