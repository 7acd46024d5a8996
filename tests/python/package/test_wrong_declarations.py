"""Imports arrays and schemas with wrong declarations, and exports them with each function in EXPORTS. Either
the values do not change, or the data is rejected. Full validation always rejects the data. The arrays are on
the session's device. Buffer lengths cannot be checked, because Arrow's structs lack them."""

import ctypes
import io

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from capi_structs import ArrowArray, ArrowDeviceArray, ArrowSchema

POINTER = ctypes.pythonapi.PyCapsule_GetPointer
POINTER.restype, POINTER.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
MAP_KEYS_SORTED, DICTIONARY_ORDERED = 4, 1


def array_in(capsule):
    return ctypes.cast(POINTER(capsule, b"arrow_device_array"), ctypes.POINTER(ArrowDeviceArray)).contents.array


def schema_in(capsule):
    return ctypes.cast(POINTER(capsule, b"arrow_schema"), ctypes.POINTER(ArrowSchema)).contents


def child(struct, index=0):
    """Returns a child of an array or a schema."""
    kind = type(struct)
    return ctypes.cast(struct.children, ctypes.POINTER(ctypes.POINTER(kind)))[index].contents


def dictionary(array):
    return ctypes.cast(array.dictionary, ctypes.POINTER(ArrowArray)).contents


def set_null_count(count):
    def declare(schema, array):
        array.null_count = count

    return declare


def set_length(change):
    def declare(schema, array):
        child(array).length += change

    return declare


def negative(schema, array):
    array.length = -1


def keys_sorted(schema, array):
    schema.flags |= MAP_KEYS_SORTED


def ordered(schema, array):
    schema.flags |= DICTIONARY_ORDERED


def shorter_dictionary(schema, array):
    dictionary(array).length = 1


def dictionary_null_count(count):
    def declare(schema, array):
        dictionary(array).null_count = count

    return declare


def child_null_count(count):
    def declare(schema, array):
        child(array).null_count = count

    return declare


NUMBERS = pa.array([1, None, 3, 4], pa.int64())
PLAIN = pa.array([1, 2, 3, 4], pa.int64())
TEXTS = pa.array(["a", None, "ccc"])
CODES = pa.DictionaryArray.from_arrays(pa.array([1, 0, 2, None], pa.int8()), pa.array(["z", None, "a"]))
MAPS = pa.array([[("z", 1), ("a", 2)], None, [("b", 3)]], pa.map_(pa.string(), pa.int64()))
STRUCTS = pa.array([{"a": 1}, {"a": None}, {"a": 3}])
FIXED = pa.array([[1, 2], [3, 4], None], pa.list_(pa.int64(), 2))

HARMLESS = "harmless"
"""Marks a wrong declaration that no consumer uses."""

DECLARATIONS = {
    "no nulls declared": (NUMBERS, set_null_count(0)),
    "fewer nulls declared": (TEXTS, set_null_count(0)),
    "more nulls declared": (NUMBERS, set_null_count(2)),
    "all values declared null": (NUMBERS, set_null_count(4)),
    "nulls declared without a bitmap": (PLAIN, set_null_count(2)),
    "more nulls declared than values": (NUMBERS, set_null_count(5)),
    "a negative null count": (NUMBERS, set_null_count(-2)),
    "no nulls of a child declared": (STRUCTS, child_null_count(0)),
    "all values of a child declared null": (STRUCTS, child_null_count(3)),
    "no nulls of a dictionary declared": (CODES, dictionary_null_count(0)),
    "all values of a dictionary declared null": (CODES, dictionary_null_count(3)),
    "a negative length": (NUMBERS, negative),
    "a child that is too short": (STRUCTS, set_length(-1)),
    "a child of lists that is too short": (FIXED, set_length(-1)),
    "a dictionary that is too short": (CODES, shorter_dictionary),
    "keys declared sorted": (MAPS, keys_sorted, HARMLESS),
    "a dictionary declared ordered": (CODES, ordered, HARMLESS),
}


def with_declaration(session, name):
    """Imports a table whose column, on the session's device, has a wrong declaration."""
    values, declare, *_ = DECLARATIONS[name]
    schema, array = session.from_arrow(pa.table({"x": values})).__arrow_c_device_array__()
    declare(child(schema_in(schema)), child(array_in(array)))
    return lambda other: other.from_capsules(schema, array, as_column=False)


def to_arrow(session, table):
    return table["x"].to_pyarrow().to_pylist()


def to_other_session(session, table):
    """Exports through the structs on the session's device, and copies to the host."""
    with cd.Session() as other:
        return other.from_arrow(table)["x"].to_pyarrow().to_pylist()


def to_ipc_file(session, table, form="file"):
    out = io.BytesIO()
    table.write_ipc(out, form=form)
    return session.read_ipc(out.getvalue())["x"].to_pyarrow().to_pylist()


def to_ipc_stream(session, table):
    return to_ipc_file(session, table, "stream")


def to_vortex(session, table):
    return session.from_vortex(table["x"]).to_pyarrow().to_pylist()


def to_values(session, table):
    return table.decode_dictionary()["x"].to_pyarrow().to_pylist()


def to_one_batch(session, table):
    return table.combine_batches().compact()["x"].to_pyarrow().to_pylist()


def to_slices(session, table):
    return [row for i in range(table.num_rows) for row in table.slice(i, 1)["x"].to_pyarrow().to_pylist()]


def to_tensor(session, table):
    return np.from_dlpack(table["x"].to("cpu")).tolist()


EXPORTS = [
    to_arrow,
    to_other_session,
    to_ipc_file,
    to_ipc_stream,
    to_vortex,
    to_values,
    to_one_batch,
    to_slices,
    to_tensor,
]


def expected_values(name):
    return DECLARATIONS[name][0].to_pylist()


def check(session, name, export):
    """Checks that the declaration is rejected, or the values are unchanged."""
    import_into = with_declaration(session, name)
    try:
        values = export(session, import_into(session))
    except (cd.Error, pa.ArrowException, BufferError) as error:
        assert "panicked" not in str(error)
        return
    assert values == expected_values(name)


@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: export.__name__)
@pytest.mark.parametrize("name", DECLARATIONS)
def test_values_are_unchanged_by_wrong_declarations(name, export):
    with cd.Session() as session:
        check(session, name, export)


@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: export.__name__)
@pytest.mark.parametrize("name", DECLARATIONS)
def test_values_on_a_device_are_unchanged_by_wrong_declarations(cuda, name, export):
    with cd.Session(cuda) as session:
        check(session, name, export)


def assert_full_validation(device, name):
    with cd.Session(device) as producer, cd.Session(device, validate="full") as session:
        import_into = with_declaration(producer, name)
        if HARMLESS in DECLARATIONS[name]:
            assert import_into(session)["x"].to_pyarrow().to_pylist() == expected_values(name)
        else:
            with pytest.raises(cd.DataError):
                import_into(session)


@pytest.mark.parametrize("name", DECLARATIONS)
def test_full_validation_rejects_wrong_declarations(name):
    assert_full_validation("cpu", name)


@pytest.mark.parametrize("name", DECLARATIONS)
def test_full_validation_rejects_wrong_declarations_on_a_device(cuda, name):
    assert_full_validation(cuda, name)


@pytest.mark.parametrize(
    ("name", "flag"), [("keys declared sorted", "keys_sorted"), ("a dictionary declared ordered", "ordered")]
)
def test_wrong_declarations_without_validation_are_exported_unchanged(name, flag):
    with cd.Session() as session:
        column = with_declaration(session, name)(session)["x"]
        assert getattr(column.to_pyarrow().type, flag)
