"""The rules of Arrow's PyCapsule interface: capsules have the specified names, are consumed once, and release
their content."""

import ctypes
import gc
import threading

import crossdock as cd
import pyarrow as pa
import pytest

PROTOCOLS = [
    "__arrow_c_schema__",
    "__arrow_c_array__",
    "__arrow_c_device_array__",
    "__arrow_c_stream__",
    "__arrow_c_device_stream__",
]
NAMES = {
    "__arrow_c_schema__": ["arrow_schema"],
    "__arrow_c_array__": ["arrow_schema", "arrow_array"],
    "__arrow_c_device_array__": ["arrow_schema", "arrow_device_array"],
    "__arrow_c_stream__": ["arrow_array_stream"],
    "__arrow_c_device_stream__": ["arrow_device_array_stream"],
}
api = ctypes.pythonapi
api.PyCapsule_GetName.restype = ctypes.c_char_p
api.PyCapsule_GetName.argtypes = [ctypes.py_object]
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def name(capsule):
    return api.PyCapsule_GetName(capsule).decode()


def capsules(result):
    return list(result) if isinstance(result, tuple) else [result]


class FixedResult:
    """Implements one protocol, with a fixed result."""

    def __new__(cls, protocol, result):
        return super().__new__(type("FixedResult", (cls,), {protocol: lambda self, *args, **kwargs: result}))

    def __init__(self, protocol, result):
        pass


@pytest.fixture
def table(session):
    return session.from_arrow(pa.table({"a": [1, 2, None], "t": ["x", "y", None]}))


@pytest.fixture(params=["table", "column"])
def either(request, table):
    return table if request.param == "table" else table["t"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_capsules_have_the_names_of_the_arrow_protocols(either, protocol):
    assert [name(capsule) for capsule in capsules(getattr(either, protocol)())] == NAMES[protocol]


@pytest.mark.parametrize("protocol", PROTOCOLS[1:])
def test_source_is_released_with_its_last_capsule(session, protocol):
    released = []

    class Bytes(bytearray):
        def __del__(self):
            released.append(True)

    table = session.read_ipc(Bytes(ipc_bytes()))
    exports = [capsules(getattr(table, protocol)()) for _ in range(3)]
    del table
    gc.collect()
    assert not released
    # The first export is consumed. If an export is a pair of capsules, only the schema capsule of
    # the second export is consumed. All other capsules are dropped without being consumed.
    imported = session.from_arrow(FixedResult(protocol, tuple(exports[0]) if len(exports[0]) > 1 else exports[0][0]))
    if len(exports[1]) > 1:
        pa.Schema._import_from_c_capsule(exports[1][0])
    exports.clear()
    gc.collect()
    assert not released and imported.num_rows == 3
    del imported
    gc.collect()
    # The next call releases views that were dropped without the interpreter's lock.
    session.synchronize()
    assert released == [True]


def ipc_bytes():
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"a": [1, 2, None], "t": ["x", "y", None]})
    with pa.ipc.new_stream(sink, batch.schema) as out:
        out.write(batch)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("protocol", PROTOCOLS[1:])
def test_rejects_consumed_capsule(session, either, protocol):
    result = getattr(either, protocol)()
    session.from_arrow(FixedResult(protocol, result))
    with pytest.raises(ValueError, match="already consumed: request a new one"):
        session.from_arrow(FixedResult(protocol, result))


def test_from_capsules_consumes_both_capsules(session, table):
    for protocol in ["__arrow_c_array__", "__arrow_c_device_array__"]:
        pair = getattr(table, protocol)()
        again = session.from_capsules(*pair)
        assert again.to_pyarrow().equals(table.to_pyarrow())
        with pytest.raises(ValueError, match="already consumed"):
            session.from_capsules(*pair)
        with pytest.raises(ValueError, match="already consumed"):
            session.from_capsules(table.__arrow_c_schema__(), pair[1])


def test_error_for_wrong_capsule_name_has_expected_and_actual_name(session, table):
    schema, array = table.__arrow_c_array__()
    stream = table.__arrow_c_stream__()
    other = api.PyCapsule_New(id(session), b"example.other", None)
    unnamed = api.PyCapsule_New(id(session), None, None)
    for wrong, actual in [
        (stream, "arrow_array_stream"),
        (other, "example.other"),
        (unnamed, "''"),
        (7, "a int"),
        (None, "NoneType"),
    ]:
        with pytest.raises(TypeError, match=f"expected a capsule 'arrow_schema', got .*{actual}"):
            session.from_capsules(wrong, array)
        with pytest.raises(TypeError, match=f"expected a capsule 'arrow_device_array', got .*{actual}"):
            session.from_capsules(table.__arrow_c_schema__(), wrong)
        with pytest.raises(TypeError, match="__arrow_c_device_stream__: expected a capsule"):
            session.from_arrow(FixedResult("__arrow_c_device_stream__", 7))
    # The rejected objects were not consumed.
    assert session.from_capsules(schema, array).num_rows == 3
    assert session.from_arrow(FixedResult("__arrow_c_stream__", stream)).num_rows == 3


@pytest.mark.parametrize("result", [7, None, (), (1,), (1, 2, 3), [1, 2]])
@pytest.mark.parametrize("protocol", ["__arrow_c_array__", "__arrow_c_device_array__"])
def test_rejects_protocol_result_that_is_no_pair(session, protocol, result):
    with pytest.raises(TypeError, match=f"{protocol}: expected a pair of capsules"):
        session.from_arrow(FixedResult(protocol, result))


def test_error_for_object_without_protocol_lists_the_protocols(session):
    with pytest.raises(TypeError, match="list has none of .*__arrow_c_stream__"):
        session.from_arrow([1, 2, 3])


def test_exception_of_the_producer_is_raised_unchanged(session):
    class Raises:
        def __arrow_c_stream__(self, requested_schema=None):
            raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        session.from_arrow(Raises())

    class Odd:
        @property
        def __arrow_c_stream__(self):
            raise OSError("while looking up")

    with pytest.raises(OSError, match="while looking up"):
        session.from_arrow(Odd())


def test_error_of_stream_producer_releases_earlier_arrays(session):
    batch = pa.record_batch({"a": [1, 2, 3]})

    def batches():
        yield batch
        raise ValueError("the disk is full of holes")

    with pytest.raises((cd.Error, OSError), match="the disk is full of holes"):
        session.from_arrow(pa.RecordBatchReader.from_batches(batch.schema, batches()))


@pytest.mark.parametrize("protocol", ["__arrow_c_device_array__", "__arrow_c_device_stream__"])
def test_device_protocols_accept_unknown_argument_only_if_it_is_none(either, protocol):
    method = getattr(either, protocol)
    method(stream=None, whatever=None)
    with pytest.raises(NotImplementedError, match=f"{protocol}: the argument whatever=7 is not supported: omit it"):
        method(whatever=7)


@pytest.mark.parametrize("protocol", ["__arrow_c_array__", "__arrow_c_stream__"])
def test_host_protocols_reject_unknown_arguments(either, protocol):
    with pytest.raises(TypeError):
        getattr(either, protocol)(whatever=None)


@pytest.mark.parametrize("protocol", PROTOCOLS[1:])
def test_export_ignores_requested_schema_that_needs_a_cast(session, table, protocol):
    for requested_schema in [table.schema.to_pyarrow(), pa.schema([("a", pa.int8()), ("t", pa.string_view())])]:
        result = getattr(table, protocol)(requested_schema.__arrow_c_schema__())
        assert session.from_arrow(FixedResult(protocol, result)).schema == table.schema
        result = getattr(table, protocol)(requested_schema=requested_schema.__arrow_c_schema__())
        assert session.from_arrow(FixedResult(protocol, result)).schema == table.schema
    result = getattr(table["a"], protocol)(pa.int8().__arrow_c_schema__())
    assert session.from_arrow(FixedResult(protocol, result)).type == "int64"


@pytest.mark.parametrize("protocol", PROTOCOLS[1:])
def test_rejects_incompatible_requested_schema(table, protocol):
    with pytest.raises(ValueError, match="requested_schema: cannot export struct.* as int8"):
        getattr(table, protocol)(pa.int8().__arrow_c_schema__())
    with pytest.raises(ValueError, match="requested_schema: cannot export string as"):
        getattr(table["t"], protocol)(table.schema.__arrow_c_schema__())
    with pytest.raises(TypeError, match="requested_schema: expected a capsule 'arrow_schema'"):
        getattr(table, protocol)(7)


def test_schema_is_passed_to_the_producer(session):
    requested = []
    source = pa.table({"a": pa.array([1, 2], pa.int64())})

    class Producer:
        def __arrow_c_stream__(self, requested_schema=None):
            requested.append(pa.Schema._import_from_c_capsule(requested_schema))
            return source.cast(requested[0]).__arrow_c_stream__()

    expected_schema = session.from_arrow(pa.table({"a": pa.array([], pa.int8())})).schema
    assert session.from_arrow(Producer(), schema=expected_schema).schema == expected_schema
    assert requested == [pa.schema([("a", pa.int8())])]


def test_objects_with_several_batches_have_only_stream_protocols(session):
    batch = pa.record_batch({"a": [1, 2]})
    table = session.from_arrow(pa.Table.from_batches([batch, batch]))
    for obj in (table, table["a"]):
        assert not hasattr(obj, "__arrow_c_array__") and not hasattr(obj, "__arrow_c_device_array__")
        with pytest.raises(AttributeError, match="expected one chunk, got 2: use __arrow_c_stream__"):
            _ = obj.__arrow_c_array__
    for part in (*table.batches(), table["a"].chunk(1)):
        assert hasattr(part, "__arrow_c_array__") and hasattr(part, "__arrow_c_device_array__")


def test_table_without_batches_exports_an_empty_array(session):
    schema = pa.schema([("a", pa.int8()), ("t", pa.string())], metadata={"k": "v"})
    table = session.from_arrow(pa.RecordBatchReader.from_batches(schema, []))
    assert (table.num_batches, table.num_rows) == (0, 0)
    batch = pa.record_batch(table)
    assert batch.num_rows == 0 and batch.schema.equals(schema, check_metadata=True)


def test_stream_outlives_its_session_on_another_thread():
    session = cd.Session()
    table = session.read_ipc(ipc_bytes())
    expected = table.to_pyarrow()
    stream = FixedResult("__arrow_c_stream__", table.__arrow_c_stream__())
    session.close()
    del table, session
    gc.collect()
    got = []
    thread = threading.Thread(target=lambda: got.append(pa.table(stream)))
    thread.start()
    thread.join()
    assert got[0].equals(expected)


def test_device_protocols_precede_host_protocols_and_streams_precede_arrays(session, table):
    """Device protocols are tried before host protocols, and streams before arrays."""
    called = []

    def with_protocols(protocols):
        def result(protocol):
            def method(self, requested_schema=None, **kwargs):
                called.append(protocol)
                return getattr(table, protocol)()

            return method

        return type("Producer", (), {protocol: result(protocol) for protocol in protocols})()

    best = ["__arrow_c_device_stream__", "__arrow_c_device_array__", "__arrow_c_stream__", "__arrow_c_array__"]
    for i in range(len(best)):
        session.from_arrow(with_protocols(best[i:]))
    assert called == best
