"""bfloat16, float8 and complex numbers: the extension type crossdock.number in every protocol."""

import io
import itertools
import pickle
import subprocess
import sys

import crossdock as cd
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tensor_producers import import_every_dtype, tensor_of
from tensors import EXTENSION_NUMBERS, assert_same, managed, number_dtype, sample

names = pytest.mark.parametrize("name", EXTENSION_NUMBERS)
COMPLEX = [name for name in EXTENSION_NUMBERS if name.startswith("complex")]

LAYOUTS = {
    "one dimension": lambda x: x,
    "a slice": lambda x: x[3:11],
    "strided": lambda x: x[::3],
    "backwards": lambda x: x[::-1],
    "empty": lambda x: x[:0],
    "rows": lambda x: x.reshape(4, 2, 3),
    "a slice of rows": lambda x: x.reshape(4, 2, 3)[1:3],
    "permuted rows": lambda x: x.reshape(4, 2, 3).transpose(0, 2, 1),
    "rows that are not contiguous": lambda x: x.reshape(4, 2, 3)[::2, :, 1:],
    "no rows": lambda x: x.reshape(4, 2, 3)[:0],
    "empty rows": lambda x: x.reshape(4, 2, 3)[:, :0],
}


def array_of(name, layout="one dimension", n=24):
    return LAYOUTS[layout](sample(number_dtype(name), n))


def extension(name):
    return {"ARROW:extension:name": "crossdock.number", "ARROW:extension:metadata": f'{{"type":"{name}"}}'}


def field_of(name, column="x"):
    """The field of pyarrow for a column in one dimension."""
    return pa.field(column, pa.binary(number_dtype(name).itemsize), metadata=extension(name))


def assert_column(column, expected):
    assert_same(expected, np.asarray(column.to("cpu")))


@names
@pytest.mark.parametrize("which", ["the first", "one more"])
def test_tensors_round_trip(any_session, name, which):
    if which == "one more":
        import_every_dtype(any_session)
    for layout, form in itertools.product(LAYOUTS, ["versioned", "legacy"]):
        array = array_of(name, layout)
        column = any_session.from_dlpack(tensor_of(array, form).capsule)
        assert (len(column), column.null_count) == (len(array), 0)
        assert_column(column, array)
        again = any_session.from_dlpack(column)
        tensor = managed(again.__dlpack__(max_version=(1, 3))).dl_tensor
        assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == EXTENSION_NUMBERS[name]
        assert_column(again, array)
        table = any_session.from_dlpack({"a": again, "b": column})
        assert_column(table["b"], array)


@names
def test_contiguous_tensors_are_used_in_place(session, name):
    for _ in range(2):
        for array in (array_of(name), array_of(name)[4:], array_of(name, "rows")):
            column = session.from_dlpack(tensor_of(array).capsule)
            got = np.asarray(column)
            assert got.ctypes.data == array.ctypes.data and not got.flags.writeable
            assert session.memory_used() == {}
            assert np.asarray(column.slice(2)).ctypes.data == array[2:].ctypes.data


@names
def test_schema_has_the_extension_type(session, name):
    one = session.from_dlpack({"x": tensor_of(array_of(name)).capsule}).schema["x"]
    assert one.type == f"fixed_size_binary[{number_dtype(name).itemsize}]"
    assert one.metadata == extension(name)
    rows = session.from_dlpack({"x": tensor_of(array_of(name, "rows")).capsule})
    field = pa.field(rows.schema["x"])
    assert field.type == pa.fixed_shape_tensor(pa.binary(number_dtype(name).itemsize), [2, 3])
    assert rows.schema["x"].metadata["crossdock.number"] == f'{{"type":"{name}"}}'
    schema = pa.schema([field_of(name)])
    array = array_of(name)
    assert_column(session.from_dlpack([tensor_of(array).capsule], schema)["x"], array)
    with pytest.raises(cd.UsageError, match=f"float16, expected {name} by the schema"):
        session.from_dlpack([np.zeros(3, np.float16)], schema)


@names
def test_pyarrow_keeps_the_type(any_session, name):
    for layout in LAYOUTS:
        array = array_of(name, layout)
        table = any_session.from_dlpack({"x": tensor_of(array).capsule}).to_pyarrow()
        table.validate(full=True)
        # pyarrow cannot read lists of size 0 from Parquet.
        for copy in (pa.table, by_ipc, by_parquet if array.size or not len(array) else by_ipc):
            back = any_session.from_arrow(copy(table))
            assert f'"{name}"' in str(back.schema["x"].metadata)
            # A table of pyarrow without rows has no chunk to export.
            if len(array):
                assert_column(back["x"].combine_chunks(), array)


def by_ipc(table):
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_file(sink.getvalue()).read_all()


def by_parquet(table):
    sink = io.BytesIO()
    pa.parquet.write_table(table, sink)
    return pa.parquet.read_table(io.BytesIO(sink.getvalue()))


@names
def test_files_and_pickles_keep_the_type(any_session, tmp_path, name):
    for i, layout in enumerate(LAYOUTS):
        array, path = array_of(name, layout), tmp_path / f"{i}.arrow"
        table = any_session.from_dlpack({"x": tensor_of(array).capsule})
        table.write(path)
        for copy in (any_session.read(path), pickle.loads(pickle.dumps(table, 5)), any_session.from_arrow(table)):
            assert_column(copy["x"].combine_chunks(), array)
            assert copy.schema == table.schema


@names
def test_nulls_behave_as_those_of_other_numbers(session, name):
    array, mask = array_of(name), np.arange(24) % 5 == 0
    column = session.from_dlpack(tensor_of(array).capsule, masks=mask)
    assert column.null_count == 5
    assert (column.to_pyarrow().is_null().to_numpy(zero_copy_only=False) == mask).all()
    with pytest.raises(BufferError, match="5 of 24 rows are null"):
        column.__dlpack__()


@names
def test_unaligned_numbers_are_copied(session, name):
    array = array_of(name)
    storage = pa.py_buffer(b"x" + array.tobytes()).slice(1)
    values = pa.Array.from_buffers(pa.binary(array.itemsize), len(array), [None, storage])
    column = session.from_arrow(pa.table([values], schema=pa.schema([field_of(name)])))["x"]
    assert_column(column, array)
    if array.itemsize > 1:
        with pytest.raises(BufferError, match="not aligned"):
            column.__dlpack__(copy=False, max_version=(1, 3))


@names
def test_numpy_copies_and_converts_on_request(session, name):
    array = array_of(name)
    column = session.from_dlpack(tensor_of(array).capsule)
    copied = np.array(column, copy=True)
    assert copied.flags.writeable and copied.ctypes.data != array.ctypes.data
    assert_same(array, copied)
    assert_same(array, np.asarray(column, dtype=array.dtype))
    with np.errstate(all="ignore"):
        wide = np.asarray(column, dtype="c16")
        assert_same(array.astype("c16"), wide)


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_of_numpy_and_memoryview(session, name):
    for layout in LAYOUTS:
        array = array_of(name, layout)
        column = session.from_dlpack(array)
        assert_same(array, np.from_dlpack(column))
        view = memoryview(column)
        assert (view.format, view.itemsize) == ({"complex64": "Zf", "complex128": "Zd"}[name], array.itemsize)
        if array.size:
            assert_same(array, np.asarray(view))


@pytest.mark.parametrize("name", [name for name in EXTENSION_NUMBERS if name not in COMPLEX])
def test_memoryview_of_other_numbers_names_what_to_use(session, name):
    column = session.from_dlpack(tensor_of(array_of(name)).capsule)
    with pytest.raises(BufferError, match=r"no format .* use numpy.asarray\(column\)"):
        memoryview(column)


def test_numpy_array_without_ml_dtypes_names_the_package():
    program = """if True:
        import sys
        sys.modules["ml_dtypes"] = None
        import crossdock as cd, numpy as np, pyarrow as pa
        metadata = {"ARROW:extension:name": "crossdock.number", "ARROW:extension:metadata": '{"type":"bfloat16"}'}
        field = pa.field("x", pa.binary(2), metadata=metadata)
        table = cd.default_session().from_arrow(pa.table([pa.array([b"ab"], pa.binary(2))], schema=pa.schema([field])))
        try:
            np.asarray(table["x"])
        except ImportError as error:
            print(error)
        """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "a NumPy array of bfloat16 needs the package ml_dtypes: install it, or use torch" in done.stdout


@names
@pytest.mark.parametrize("layout", ["one dimension", "rows", "permuted rows", "empty"])
def test_cuda_array_interface(cuda_session, name, layout):
    array = array_of(name, layout)
    column = cuda_session.from_dlpack(tensor_of(array).capsule)
    if name in COMPLEX:
        assert column.__cuda_array_interface__["typestr"] == array.dtype.str
        assert_column(cuda_session.from_cuda_array_interface(column), array)
        return
    with pytest.raises(AttributeError, match=f"{name} has no typestr: use DLPack"):
        column.__cuda_array_interface__  # noqa: B018


MALFORMED = {
    "no metadata": (pa.binary(2), "", 'is "", expected {"type":NAME}'),
    "no JSON": (pa.binary(2), "bfloat16", 'expected {"type":NAME}'),
    "a list": (pa.binary(2), "[[[[", 'expected {"type":NAME}'),
    "an unknown type": (pa.binary(1), '{"type":"float4_e2m1fn"}', "is 'float4_e2m1fn', expected one of bfloat16"),
    "another width": (pa.binary(4), '{"type":"bfloat16"}', "is fixed_size_binary[4], expected fixed_size_binary[2]"),
    "another type": (pa.int16(), '{"type":"bfloat16"}', "is int16, expected fixed_size_binary[2]"),
    "variable width": (pa.binary(), '{"type":"bfloat16"}', "is binary, expected fixed_size_binary[2]"),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("where", ["column", "item", "struct"])
def test_malformed_extension_is_an_error_that_names_the_column(session, tmp_path, case, where):
    storage, json, message = MALFORMED[case]
    field = pa.field("x", storage, metadata={**extension("bfloat16"), "ARROW:extension:metadata": json})
    if where != "column":
        inner = field.with_name("item" if where == "item" else "part")
        field = pa.field("x", pa.list_(inner, 2) if where == "item" else pa.struct([inner]))
    table = pa.table([pa.nulls(2, field.type)], schema=pa.schema([field]))
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    for read in (lambda: session.from_arrow(table), lambda: session.read(tmp_path / "x.arrow")):
        with pytest.raises(cd.Error) as caught:
            read()
        assert message in str(caught.value) and "'x'" in str(caught.value), caught.value


def test_bytes_without_the_extension_type_are_no_numbers(session):
    column = session.from_arrow(pa.table({"x": pa.array([b"ab"], pa.binary(2))}))["x"]
    with pytest.raises(BufferError, match="column 'x' .* give the field the extension type crossdock.number"):
        column.__dlpack__()


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ((5, 32, 1), "dtype complex32: .*cast it to one of .*complex64"),
        ((4, 32, 1), "dtype bfloat32"),
        ((10, 16, 1), "dtype with code 10 and 16 bits"),
        ((15, 6, 1), "dtype float6_e2m3fn: several elements share a byte"),
        ((16, 6, 1), "dtype float6_e3m2fn: several elements share a byte"),
        ((17, 4, 1), "dtype float4_e2m1fn: .*view the bytes as uint8, or cast it"),
        ((4, 16, 2), "dtype bfloat16 with 2 lanes"),
    ],
    ids=str,
)
def test_other_types_are_rejected(session, dtype, message):
    tensor = tensor_of(array_of("bfloat16"))
    tensor.struct.dl_tensor.dtype.code, tensor.struct.dl_tensor.dtype.bits, tensor.struct.dl_tensor.dtype.lanes = dtype
    capsule = tensor.capsule
    with pytest.raises(cd.UnsupportedError, match=message):
        session.from_dlpack(capsule)
    assert tensor.deleted == 1
