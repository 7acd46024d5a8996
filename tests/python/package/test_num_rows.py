"""`Session.from_dlpack(tensors, num_rows=)`: tables whose number of rows is on the device."""

import crossdock as cd
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from conftest import assert_all_memory_freed
from crossdock.compat import xlog
from hypothesis import HealthCheck, given, settings
from tensors import INT
from tensor_producers import CUDA, LiveTensor, RecordingProducer

COUNTERS = ["i4", "u4", "i8", "u8"]
CAPACITY = 6


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.cuda)])
def session(request):
    """A session on each device. At the end of the test, all memory must be freed."""
    if request.param != "cpu":
        request.getfixturevalue("cuda")
    with cd.Session(request.param) as session:
        yield session
        assert_all_memory_freed(session)


def on(session, array):
    """Returns the array as a tensor on the session's device."""
    return array if session.device == "cpu" else session.from_dlpack(array)


def table_of(session, num_rows, capacity=CAPACITY):
    columns = {"a": np.arange(capacity, dtype="i4"), "b": np.arange(capacity) / 2}
    columns = {name: on(session, column) for name, column in columns.items()}
    return session.from_dlpack(columns, num_rows=num_rows)


@pytest.mark.parametrize("dtype", COUNTERS)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_counter_has_any_integer_type_and_one_element(session, dtype, shape):
    if session.device != "cpu" and shape == ():
        pytest.skip("a column has at least one dimension")
    for rows in (0, 1, 4, CAPACITY):
        table = table_of(session, on(session, np.full(shape, rows, dtype=dtype)))
        assert (table.capacity, table.num_rows, len(table)) == (CAPACITY, rows, rows)
        expected = {"a": list(range(rows)), "b": [i / 2 for i in range(rows)]}
        assert table.to_pyarrow().to_pydict() == expected
        assert len(table["b"]) == rows and table.slice(1).num_rows == max(rows - 1, 0)


def test_number_is_read_at_the_first_use_and_cached():
    counter = np.array([3])
    session = cd.Session()
    table = table_of(session, counter)
    counter[0] = 5
    assert table.schema.names == table.column_names == ["a", "b"]
    assert (table.num_columns, table.num_batches, table.capacity, table.device) == (2, 1, CAPACITY, "cpu")
    selected, padded = table.select(["b"]), table.padded()
    assert (selected.capacity, padded.num_rows, padded["a"].to_pyarrow().to_pylist()) == (6, 6, [0, 1, 2, 3, 4, 5])
    counter[0] = 4
    assert table.num_rows == 4, "the number was read before its first use"
    counter[0] = 2
    assert table.num_rows == selected.num_rows == 4, "the number was read again"
    assert selected.column_names == ["b"] and selected.to_pyarrow().to_pydict() == {"b": [0, 0.5, 1, 1.5]}
    known = session.from_dlpack({"a": np.arange(3)})
    assert (known.capacity, known.padded().num_rows) == (3, 3)


def test_padded_tensors_share_the_memory(session):
    column = on(session, np.arange(CAPACITY, dtype="i8"))
    table = session.from_dlpack([column], num_rows=on(session, np.array([2])))
    copied = table.padded().to("cpu")
    assert np.from_dlpack(copied[0]).tolist() == list(range(CAPACITY))
    if session.device == "cpu":
        assert np.from_dlpack(table.padded()[0]).ctypes.data == column.ctypes.data
        assert np.from_dlpack(table[0]).ctypes.data == column.ctypes.data
    assert table.to("cpu").num_rows == 2


@pytest.mark.parametrize(
    "value, shown",
    [
        (np.array([7]), "7"),
        (np.array([-1]), "-1"),
        (np.array([-1], dtype="i4"), "-1"),
        (np.array([2**32 - 1], dtype="u4"), "4294967295"),
        (np.array([2**64 - 1], dtype="u8"), str(2**63 - 1)),
    ],
)
def test_number_outside_the_capacity_is_an_error_when_it_is_needed(session, value, shown, tmp_path):
    table = table_of(session, on(session, value))
    assert table.capacity == CAPACITY
    path = tmp_path / "out.arrow"
    for use in (
        lambda: table.num_rows,
        lambda: table["a"],
        lambda: table.slice(0, 1),
        lambda: pa.table(table),
        lambda: table.write(path),
        lambda: session.write(table, path),
        lambda: repr(table),
    ):
        with pytest.raises(cd.DataError, match=f"is {shown}, expected 0 to {CAPACITY}"):
            use()
    assert not path.exists()


def test_rejects_other_counters(session):
    def error(num_rows, kind=cd.UsageError, tensors=None):
        with pytest.raises(kind) as raised:
            session.from_dlpack([on(session, np.arange(4))] if tensors is None else tensors, num_rows=num_rows)
        return str(raised.value)

    for dtype in ("i2", "u1", "f4", "f8"):
        assert "expected int32, uint32, int64 or uint64" in error(on(session, np.zeros(1, dtype)))
    assert "shape [2], expected one element" in error(on(session, np.zeros(2, "i8")))
    assert "shape [0], expected one element" in error(on(session, np.zeros(0, "i8")))
    for wrong in (3, "3", object()):
        assert error(wrong, TypeError).startswith("num_rows: from_dlpack: expected a tensor")
    counter = on(session, np.array([1]))
    assert "expected a list or a dict" in error(counter, tensors=on(session, np.arange(4)))
    lists = [on(session, np.arange(4)), on(session, np.arange(4))]
    schema = cd.Session().from_arrow(pa.table({"a": [1]})).schema
    with pytest.raises(cd.UsageError, match="the tensors form 2 batches, expected one"):
        session.from_dlpack(lists, schema, num_rows=counter)


def test_rejects_a_counter_on_another_device(cuda_session):
    column = cuda_session.from_dlpack(np.arange(4))
    with pytest.raises(cd.UsageError, match="the number is on cpu, expected cuda:0"):
        cuda_session.from_dlpack([column], num_rows=np.array([1]))
    counter = cuda_session.from_dlpack(np.array([1]))
    with pytest.raises(cd.UsageError, match="the number is on cuda:0, expected cpu"):
        cd.Session().from_dlpack([np.arange(4)], num_rows=counter)


def test_rejects_an_address_that_the_device_does_not_have(cuda_session):
    column = cuda_session.from_dlpack(np.arange(4))
    tensor = LiveTensor("versioned", np.array([1]), device=(CUDA, 0), dtype=(INT, 64, 1), shape=(1,))
    producer = RecordingProducer(tensor, (CUDA, 0))
    with pytest.raises(cd.UsageError, match="num_rows: the address .* is not on cuda:0"):
        cuda_session.from_dlpack([column], num_rows=producer)


def test_accepts_cuda_array_interface(cuda_session):
    counter = cuda_session.from_dlpack(np.array([3], dtype="u4"))

    class Array:
        __cuda_array_interface__ = counter.__cuda_array_interface__

    table = cuda_session.from_dlpack([cuda_session.from_dlpack(np.arange(4))], num_rows=Array())
    assert (table.capacity, table.num_rows) == (4, 3)


def test_masks_and_bits_keep_the_number(session):
    values = {"a": on(session, np.array([True, False, True, True])), "b": on(session, np.arange(4))}
    masks = {"a": on(session, np.array([0, 1, 0, 1], "?")), "b": on(session, np.array([1, 0, 0, 1], "?"))}
    table = session.from_dlpack(values, bools="bits", masks=masks, num_rows=on(session, np.array([3])))
    assert table.to_pyarrow().to_pydict() == {"a": [True, None, True], "b": [None, 1, 2]}


def test_write_has_only_the_rows(session, tmp_path):
    table = table_of(session, on(session, np.array([2], dtype="u4")))
    table.write(tmp_path / "out.arrow")
    assert session.read(tmp_path / "out.arrow").to_pyarrow().to_pydict() == {"a": [0, 1], "b": [0, 0.5]}


def test_xlog_helpers_accept_a_number_on_the_device(session):
    device = None if session.device == "cpu" else 0
    where = {"device": device, "memory_mb": 64}
    own = xlog.session(**where)
    columns = {"id": np.array([7, 8, 9], dtype="u4"), "flag": np.array([True, False, True])}
    columns = {name: own.from_dlpack(column) for name, column in columns.items()}
    counter = own.from_dlpack(np.array([2], dtype="u4"))
    table = xlog.table(columns, **where, symbols=["id"], num_rows=counter)
    assert (table.capacity, table.num_rows) == (3, 2)
    assert table.schema["id"].metadata == {"xlog.symbol": "true", "xlog.symbol_encoding": "u32"}
    capsule = xlog.export_arrow_device(columns, **where, num_rows=counter)
    tensors, names, num_rows = xlog.import_arrow_device(capsule, **where)
    assert (len(tensors), names, num_rows) == (2, ["id", "flag"], 2)
    too_many = own.from_dlpack(np.array([4], dtype="u4"))
    with pytest.raises(cd.DataError, match="is 4, expected 0 to 3"):
        xlog.export_arrow_device(columns, **where, num_rows=too_many)
    del table, capsule, tensors, columns, counter, too_many
    assert_all_memory_freed(own)


# By default each run tests the same cases, so that failures can be reproduced.
reproducible = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@reproducible
@given(
    columns=st.lists(st.sampled_from(["i1", "u2", "i4", "i8", "f4", "f8", "?"]), min_size=1, max_size=4),
    capacity=st.integers(0, 40),
    rows=st.integers(-2, 42),
    dtype=st.sampled_from(COUNTERS),
    offset=st.integers(0, 45),
    length=st.one_of(st.none(), st.integers(0, 45)),
)
def test_any_table_has_the_first_rows_of_its_tensors(session, columns, capacity, rows, dtype, offset, length):
    rows = max(rows, 0) if dtype.startswith("u") else rows
    arrays = {f"c{i}": np.arange(capacity).astype(kind) for i, kind in enumerate(columns)}
    tensors = {name: on(session, array) for name, array in arrays.items()}
    table = session.from_dlpack(tensors, num_rows=on(session, np.array([rows], dtype=dtype)))
    assert table.capacity == capacity
    if not 0 <= rows <= capacity:
        with pytest.raises(cd.DataError, match=f"is {rows}, expected 0 to {capacity}"):
            table.slice(offset, length)
        return
    end = rows if length is None else min(rows, offset + length)
    sliced = table.slice(offset, length)
    assert len(sliced) == max(end - offset, 0)
    for name, array in arrays.items() if len(sliced) else ():
        assert np.from_dlpack(sliced.to("cpu")[name]).tolist() == array[:rows][offset:end].tolist()
