"""`Column.__dlpack__` and `__dlpack_device__`, as specified by the array API standard 2024.12."""

import gc
import itertools
import threading

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from tensors import IS_COPIED, NUMPY_DTYPES, READ_ONLY, Producer, assert_same, delete, managed, sample, consume
from tensor_producers import LiveTensor, name_of

dtypes = pytest.mark.parametrize("dtype", NUMPY_DTYPES)

FORMS = {None: "dltensor", (0, 8): "dltensor", (0, 99): "dltensor"} | {
    version: "dltensor_versioned" for version in [(1, 0), (1, 1), (1, 3), (1, 99), (2, 0), (9, 9)]
}
"""The name of the capsule for each maximum version of a consumer."""


@pytest.fixture
def column(session):
    return session.from_dlpack(np.arange(1, 4))


def import_with_numpy(column, **arguments):
    """Returns a numpy array of the exported tensor."""
    return np.from_dlpack(Producer(column.__dlpack__(**arguments)))


@pytest.mark.parametrize("max_version", FORMS)
@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("dl_device", [None, (1, 0)])
@pytest.mark.parametrize("dtype", ["int64", "bool", "float16"])
def test_tensor_is_copied_only_if_legacy_or_requested(session, max_version, copy, dl_device, dtype):
    array = sample(dtype, 7)
    column = session.from_dlpack(array)
    legacy = FORMS[max_version] == "dltensor"
    arguments = {"max_version": max_version, "copy": copy, "dl_device": dl_device}
    if legacy and copy is False:
        with pytest.raises(BufferError, match="a legacy tensor cannot mark its memory as read-only"):
            column.__dlpack__(**arguments)
        return
    capsule = column.__dlpack__(**arguments)
    assert name_of(capsule) == FORMS[max_version]
    struct = managed(capsule)
    is_copy = legacy or copy is True
    assert (struct.dl_tensor.data == array.ctypes.data) == (not is_copy)
    if not legacy:
        assert struct.major == 1
        assert struct.flags == (IS_COPIED if is_copy else READ_ONLY)
    got = np.from_dlpack(Producer(capsule))
    # numpy does not write to legacy tensors.
    assert got.flags.writeable == (is_copy and not legacy)
    assert_same(array, got)
    if got.flags.writeable:
        got[:] = 0
        assert_same(array, import_with_numpy(column, max_version=(1, 0)))


@dtypes
@pytest.mark.parametrize("shape", [(5,), (0,), (2, 3), (2, 3, 4), (0, 3), (1, 1)])
def test_tensor_has_strides_and_byte_offset_0(session, dtype, shape):
    column = session.from_dlpack(sample(dtype, shape))
    for arguments in ({}, {"max_version": (1, 0)}):
        capsule = column.__dlpack__(**arguments)
        tensor = managed(capsule).dl_tensor
        assert tensor.strides is not None
        assert tensor.byte_offset == 0
        assert tensor.ndim == len(shape)
        assert (tensor.data is None) == (0 in shape)
        assert (tensor.device.device_type, tensor.device.device_id) == (1, 0)


def test_slice_has_the_address_of_its_first_element(session):
    array = np.arange(10)
    capsule = session.from_dlpack(array).slice(3, 4).__dlpack__(max_version=(1, 0))
    tensor = managed(capsule).dl_tensor
    assert (tensor.data, tensor.byte_offset) == (array.ctypes.data + 24, 0)


def test_dlpack_device_is_a_pair_of_integers(column):
    assert column.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("stream", [-1, 0, 1, 2, 12345, "1", 1.5])
def test_rejects_stream_on_the_cpu(column, stream):
    with pytest.raises(ValueError, match="expected None for a column on the cpu"):
        column.__dlpack__(stream=stream)


@pytest.mark.parametrize("dl_device", [(2, 0), (1, 1), (3, 0), (13, 0), (-1, -1)])
@pytest.mark.parametrize("copy", [None, True, False])
def test_rejects_export_to_another_device(column, dl_device, copy):
    with pytest.raises(BufferError, match="expected the column's device, cpu"):
        column.__dlpack__(max_version=(1, 0), dl_device=dl_device, copy=copy)


@pytest.mark.parametrize("name", ["max_version", "dl_device"])
@pytest.mark.parametrize("value", [1, "1.0", (1,), (1, 0, 0), ("a", "b")])
def test_rejects_arguments_that_are_no_pair(column, name, value):
    with pytest.raises(TypeError, match=f"{name}="):
        column.__dlpack__(**{name: value})


def test_dlpack_method_rejects_positional_and_invalid_arguments(column):
    with pytest.raises(TypeError):
        column.__dlpack__(None)
    with pytest.raises(TypeError):
        column.__dlpack__(surprise=1)
    with pytest.raises(TypeError):
        column.__dlpack__(copy="yes")


def test_numpy_from_dlpack_arguments_are_respected(column):
    assert np.from_dlpack(column).tolist() == [1, 2, 3]
    assert not np.from_dlpack(column).flags.writeable
    assert np.from_dlpack(column, copy=True).flags.writeable
    assert np.from_dlpack(column, device="cpu", copy=False).tolist() == [1, 2, 3]


# --- Unsupported columns ---


@pytest.mark.parametrize("arguments", [{}, {"max_version": (1, 0)}, {"max_version": (1, 0), "copy": True}], ids=str)
@pytest.mark.parametrize(
    ("array", "message"),
    [
        (pa.array(["a"]), "DLPack holds numbers and booleans only"),
        (pa.array([[1]]), "fixed-size list"),
        (pa.array([1], pa.timestamp("us")), "no dates and times"),
        (pa.array([1], pa.decimal128(5, 2)), "no decimals"),
        (pa.array(["a"]).dictionary_encode(), "decode it first"),
        (pa.array([None, 1, None]), "2 of 3 rows are null.*fill"),
        (pa.array([[1, None]], pa.list_(pa.int8(), 2)), "1 values within its rows are null"),
        (pa.array([None]), "numbers and booleans only"),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_unsupported_column_raises_buffer_error(session, array, message, arguments):
    table = session.from_arrow(pa.table({"name": array}))
    with pytest.raises(BufferError, match=message) as raised:
        table["name"].__dlpack__(**arguments)
    assert isinstance(raised.value, cd.ExportError)
    assert "'name'" in str(raised.value) or array.__class__ is pa.ChunkedArray


def test_failed_export_does_not_affect_the_next(session):
    table = session.from_arrow(pa.table({"a": [1, None], "b": [1, 2]}))
    for _ in range(3):
        with pytest.raises(BufferError):
            table["a"].__dlpack__(max_version=(1, 0))
        assert import_with_numpy(table["b"], max_version=(1, 0)).tolist() == [1, 2]


def test_boolean_bits_are_converted_if_copies_are_allowed(session):
    bits = session.from_arrow(pa.array([True, False, True]))
    capsule = bits.__dlpack__(max_version=(1, 0))
    assert managed(capsule).flags == IS_COPIED
    assert import_with_numpy(bits, max_version=(1, 0)).tolist() == [True, False, True]
    assert import_with_numpy(bits).tolist() == [True, False, True]
    with pytest.raises(BufferError, match="bits become bytes"):
        bits.__dlpack__(max_version=(1, 0), copy=False)


def test_chunks_are_combined_into_one_tensor(session):
    chunks = session.from_arrow(pa.chunked_array([[1, 2], [], [3]], pa.int32()))
    assert import_with_numpy(chunks, max_version=(1, 0)).tolist() == [1, 2, 3]
    with pytest.raises(BufferError, match=r"the column has 3 chunks, .* call combine_chunks\(\)"):
        chunks.__dlpack__(copy=False)
    one = chunks.combine_chunks()
    assert (one.num_chunks, import_with_numpy(one).tolist()) == (1, [1, 2, 3])
    assert import_with_numpy(chunks.chunk(2), max_version=(1, 0)).tolist() == [3]
    assert one.combine_chunks().__dlpack__(max_version=(1, 0)) is not None


def test_column_without_chunks_exports_an_empty_tensor(session):
    column = session.from_arrow(pa.chunked_array([], pa.int16()))
    got = import_with_numpy(column, max_version=(1, 0))
    assert (got.shape, got.dtype) == ((0,), np.int16)


# --- Lifetimes ---


@pytest.mark.parametrize("max_version", [None, (1, 0)])
@pytest.mark.parametrize("copy", [None, True])
def test_tensor_outlives_its_column_and_session(max_version, copy):
    session = cd.Session()
    capsules = [session.from_dlpack(np.arange(5)).__dlpack__(max_version=max_version, copy=copy) for _ in range(2)]
    session.close()
    del session
    gc.collect()
    array = np.from_dlpack(Producer(capsules.pop()))
    assert array.tolist() == [0, 1, 2, 3, 4]
    del capsules
    gc.collect()
    assert array.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("form", "max_version"), [("legacy", None), ("versioned", (1, 0))])
def test_capsule_deletes_only_unconsumed_tensor(session, form, max_version):
    tensor = LiveTensor("versioned")
    column = session.from_dlpack(Producer(tensor.capsule))
    unconsumed, consumed = (column.__dlpack__(max_version=max_version) for _ in range(2))
    address = consume(consumed)
    assert name_of(consumed).startswith("used_")
    del column, unconsumed, consumed
    gc.collect()
    # The legacy tensor is a copy.
    assert tensor.deleted == (1 if form == "legacy" else 0)
    assert bool(session.memory_used()) == (form == "legacy")
    delete(form, address)
    gc.collect()
    assert tensor.deleted == 1


IMPORTS = {
    "a column": lambda session, producer: session.from_dlpack(producer),
    "a table": lambda session, producer: session.from_dlpack([producer]),
    "a capsule": lambda session, producer: session.from_dlpack(producer).__dlpack__(max_version=(1, 0)),
    "a used column": lambda session, producer: (
        (column := session.from_dlpack(producer)).__dlpack__(max_version=(1, 0)) and column
    ),
}


@pytest.mark.parametrize("what", IMPORTS)
def test_release_keeps_the_pending_exception(session, what):
    """Deletes a tensor whose deleter runs Python code."""
    tensor = LiveTensor("versioned")
    producer = Producer(tensor.capsule)
    with pytest.raises(ZeroDivisionError):
        (IMPORTS[what](session, producer), 1 / 0)
    assert tensor.deleted == 1


def test_each_call_exports_a_tensor_of_the_same_memory(session):
    tensor = LiveTensor("versioned")
    column = session.from_dlpack(Producer(tensor.capsule))
    capsules = [column.__dlpack__(max_version=(1, 0)) for _ in range(3)]
    structs = [managed(capsule) for capsule in capsules]
    assert len({id(capsule) for capsule in capsules}) == 3
    assert len({struct.manager_ctx or i for i, struct in enumerate(structs)}) == 3
    assert len({struct.dl_tensor.data for struct in structs}) == 1
    del column
    for i in range(3):
        gc.collect()
        assert tensor.deleted == 0
        got = np.from_dlpack(Producer(capsules.pop()))
        assert got.tolist() == [1, 2, 3], i
        del got, structs[-1]
    gc.collect()
    assert tensor.deleted == 1


@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_round_trip_of_versioned_tensor_keeps_the_memory(session, max_version):
    first = session.from_dlpack(np.arange(4))
    second = session.from_dlpack(Producer(first.__dlpack__(max_version=max_version)))
    capsules = [column.__dlpack__(max_version=(1, 0)) for column in (first, second)]
    data = [managed(capsule).dl_tensor.data for capsule in capsules]
    assert (data[0] == data[1]) == (max_version is not None)
    assert import_with_numpy(second).tolist() == [0, 1, 2, 3]


def test_from_dlpack_accepts_columns(session):
    column = session.from_dlpack(np.arange(4.0))
    again = session.from_dlpack(column)
    assert np.from_dlpack(again).ctypes.data == np.from_dlpack(column).ctypes.data
    table = session.from_dlpack({"a": column, "b": again})
    assert table.to_pyarrow().to_pydict() == {"a": [0.0, 1.0, 2.0, 3.0], "b": [0.0, 1.0, 2.0, 3.0]}


def test_threads_export_separate_tensors(session):
    columns = [session.from_dlpack(np.arange(10) + i) for i in range(4)]
    wrong = []

    def work(i):
        for copy, version in itertools.islice(itertools.cycle(itertools.product([None, True], [None, (1, 0)])), 400):
            column = columns[i % 4]
            if import_with_numpy(column, copy=copy, max_version=version).tolist() != list(range(i % 4, i % 4 + 10)):
                wrong.append((i, copy, version))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == []
