"""DLPack's C exchange API: tables of others, hand-made and tvm-ffi's, and the columns' own."""

import ctypes
import gc
import weakref
from ctypes import byref, c_void_p

import capi
import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from tensors import IS_COPIED, READ_ONLY, Lender, Versioned, delete
from tensors import give as capsule_of
from tensors_made import (
    ALLOCATE,
    CPU,
    FROM_PY,
    SET_ERROR,
    STREAM,
    TO_PY,
    ExchangeApi,
    Made,
    api_capsule,
    name_of,
    speaker,
)


@pytest.fixture
def table():
    """The columns' own table."""
    capsule = cd.Column.__dlpack_c_exchange_api__
    assert name_of(capsule) == "dlpack_exchange_api"
    return ExchangeApi.from_address(capi.capsule_pointer(capsule))


# ------------------------------------------------------------------------------------------------------ others' tables ---


def test_a_table_on_the_type_goes_before_the_protocol(session):
    made = Made("versioned")
    kind = speaker(lambda _: made)
    assert np.asarray(session.from_dlpack(kind())).tolist() == [1, 2, 3]
    gc.collect()
    assert (kind.asked, made.deleted) == (1, 1)


def test_a_table_is_looked_up_once_for_a_type(session):
    looked = []

    class Meta(type):
        def __getattribute__(cls, name):
            if name == "__dlpack_c_exchange_api__":
                looked.append(cls)
            return super().__getattribute__(name)

    base = speaker(lambda _: Made("versioned"))
    first, second = (Meta(name, (base,), {}) for name in ("First", "Second"))
    for kind in (first, second, first, second, first):
        session.from_dlpack(kind())
    assert looked == [first, second]


def test_a_type_without_a_table_is_looked_at_once(session):
    looked = []

    class Meta(type):
        def __getattribute__(cls, name):
            if name == "__dlpack_c_exchange_api__":
                looked.append(cls)
            return super().__getattribute__(name)

    kind = Meta("Bare", (Lender,), {})
    for _ in range(3):
        assert len(session.from_dlpack(kind(Made("versioned").capsule))) == 3
    assert looked == [kind]


def test_types_that_come_and_go_do_not_pile_up_and_are_not_mistaken(session):
    kinds = []
    for i in range(300):
        kind = type("Bare", (Lender,), {})
        thing = kind(Made("versioned", shape=(i % 3 + 1,)).capsule)
        assert len(session.from_dlpack(thing)) == i % 3 + 1
        if i % 7 == 0:
            assert len(session.from_dlpack(speaker(lambda _: Made("versioned", shape=(2,)))())) == 2
        kinds.append(weakref.ref(kind))
        del kind, thing
    gc.collect()
    assert sum(kind() is not None for kind in kinds) < 100


@pytest.mark.parametrize("where", ["instance", "name", "number", "none"])
def test_what_is_no_table_on_the_type_is_not_used(session, where):
    class Kind(Lender):
        pass

    made = Made("versioned")
    table = ExchangeApi(major=1, minor=3)
    if where == "instance":
        thing = Kind(made.capsule)
        thing.__dlpack_c_exchange_api__ = api_capsule(table)
    else:
        Kind.__dlpack_c_exchange_api__ = {
            "name": api_capsule(table, b"something_else"),
            "number": 8,
            "none": None,
        }[where]
        thing = Kind(made.capsule)
    assert np.asarray(session.from_dlpack(thing)).tolist() == [1, 2, 3]


@pytest.mark.parametrize("major", [0, 2, 99])
def test_a_table_of_another_version_is_not_used(session, major):
    """Nor looked into: its functions are somewhere else."""

    class Kind(Lender):
        pass

    table = ExchangeApi(major=major, minor=0)
    table.managed_tensor_from_py_object_no_sync = table.current_work_stream = 8
    Kind.__dlpack_c_exchange_api__ = api_capsule(table)
    assert len(session.from_dlpack(Kind(Made("versioned").capsule))) == 3


def test_an_older_table_behind_a_newer_one_is_found(session):
    made = Made("versioned")
    old = speaker(lambda _: made)
    newest = ExchangeApi(major=3, minor=0)
    newer = ExchangeApi(major=2, minor=0, prev_api=ctypes.addressof(old.table))
    newest.prev_api = ctypes.addressof(newer)
    newest.managed_tensor_from_py_object_no_sync = 8
    old.__dlpack_c_exchange_api__ = api_capsule(newest)
    assert len(session.from_dlpack(old())) == 3
    assert (old.asked, len([newer])) == (1, 1)


def test_a_table_without_its_functions_is_not_used(session):
    class Kind(Lender):
        pass

    Kind.__dlpack_c_exchange_api__ = api_capsule(ExchangeApi(major=1, minor=3))
    assert len(session.from_dlpack(Kind(Made("versioned").capsule))) == 3


@pytest.mark.parametrize("kind", [BufferError, RuntimeError, MemoryError, KeyboardInterrupt])
def test_what_a_table_raises_passes_on(session, kind):
    class Raising:
        def __bool__(self):
            raise kind("not this one")

    # A function of C that raises what the object does: one of Python cannot.
    table = ExchangeApi(major=1, minor=3, current_work_stream=8)
    table.managed_tensor_from_py_object_no_sync = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, c_void_p).value
    Raising.__dlpack_c_exchange_api__ = api_capsule(table)
    with pytest.raises(kind, match="not this one"):
        session.from_dlpack(Raising())


def test_a_table_that_fails_and_raises_nothing_is_told(session):
    def fail(_):
        raise LookupError

    with pytest.raises(SystemError, match="failed, and raised nothing"):
        session.from_dlpack(speaker(fail)())


def test_a_tensor_of_another_version_from_a_table_is_deleted_and_nothing_else(session):
    made = Made("versioned", version=(2, 0), data=8)
    made.struct.dl_tensor.shape = 8
    thing = speaker(lambda _: made)()
    with pytest.raises(cd.Error, match="version"):
        session.from_dlpack(thing)
    assert made.deleted == 1


def test_tensors_of_tables_and_of_others_go_together(session):
    made = Made("versioned", shape=(2,))
    table = session.from_dlpack(
        {"a": speaker(lambda _: made)(), "b": np.arange(2), "c": Made("legacy", shape=(2,)).capsule}
    )
    assert table.to_pyarrow().to_pydict() == {"a": [1, 2], "b": [0, 1], "c": [1, 2]}


# ---------------------------------------------------------------------------------------------------------- our table ---


def test_our_table_has_all_that_the_header_asks_for(table):
    assert (table.major, table.prev_api) == (1, None)
    assert table.minor >= 3
    assert table.managed_tensor_allocator
    assert table.managed_tensor_from_py_object_no_sync
    assert table.managed_tensor_to_py_object_no_sync
    assert table.current_work_stream
    # Tensors that are not owned have no flags, and columns are to be read only.
    assert table.dltensor_from_py_object_no_sync is None


def test_the_table_is_the_same_for_ever(table):
    assert capi.capsule_pointer(cd.Column.__dlpack_c_exchange_api__) == ctypes.addressof(table)


def give(table, thing):
    out = c_void_p()
    code = FROM_PY(table.managed_tensor_from_py_object_no_sync)(thing, ctypes.addressof(out))
    assert code == 0
    return out.value


def test_a_column_becomes_a_tensor(session, table):
    array = np.arange(6).reshape(3, 2)
    column = session.from_dlpack(array)
    address = give(table, column)
    struct = Versioned.from_address(address)
    assert (struct.major, struct.flags) == (1, READ_ONLY)
    assert struct.dl_tensor.data == array.ctypes.data
    assert (struct.dl_tensor.device.device_type, struct.dl_tensor.ndim) == (CPU, 2)
    del column
    gc.collect()
    assert struct.dl_tensor.data == array.ctypes.data
    delete("versioned", address)


def test_booleans_as_bits_become_a_copy(session, table):
    address = give(table, session.from_arrow(pa.array([True, False])))
    assert Versioned.from_address(address).flags == IS_COPIED
    delete("versioned", address)


@pytest.mark.parametrize(
    ("thing", "kind"),
    [(pa.array(["a"]), BufferError), (pa.array([None, 1]), BufferError), (pa.chunked_array([[1], [2]]), BufferError)],
    ids=lambda x: str(getattr(x, "type", "")),
)
def test_what_is_no_tensor_raises_a_buffer_error(session, table, thing, kind):
    column = session.from_arrow(thing)
    out = c_void_p(7)
    with pytest.raises(kind):
        FROM_PY(table.managed_tensor_from_py_object_no_sync)(column, ctypes.addressof(out))
    assert out.value == 7


def test_what_is_no_column_raises_a_type_error(table):
    with pytest.raises(TypeError, match="expected a crossdock.Column"):
        FROM_PY(table.managed_tensor_from_py_object_no_sync)(3, ctypes.addressof(c_void_p()))


def column_of(table, made):
    out = c_void_p()
    code = TO_PY(table.managed_tensor_to_py_object_no_sync)(made.address, byref(out))
    assert code == 0
    column = ctypes.cast(out, ctypes.py_object).value
    # The reference that came is ours now too.
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(column))
    return column


def test_a_tensor_becomes_a_column_that_takes_it(table):
    made = Made("versioned")
    column = column_of(table, made)
    assert type(column) is cd.Column
    assert np.from_dlpack(column).ctypes.data == made._array.ctypes.data
    assert np.asarray(column).tolist() == [1, 2, 3]
    del column
    gc.collect()
    assert made.deleted == 1


@pytest.mark.parametrize("odd", [{"dtype": (5, 64, 1)}, {"ndim": 0}, {"version": (2, 0)}, {"device": (9, 0)}], ids=str)
def test_a_tensor_that_becomes_none_stays_with_its_owner(table, odd):
    made = Made("versioned", **odd)
    out = c_void_p()
    with pytest.raises(cd.Error):
        TO_PY(table.managed_tensor_to_py_object_no_sync)(made.address, byref(out))
    gc.collect()
    assert (made.deleted, out.value) == (0, None)


def test_work_on_the_cpu_has_no_stream(table):
    out = c_void_p(7)
    assert STREAM(table.current_work_stream)(CPU, 0, byref(out)) == 0
    assert out.value is None


def allocate(table, prototype):
    errors, out = [], c_void_p()
    set_error = SET_ERROR(lambda _, kind, message: errors.append((kind.decode(), message.decode())))
    code = ALLOCATE(table.managed_tensor_allocator)(ctypes.addressof(prototype), ctypes.addressof(out), None, set_error)
    return code, out.value, errors


def prototype(shape, dtype=(2, 32, 1), device=(CPU, 0)):
    made = Made("versioned", shape=shape, strides=(1,) * len(shape), dtype=dtype, device=device, data=8)
    made.struct.dl_tensor.strides = None
    return made


@pytest.mark.parametrize("shape", [(5,), (2, 3), (0,), (0, 4), (2, 0, 4)])
def test_memory_is_made_as_a_prototype_says(table, shape):
    made = prototype(shape)
    code, address, errors = allocate(table, made.struct.dl_tensor)
    assert (code, errors) == (0, [])
    tensor = Versioned.from_address(address).dl_tensor
    assert Versioned.from_address(address).flags == 0
    assert (tensor.data is None) == (0 in shape)
    array = np.from_dlpack(Lender(capsule_of("versioned", address)))
    assert (array.shape, array.dtype) == (shape, np.float32)
    assert array.flags.writeable and array.flags.c_contiguous
    array[...] = 7
    assert (array == 7).all()


@pytest.mark.parametrize(
    ("odd", "kind"),
    [
        (prototype((2**62, 2**62)), "UsageError"),
        (prototype((-1,)), "UsageError"),
        (prototype((3,), device=(10, 0)), "UnsupportedError"),
        (prototype((2**50,)), "OutOfMemoryError"),
    ],
    ids=["beyond counting", "negative", "another device", "too much"],
)
def test_memory_that_cannot_be_made_is_told(table, odd, kind):
    code, address, errors = allocate(table, odd.struct.dl_tensor)
    assert (code, address) == (-1, None)
    assert [which for which, _ in errors] == [kind]
    assert errors[0][1]


def test_no_prototype_is_told(table):
    errors = []
    set_error = SET_ERROR(lambda _, kind, message: errors.append(kind.decode()))
    out = c_void_p()
    assert ALLOCATE(table.managed_tensor_allocator)(None, ctypes.addressof(out), None, set_error) == -1
    assert errors == ["UsageError"]


# -------------------------------------------------------------------------------------------------------------- tvm-ffi ---


def test_tvm_ffi_takes_columns_and_gives_tensors_by_it(session):
    tvm_ffi = pytest.importorskip("tvm_ffi")
    array = np.arange(12.0).reshape(3, 4)
    column = session.from_dlpack(array)
    tensor = tvm_ffi.from_dlpack(column)
    assert tensor.data_ptr() == array.ctypes.data
    assert (tuple(tensor.shape), str(tensor.dtype)) == ((3, 4), "float64")
    wrapped = tvm_ffi.core.DLTensorTestWrapper(tensor)
    assert type(wrapped).__dlpack_c_exchange_api__
    again = session.from_dlpack(wrapped)
    assert np.from_dlpack(again).ctypes.data == array.ctypes.data
    assert np.asarray(session.from_dlpack(tensor)).tolist() == array.tolist()


def test_functions_of_tvm_ffi_take_columns_and_answer_with_columns(session):
    tvm_ffi = pytest.importorskip("tvm_ffi")
    echo = tvm_ffi.get_global_func("testing.echo", allow_missing=True)
    if echo is None:
        pytest.skip("this build of tvm-ffi has no testing.echo")
    array = np.arange(5, dtype=np.int16)
    answer = echo(session.from_dlpack(array))
    assert isinstance(answer, cd.Column)
    assert np.from_dlpack(answer).ctypes.data == array.ctypes.data
