"""`Session.from_dlpack`: how it calls the producer and uses the result. The tests of the plugin dlpack cover
the import itself."""

import gc
import weakref

import capi
import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from numpy.lib.stride_tricks import as_strided
from tensors import BFLOAT, BOOL, COMPLEX, FLOAT, INT, NUMPY_DTYPES, OPAQUE, UINT, Producer, assert_same, sample
from tensor_producers import CPU, RecordingProducer, LiveTensor, name_of, import_every_dtype

# Variables keep producers alive, because Python's destructors of capsules must not run while an
# exception is pending.
forms = pytest.mark.parametrize("form", ["versioned", "legacy"])
dtypes = pytest.mark.parametrize("dtype", NUMPY_DTYPES)

SHAPES = {
    "one dimension": np.s_[:],
    "a slice": np.s_[3:11],
    "strided": np.s_[::3],
    "backwards": np.s_[::-1],
    "empty": np.s_[:0],
    "one": np.s_[5:6],
}


@pytest.fixture(params=["the first", "one more"])
def session(request, session):
    if request.param == "one more":
        import_every_dtype(session)
    return session


@dtypes
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("read_only", [False, True])
def test_numpy_dtypes_and_shapes_round_trip(session, dtype, shape, read_only):
    array = sample(dtype, 24)[SHAPES[shape]]
    array.flags.writeable = not read_only
    column = session.from_dlpack(array)
    assert isinstance(column, cd.Column)
    assert (len(column), column.name, column.device, column.null_count) == (len(array), "col_0", "cpu", 0)
    assert_same(array, np.from_dlpack(column))
    assert column.to_pyarrow().type == NUMPY_DTYPES[dtype]


@dtypes
@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4), (24, 1), (1, 24), (0, 3), (3, 0), (1, 1, 24)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_dtypes_of_several_dimensions_round_trip(session, dtype, shape, order):
    array = np.asarray(sample(dtype, shape), order=order)
    column = session.from_dlpack(array)
    assert len(column) == shape[0]
    assert_same(array, np.from_dlpack(column))


def test_contiguous_tensors_are_imported_in_place(session):
    array = np.arange(1000)
    column = session.from_dlpack(array[1:])
    assert np.from_dlpack(column).ctypes.data == array[1:].ctypes.data
    assert session.memory_used() == {}
    rows = np.arange(24).reshape(4, 6)
    assert np.from_dlpack(session.from_dlpack(rows)).ctypes.data == rows.ctypes.data
    assert session.memory_used() == {}
    assert np.from_dlpack(session.from_dlpack(array[::2])).ctypes.data != array.ctypes.data


@forms
@pytest.mark.parametrize(
    "fields",
    [
        {"shape": (3,), "strides": None},
        {"shape": (1,), "strides": (77,)},
        {"shape": (1, 3), "strides": (-5, 1)},
        {"shape": (3, 1), "strides": (1, 99)},
        {"shape": (0,), "strides": (7,), "data": 0},
        {"shape": (3,), "byte_offset": 8},
        {"shape": (3,), "strides": (2,)},
        {"shape": (3,), "strides": (-1,), "byte_offset": 8},
    ],
    ids=str,
)
def test_strides_and_byte_offsets_are_applied(session, form, fields):
    """Compares the values with those of a numpy array that uses the same memory."""
    tensor = LiveTensor(form, **fields)
    shape, strides = fields["shape"], fields.get("strides", (1,))
    if strides is None:
        strides = (1,)
    begin = tensor._array[fields.get("byte_offset", 0) // 4 :]
    expected = as_strided(begin, shape, [4 * stride for stride in strides])
    column = session.from_dlpack(Producer(tensor.capsule))
    assert_same(expected, np.from_dlpack(column))
    del column
    gc.collect()
    assert tensor.deleted == 1


@forms
@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"ndim": 0, "shape": None, "strides": None}, cd.UnsupportedError, "a scalar"),
        ({"shape": None, "strides": None, "ndim": 1}, cd.DataError, "shape is NULL"),
        ({"ndim": -1}, cd.DataError, "-1 dimensions"),
        ({"shape": (1,) * 99, "strides": (1,) * 99}, cd.DataError, "99 dimensions"),
        ({"shape": (-3,)}, cd.DataError, "-3"),
        ({"shape": (2**62, 4), "strides": (4, 1)}, cd.DataError, "shape"),
        ({"dtype": (INT, 32, 4)}, cd.UnsupportedError, "lanes"),
        ({"dtype": (INT, 4, 1)}, cd.UnsupportedError, "int4"),
        ({"dtype": (UINT, 1, 1)}, cd.UnsupportedError, "uint1"),
        ({"dtype": (FLOAT, 128, 1)}, cd.UnsupportedError, "float128"),
        ({"dtype": (BFLOAT, 32, 1)}, cd.UnsupportedError, "bfloat32"),
        ({"dtype": (COMPLEX, 32, 1)}, cd.UnsupportedError, "complex32"),
        ({"dtype": (OPAQUE, 64, 1)}, cd.UnsupportedError, "handle64"),
        ({"dtype": (BOOL, 1, 1)}, cd.UnsupportedError, "bool1"),
        ({"dtype": (17, 4, 1)}, cd.UnsupportedError, "float4_e2m1fn"),
        ({"data": 0}, cd.DataError, "NULL"),
        ({"device": (10, 0)}, cd.DeviceError, "is on"),
        ({"device": (-1, 0)}, cd.DeviceError, "is on"),
        ({"byte_offset": 2**64 - 1}, cd.DataError, "byte_offset"),
    ],
    ids=str,
)
def test_rejects_and_deletes_unsupported_tensor(session, form, fields, kind, message):
    tensor = LiveTensor(form, **fields)
    producer = Producer(tensor.capsule)
    with pytest.raises(kind, match=message):
        session.from_dlpack(producer)
    assert tensor.deleted == 1


@pytest.mark.parametrize("major", [0, 2, 2**32 - 1])
def test_deletes_tensor_of_another_major_version(session, major):
    """Data, dtype, device, shape and strides of the tensor are invalid. Reading the shape would crash."""
    tensor = LiveTensor("versioned", version=(major, 0), data=8, dtype=(99, 3, 7), device=(77, -3))
    tensor.struct.dl_tensor.shape = tensor.struct.dl_tensor.strides = 8
    producer = Producer(tensor.capsule)
    with pytest.raises(cd.Error, match="version"):
        session.from_dlpack(producer)
    assert tensor.deleted == 1


@pytest.mark.parametrize("minor", [0, 1, 99])
def test_accepts_minor_versions_and_unknown_flags(session, minor):
    tensor = LiveTensor("versioned", version=(1, minor), flags=1 << 63 | 7)
    assert np.from_dlpack(session.from_dlpack(Producer(tensor.capsule))).tolist() == [1, 2, 3]


@forms
def test_imports_tensor_without_deleter(session, form):
    tensor = LiveTensor(form, deleter=False)
    column = session.from_dlpack(Producer(tensor.capsule))
    assert np.from_dlpack(column).tolist() == [1, 2, 3]


# --- Capsules ---


@forms
def test_consumed_capsule_is_renamed_and_its_tensor_deleted_once(session, form):
    tensor = LiveTensor(form)
    capsule = tensor.capsule
    before = name_of(capsule)
    column = session.from_dlpack(capsule)
    assert name_of(capsule) == f"used_{before}"
    del capsule
    gc.collect()
    assert tensor.deleted == 0
    assert np.from_dlpack(column).tolist() == [1, 2, 3]
    del column
    gc.collect()
    assert tensor.deleted == 1


@forms
def test_rejects_consumed_capsule(session, form):
    tensor = LiveTensor(form)
    capsule = tensor.capsule
    session.from_dlpack(capsule)
    with pytest.raises(TypeError, match="already consumed"):
        session.from_dlpack(capsule)
    gc.collect()
    assert tensor.deleted == 1


@forms
def test_rejected_capsule_is_consumed(session, form):
    tensor = LiveTensor(form, dtype=(COMPLEX, 32, 1))
    capsule = tensor.capsule
    with pytest.raises(cd.UnsupportedError):
        session.from_dlpack(capsule)
    assert name_of(capsule).startswith("used_")
    assert tensor.deleted == 1


@pytest.mark.parametrize("name", [b"arrow_array", b"DLTENSOR", b"dltensor ", b"", b"used_something"])
def test_rejected_capsule_with_another_name_is_not_consumed(session, name):
    tensor = LiveTensor("versioned")
    capsule = capi._new(tensor.address, capi._interned_name(name), capi._DESTROY())
    with pytest.raises(TypeError, match="dltensor_versioned"):
        session.from_dlpack(capsule)
    assert name_of(capsule).encode() == name
    assert tensor.deleted == 0


@pytest.mark.parametrize("answer", [None, 7, "dltensor", (1, 2)])
def test_rejects_producer_result_that_is_no_capsule(session, answer):
    with pytest.raises(TypeError, match="__dlpack__: expected a capsule"):
        session.from_dlpack(Producer(answer))


@pytest.mark.parametrize("value", [3, "text", None, object(), [1, 2], {"a": 3}])
def test_error_for_object_without_protocol_says_what_was_expected(session, value):
    with pytest.raises(TypeError, match="expected a tensor with __dlpack_device__"):
        session.from_dlpack(value)


@pytest.mark.parametrize("device", [None, 1, (1,), (1, 2, 3), ("cpu", 0)])
def test_rejects_producer_with_invalid_device(session, device):
    producer = RecordingProducer(LiveTensor("versioned"), device=device)
    with pytest.raises(TypeError, match="__dlpack_device__: expected"):
        session.from_dlpack(producer)
    assert producer.calls == []


# --- Calls of the producer ---


def test_producer_gets_only_max_version(session):
    producer = RecordingProducer(LiveTensor("versioned"))
    session.from_dlpack(producer)
    assert producer.calls == [{"max_version": (1, 3)}]


@forms
def test_older_producer_is_called_without_max_version(session, form):
    producer = RecordingProducer(LiveTensor(form), parameters=("stream",))
    assert len(session.from_dlpack(producer)) == 3
    assert producer.calls == [{"max_version": (1, 3)}, {}]


def test_second_type_error_of_producer_has_the_first_as_cause(session):
    producer = RecordingProducer(LiveTensor("versioned"))

    def confused(**arguments):
        raise TypeError(f"not with {sorted(arguments)}")

    producer.__class__ = type(
        "Confused", (), {"__dlpack_device__": lambda self: (1, 0), "__dlpack__": lambda self, **a: confused(**a)}
    )
    with pytest.raises(TypeError, match=r"not with \[\]") as raised:
        session.from_dlpack(producer)
    assert "max_version" in str(raised.value.__cause__)


@pytest.mark.parametrize("kind", [BufferError, RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["__dlpack__", "__dlpack_device__"])
def test_exception_of_the_producer_is_raised_unchanged(session, kind, where):
    calls = []

    class Raising(RecordingProducer):
        pass

    def fail(self, **_):
        calls.append(where)
        raise kind("no such luck")

    setattr(Raising, where, fail)
    with pytest.raises(kind, match="no such luck"):
        session.from_dlpack(Raising(LiveTensor("versioned")))
    assert calls == [where]


@pytest.mark.parametrize("device", [(CPU, 0), (CPU, 5), (3, 0), (14, 0)])
def test_cpu_producer_gets_no_stream(session, device):
    producer = RecordingProducer(LiveTensor("versioned", device=(CPU, 0)), device=device)
    session.from_dlpack(producer)
    assert producer.calls == [{"max_version": (1, 3)}]


# --- Tables ---


def test_dict_becomes_a_table_with_its_names(session):
    names = ["a", "b,c", "", "ä\n"]
    table = session.from_dlpack({name: np.arange(3) + i for i, name in enumerate(names)})
    assert isinstance(table, cd.Table)
    assert (table.column_names, table.num_rows) == (names, 3)
    assert [np.asarray(column).tolist() for column in table.columns] == [[i, i + 1, i + 2] for i in range(4)]


@pytest.mark.parametrize("kind", [list, tuple])
def test_list_becomes_a_table_in_its_order(session, kind):
    table = session.from_dlpack(
        kind([np.arange(2), np.ones((2, 3), np.float32), LiveTensor("legacy", shape=(2,)).capsule])
    )
    assert table.column_names == ["col_0", "col_1", "col_2"]
    assert np.asarray(table[1]).shape == (2, 3)
    assert np.asarray(table[2]).tolist() == [1, 2]


@pytest.mark.parametrize("nothing", [[], (), {}])
def test_rejects_empty_dict_and_list(session, nothing):
    with pytest.raises(cd.UsageError, match="0 tensors"):
        session.from_dlpack(nothing)


def test_error_names_the_column_and_deletes_all_tensors(session):
    first, second = LiveTensor("versioned"), LiveTensor("legacy", shape=(2,))
    tensors = {"first": Producer(first.capsule), "second": Producer(second.capsule)}
    with pytest.raises(cd.UsageError, match="column 'second' is 2 rows long, expected 3"):
        session.from_dlpack(tensors)
    assert (first.deleted, second.deleted) == (1, 1)


class Failing:
    def __dlpack_device__(self):
        return (CPU, 0)

    def __dlpack__(self, **arguments):
        raise self.error


class TwoArgumentError(Exception):
    def __init__(self, code, message):
        super().__init__(code, message)


@pytest.mark.parametrize(
    "source", [3, None, ValueError("no such luck"), OSError(5, "no such luck"), TwoArgumentError(1, "no such luck")]
)
@pytest.mark.parametrize("kind", [dict, list])
def test_exception_of_producer_names_its_column(session, source, kind):
    producer, error = source, TypeError
    if isinstance(source, Exception):
        producer, error = Failing(), type(source)
        producer.error = source
    tensors = {"first": np.arange(3), "the second": producer}
    with pytest.raises(error) as caught:
        session.from_dlpack(tensors if kind is dict else list(tensors.values()))
    name = "column 'the second'" if kind is dict else "tensor 1"
    texts = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert any(message.startswith(name) for message in texts), texts
    if isinstance(source, Exception):
        assert caught.value is source and "no such luck" in str(caught.value)


def test_error_of_mask_names_its_column(session):
    with pytest.raises(TypeError, match="^column 'b''s mask: "):
        session.from_dlpack({"a": np.arange(3), "b": np.arange(3)}, masks={"a": np.ones(3, bool), "b": None})


def test_failing_producer_frees_earlier_tensors(session):
    first = LiveTensor("versioned")
    tensors = [Producer(first.capsule), 3]
    with pytest.raises(TypeError):
        session.from_dlpack(tensors)
    assert first.deleted == 1


@pytest.mark.parametrize("of", [pa, cd])
def test_schema_determines_the_types(session, of):
    schema = pa.schema([pa.field("b", pa.bool_(), nullable=False), pa.field("x", pa.float64())], metadata={"k": "v"})
    if of is cd:
        schema = session.from_arrow(schema.empty_table()).schema
    table = session.from_dlpack({"x": np.ones(2), "b": np.array([True, False])}, schema)
    assert table.column_names == ["b", "x"]
    assert table.to_pyarrow().schema.equals(pa.schema(schema) if of is pa else schema.to_pyarrow(), check_metadata=True)
    assert table["b"].to_pyarrow().to_pylist() == [True, False]
    with pytest.raises(KeyError, match='no tensor for the column \\\\?"b'):
        session.from_dlpack({"x": np.ones(2)}, schema)
    with pytest.raises(KeyError, match='"y\\\\?" is not in the schema'):
        session.from_dlpack({"x": np.ones(2), "b": np.array([True, False]), "y": np.ones(2)}, schema)
    with pytest.raises(cd.UsageError, match="float64, expected bool"):
        session.from_dlpack([np.ones(2), np.ones(2)], schema)


def test_field_is_accepted_as_schema_of_one_column(session):
    column = session.from_dlpack(np.array([True, False]), pa.field("yes", pa.bool_()))
    assert isinstance(column, cd.Column)
    assert (column.name, column.type) == ("yes", "bool")
    with pytest.raises(TypeError, match="__arrow_c_schema__"):
        session.from_dlpack(np.ones(2), "float64")


def test_list_longer_than_the_schema_becomes_several_batches(session):
    schema = pa.schema([("a", pa.int64()), ("b", pa.float64())])
    table = session.from_dlpack([np.arange(2), np.ones(2), np.arange(3), np.ones(3)], schema)
    assert (table.num_batches, table.num_rows) == (2, 5)
    assert table.to_pyarrow()["a"].to_pylist() == [0, 1, 0, 1, 2]


def test_bools_bits_argument_converts_booleans_to_bits(session):
    array = np.arange(20) % 3 == 0
    assert session.from_dlpack(array).type == "int8"
    column = session.from_dlpack(array, bools="bits")
    assert column.type == "bool"
    assert column.to_pyarrow().to_pylist() == array.tolist()
    with pytest.raises(cd.UsageError, match="bools=both"):
        session.from_dlpack(array, bools="both")


def test_masks_mark_nulls(session):
    values, mask = np.arange(4.0), np.array([False, True, False, True])
    expected = [0.0, None, 2.0, None]
    assert session.from_dlpack(values, masks=mask).to_pyarrow().to_pylist() == expected
    table = session.from_dlpack({"a": values, "b": values}, masks={"b": ~mask, "a": mask})
    assert table["a"].to_pyarrow().to_pylist() == expected
    assert table["b"].to_pyarrow().to_pylist() == [None, 1.0, None, 3.0]
    with pytest.raises(cd.UsageError, match="masks: expected one mask for each of 2 tensors, got 1"):
        session.from_dlpack([values, values], masks=[mask])
    with pytest.raises(cd.UsageError, match="masked by a tensor of float64"):
        session.from_dlpack(values, masks=values)


# --- Lifetimes ---


def test_tensor_lives_as_long_as_its_column_and_exports(session):
    array = np.arange(1000)
    owner = weakref.ref(array)
    column = session.from_dlpack(array)
    del array
    part = column.slice(3, 4)
    imported = np.from_dlpack(part)
    capsule = column.__dlpack__(max_version=(1, 0))
    del column, part
    gc.collect()
    assert owner() is not None
    del capsule
    gc.collect()
    assert owner() is not None
    assert imported.tolist() == [3, 4, 5, 6]
    del imported
    gc.collect()
    assert owner() is None


def test_thousands_of_tensors_are_freed(session):
    tensors = [LiveTensor("versioned"), LiveTensor("legacy")]
    for _ in range(2_000):
        for tensor in tensors:
            session.from_dlpack(Producer(tensor.capsule))
    gc.collect()
    assert [tensor.deleted for tensor in tensors] == [2_000, 2_000]
    assert session.memory_used() == {}


def test_closed_session_rejects_tensors():
    session = cd.Session()
    session.close()
    with pytest.raises(cd.UsageError, match="closed"):
        session.from_dlpack(np.arange(3))


def test_rejects_bools_argument_if_schema_is_passed(session):
    values = np.array([True, False])
    with pytest.raises(cd.UsageError, match="bools: the schema determines"):
        session.from_dlpack(values, pa.schema([("a", pa.bool_())]), bools="bytes")
    assert session.from_dlpack([values], pa.schema([("a", pa.bool_())]))["a"].to_pyarrow().to_pylist() == [True, False]
