"""`Column.__dlpack__` and `__dlpack_device__`, as the array API standard 2024.12 has them."""

import gc
import itertools
import threading

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from tensors import IS_COPIED, NUMPY_DTYPES, READ_ONLY, Lender, assert_same, delete, managed, sample, take
from tensors_made import Made, name_of

dtypes = pytest.mark.parametrize("dtype", NUMPY_DTYPES)

FORMS = {None: "dltensor", (0, 8): "dltensor", (0, 99): "dltensor"} | {
    version: "dltensor_versioned" for version in [(1, 0), (1, 1), (1, 3), (1, 99), (2, 0), (9, 9)]
}
"""What is given to a consumer of at most this version."""


@pytest.fixture
def column(session):
    return session.from_dlpack(np.arange(1, 4))


def seen(column, **arguments):
    """numpy's view of what is given."""
    return np.from_dlpack(Lender(column.__dlpack__(**arguments)))


@pytest.mark.parametrize("max_version", FORMS)
@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("dl_device", [None, (1, 0)])
@pytest.mark.parametrize("dtype", ["int64", "bool", "float16"])
def test_every_form_copies_as_it_says(session, max_version, copy, dl_device, dtype):
    array = sample(dtype, 7)
    column = session.from_dlpack(array)
    legacy = FORMS[max_version] == "dltensor"
    arguments = {"max_version": max_version, "copy": copy, "dl_device": dl_device}
    if legacy and copy is False:
        with pytest.raises(BufferError, match="a legacy tensor cannot say that it must not be written"):
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
    got = np.from_dlpack(Lender(capsule))
    # numpy writes to no legacy tensor.
    assert got.flags.writeable == (is_copy and not legacy)
    assert_same(array, got)
    if got.flags.writeable:
        got[:] = 0
        assert_same(array, seen(column, max_version=(1, 0)))


@dtypes
@pytest.mark.parametrize("shape", [(5,), (0,), (2, 3), (2, 3, 4), (0, 3), (1, 1)])
def test_strides_are_told_the_offset_is_none_and_nothing_lies_nowhere(session, dtype, shape):
    column = session.from_dlpack(sample(dtype, shape))
    for arguments in ({}, {"max_version": (1, 0)}):
        capsule = column.__dlpack__(**arguments)
        tensor = managed(capsule).dl_tensor
        assert tensor.strides is not None
        assert tensor.byte_offset == 0
        assert tensor.ndim == len(shape)
        assert (tensor.data is None) == (0 in shape)
        assert (tensor.device.device_type, tensor.device.device_id) == (1, 0)


def test_a_slice_begins_where_it_lies(session):
    array = np.arange(10)
    capsule = session.from_dlpack(array).slice(3, 4).__dlpack__(max_version=(1, 0))
    tensor = managed(capsule).dl_tensor
    assert (tensor.data, tensor.byte_offset) == (array.ctypes.data + 24, 0)


def test_the_device_is_a_pair_of_numbers(column):
    assert column.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("stream", [-1, 0, 1, 2, 12345, "1", 1.5])
def test_the_cpu_has_no_streams(column, stream):
    with pytest.raises(ValueError, match="the cpu, which has no streams"):
        column.__dlpack__(stream=stream)


@pytest.mark.parametrize("dl_device", [(2, 0), (1, 1), (3, 0), (13, 0), (-1, -1)])
@pytest.mark.parametrize("copy", [None, True, False])
def test_other_devices_are_refused(column, dl_device, copy):
    with pytest.raises(BufferError, match="lies on cpu"):
        column.__dlpack__(max_version=(1, 0), dl_device=dl_device, copy=copy)


@pytest.mark.parametrize("name", ["max_version", "dl_device"])
@pytest.mark.parametrize("value", [1, "1.0", (1,), (1, 0, 0), ("a", "b")])
def test_what_is_no_pair_is_a_type_error(column, name, value):
    with pytest.raises(TypeError, match=f"{name}="):
        column.__dlpack__(**{name: value})


def test_arguments_are_by_name_and_unknown_ones_are_type_errors(column):
    with pytest.raises(TypeError):
        column.__dlpack__(None)
    with pytest.raises(TypeError):
        column.__dlpack__(surprise=1)
    with pytest.raises(TypeError):
        column.__dlpack__(copy="yes")


def test_numpy_asks_for_all_that_it_knows(column):
    assert np.from_dlpack(column).tolist() == [1, 2, 3]
    assert not np.from_dlpack(column).flags.writeable
    assert np.from_dlpack(column, copy=True).flags.writeable
    assert np.from_dlpack(column, device="cpu", copy=False).tolist() == [1, 2, 3]


# ------------------------------------------------------------------------------------------------------ what is none ---


@pytest.mark.parametrize("arguments", [{}, {"max_version": (1, 0)}, {"max_version": (1, 0), "copy": True}], ids=str)
@pytest.mark.parametrize(
    ("array", "words"),
    [
        (pa.array(["a"]), "DLPack holds numbers and booleans only"),
        (pa.array([[1]]), "fixed-size list"),
        (pa.array([1], pa.timestamp("us")), "no dates and times"),
        (pa.array([1], pa.decimal128(5, 2)), "no decimals"),
        (pa.array(["a"]).dictionary_encode(), "decode it first"),
        (pa.array([None, 1, None]), "2 of 3 rows are null.*fill"),
        (pa.array([[1, None]], pa.list_(pa.int8(), 2)), "1 values within its rows are null"),
        (pa.chunked_array([[1], [2]]), r"2 chunks.*combine_chunks\(\)"),
        (pa.array([None]), "numbers and booleans only"),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_what_is_no_tensor_is_a_buffer_error_in_words(session, array, words, arguments):
    table = session.from_arrow(pa.table({"name": array}))
    with pytest.raises(BufferError, match=words) as raised:
        table["name"].__dlpack__(**arguments)
    assert isinstance(raised.value, cd.ExportError)
    assert "'name'" in str(raised.value) or array.__class__ is pa.ChunkedArray


def test_a_failure_leaves_the_next_one_as_it_would_be(session):
    table = session.from_arrow(pa.table({"a": [1, None], "b": [1, 2]}))
    for _ in range(3):
        with pytest.raises(BufferError):
            table["a"].__dlpack__(max_version=(1, 0))
        assert seen(table["b"], max_version=(1, 0)).tolist() == [1, 2]


def test_booleans_as_bits_are_converted_unless_no_copy_is_wanted(session):
    bits = session.from_arrow(pa.array([True, False, True]))
    capsule = bits.__dlpack__(max_version=(1, 0))
    assert managed(capsule).flags == IS_COPIED
    assert seen(bits, max_version=(1, 0)).tolist() == [True, False, True]
    assert seen(bits).tolist() == [True, False, True]
    with pytest.raises(BufferError, match="bits become bytes"):
        bits.__dlpack__(max_version=(1, 0), copy=False)


def test_chunks_are_combined_into_one_tensor(session):
    chunks = session.from_arrow(pa.chunked_array([[1, 2], [], [3]], pa.int32()))
    one = chunks.combine_chunks()
    assert (one.num_chunks, seen(one).tolist()) == (1, [1, 2, 3])
    assert seen(chunks.chunk(2), max_version=(1, 0)).tolist() == [3]
    assert one.combine_chunks().__dlpack__(max_version=(1, 0)) is not None


def test_a_column_of_no_chunks_is_an_empty_tensor(session):
    column = session.from_arrow(pa.chunked_array([], pa.int16()))
    got = seen(column, max_version=(1, 0))
    assert (got.shape, got.dtype) == ((0,), np.int16)


# --------------------------------------------------------------------------------------------------------- lifetimes ---


@pytest.mark.parametrize("max_version", [None, (1, 0)])
@pytest.mark.parametrize("copy", [None, True])
def test_a_tensor_outlives_its_column_and_session(max_version, copy):
    session = cd.Session()
    capsules = [session.from_dlpack(np.arange(5)).__dlpack__(max_version=max_version, copy=copy) for _ in range(2)]
    session.close()
    del session
    gc.collect()
    taken = np.from_dlpack(Lender(capsules.pop()))
    assert taken.tolist() == [0, 1, 2, 3, 4]
    del capsules
    gc.collect()
    assert taken.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("form", "max_version"), [("legacy", None), ("versioned", (1, 0))])
def test_a_capsule_deletes_what_nobody_took_and_nothing_else(session, form, max_version):
    made = Made("versioned")
    column = session.from_dlpack(Lender(made.capsule))
    left, taken = (column.__dlpack__(max_version=max_version) for _ in range(2))
    address = take(taken)
    assert name_of(taken).startswith("used_")
    del column, left, taken
    gc.collect()
    # The legacy one is a copy.
    assert made.deleted == (1 if form == "legacy" else 0)
    assert bool(session.memory_used()) == (form == "legacy")
    delete(form, address)
    gc.collect()
    assert made.deleted == 1


ENDING = {
    "a column": lambda session, lender: session.from_dlpack(lender),
    "a table": lambda session, lender: session.from_dlpack([lender]),
    "a capsule": lambda session, lender: session.from_dlpack(lender).__dlpack__(max_version=(1, 0)),
    "a used column": lambda session, lender: (
        (column := session.from_dlpack(lender)).__dlpack__(max_version=(1, 0)) and column
    ),
}


@pytest.mark.parametrize("what", ENDING)
def test_what_ends_while_an_exception_is_on_its_way_leaves_it(session, what):
    """Its tensor's deleter runs code in Python."""
    made = Made("versioned")
    lender = Lender(made.capsule)
    with pytest.raises(ZeroDivisionError):
        (ENDING[what](session, lender), 1 / 0)
    assert made.deleted == 1


def test_every_call_gives_another_tensor_of_the_same_memory(session):
    made = Made("versioned")
    column = session.from_dlpack(Lender(made.capsule))
    capsules = [column.__dlpack__(max_version=(1, 0)) for _ in range(3)]
    structs = [managed(capsule) for capsule in capsules]
    assert len({id(capsule) for capsule in capsules}) == 3
    assert len({struct.manager_ctx or i for i, struct in enumerate(structs)}) == 3
    assert len({struct.dl_tensor.data for struct in structs}) == 1
    del column
    for i in range(3):
        gc.collect()
        assert made.deleted == 0
        got = np.from_dlpack(Lender(capsules.pop()))
        assert got.tolist() == [1, 2, 3], i
        del got, structs[-1]
    gc.collect()
    assert made.deleted == 1


@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_out_and_in_and_out_again_is_the_same_memory_only_where_it_may_be(session, max_version):
    first = session.from_dlpack(np.arange(4))
    second = session.from_dlpack(Lender(first.__dlpack__(max_version=max_version)))
    capsules = [column.__dlpack__(max_version=(1, 0)) for column in (first, second)]
    data = [managed(capsule).dl_tensor.data for capsule in capsules]
    assert (data[0] == data[1]) == (max_version is not None)
    assert seen(second).tolist() == [0, 1, 2, 3]


def test_columns_are_producers_of_from_dlpack_themselves(session):
    column = session.from_dlpack(np.arange(4.0))
    again = session.from_dlpack(column)
    assert np.from_dlpack(again).ctypes.data == np.from_dlpack(column).ctypes.data
    table = session.from_dlpack({"a": column, "b": again})
    assert table.to_pyarrow().to_pydict() == {"a": [0.0, 1.0, 2.0, 3.0], "b": [0.0, 1.0, 2.0, 3.0]}


def test_many_threads_get_their_own_tensors(session):
    columns = [session.from_dlpack(np.arange(10) + i) for i in range(4)]
    wrong = []

    def work(i):
        for copy, version in itertools.islice(itertools.cycle(itertools.product([None, True], [None, (1, 0)])), 400):
            column = columns[i % 4]
            if seen(column, copy=copy, max_version=version).tolist() != list(range(i % 4, i % 4 + 10)):
                wrong.append((i, copy, version))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == []
