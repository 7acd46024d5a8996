"""Capsules and the rules of Arrow's PyCapsule interface: consumed once, under their own names, released by whoever has them."""

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


def capsules(answer):
    return list(answer) if isinstance(answer, tuple) else [answer]


class Given:
    """Speaks one protocol, with an answer that was made before."""

    def __new__(cls, protocol, answer):
        return super().__new__(type("Given", (cls,), {protocol: lambda self, *args, **kwargs: answer}))

    def __init__(self, protocol, answer):
        pass


@pytest.fixture
def table(session):
    return session.from_arrow(pa.table({"a": [1, 2, None], "t": ["x", "y", None]}))


@pytest.fixture(params=["table", "column"])
def either(request, table):
    return table if request.param == "table" else table["t"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_protocol_gives_capsules_of_the_names_that_arrow_gives_them(either, protocol):
    assert [name(capsule) for capsule in capsules(getattr(either, protocol)())] == NAMES[protocol]


@pytest.mark.parametrize("protocol", PROTOCOLS[1:])
def test_the_source_is_released_once_the_last_capsule_is_gone(session, protocol):
    released = []

    class Bytes(bytearray):
        def __del__(self):
            released.append(True)

    table = session.read_ipc(Bytes(ipc_bytes()))
    made = [capsules(getattr(table, protocol)()) for _ in range(3)]
    del table
    gc.collect()
    assert not released
    # One is taken, and one of its pair is taken alone; the others are not.
    taken = session.from_arrow(Given(protocol, tuple(made[0]) if len(made[0]) > 1 else made[0][0]))
    if len(made[1]) > 1:
        pa.Schema._import_from_c_capsule(made[1][0])
    made.clear()
    gc.collect()
    assert not released and taken.num_rows == 3
    del taken
    gc.collect()
    # A view that was let go without the interpreter's lock goes at the next call.
    session.synchronize()
    assert released == [True]


def ipc_bytes():
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"a": [1, 2, None], "t": ["x", "y", None]})
    with pa.ipc.new_stream(sink, batch.schema) as out:
        out.write(batch)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("protocol", PROTOCOLS[1:])
def test_a_capsule_is_consumed_once(session, either, protocol):
    answer = getattr(either, protocol)()
    session.from_arrow(Given(protocol, answer))
    with pytest.raises(ValueError, match="consumed already: ask for another one"):
        session.from_arrow(Given(protocol, answer))


def test_a_pair_of_capsules_makes_a_table_and_is_consumed(session, table):
    for protocol in ["__arrow_c_array__", "__arrow_c_device_array__"]:
        pair = getattr(table, protocol)()
        again = session.from_capsules(*pair)
        assert again.to_pyarrow().equals(table.to_pyarrow())
        with pytest.raises(ValueError, match="consumed already"):
            session.from_capsules(*pair)
        with pytest.raises(ValueError, match="consumed already"):
            session.from_capsules(table.__arrow_c_schema__(), pair[1])


def test_what_is_no_capsule_of_the_right_name_is_refused_with_both_names(session, table):
    schema, array = table.__arrow_c_array__()
    stream = table.__arrow_c_stream__()
    other = api.PyCapsule_New(id(session), b"somebody.else", None)
    unnamed = api.PyCapsule_New(id(session), None, None)
    for wrong, said in [
        (stream, "arrow_array_stream"),
        (other, "somebody.else"),
        (unnamed, "''"),
        (7, "a int"),
        (None, "NoneType"),
    ]:
        with pytest.raises(TypeError, match=f"expected a capsule 'arrow_schema', got .*{said}"):
            session.from_capsules(wrong, array)
        with pytest.raises(TypeError, match=f"expected a capsule 'arrow_device_array', got .*{said}"):
            session.from_capsules(table.__arrow_c_schema__(), wrong)
        with pytest.raises(TypeError, match="__arrow_c_device_stream__: expected a capsule"):
            session.from_arrow(Given("__arrow_c_device_stream__", 7))
    # Refusing has taken nothing.
    assert session.from_capsules(schema, array).num_rows == 3
    assert session.from_arrow(Given("__arrow_c_stream__", stream)).num_rows == 3


@pytest.mark.parametrize("answer", [7, None, (), (1,), (1, 2, 3), [1, 2]])
@pytest.mark.parametrize("protocol", ["__arrow_c_array__", "__arrow_c_device_array__"])
def test_an_answer_that_is_no_pair_is_refused(session, protocol, answer):
    with pytest.raises(TypeError, match=f"{protocol}: expected a pair of capsules"):
        session.from_arrow(Given(protocol, answer))


def test_what_speaks_no_protocol_is_refused_with_all_that_there_are(session):
    with pytest.raises(TypeError, match="a list speaks none of .*__arrow_c_stream__"):
        session.from_arrow([1, 2, 3])


def test_an_exception_of_a_producer_comes_through_as_it_is(session):
    class Raises:
        def __arrow_c_stream__(self, requested_schema=None):
            raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        session.from_arrow(Raises())

    class Odd:
        @property
        def __arrow_c_stream__(self):
            raise OSError("while asking")

    with pytest.raises(OSError, match="while asking"):
        session.from_arrow(Odd())


def test_an_error_in_the_middle_of_a_stream_is_raised_and_what_came_before_is_released(session):
    batch = pa.record_batch({"a": [1, 2, 3]})

    def batches():
        yield batch
        raise ValueError("the disk is full of holes")

    with pytest.raises((cd.Error, OSError), match="the disk is full of holes"):
        session.from_arrow(pa.RecordBatchReader.from_batches(batch.schema, batches()))


@pytest.mark.parametrize("protocol", ["__arrow_c_device_array__", "__arrow_c_device_stream__"])
def test_unknown_arguments_of_device_protocols_may_be_none_and_nothing_else(either, protocol):
    method = getattr(either, protocol)
    method(stream=None, whatever=None)
    with pytest.raises(NotImplementedError, match=f"{protocol}: the argument whatever=7 is unknown.*leave it out"):
        method(whatever=7)


@pytest.mark.parametrize("protocol", ["__arrow_c_array__", "__arrow_c_stream__"])
def test_protocols_without_further_arguments_refuse_them(either, protocol):
    with pytest.raises(TypeError):
        getattr(either, protocol)(whatever=None)


@pytest.mark.parametrize("protocol", PROTOCOLS[1:])
def test_a_requested_schema_that_is_met_or_cannot_be_met_gives_what_there_is(session, table, protocol):
    for wanted in [table.schema.to_pyarrow(), pa.schema([("a", pa.int8()), ("t", pa.string_view())])]:
        answer = getattr(table, protocol)(wanted.__arrow_c_schema__())
        assert session.from_arrow(Given(protocol, answer)).schema == table.schema
        answer = getattr(table, protocol)(requested_schema=wanted.__arrow_c_schema__())
        assert session.from_arrow(Given(protocol, answer)).schema == table.schema
    answer = getattr(table["a"], protocol)(pa.int8().__arrow_c_schema__())
    assert session.from_arrow(Given(protocol, answer)).type == "Int64"


@pytest.mark.parametrize("protocol", PROTOCOLS[1:])
def test_a_requested_schema_of_another_kind_is_refused(table, protocol):
    with pytest.raises(ValueError, match="requested_schema: Int8 cannot be had from Struct"):
        getattr(table, protocol)(pa.int8().__arrow_c_schema__())
    with pytest.raises(ValueError, match="requested_schema: .* cannot be had from Utf8"):
        getattr(table["t"], protocol)(table.schema.__arrow_c_schema__())
    with pytest.raises(TypeError, match="requested_schema: expected a capsule 'arrow_schema'"):
        getattr(table, protocol)(7)


def test_a_schema_asked_for_is_passed_on_to_the_producer(session):
    asked = []
    source = pa.table({"a": pa.array([1, 2], pa.int64())})

    class Producer:
        def __arrow_c_stream__(self, requested_schema=None):
            asked.append(pa.Schema._import_from_c_capsule(requested_schema))
            return source.cast(asked[0]).__arrow_c_stream__()

    wanted = session.from_arrow(pa.table({"a": pa.array([], pa.int8())})).schema
    assert session.from_arrow(Producer(), schema=wanted).schema == wanted
    assert asked == [pa.schema([("a", pa.int8())])]


def test_what_is_in_several_pieces_speaks_of_streams_alone(session):
    batch = pa.record_batch({"a": [1, 2]})
    table = session.from_arrow(pa.Table.from_batches([batch, batch]))
    for obj in (table, table["a"]):
        assert not hasattr(obj, "__arrow_c_array__") and not hasattr(obj, "__arrow_c_device_array__")
        with pytest.raises(AttributeError, match="2 pieces.*__arrow_c_stream__"):
            _ = obj.__arrow_c_array__
    for one in (*table.batches(), table["a"].chunk(1)):
        assert hasattr(one, "__arrow_c_array__") and hasattr(one, "__arrow_c_device_array__")


def test_a_table_of_no_batches_is_an_array_of_no_rows(session):
    schema = pa.schema([("a", pa.int8()), ("t", pa.string())], metadata={"k": "v"})
    table = session.from_arrow(pa.RecordBatchReader.from_batches(schema, []))
    assert (table.num_batches, table.num_rows) == (0, 0)
    batch = pa.record_batch(table)
    assert batch.num_rows == 0 and batch.schema.equals(schema, check_metadata=True)


def test_a_stream_is_read_on_another_thread_after_everything_else_is_gone():
    session = cd.Session()
    table = session.read_ipc(ipc_bytes())
    expected = table.to_pyarrow()
    stream = Given("__arrow_c_stream__", table.__arrow_c_stream__())
    session.close()
    del table, session
    gc.collect()
    got = []
    thread = threading.Thread(target=lambda: got.append(pa.table(stream)))
    thread.start()
    thread.join()
    assert got[0].equals(expected)


def test_the_best_protocol_is_taken_first(session, table):
    """Of a device before of the host, of all batches before of one."""
    spoken = []

    def speaks(protocols):
        def answer(protocol):
            def method(self, requested_schema=None, **kwargs):
                spoken.append(protocol)
                return getattr(table, protocol)()

            return method

        return type("Speaks", (), {protocol: answer(protocol) for protocol in protocols})()

    best = ["__arrow_c_device_stream__", "__arrow_c_device_array__", "__arrow_c_stream__", "__arrow_c_array__"]
    for i in range(len(best)):
        session.from_arrow(speaks(best[i:]))
    assert spoken == best
