"""`crossdock.compat.xlog`: XLOG's calls and results, on the cpu and on a device."""

import crossdock as cd
import numpy as np
import pytest
from capi import capsule_name
from conftest import assert_nothing_held
from crossdock.compat import xlog
from tensors_made import CPU, CUDA, Asked

MB = 64
SYMBOL = {"xlog.symbol": "true", "xlog.symbol_encoding": "u32"}


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.cuda)])
def where(request):
    """Keywords of a device. In the end nothing is held there."""
    if request.param != "cpu":
        request.getfixturevalue("cuda")
    where = {"device": 0 if request.param == "cuda:0" else None, "memory_mb": MB}
    session = xlog.session(**where)
    assert session.device == request.param
    yield where
    assert_nothing_held(session)


class Taken:
    """A capsule as an object of the array API."""

    def __init__(self, capsule, device):
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def values(capsule, where):
    """The elements of a tensor, wherever it lies."""
    if where["device"] is None:
        return np.from_dlpack(Taken(capsule, (CPU, 0)))
    column = xlog.session(**where).from_dlpack(capsule)
    assert column.device == "cuda:0"
    return np.from_dlpack(column.to("cpu"))


def on(where, array):
    """The array as a tensor on the device."""
    return xlog.session(**where).from_dlpack(array)


TYPES = ["u4", "u8", "i4", "i8", "f4", "f8", "?", "i1", "f2"]


@pytest.mark.parametrize("dtype", TYPES)
def test_a_tensor_comes_back_as_it_was(where, dtype):
    array = np.array([0, 1, 2, 3, 0, 5], dtype=dtype)
    for given in (array, array.reshape(2, 3), array[::2], array[:0]):
        if given is not array and dtype == "?":
            continue
        capsule = xlog.dlpack_roundtrip(on(where, given), **where)
        assert capsule_name(capsule) == b"dltensor"
        back = values(capsule, where)
        assert (back.dtype, back.shape, back.tolist()) == (given.dtype, given.shape, given.tolist())


def test_tensors_are_given_as_capsules_or_as_what_makes_them(where):
    array = np.arange(5, dtype="i8")
    column = on(where, array)

    class Old:
        def to_dlpack(self):
            return column.__dlpack__()

    for given in (column, column.__dlpack__(max_version=(1, 0)), column.__dlpack__(), Old()):
        assert values(xlog.dlpack_roundtrip(given, **where), where).tolist() == [0, 1, 2, 3, 4]
    for wrong in (7, None, "text", object()):
        with pytest.raises(TypeError):
            xlog.dlpack_roundtrip(wrong, **where)


def test_arrays_of_the_cuda_array_interface_are_tensors(cuda):
    column = xlog.session(0, MB).from_dlpack(np.arange(5, dtype="i8"))

    class Array:
        __cuda_array_interface__ = column.__cuda_array_interface__

    where = {"device": 0, "memory_mb": MB}
    assert values(xlog.dlpack_roundtrip(Array(), **where), where).tolist() == [0, 1, 2, 3, 4]


def test_tensors_are_the_takers_to_write_and_versioned_ones_are_lent():
    array = np.arange(5, dtype="i8")
    copy = np.from_dlpack(Taken(xlog.dlpack_roundtrip(array, None), (CPU, 0)))
    # numpy takes no unversioned tensor for one to write, whosever it is.
    assert copy.ctypes.data != array.ctypes.data and copy.tolist() == array.tolist()
    capsule = xlog.dlpack_roundtrip(array, "cpu", max_version=(1, 0))
    assert capsule_name(capsule) == b"dltensor_versioned"
    lent = np.from_dlpack(Taken(capsule, (CPU, 0)))
    assert not lent.flags.writeable and lent.ctypes.data == array.ctypes.data


def columns():
    return {
        "id": np.array([7, 8, 9], dtype="u4"),
        "price": np.array([0.5, 1.5, 2.5]),
        "flag": np.array([True, False, True]),
        "name": np.array([3, 1, 2], dtype="u4"),
    }


def test_a_table_is_one_capsule_and_comes_back(where):
    given = columns()
    capsule = xlog.export_arrow_device([on(where, array) for array in given.values()], **where, names=[*given])
    assert capsule_name(capsule) == b"arrow_device_array"
    imported = xlog.import_arrow_device(capsule, **where)
    tensors, names, rows = imported
    assert isinstance(imported, tuple) and len(imported) == 3
    assert (names, rows, imported.symbols) == (["id", "price", "flag", "name"], 3, [])
    for capsule, array in zip(tensors, given.values()):
        assert capsule_name(capsule) == b"dltensor"
        back = values(capsule, where)
        assert (back.dtype, back.tolist()) == (array.dtype, array.tolist())


def test_calls_with_three_arguments_in_order_are_xlogs(where):
    tensors = [on(where, array) for array in columns().values()]
    capsule = xlog.export_arrow_device(tensors, where["device"], MB)
    _, names, rows = xlog.import_arrow_device(capsule, where["device"], MB)
    assert (names, rows) == (["col_0", "col_1", "col_2", "col_3"], 3)
    assert capsule_name(xlog.dlpack_roundtrip(tensors[0], where["device"], MB)) == b"dltensor"


def test_symbols_keep_what_says_that_they_are(where):
    given = {name: on(where, array) for name, array in columns().items()}
    exported = xlog.export_arrow_device(given, **where, symbols=["id", "name"])
    imported = xlog.import_arrow_device(exported, **where)
    assert imported.symbols == ["id", "name"]
    assert [imported.table[name].field.metadata for name in ("id", "price")] == [SYMBOL, {}]
    # Once more round, from what came.
    again = xlog.export_arrow_device(imported[0], **where, names=imported[1], symbols=imported.symbols)
    assert xlog.import_arrow_device(again, **where).table["name"].field.metadata == SYMBOL
    assert [column.type for column in imported.table.columns] == ["UInt32", "Float64", "Boolean", "UInt32"]


def test_symbols_that_others_export_are_recognised(where):
    pa = pytest.importorskip("pyarrow")
    field = pa.field("who", pa.uint32(), False, {"xlog.symbol": "true", "xlog.symbol_encoding": "u32", "more": "kept"})
    table = pa.table([pa.array([3, 1], pa.uint32())], schema=pa.schema([field]))
    imported = xlog.import_arrow_device(table, **where)
    assert imported.symbols == ["who"]
    assert imported.table["who"].field.metadata == {**SYMBOL, "more": "kept"}
    assert imported.table.to_pyarrow().schema == table.schema


def test_the_capsule_is_arrows_own(where):
    nanoarrow_device = pytest.importorskip("nanoarrow.device")
    given = {name: on(where, array) for name, array in columns().items()}
    capsule = xlog.export_arrow_device(given, **where)

    class Pair:
        def __arrow_c_device_array__(self, requested_schema=None, **_):
            return xlog.table(given, **where).__arrow_c_schema__(), capsule

    array = nanoarrow_device.c_device_array(Pair())
    expected = (CPU, -1) if where["device"] is None else (CUDA, 0)
    assert (array.device_type_id, array.device_id, array.array.length) == (*expected, 3)
    assert array.schema.n_children == 4
    del array
    assert xlog.import_arrow_device(capsule, **where)[2] == 3
    with pytest.raises(cd.UsageError, match="has been consumed already"):
        xlog.import_arrow_device(capsule, **where)


def test_pairs_and_whatever_speaks_arrow_are_taken(where):
    given = {name: on(where, array) for name, array in columns().items()}
    table = xlog.table(given, **where, symbols=["id"])
    for source in (table, table.__arrow_c_device_array__(), table.__arrow_c_array__()):
        imported = xlog.import_arrow_device(source, **where)
        assert (imported[1:], imported.symbols) == ((["id", "price", "flag", "name"], 3), ["id"])
        assert values(imported[0][1], where).tolist() == [0.5, 1.5, 2.5]


def test_tables_in_several_batches_are_one_tensor_a_column(where):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": pa.chunked_array([[1, 2], [3]])})
    tensors, _, rows = xlog.import_arrow_device(table, **where)
    assert (rows, values(tensors[0], where).tolist()) == (3, [1, 2, 3])


def test_capsules_that_nobody_takes_give_everything_back(where):
    """The fixture looks at what is held."""
    for _ in range(3):
        xlog.export_arrow_device([on(where, np.arange(1000))], **where)
    imported = xlog.import_arrow_device(xlog.export_arrow_device([on(where, np.arange(1000))], **where), **where)
    assert imported[2] == 1000


def test_what_is_no_table_is_refused(where):
    capsule = xlog.table({"a": on(where, np.arange(3))}, **where).__arrow_c_device_array__()[1]
    with pytest.raises(TypeError, match=r"tells no schema: give \(schema_capsule, array_capsule\)"):
        xlog.import_arrow_device(capsule, **where)
    with pytest.raises(TypeError, match="a capsule that tells no schema"):
        xlog.import_arrow_device(on(where, np.arange(3)).__dlpack__(), **where)
    with pytest.raises(TypeError, match="speaks none of"):
        xlog.import_arrow_device(7, **where)
    with pytest.raises(cd.UsageError, match="expected a table, got a column of Int64"):
        xlog.import_arrow_device(on(where, np.arange(3)), **where)


def test_nulls_are_refused_by_name(where):
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(BufferError, match="column 'b': 1 of 2 rows are null"):
        xlog.import_arrow_device(pa.table({"a": [1, 2], "b": [1, None]}), **where)


def test_columns_that_make_no_table_are_refused(where):
    three, two = on(where, np.arange(3)), on(where, np.arange(2))
    cases = {
        "there are none": ([], {}),
        "names: 1 for 2 columns": ([three, three], {"names": ["a"]}),
        "names: 'a' is there twice": ([three, three], {"names": ["a", "a"]}),
        "'col_1' is 2 rows long, expected 3": ([three, two], {}),
        "'col_0' is a column of Int64, and symbols are UInt32": ([three], {"symbols": ["col_0"]}),
    }
    for words, (given, more) in cases.items():
        with pytest.raises(cd.UsageError, match=words):
            xlog.export_arrow_device(given, **where, **more)
    with pytest.raises(KeyError, match='no column is called \\\\?"nobody'):
        xlog.export_arrow_device([three], **where, symbols=["nobody"])
    with pytest.raises(TypeError, match="has no __dlpack_device__"):
        xlog.export_arrow_device([7], **where)


def test_a_session_is_kept_for_each_device_and_budget():
    first = xlog.session(None, 3)
    assert first is xlog.session("cpu", 3)
    assert first is not xlog.session(None, 4)
    for wrong in (0, -1):
        with pytest.raises(cd.UsageError, match=f"memory_mb={wrong}: expected MiB above 0"):
            xlog.dlpack_roundtrip(np.arange(3), None, wrong)
    with pytest.raises(MemoryError):
        xlog.dlpack_roundtrip(np.zeros(4 << 20, dtype="u1"), None, 3)


def test_the_default_device_is_the_first_of_cuda(cuda):
    assert xlog.session().device == "cuda:0"
    assert xlog.session(0) is xlog.session("cuda:0") is xlog.session(0, 32768)
    with pytest.raises(cd.DeviceError, match="cuda:7 does not exist"):
        xlog.session(7)


def test_a_producer_is_asked_as_the_protocol_wants():
    made = np.arange(3, dtype="i4")
    from tensors import Made

    asked = Asked(Made("versioned", made))
    assert values(xlog.dlpack_roundtrip(asked, None), {"device": None}).tolist() == [0, 1, 2]
    assert len(asked.asked) == 1 and asked.asked[0]["max_version"] >= (1, 0)
