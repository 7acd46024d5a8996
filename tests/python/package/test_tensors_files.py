"""Files of tensors: NumPy reads and writes the same arrays, and the JSON of safetensors has the same contents."""

import io
import itertools
import json
import os
import struct
import warnings
import zipfile

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest

SIZES = (0, 1, 1000)
ROW_SHAPES = ((), (3,), (2, 5), (4, 1, 2), (0,))
NUMBERS = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")
TIMES = ("M8[s]", "M8[ms]", "M8[us]", "M8[ns]", "m8[s]", "m8[ms]", "m8[us]", "m8[ns]")
SAFETENSORS = dict(zip(NUMBERS, ("F64", "F32", "F16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")))


@pytest.fixture(params=["session", pytest.param("cuda_session", marks=pytest.mark.cuda)])
def any_session(request):
    return request.getfixturevalue(request.param)


def array(dtype, shape):
    """Returns an array whose bytes are random, except that booleans are 0 or 1, and that floats are no NaN."""
    generator = np.random.default_rng(len(shape))
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return generator.random(shape) < 0.5
    if dtype.kind == "f":
        return generator.normal(size=shape).astype(dtype)
    n = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(generator.bytes(n), dtype).reshape(shape)


def leaf_type(type):
    """Returns the type of a column's elements."""
    while isinstance(type, pa.BaseExtensionType) or pa.types.is_fixed_size_list(type):
        type = type.storage_type if isinstance(type, pa.BaseExtensionType) else type.value_type
    return type


def to_numpy(column):
    """Returns a column that is not empty as an array. Times become integers."""
    values = column.to_pyarrow().combine_chunks()
    shape = [len(values)]
    if isinstance(values.type, pa.FixedShapeTensorType):
        shape += values.type.shape
        values = values.storage
    if pa.types.is_fixed_size_list(values.type):
        values = values.flatten()
    if isinstance(values.type, pa.BaseExtensionType):
        return np.asarray(values.storage).reshape(shape).astype(bool)
    assert values.null_count == 0
    if pa.types.is_fixed_size_binary(values.type):
        return np.array(values.to_pylist(), f"S{values.type.byte_width}").reshape(shape)
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int64())
    return values.to_numpy(zero_copy_only=False).reshape(shape)


def assert_equal(column, expected):
    expected = expected.astype(expected.dtype.newbyteorder("="))
    kind, width = expected.dtype.kind, expected.dtype.itemsize
    types = {"b": pa.int8(), "S": pa.binary(width)}
    assert leaf_type(column.to_pyarrow().type) == (types.get(kind) or pa.from_numpy_dtype(expected.dtype))
    if len(expected) == 0:
        assert len(column) == 0
        return
    got = to_numpy(column)
    expected = expected.view("i8") if kind in "mM" else expected
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert got.tobytes() == expected.tobytes()


def safetensors(tensors, metadata=None):
    """Returns the bytes of a file as the reference implementation writes them."""
    header, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        begin, data = len(data), data + tensor.tobytes()
        dtype = SAFETENSORS[tensor.dtype.str[1:].replace("b1", "?")]
        header[name] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": [begin, len(data)]}
    header = json.dumps(header, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def read_safetensors(path):
    """Returns the tensors and the metadata of a file."""
    content = path.read_bytes()
    (n,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + n])
    metadata, tensors, ends = header.pop("__metadata__", None), {}, [0]
    dtypes = {name: dtype for dtype, name in SAFETENSORS.items()}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        dtype = np.dtype(dtypes[info["dtype"]])
        assert (8 + n + begin) % dtype.itemsize == 0, "the tensor is not aligned"
        tensors[name] = np.frombuffer(content[8 + n + begin : 8 + n + end], dtype).reshape(info["shape"])
        ends.append(end)
    assert max(ends) == len(content) - 8 - n
    return tensors, metadata


@pytest.mark.parametrize("dtype", [*NUMBERS, *TIMES, "S1", "S7"])
def test_npy_equals_the_array_of_numpy(any_session, tmp_path, dtype):
    for i, (n, row_shape) in enumerate(itertools.product(SIZES, ROW_SHAPES)):
        expected = array(dtype, (n, *row_shape))
        expected = expected.astype(expected.dtype.newbyteorder("<>"[i % 2]))
        np.save(tmp_path / "x.npy", expected)
        table = any_session.read(tmp_path / "x.npy")
        assert (table.column_names, table.num_rows) == (["values"], n)
        assert_equal(table["values"], expected)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_npy_is_read(session, version):
    file, expected = io.BytesIO(), array("f4", (7, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        np.lib.format.write_array(file, expected, version)
    assert_equal(session.read(file.getvalue())["values"], expected)


def test_array_without_dimensions_is_one_row(session, tmp_path):
    np.save(tmp_path / "x.npy", np.array(7.5))
    table = session.read(tmp_path / "x.npy", name="seven")
    assert table.to_pyarrow().to_pydict() == {"seven": [7.5]}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("n", [*SIZES, 70_001])
def test_npz_equals_the_arrays_of_numpy(any_session, tmp_path, save, n):
    row_shapes = ROW_SHAPES if n <= 1000 else ((), (2,))
    dtypes = [*NUMBERS, *TIMES, "S5", ">i4", ">f8"] if n <= 1000 else ["f8", "?", "M8[ns]", ">i4"]
    expected = {f"{dtype} {i}": array(dtype, (n, *shape)) for dtype in dtypes for i, shape in enumerate(row_shapes)}
    save(tmp_path / "x.npz", **expected)
    table = any_session.read(tmp_path / "x.npz")
    assert table.column_names == list(expected)
    for name, values in expected.items():
        assert_equal(table[name], values)


@pytest.mark.parametrize("n", [*SIZES, 70_001])
def test_safetensors_equals_its_tensors(any_session, tmp_path, n):
    dtypes = NUMBERS if n <= 1000 else ("f8", "?", "i2")
    names = {f"layer.{dtype}.{i}": (dtype, shape) for dtype in dtypes for i, shape in enumerate(ROW_SHAPES)}
    expected = {name: array(dtype, (n, *shape)) for name, (dtype, shape) in names.items()}
    (tmp_path / "x.safetensors").write_bytes(safetensors(expected, {"format": "pt", "é": "\n"}))
    table = any_session.read(tmp_path / "x.safetensors")
    assert table.column_names == list(expected)
    assert table.schema.metadata == {"format": "pt", "é": "\n"}
    for name, values in expected.items():
        assert_equal(table[name], values)


def test_tensors_have_canonical_extension_types(session):
    tensors = {"a": array("f4", (3, 2, 4)), "b": array("?", (3,)), "c": array("?", (3, 2))}
    schema = session.read(safetensors(tensors)).to_pyarrow().schema
    assert schema.field("a").type == pa.fixed_shape_tensor(pa.float32(), [2, 4])
    assert schema.field("b").type == pa.bool8()
    field = session.read(safetensors(tensors)).schema["c"]
    assert field.metadata["ARROW:extension:name"] == "arrow.fixed_shape_tensor"
    assert field.type.startswith("FixedSizeList(2 x Int8")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_nat_is_null_and_strings_are_decoded(any_session, tmp_path, save):
    times = np.array(["2024-02-29", "NaT", "1969-12-31", "NaT"], "M8[us]")
    text = np.array(["", "é", "a\0b", "🦀🦀"])
    save(
        tmp_path / "x.npz",
        times=times,
        spans=times - times[:1],
        pairs=times.reshape(2, 2)[[0, 1, 0, 1]],
        text=text,
        big=text.astype(">U4"),
    )
    got = any_session.read(tmp_path / "x.npz").to_pyarrow()
    values = times.tolist()
    assert got["times"].to_pylist() == values and got["times"].null_count == 2
    assert got["spans"].to_pylist() == (times - times[:1]).tolist()
    assert got["pairs"].combine_chunks().storage.to_pylist() == [values[:2], values[2:]] * 2
    assert got["text"].to_pylist() == got["big"].to_pylist() == text.tolist()
    assert got["text"].type == pa.string()


@pytest.mark.parametrize("form", ["npz", "npy"])
def test_nulls_of_times_become_nat(any_session, tmp_path, form):
    path, shape = tmp_path / f"x.{form}", (4, 3)
    for dtype in (*TIMES, "M8[D]"):
        expected = np.array([*range(-5, 6), 2**31 - 1], dtype).reshape(shape)
        expected[[0, 2, 3], [1, 0, 2]] = "NaT"
        types = pa.from_numpy_dtype(expected.dtype)
        for values in (expected, expected[:, 1]):
            flat = pa.array(values.ravel(), types)
            assert flat.null_count == np.isnat(values).sum() > 0
            column = flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, 3)
            # The slots of nulls contain any number, and the rows begin within a byte of the bitmap.
            column = pa.concat_arrays([column.slice(1, 1), column]).slice(1)
            any_session.write(any_session.from_arrow(pa.table({"x": column})), path)
            with np.load(path) if form == "npz" else io.BytesIO() as file:
                got = file["x"] if form == "npz" else np.load(path)
            assert (got.dtype, got.shape) == (values.dtype, values.shape)
            assert got.tobytes() == values.tobytes()
            back = any_session.read(path).to_pyarrow()[0].combine_chunks()
            back, column = (back, column) if values.ndim == 1 else (back.storage.flatten(), column.flatten())
            assert back.equals(column)


def test_rows_that_are_null_are_errors(session, tmp_path):
    lists = pa.array([[1, 2], None], pa.list_(pa.timestamp("s"), 2))
    with pytest.raises(cd.Error, match="column 'x': 1 of 2 rows are null"):
        session.write(pa.table({"x": lists}), tmp_path / "x.npz")


def test_time_that_equals_nat_is_an_error(any_session, tmp_path):
    values = pa.array([1, -(2**63), None], pa.int64()).cast(pa.duration("ns"))
    with pytest.raises(cd.Error, match="column 'x': value 1 is -9223372036854775808, which NumPy reads as NaT"):
        any_session.write(any_session.from_arrow(pa.table({"x": values})), tmp_path / "x.npy")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_days_are_dates(any_session, tmp_path, save):
    days = np.array(["2024-02-29", "NaT", "1969-12-31", "0001-01-01"], "M8[D]")
    save(tmp_path / "x.npz", a=days, big=days.astype(">M8[D]"), pairs=days.reshape(2, 2)[[0, 1, 1, 0]])
    got = any_session.read(tmp_path / "x.npz").to_pyarrow()
    assert got["a"].type == got["big"].type == pa.date32()
    assert got["a"].to_pylist() == got["big"].to_pylist() == days.tolist()
    values = days.tolist()
    assert got["pairs"].combine_chunks().storage.to_pylist() == [values[:2], values[2:], values[2:], values[:2]]
    save(tmp_path / "x.npz", fine=days, late=np.array([1, 2, 2**31, 4]).astype("M8[D]"))
    with pytest.raises(cd.Error, match="tensor 'late': row 2 is 2147483648 days .* cast the array to datetime64"):
        any_session.read(tmp_path / "x.npz")
    assert any_session.read(tmp_path / "x.npz", columns=["late"], rows=(0, 2)).num_rows == 2


def test_reference_implementation_of_safetensors_agrees(any_session, tmp_path):
    reference = pytest.importorskip("safetensors.numpy")
    tensors = {f"{dtype}.{i}": array(dtype, (7, *shape)) for dtype in NUMBERS for i, shape in enumerate(ROW_SHAPES)}
    reference.save_file(tensors, tmp_path / "a.safetensors", {"format": "np"})
    table = any_session.read(tmp_path / "a.safetensors")
    assert sorted(table.column_names) == sorted(tensors)
    for name, values in tensors.items():
        assert_equal(table[name], values)
    any_session.write(table, tmp_path / "b.safetensors")
    got = reference.load_file(tmp_path / "b.safetensors")
    assert_same_elements(dict(sorted(got.items())), dict(sorted(tensors.items())))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of each kind with the same tensors, whose bytes are mapped, and the tensors."""
    folder = tmp_path_factory.mktemp("tensors")
    tensors = {
        name: array(dtype, (50_000, *shape))
        for name, dtype, shape in [
            ("wide", "f8", (3, 2)),
            ("a.b", "f4", ()),
            ("flags", "?", ()),
            ("half", "f2", (2,)),
            ("big", ">i4", ()),
        ]
    }
    np.savez(folder / "stored.npz", **tensors)
    np.savez_compressed(folder / "deflated.npz", **tensors)
    little = {name: values.astype(values.dtype.newbyteorder("<")) for name, values in tensors.items()}
    (folder / "x.safetensors").write_bytes(safetensors(little))
    return folder, tensors


FILES = ("stored.npz", "deflated.npz", "x.safetensors")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("rows", [None, (12_345, 23_457), (49_999, 60_000), (7, 7)])
def test_columns_and_rows_are_those_of_numpy(any_session, files, file, rows):
    folder, tensors = files
    begin, end = rows or (0, 50_000)
    for columns in (["flags"], ["a.b", "wide"], [("a.b",)], ["big", "half", "a.b"], []):
        table = any_session.read(folder / file, columns=columns, rows=rows)
        names = [name if isinstance(name, str) else name[0] for name in columns]
        assert (table.column_names, table.num_rows) == (names, min(end, 50_000) - begin)
        for name in names:
            assert_equal(table[name], tensors[name][begin:end])


@pytest.mark.parametrize("file", FILES)
def test_scan_in_batches_and_filter(any_session, files, file):
    folder, tensors = files
    scan = any_session.scan(folder / file, batch_rows=7001)
    assert scan.num_rows == 50_000
    batches = list(scan)
    assert [batch.num_rows for batch in batches] == [7001] * 7 + [993]
    for name, values in tensors.items():
        got = np.concatenate([to_numpy(batch[name]) for batch in batches])
        assert got.tobytes() == values.astype(values.dtype.newbyteorder("=")).tobytes()
    table = any_session.read(folder / file, columns=["half"], filter=[("a.b", ">", 1.5)])
    assert_equal(table["half"], tensors["half"][tensors["a.b"] > 1.5])


class CountedFile(io.FileIO):
    """A file that counts the bytes that are read."""

    n_bytes = 0

    def read(self, size=-1):
        data = super().read(size)
        self.n_bytes += len(data)
        return data

    def readinto(self, buffer):
        n = super().readinto(buffer)
        self.n_bytes += n
        return n


@pytest.mark.parametrize("file", ["stored.npz", "x.safetensors"])
def test_only_needed_bytes_are_read(any_session, files, file):
    folder, tensors = files
    with CountedFile(folder / file) as source:
        table = any_session.read(source, columns=["wide"], rows=(10_000, 11_000), map=False)
        assert_equal(table["wide"], tensors["wide"][10_000:11_000])
        assert source.n_bytes < 48_000 + 40_000


def test_aligned_bytes_of_a_mapped_file_are_used_in_place(session, tmp_path):
    tensors = {"a": array("f8", (100_000, 3)), "b": array("i2", (100_000,))}
    (tmp_path / "x.safetensors").write_bytes(safetensors(tensors))
    table = session.from_arrow(pa.table({"a": pa.FixedSizeListArray.from_arrays(tensors["a"].ravel(), 3)}))
    table.write(tmp_path / "x.npz")
    table.write(tmp_path / "x.npy")
    for name in ("x.safetensors", "x.npz", "x.npy"):
        table = session.read(tmp_path / name)
        table_bytes = sum(sum(by_device.values()) for by_device in session.memory_used().values())
        assert table_bytes < 10_000, name
        assert table.num_rows == 100_000
    del table


MISMATCHED = {"weight": array("f4", (4, 3)), "bias": array("f4", (4,)), "head.weight": array("f4", (2, 3))}


@pytest.mark.parametrize("form", ["safetensors", "npz"])
def test_tensors_with_different_numbers_of_rows(session, tmp_path, form):
    path = tmp_path / f"x.{form}"
    if form == "npz":
        np.savez(path, **MISMATCHED)
    else:
        path.write_bytes(safetensors(MISMATCHED))
    with pytest.raises(
        cd.Error, match=r"'weight' of shape \[4, 3\] and 'head.weight' of shape \[2, 3\] have 4 and 2 rows"
    ):
        session.read(path)
    assert session.scan(path).schema.names == list(MISMATCHED)
    assert_equal(session.read(path, columns=["bias", "weight"])["weight"], MISMATCHED["weight"])
    assert_equal(session.read(path, columns=["head.weight"])["head.weight"], MISMATCHED["head.weight"])
    assert_equal(session.read(path, tensor="head.weight")["head.weight"], MISMATCHED["head.weight"])
    with pytest.raises(cd.Error, match="have 4 and 2 rows"):
        session.read(path, columns=["bias", "head.weight"])
    with pytest.raises(cd.Error, match="there is no tensor 'x'; the tensors are: weight, bias, head.weight"):
        session.read(path, tensor="x")
    with pytest.raises(cd.Error, match="no column 'head.bias'"):
        session.read(path, columns=["head.bias"])


def test_unsupported_tensors_are_errors_that_name_their_type(session):
    header = {
        "bf.a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
        "f8": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [4, 6]},
        "ok.a": {"dtype": "U8", "shape": [2], "data_offsets": [6, 8]},
    }
    header = json.dumps(header).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(8)
    for arguments, match in [
        ({}, "'bf.a': type BF16: Arrow has no bfloat16: store the tensor as F32"),
        ({"columns": ["f8"]}, "'f8': type F8_E4M3: .*store the tensor as F32"),
        ({"columns": ["bf.a"]}, "'bf.a': type BF16: .*store the tensor as F32"),
        ({"tensor": "f8"}, "'f8': type F8_E4M3: .*store the tensor as F32"),
    ]:
        with pytest.raises(cd.Error, match=match):
            session.read(content, "safetensors", **arguments)
    for arguments in ({"columns": ["ok.a"]}, {"tensor": "ok.a"}):
        assert session.read(content, "safetensors", **arguments).to_pyarrow().to_pydict() == {"ok.a": [0, 0]}


class Unpickled:
    def __reduce__(self):
        return exec, ("raise SystemExit('the pickle was read')",)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (np.array([Unpickled()], object), "pickle"),
        (np.zeros(3, "c16"), "complex"),
        (np.zeros(3, "M8[M]"), r"type '<M8\[M\]': Arrow has no datetime64\[M\]: cast the array to datetime64\[D\]"),
        (np.zeros(3, "M8[W]"), r"cast the array to datetime64\[D\]"),
        (np.zeros(3, "M8[h]"), r"cast the array to datetime64\[s\]"),
        (np.zeros(3, "m8[D]"), r"cast the array to timedelta64\[s\]"),
        (np.zeros(3, "m8[Y]"), r"array.view\('i8'\)"),
        (np.zeros(3, "m8"), "no unit"),
        (np.zeros(3, [("a", "i4"), ("b", "f4")]), "structured"),
        (np.zeros(3, "V2"), "structured"),
        (np.asfortranarray(np.zeros((2, 3))), "ascontiguousarray"),
        (np.zeros((2, 3), "U4"), "strings with 2 dimensions"),
    ],
)
def test_unsupported_arrays_are_errors(session, tmp_path, values, match):
    np.savez(tmp_path / "x.npz", fine=np.arange(len(values)), bad=values)
    np.save(tmp_path / "x.npy", values)
    for arguments in ({}, {"columns": ["bad"]}, {"columns": ["bad", "fine"]}, {"tensor": "bad"}):
        with pytest.raises(cd.Error, match=match):
            session.read(tmp_path / "x.npz", **arguments)
    with pytest.raises(cd.Error, match=match):
        session.read(tmp_path / "x.npy")
    assert session.read(tmp_path / "x.npz", columns=["fine"]).num_rows == len(values)


def test_number_that_is_no_character_is_an_error(session, tmp_path):
    text = np.array(["a", "b"])
    text.view("u4")[1] = 0xD800
    np.save(tmp_path / "x.npy", text)
    with pytest.raises(cd.Error, match="row 1 contains 0xd800"):
        session.read(tmp_path / "x.npy")


def test_archives_of_other_programs_are_read_or_rejected(session, tmp_path):
    file, values = io.BytesIO(), np.arange(5)
    np.save(file, values)
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = b"a comment"
        archive.writestr("folder/", b"")
        archive.writestr("folder/a.npy", file.getvalue(), zipfile.ZIP_DEFLATED, 9)
        with archive.open("streamed.npy", "w") as member:
            member.write(file.getvalue())
    assert session.read(path).column_names == ["folder/a", "streamed"]
    assert_equal(session.read(path)["folder/a"], values)
    for extra, match in [
        (("text.txt", b"x"), "not an array"),
        (("b.npy", file.getvalue(), zipfile.ZIP_LZMA), "method 14"),
    ]:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.npy", file.getvalue())
            archive.writestr(*extra)
        with pytest.raises(cd.Error, match=match):
            session.read(path)
        assert_equal(session.read(path, columns=["a"])["a"], values)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_members_are_found(any_session, tmp_path, save):
    path, values = tmp_path / "x.npz", array("i4", (1000,))
    save(path, a=np.arange(1000), b=values)
    content = bytearray(path.read_bytes())
    content[content.index(b"b.npy") + 1500] ^= 1
    path.write_bytes(content)
    with pytest.raises(cd.Error, match="tensor 'b'.*(CRC-32|malformed|truncated|ends after)"):
        any_session.read(path)
    assert_equal(any_session.read(path, columns=["a"])["a"], np.arange(1000))
    if save is np.savez:
        assert any_session.read(path, crc="skip").num_rows == 1000
    with pytest.raises(cd.Error, match="crc=maybe: expected check or skip"):
        any_session.read(path, crc="maybe")


def test_memory_limit_divides_the_table_and_limits_decompression(tmp_path):
    values = np.zeros((1 << 20, 4), "f8")
    np.savez_compressed(tmp_path / "x.npz", a=values)
    assert (tmp_path / "x.npz").stat().st_size < 100_000
    with cd.Session(memory="8 MiB") as session:
        n_rows = 0
        for batch in session.scan(tmp_path / "x.npz", prefetch=0):
            assert batch.nbytes <= 2 << 20
            n_rows += batch.num_rows
        assert n_rows == len(values)
        with pytest.raises(cd.OutOfMemoryError):
            session.read(tmp_path / "x.npz")


@pytest.mark.parametrize("n_tensors", [1, 5])
def test_decompression_bombs_are_errors_before_they_are_decompressed(tmp_path, n_tensors):
    # One row cannot be divided into batches.
    bomb, path = np.zeros((1, 4 << 20), "f8"), tmp_path / "x.npz"
    np.savez_compressed(path, **{f"t{i}": bomb for i in range(n_tensors)})
    assert path.stat().st_size < 40_000 * n_tensors
    with cd.Session(memory="8 MiB") as session:
        with CountedFile(path) as source:
            with pytest.raises(cd.OutOfMemoryError, match="tensor 't0'"):
                session.read(source, "npz", map=False)
            n_bytes = source.n_bytes
        with CountedFile(path) as source:
            session.scan(source, "npz", map=False).schema
            assert source.n_bytes == n_bytes, "more than the headers and the directory was read"
        assert sum(sum(by_device.values()) for by_device in session.memory_used().values()) < 100_000


@pytest.mark.parametrize(
    ("declared", "match"),
    [
        (1 << 20, r"tensor 'a': shape \[1048576\] has 1048576 bytes, but 1048448 bytes follow the header"),
        ((1 << 20) + 129, r"tensor 'a': shape \[1048576\] has 1048576 bytes, but 1048577 bytes follow the header"),
        (0xFFFFFFFE, "member 'a.npy': it declares 4294967294 bytes, but the archive contains"),
    ],
)
def test_sizes_that_the_archive_declares_are_checked(session, tmp_path, declared, match):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.zeros(1 << 20, "u1"))
    content = bytearray(path.read_bytes())
    at = content.index(b"PK\x01\x02") + 24
    assert struct.unpack_from("<I", content, at) == (128 + (1 << 20),)
    struct.pack_into("<I", content, at, declared)
    path.write_bytes(content)
    with pytest.raises(cd.Error, match=match):
        session.read(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_archives_with_bad_members(session, tmp_path, compression):
    path, file, values = tmp_path / "x.npz", io.BytesIO(), np.arange(5)
    np.save(file, values)

    def write(*names):
        with zipfile.ZipFile(path, "w", compression) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            for name in names:
                archive.writestr(name, file.getvalue())

    write("a.npy", "b.npy", "a.npy")
    with pytest.raises(cd.Error, match="two tensors named 'a'"):
        session.read(path)
    for name in ("/b.npy", "../b.npy", "C:b.npy"):
        write("a.npy", name)
        with pytest.raises(cd.UnsupportedError, match=f"tensor '{name[:-4]}': the name of the member '{name}'"):
            session.read(path)
        assert_equal(session.read(path, columns=["a"])["a"], values)
        with pytest.raises(cd.UnsupportedError, match="its name is not supported in an archive"):
            session.write(pa.table({name[:-4]: [1]}), path)
    write("a.npy", "b.npy")
    content = path.read_bytes()
    for n in range(0, len(content), 7):
        path.write_bytes(content[:n])
        with pytest.raises(cd.Error, match="x.npz"):
            session.read(path, "npz")
    # The flags of the second member in the directory.
    content = bytearray(content)
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(cd.UnsupportedError, match="tensor 'b': an encrypted member"):
        session.read(path)


def test_archive_with_64_bit_sizes_is_read(session, tmp_path):
    path, file, values = tmp_path / "x.npz", io.BytesIO(), np.arange(5)
    np.save(file, values)
    with zipfile.ZipFile(path, "w") as archive, archive.open("a.npy", "w", force_zip64=True) as member:
        member.write(file.getvalue())
    assert_equal(session.read(path)["a"], values)


@pytest.mark.parametrize("form", ["safetensors", "npy"])
def test_truncated_files_are_errors(session, tmp_path, form):
    path, values = tmp_path / f"x.{form}", array("f4", (3, 2))
    if form == "npy":
        np.save(path, values)
    else:
        path.write_bytes(safetensors({"a": values, "b": values}))
    content = path.read_bytes()
    for n in range(len(content)):
        path.write_bytes(content[:n])
        with pytest.raises(cd.Error, match=f"x.{form}"):
            session.read(path, form)


def sample(n=1000):
    """Returns a table of every type that is written to npz, and its arrays."""
    arrays = {f"{dtype}{i}": array(dtype, (n, *shape)) for dtype in NUMBERS for i, shape in enumerate(ROW_SHAPES)}
    columns = {}
    for name, values in arrays.items():
        if values.ndim == 1:
            columns[name] = pa.array(values)
        elif values.dtype == bool:
            flat = pa.array(values.reshape(-1))
            columns[name] = (
                pa.FixedSizeListArray.from_arrays(flat, int(np.prod(values.shape[1:])))
                if values.size
                else pa.array([[]] * n, pa.list_(pa.bool_(), 0))
            )
        elif values.size:
            columns[name] = pa.FixedShapeTensorArray.from_numpy_ndarray(values)
        else:
            columns[name] = pa.array([[]] * n, pa.list_(pa.from_numpy_dtype(values.dtype), 0))
    return pa.table(columns), arrays


def assert_same_elements(got, expected):
    """Compares arrays. A list of booleans has lost its shape."""
    assert list(got) == list(expected)
    for name, values in expected.items():
        assert got[name].dtype == values.dtype
        assert got[name].shape == values.shape or (values.dtype == bool and got[name].size == values.size)
        assert got[name].tobytes() == values.tobytes(), name


@pytest.mark.parametrize("compression", ["none", "deflate"])
def test_numpy_reads_written_npz(any_session, tmp_path, compression):
    table, arrays = sample()
    any_session.write(any_session.from_arrow(table), tmp_path / "x.npz", compression=compression)
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        assert archive.testzip() is None
        kind = zipfile.ZIP_STORED if compression == "none" else zipfile.ZIP_DEFLATED
        assert {info.compress_type for info in archive.infolist()} == {kind}
    with np.load(tmp_path / "x.npz") as got:
        assert_same_elements(dict(got), arrays)


def test_json_describes_written_safetensors(any_session, tmp_path):
    table, arrays = sample()
    table = table.replace_schema_metadata({"framework": "none", 'quote"': "é\n"})
    any_session.write(any_session.from_arrow(table), tmp_path / "x.safetensors")
    got, metadata = read_safetensors(tmp_path / "x.safetensors")
    assert metadata == {"framework": "none", 'quote"': "é\n"}
    assert_same_elements(got, arrays)
    back = any_session.read(tmp_path / "x.safetensors")
    assert back.column_names == table.column_names and back.schema.metadata == metadata


@pytest.mark.parametrize("dtype", [*NUMBERS, *TIMES, "S6"])
def test_npy_round_trips(any_session, tmp_path, dtype):
    for n in SIZES:
        expected = array(dtype, (n, 2, 3))
        np.save(tmp_path / "a.npy", expected)
        any_session.read(tmp_path / "a.npy").write(tmp_path / "b.npy")
        got = np.load(tmp_path / "b.npy")
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("form", ["npz", "safetensors", "npy"])
def test_batches_are_joined(any_session, tmp_path, form):
    values, flags = array("i4", (1000, 3)), array("?", (1000,))
    columns = {"v": pa.FixedShapeTensorArray.from_numpy_ndarray(values)}
    if form != "npy":
        columns["flags"] = pa.array(flags)
    table, path = pa.table(columns), tmp_path / f"x.{form}"
    with any_session.writer(path, table.schema) as writer:
        for begin, end in [(0, 1), (1, 1), (1, 14), (14, 1000)]:
            writer.write(table.slice(begin, end - begin))
    back = any_session.read(path)
    assert_equal(back[0], values)
    if form != "npy":
        assert_equal(back["flags"], flags)
    with any_session.writer(path, table.schema):
        pass
    assert any_session.read(path).num_rows == 0


def test_bytes_of_booleans_are_written_as_0_and_1(session, tmp_path):
    storage = pa.array([0, 1, 2, -1], pa.int8())
    session.write(pa.table({"x": pa.ExtensionArray.from_storage(pa.bool8(), storage)}), tmp_path / "x.npy")
    assert np.load(tmp_path / "x.npy").view("u1").tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("form", ["npz", "safetensors", "npy"])
def test_nulls_and_types_without_tensors_are_errors(any_session, tmp_path, form):
    path = tmp_path / f"x.{form}"
    lists = pa.FixedSizeListArray.from_arrays(pa.array([1, None, None, 4]), 2)
    keyed = pa.array(["a", "b"]).dictionary_encode()
    for values, match in [
        (pa.array([1.5, None, None]), "column 'x': 2 of 3 rows are null"),
        (lists, "column 'x': 2 of 4 values within rows are null"),
        (pa.array(["a", "b"]), "column 'x' of type Utf8: the values of a tensor have a fixed width"),
        (keyed, "decode_dictionary"),
        (pa.array([[1], [2, 3]]), "fixed-size list"),
        (pa.array([1, 2], pa.timestamp("s", "UTC")), "time zones"),
        (pa.array([1, 2], pa.date64()), "column 'x'"),
    ]:
        with pytest.raises(cd.Error, match=match):
            any_session.write(pa.table({"x": values}), path)
        assert not path.exists()
    with pytest.raises(cd.Error, match="no columns" if form != "npy" else "0 columns"):
        any_session.write(pa.table({}), path)


def test_tables_that_a_format_cannot_store_are_errors(session, tmp_path):
    two = pa.table({"a": [1], "b": [2]})
    with pytest.raises(cd.Error, match="the table has 2 columns, but an npy file has one array"):
        session.write(two, tmp_path / "x.npy")
    for form in ("npz", "safetensors"):
        with pytest.raises(cd.Error, match="two columns have the name 'a'"):
            session.write(two.rename_columns(["a", "a"]), tmp_path / f"x.{form}")
    with pytest.raises(cd.Error, match="safetensors has numbers and booleans only"):
        session.write(pa.table({"t": pa.array([1], pa.timestamp("s"))}), tmp_path / "x.safetensors")
    with pytest.raises(cd.Error, match="__metadata__"):
        session.write(pa.table({"__metadata__": [1]}), tmp_path / "x.safetensors")
    with pytest.raises(cd.Error, match="unknown compression 'zstd', expected none or deflate"):
        session.write(two, tmp_path / "x.npz", compression="zstd")
    with pytest.raises(cd.Error, match="compression"):
        session.write(two, tmp_path / "x.safetensors", compression="deflate")
    table = session.from_arrow(two)
    assert {plan["verdict"] for plan in table.plan("npz")} == {"zero-copy"}
    assert {plan["verdict"] for plan in table.plan("npz", compression="deflate")} == {"converted"}
    assert {plan["verdict"] for plan in table.plan("npy")} == {"unsupported"}


def test_formats_are_recognised_by_their_bytes(session):
    values = array("f4", (3,))
    stored, single = io.BytesIO(), io.BytesIO()
    np.savez(stored, values=values)
    np.save(single, values)
    for content in (stored.getvalue(), single.getvalue(), safetensors({"values": values})):
        assert_equal(session.read(content)["values"], values)
    empty = io.BytesIO()
    np.savez(empty)
    assert session.read(empty.getvalue()).num_columns == 0
    assert session.read(safetensors({})).num_columns == 0


def test_several_files_are_one_table(session, tmp_path):
    parts = [array("f4", (n, 2)) for n in (3, 0, 5)]
    for i, part in enumerate(parts):
        np.savez(tmp_path / f"{i}.npz", part=part)
    scan = session.scan(sorted(tmp_path.glob("*.npz")))
    assert_equal(scan.to_table()["part"], np.concatenate(parts))


def test_pipes_are_errors(session):
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as file:
        file.write(safetensors({"a": array("f4", (3,))}))
    with os.fdopen(reader, "rb"), pytest.raises(cd.Error, match="is a pipe: store it in a file first"):
        session.read(f"/dev/fd/{reader}", "safetensors")


def test_metadata_that_is_not_written_is_a_warning(session, tmp_path):
    table = pa.table({"a": [1]}).replace_schema_metadata({"unit": "m"})
    with pytest.warns(cd.Warning, match="metadata that is not written: 'unit' of the schema"):
        session.write(table, tmp_path / "x.npz")
