"""`crossdock.compat.xlog`: the functions and results of XLOG, on the cpu and on a device."""

import crossdock as cd
import numpy as np
import pytest
from capi import capsule_name
from conftest import assert_all_memory_freed
from crossdock.compat import xlog
from tensor_producers import CPU, CUDA, RecordingProducer

MB = 64
SYMBOL = {"xlog.symbol": "true", "xlog.symbol_encoding": "u32"}


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.cuda)])
def where(request):
    """Keyword arguments that select a device. At the end of the test, all memory must be freed."""
    if request.param != "cpu":
        request.getfixturevalue("cuda")
    where = {"device": 0 if request.param == "cuda:0" else None, "memory_mb": MB}
    session = xlog.session(**where)
    assert session.device == request.param
    yield where
    assert_all_memory_freed(session)


class CapsuleProducer:
    """An object of the array API that exports one capsule."""

    def __init__(self, capsule, device):
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def values(capsule, where):
    """Returns the elements of a tensor on any device."""
    if where["device"] is None:
        return np.from_dlpack(CapsuleProducer(capsule, (CPU, 0)))
    column = xlog.session(**where).from_dlpack(capsule)
    assert column.device == "cuda:0"
    return np.from_dlpack(column.to("cpu"))


def on(where, array):
    """Returns the array as a tensor on the device."""
    return xlog.session(**where).from_dlpack(array)


TYPES = ["u4", "u8", "i4", "i8", "f4", "f8", "?", "i1", "f2"]


@pytest.mark.parametrize("dtype", TYPES)
def test_tensor_round_trips(where, dtype):
    array = np.array([0, 1, 2, 3, 0, 5], dtype=dtype)
    for source in (array, array.reshape(2, 3), array[::2], array[:0]):
        if source is not array and dtype == "?":
            continue
        capsule = xlog.dlpack_roundtrip(on(where, source), **where)
        assert capsule_name(capsule) == b"dltensor"
        back = values(capsule, where)
        assert (back.dtype, back.shape, back.tolist()) == (source.dtype, source.shape, source.tolist())


def test_accepts_capsules_and_tensors(where):
    array = np.arange(5, dtype="i8")
    column = on(where, array)

    class Old:
        def to_dlpack(self):
            return column.__dlpack__()

    for source in (column, column.__dlpack__(max_version=(1, 0)), column.__dlpack__(), Old()):
        assert values(xlog.dlpack_roundtrip(source, **where), where).tolist() == [0, 1, 2, 3, 4]
    for wrong in (7, None, "text", object()):
        with pytest.raises(TypeError):
            xlog.dlpack_roundtrip(wrong, **where)


def test_accepts_cuda_array_interface(cuda):
    column = xlog.session(0, MB).from_dlpack(np.arange(5, dtype="i8"))

    class Array:
        __cuda_array_interface__ = column.__cuda_array_interface__

    where = {"device": 0, "memory_mb": MB}
    assert values(xlog.dlpack_roundtrip(Array(), **where), where).tolist() == [0, 1, 2, 3, 4]


def test_versioned_tensor_is_read_only_and_legacy_tensor_is_a_copy():
    array = np.arange(5, dtype="i8")
    copy = np.from_dlpack(CapsuleProducer(xlog.dlpack_roundtrip(array, None), (CPU, 0)))
    # numpy never writes to unversioned tensors.
    assert copy.ctypes.data != array.ctypes.data and copy.tolist() == array.tolist()
    capsule = xlog.dlpack_roundtrip(array, "cpu", max_version=(1, 0))
    assert capsule_name(capsule) == b"dltensor_versioned"
    read_only = np.from_dlpack(CapsuleProducer(capsule, (CPU, 0)))
    assert not read_only.flags.writeable and read_only.ctypes.data == array.ctypes.data


def columns():
    return {
        "id": np.array([7, 8, 9], dtype="u4"),
        "price": np.array([0.5, 1.5, 2.5]),
        "flag": np.array([True, False, True]),
        "name": np.array([3, 1, 2], dtype="u4"),
    }


def test_table_round_trips_through_one_capsule(where):
    arrays = columns()
    capsule = xlog.export_arrow_device([on(where, array) for array in arrays.values()], **where, names=[*arrays])
    assert capsule_name(capsule) == b"arrow_device_array"
    imported = xlog.import_arrow_device(capsule, **where)
    tensors, names, rows = imported
    assert isinstance(imported, tuple) and len(imported) == 3
    assert (names, rows, imported.symbols) == (["id", "price", "flag", "name"], 3, [])
    for capsule, array in zip(tensors, arrays.values()):
        assert capsule_name(capsule) == b"dltensor"
        back = values(capsule, where)
        assert (back.dtype, back.tolist()) == (array.dtype, array.tolist())


def test_functions_accept_positional_arguments_in_the_order_of_xlog(where):
    tensors = [on(where, array) for array in columns().values()]
    capsule = xlog.export_arrow_device(tensors, where["device"], MB)
    _, names, rows = xlog.import_arrow_device(capsule, where["device"], MB)
    assert (names, rows) == (["col_0", "col_1", "col_2", "col_3"], 3)
    assert capsule_name(xlog.dlpack_roundtrip(tensors[0], where["device"], MB)) == b"dltensor"


def test_round_trip_keeps_metadata_of_xlog_symbol_columns(where):
    arrays = {name: on(where, array) for name, array in columns().items()}
    exported = xlog.export_arrow_device(arrays, **where, symbols=["id", "name"])
    imported = xlog.import_arrow_device(exported, **where)
    assert imported.symbols == ["id", "name"]
    assert [imported.table[name].field.metadata for name in ("id", "price")] == [SYMBOL, {}]
    # The result makes a second round trip.
    again = xlog.export_arrow_device(imported[0], **where, names=imported[1], symbols=imported.symbols)
    assert xlog.import_arrow_device(again, **where).table["name"].field.metadata == SYMBOL
    assert [column.type for column in imported.table.columns] == ["uint32", "double", "bool", "uint32"]


def test_xlog_symbol_metadata_of_other_producers_is_recognised(where):
    pa = pytest.importorskip("pyarrow")
    field = pa.field(
        "symbol", pa.uint32(), False, {"xlog.symbol": "true", "xlog.symbol_encoding": "u32", "other": "value"}
    )
    table = pa.table([pa.array([3, 1], pa.uint32())], schema=pa.schema([field]))
    imported = xlog.import_arrow_device(table, **where)
    assert imported.symbols == ["symbol"]
    assert imported.table["symbol"].field.metadata == {**SYMBOL, "other": "value"}
    assert imported.table.to_pyarrow().schema == table.schema


def test_capsule_is_readable_by_arrow_consumers(where):
    nanoarrow_device = pytest.importorskip("nanoarrow.device")
    arrays = {name: on(where, array) for name, array in columns().items()}
    capsule = xlog.export_arrow_device(arrays, **where)

    class Pair:
        def __arrow_c_device_array__(self, requested_schema=None, **_):
            return xlog.table(arrays, **where).__arrow_c_schema__(), capsule

    array = nanoarrow_device.c_device_array(Pair())
    expected = (CPU, -1) if where["device"] is None else (CUDA, 0)
    assert (array.device_type_id, array.device_id, array.array.length) == (*expected, 3)
    assert array.schema.n_children == 4
    del array
    assert xlog.import_arrow_device(capsule, **where)[2] == 3
    with pytest.raises(cd.UsageError, match="was already consumed"):
        xlog.import_arrow_device(capsule, **where)


def test_accepts_pairs_and_arrow_objects(where):
    arrays = {name: on(where, array) for name, array in columns().items()}
    table = xlog.table(arrays, **where, symbols=["id"])
    for source in (table, table.__arrow_c_device_array__(), table.__arrow_c_array__()):
        imported = xlog.import_arrow_device(source, **where)
        assert (imported[1:], imported.symbols) == ((["id", "price", "flag", "name"], 3), ["id"])
        assert values(imported[0][1], where).tolist() == [0.5, 1.5, 2.5]


def test_several_batches_become_one_tensor_for_each_column(where):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": pa.chunked_array([[1, 2], [3]])})
    tensors, _, rows = xlog.import_arrow_device(table, **where)
    assert (rows, values(tensors[0], where).tolist()) == (3, [1, 2, 3])


def test_unconsumed_capsules_release_everything(where):
    """The fixture checks that all memory is freed."""
    for _ in range(3):
        xlog.export_arrow_device([on(where, np.arange(1000))], **where)
    imported = xlog.import_arrow_device(xlog.export_arrow_device([on(where, np.arange(1000))], **where), **where)
    assert imported[2] == 1000


def test_rejects_unsupported_objects(where):
    capsule = xlog.table({"a": on(where, np.arange(3))}, **where).__arrow_c_device_array__()[1]
    with pytest.raises(TypeError, match=r"has no schema: pass \(schema_capsule, array_capsule\)"):
        xlog.import_arrow_device(capsule, **where)
    with pytest.raises(TypeError, match="the capsule has no schema"):
        xlog.import_arrow_device(on(where, np.arange(3)).__dlpack__(), **where)
    with pytest.raises(TypeError, match="has none of"):
        xlog.import_arrow_device(7, **where)
    with pytest.raises(cd.UsageError, match="expected structs for a table, got int64"):
        xlog.import_arrow_device(on(where, np.arange(3)), **where)


def test_error_for_nulls_names_the_column(where):
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(BufferError, match="column 'b': 1 of 2 rows are null"):
        xlog.import_arrow_device(pa.table({"a": [1, 2], "b": [1, None]}), **where)


def test_rejects_invalid_columns(where):
    three, two = on(where, np.arange(3)), on(where, np.arange(2))
    cases = {
        "columns: expected at least one": ([], {}),
        "names: expected 2, one for each column, got 1": ([three, three], {"names": ["a"]}),
        "names: 'a' is repeated": ([three, three], {"names": ["a", "a"]}),
        "'col_1' is 2 rows long, expected 3": ([three, two], {}),
        "symbols: column 'col_0': expected uint32, got int64": ([three], {"symbols": ["col_0"]}),
    }
    for message, (tensors, more) in cases.items():
        with pytest.raises(cd.UsageError, match=message):
            xlog.export_arrow_device(tensors, **where, **more)
    with pytest.raises(KeyError, match='no column is named \\\\?"missing'):
        xlog.export_arrow_device([three], **where, symbols=["missing"])
    with pytest.raises(TypeError, match="with __dlpack_device__"):
        xlog.export_arrow_device([7], **where)


def test_session_is_reused_for_each_device_and_budget():
    first = xlog.session(None, 3)
    assert first is xlog.session("cpu", 3)
    assert first is not xlog.session(None, 4)
    for wrong in (0, -1):
        with pytest.raises(cd.UsageError, match=f"memory_mb={wrong}: expected a number of MiB above 0"):
            xlog.dlpack_roundtrip(np.arange(3), None, wrong)
    with pytest.raises(MemoryError):
        xlog.dlpack_roundtrip(np.zeros(4 << 20, dtype="u1"), None, 3)


def test_default_device_is_cuda_0(cuda):
    assert xlog.session().device == "cuda:0"
    assert xlog.session(0) is xlog.session("cuda:0") is xlog.session(0, 32768)
    with pytest.raises(cd.DeviceError, match="cuda:7 does not exist"):
        xlog.session(7)


def test_producer_gets_the_arguments_of_the_protocol():
    array = np.arange(3, dtype="i4")
    from tensors import ManagedTensor

    producer = RecordingProducer(ManagedTensor("versioned", array))
    assert values(xlog.dlpack_roundtrip(producer, None), {"device": None}).tolist() == [0, 1, 2]
    assert len(producer.calls) == 1 and producer.calls[0]["max_version"] >= (1, 0)
