"""`Session.from_dlpack`: who is asked, how, and what becomes of the answer. What the plugin makes of tensors is tested with the
plugin; the package's own conduct is tested here."""

import gc
import weakref

import capi
import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from numpy.lib.stride_tricks import as_strided
from tensors import BFLOAT, BOOL, COMPLEX, FLOAT, INT, NUMPY_DTYPES, OPAQUE, UINT, Lender, assert_same, sample
from tensors_made import CPU, Asked, Made, name_of, show_every_dtype

# Python's destructors of capsules must not run while an exception is on its way: what holds one is held by a name.
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
        show_every_dtype(session)
    return session


@dtypes
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("read_only", [False, True])
def test_every_dtype_and_shape_of_numpy_comes_in_and_goes_out(session, dtype, shape, read_only):
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
def test_every_dtype_of_several_dimensions_comes_in_and_goes_out(session, dtype, shape, order):
    array = np.asarray(sample(dtype, shape), order=order)
    column = session.from_dlpack(array)
    assert len(column) == shape[0]
    assert_same(array, np.from_dlpack(column))


def test_what_lies_as_arrow_has_it_stays_where_it_is(session):
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
    "odd",
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
def test_strides_and_byte_offsets_of_any_make_are_honoured(session, form, odd):
    """What numpy sees at the same place."""
    made = Made(form, **odd)
    shape, strides = odd["shape"], odd.get("strides", (1,))
    if strides is None:
        strides = (1,)
    begin = made._array[odd.get("byte_offset", 0) // 4 :]
    expected = as_strided(begin, shape, [4 * stride for stride in strides])
    column = session.from_dlpack(Lender(made.capsule))
    assert_same(expected, np.from_dlpack(column))
    del column
    gc.collect()
    assert made.deleted == 1


@forms
@pytest.mark.parametrize(
    ("odd", "kind", "words"),
    [
        ({"ndim": 0, "shape": None, "strides": None}, cd.UnsupportedError, "a scalar"),
        ({"shape": None, "strides": None, "ndim": 1}, cd.DataError, "a NULL shape"),
        ({"ndim": -1}, cd.DataError, "-1 dimensions"),
        ({"shape": (1,) * 99, "strides": (1,) * 99}, cd.DataError, "99 dimensions"),
        ({"shape": (-3,)}, cd.DataError, "-3"),
        ({"shape": (2**62, 4), "strides": (4, 1)}, cd.DataError, "shape"),
        ({"dtype": (INT, 32, 4)}, cd.UnsupportedError, "lanes"),
        ({"dtype": (INT, 4, 1)}, cd.UnsupportedError, "int4"),
        ({"dtype": (UINT, 1, 1)}, cd.UnsupportedError, "uint1"),
        ({"dtype": (FLOAT, 128, 1)}, cd.UnsupportedError, "float128"),
        ({"dtype": (BFLOAT, 16, 1)}, cd.UnsupportedError, "bfloat16"),
        ({"dtype": (COMPLEX, 64, 1)}, cd.UnsupportedError, "complex64"),
        ({"dtype": (OPAQUE, 64, 1)}, cd.UnsupportedError, "handle64"),
        ({"dtype": (BOOL, 1, 1)}, cd.UnsupportedError, "bool1"),
        ({"dtype": (17, 4, 1)}, cd.UnsupportedError, "code 17"),
        ({"data": 0}, cd.DataError, "NULL"),
        ({"device": (10, 0)}, cd.DeviceError, "lies on"),
        ({"device": (-1, 0)}, cd.DeviceError, "lies on"),
        ({"byte_offset": 2**64 - 1}, cd.DataError, "byte_offset"),
    ],
    ids=str,
)
def test_what_no_column_can_be_is_refused_in_words_and_deleted_once(session, form, odd, kind, words):
    made = Made(form, **odd)
    lender = Lender(made.capsule)
    with pytest.raises(kind, match=words):
        session.from_dlpack(lender)
    assert made.deleted == 1


@pytest.mark.parametrize("major", [0, 2, 2**32 - 1])
def test_of_another_major_version_the_deleter_is_called_and_nothing_else(session, major):
    """Everything else would be a fault: the fields point nowhere."""
    made = Made("versioned", version=(major, 0), data=8, dtype=(99, 3, 7), device=(77, -3))
    made.struct.dl_tensor.shape = made.struct.dl_tensor.strides = 8
    lender = Lender(made.capsule)
    with pytest.raises(cd.Error, match="version"):
        session.from_dlpack(lender)
    assert made.deleted == 1


@pytest.mark.parametrize("minor", [0, 1, 99])
def test_minor_versions_and_unknown_flags_are_understood(session, minor):
    made = Made("versioned", version=(1, minor), flags=1 << 63 | 7)
    assert np.from_dlpack(session.from_dlpack(Lender(made.capsule))).tolist() == [1, 2, 3]


@forms
def test_a_tensor_without_a_deleter_is_taken_and_left(session, form):
    made = Made(form, deleter=False)
    column = session.from_dlpack(Lender(made.capsule))
    assert np.from_dlpack(column).tolist() == [1, 2, 3]


# ------------------------------------------------------------------------------------------------------- capsules ---


@forms
def test_a_capsule_is_renamed_when_it_is_taken_and_its_tensor_deleted_once(session, form):
    made = Made(form)
    capsule = made.capsule
    before = name_of(capsule)
    column = session.from_dlpack(capsule)
    assert name_of(capsule) == f"used_{before}"
    del capsule
    gc.collect()
    assert made.deleted == 0
    assert np.from_dlpack(column).tolist() == [1, 2, 3]
    del column
    gc.collect()
    assert made.deleted == 1


@forms
def test_a_capsule_is_taken_once(session, form):
    made = Made(form)
    capsule = made.capsule
    session.from_dlpack(capsule)
    with pytest.raises(TypeError, match="taken already"):
        session.from_dlpack(capsule)
    gc.collect()
    assert made.deleted == 1


@forms
def test_a_refused_capsule_is_used_up(session, form):
    made = Made(form, dtype=(COMPLEX, 64, 1))
    capsule = made.capsule
    with pytest.raises(cd.UnsupportedError):
        session.from_dlpack(capsule)
    assert name_of(capsule).startswith("used_")
    assert made.deleted == 1


@pytest.mark.parametrize("name", [b"arrow_array", b"DLTENSOR", b"dltensor ", b"", b"used_something"])
def test_capsules_of_other_names_are_left_alone(session, name):
    made = Made("versioned")
    capsule = capi._new(made.address, capi._kept(name), capi._DESTROY())
    with pytest.raises(TypeError, match="dltensor_versioned"):
        session.from_dlpack(capsule)
    assert name_of(capsule).encode() == name
    assert made.deleted == 0


@pytest.mark.parametrize("answer", [None, 7, "dltensor", (1, 2)])
def test_a_producer_that_gives_something_else_is_told(session, answer):
    with pytest.raises(TypeError, match="__dlpack__: expected a capsule"):
        session.from_dlpack(Lender(answer))


@pytest.mark.parametrize("thing", [3, "text", None, object(), [1, 2], {"a": 3}])
def test_what_is_no_tensor_is_told_what_was_expected(session, thing):
    with pytest.raises(TypeError, match="has no __dlpack_device__, expected a tensor"):
        session.from_dlpack(thing)


@pytest.mark.parametrize("device", [None, 1, (1,), (1, 2, 3), ("cpu", 0)])
def test_a_producer_on_no_device_is_told(session, device):
    asked = Asked(Made("versioned"), device=device)
    with pytest.raises(TypeError, match="__dlpack_device__: expected"):
        session.from_dlpack(asked)
    assert asked.asked == []


# ----------------------------------------------------------------------------------------------- how they are asked ---


def test_a_producer_of_today_is_asked_for_a_version_and_nothing_that_it_might_not_know(session):
    asked = Asked(Made("versioned"))
    session.from_dlpack(asked)
    assert asked.asked == [{"max_version": (1, 3)}]


@forms
def test_a_producer_of_old_is_asked_again_with_less(session, form):
    asked = Asked(Made(form), knows=("stream",))
    assert len(session.from_dlpack(asked)) == 3
    assert asked.asked == [{"max_version": (1, 3)}, {}]


def test_a_type_error_of_the_producer_comes_with_the_first_one(session):
    asked = Asked(Made("versioned"))

    def confused(**arguments):
        raise TypeError(f"not with {sorted(arguments)}")

    asked.__class__ = type(
        "Confused", (), {"__dlpack_device__": lambda self: (1, 0), "__dlpack__": lambda self, **a: confused(**a)}
    )
    with pytest.raises(TypeError, match=r"not with \[\]") as raised:
        session.from_dlpack(asked)
    assert "max_version" in str(raised.value.__cause__)


@pytest.mark.parametrize("kind", [BufferError, RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["__dlpack__", "__dlpack_device__"])
def test_what_a_producer_raises_passes_on(session, kind, where):
    calls = []

    class Raising(Asked):
        pass

    def fail(self, **_):
        calls.append(where)
        raise kind("no such luck")

    setattr(Raising, where, fail)
    with pytest.raises(kind, match="no such luck"):
        session.from_dlpack(Raising(Made("versioned")))
    assert calls == [where]


@pytest.mark.parametrize("device", [(CPU, 0), (CPU, 5), (3, 0), (14, 0)])
def test_no_stream_is_named_where_there_are_none(session, device):
    asked = Asked(Made("versioned", device=(CPU, 0)), device=device)
    session.from_dlpack(asked)
    assert asked.asked == [{"max_version": (1, 3)}]


# --------------------------------------------------------------------------------------------------- tables of them ---


def test_a_dict_gives_a_table_with_its_names_whatever_they_are(session):
    names = ["a", "b,c", "", "ä\n"]
    table = session.from_dlpack({name: np.arange(3) + i for i, name in enumerate(names)})
    assert isinstance(table, cd.Table)
    assert (table.column_names, table.num_rows) == (names, 3)
    assert [np.asarray(column).tolist() for column in table.columns] == [[i, i + 1, i + 2] for i in range(4)]


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_gives_a_table_in_its_order(session, kind):
    table = session.from_dlpack(kind([np.arange(2), np.ones((2, 3), np.float32), Made("legacy", shape=(2,)).capsule]))
    assert table.column_names == ["col_0", "col_1", "col_2"]
    assert np.asarray(table[1]).shape == (2, 3)
    assert np.asarray(table[2]).tolist() == [1, 2]


@pytest.mark.parametrize("nothing", [[], (), {}])
def test_nothing_is_no_table(session, nothing):
    with pytest.raises(cd.UsageError, match="0 tensors"):
        session.from_dlpack(nothing)


def test_an_error_names_the_column_and_deletes_all(session):
    first, second = Made("versioned"), Made("legacy", shape=(2,))
    tensors = {"first": Lender(first.capsule), "second": Lender(second.capsule)}
    with pytest.raises(cd.UsageError, match="column 'second' is 2 rows long, expected 3"):
        session.from_dlpack(tensors)
    assert (first.deleted, second.deleted) == (1, 1)


class Failing:
    def __dlpack_device__(self):
        return (CPU, 0)

    def __dlpack__(self, **arguments):
        raise self.error


class OfTwo(Exception):
    def __init__(self, code, words):
        super().__init__(code, words)


@pytest.mark.parametrize(
    "given", [3, None, ValueError("no such luck"), OSError(5, "no such luck"), OfTwo(1, "no such luck")]
)
@pytest.mark.parametrize("kind", [dict, list])
def test_an_error_of_one_of_several_names_it(session, given, kind):
    what, error = given, TypeError
    if isinstance(given, Exception):
        what, error = Failing(), type(given)
        what.error = given
    tensors = {"first": np.arange(3), "the second": what}
    with pytest.raises(error) as caught:
        session.from_dlpack(tensors if kind is dict else list(tensors.values()))
    name = "column 'the second'" if kind is dict else "tensor 1"
    said = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert any(words.startswith(name) for words in said), said
    if isinstance(given, Exception):
        assert caught.value is given and "no such luck" in str(caught.value)


def test_an_error_of_a_mask_names_its_column(session):
    with pytest.raises(TypeError, match="^column 'b''s mask: "):
        session.from_dlpack({"a": np.arange(3), "b": np.arange(3)}, masks={"a": np.ones(3, bool), "b": None})


def test_a_producer_that_fails_frees_those_before_it(session):
    first = Made("versioned")
    tensors = [Lender(first.capsule), 3]
    with pytest.raises(TypeError):
        session.from_dlpack(tensors)
    assert first.deleted == 1


@pytest.mark.parametrize("of", [pa, cd])
def test_a_schema_says_what_they_become(session, of):
    schema = pa.schema([pa.field("b", pa.bool_(), nullable=False), pa.field("x", pa.float64())], metadata={"k": "v"})
    if of is cd:
        schema = session.from_arrow(schema.empty_table()).schema
    table = session.from_dlpack({"x": np.ones(2), "b": np.array([True, False])}, schema)
    assert table.column_names == ["b", "x"]
    assert table.to_pyarrow().schema.equals(pa.schema(schema) if of is pa else schema.to_pyarrow(), check_metadata=True)
    assert table["b"].to_pyarrow().to_pylist() == [True, False]
    with pytest.raises(KeyError, match='no tensor for the column \\\\?"b'):
        session.from_dlpack({"x": np.ones(2)}, schema)
    with pytest.raises(KeyError, match='"y\\\\?" is not among'):
        session.from_dlpack({"x": np.ones(2), "b": np.array([True, False]), "y": np.ones(2)}, schema)
    with pytest.raises(cd.UsageError, match="float64, expected bool"):
        session.from_dlpack([np.ones(2), np.ones(2)], schema)


def test_a_field_is_the_schema_of_one_column(session):
    column = session.from_dlpack(np.array([True, False]), pa.field("yes", pa.bool_()))
    assert isinstance(column, cd.Column)
    assert (column.name, column.type) == ("yes", "Boolean")
    with pytest.raises(TypeError, match="__arrow_c_schema__"):
        session.from_dlpack(np.ones(2), "float64")


def test_a_list_of_several_batches_is_cut_by_its_schema(session):
    schema = pa.schema([("a", pa.int64()), ("b", pa.float64())])
    table = session.from_dlpack([np.arange(2), np.ones(2), np.arange(3), np.ones(3)], schema)
    assert (table.num_batches, table.num_rows) == (2, 5)
    assert table.to_pyarrow()["a"].to_pylist() == [0, 1, 0, 1, 2]


def test_booleans_become_bits_where_asked(session):
    array = np.arange(20) % 3 == 0
    assert session.from_dlpack(array).type == "Int8"
    column = session.from_dlpack(array, bools="bits")
    assert column.type == "Boolean"
    assert column.to_pyarrow().to_pylist() == array.tolist()
    with pytest.raises(cd.UsageError, match="bools=both"):
        session.from_dlpack(array, bools="both")


def test_masks_say_what_is_null(session):
    values, mask = np.arange(4.0), np.array([False, True, False, True])
    expected = [0.0, None, 2.0, None]
    assert session.from_dlpack(values, masks=mask).to_pyarrow().to_pylist() == expected
    table = session.from_dlpack({"a": values, "b": values}, masks={"b": ~mask, "a": mask})
    assert table["a"].to_pyarrow().to_pylist() == expected
    assert table["b"].to_pyarrow().to_pylist() == [None, 1.0, None, 3.0]
    with pytest.raises(cd.UsageError, match="masks: 1 for 2 tensors"):
        session.from_dlpack([values, values], masks=[mask])
    with pytest.raises(cd.UsageError, match="masked by a tensor of float64"):
        session.from_dlpack(values, masks=values)


# ---------------------------------------------------------------------------------------------------------- lifetimes ---


def test_a_tensor_lives_as_long_as_its_column_and_what_was_made_of_that(session):
    array = np.arange(1000)
    gone = weakref.ref(array)
    column = session.from_dlpack(array)
    del array
    part = column.slice(3, 4)
    seen = np.from_dlpack(part)
    capsule = column.__dlpack__(max_version=(1, 0))
    del column, part
    gc.collect()
    assert gone() is not None
    del capsule
    gc.collect()
    assert gone() is not None
    assert seen.tolist() == [3, 4, 5, 6]
    del seen
    gc.collect()
    assert gone() is None


def test_thousands_of_tensors_leave_nothing(session):
    made = [Made("versioned"), Made("legacy")]
    for _ in range(2_000):
        for one in made:
            session.from_dlpack(Lender(one.capsule))
    gc.collect()
    assert [one.deleted for one in made] == [2_000, 2_000]
    assert session.memory_used() == {}


def test_a_closed_session_takes_none():
    session = cd.Session()
    session.close()
    with pytest.raises(cd.UsageError, match="closed"):
        session.from_dlpack(np.arange(3))


def test_bools_beside_a_schema_is_refused_for_the_schema_says_it(session):
    values = np.array([True, False])
    with pytest.raises(cd.UsageError, match="bools: the schema says"):
        session.from_dlpack(values, pa.schema([("a", pa.bool_())]), bools="bytes")
    assert session.from_dlpack([values], pa.schema([("a", pa.bool_())]))["a"].to_pyarrow().to_pylist() == [True, False]
