"""Files of tensors: NumPy reads and writes the same arrays, and the JSON of safetensors has the same contents."""

import io
import itertools
import warnings
import zipfile

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from tensor_files import (
    EXTENSION_NUMBERS,
    NUMBERS,
    ROW_SHAPES,
    SIZES,
    TIMES,
    CountedFile,
    array,
    assert_equal,
    assert_equal_numbers,
    assert_same_elements,
    read_safetensors,
    safetensors,
    to_numpy,
)
from tensors import assert_same, number_dtype, sample as random_bits


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
    assert field.type.startswith("fixed_size_list<item: int8")


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


def test_many_compressed_columns_in_batches(session, tmp_path):
    """The state of the decompression is kept for 1,024 columns only."""
    tensors = {f"t{i}": np.arange(i, i + 5, dtype="u2") for i in range(1030)}
    np.savez_compressed(tmp_path / "x.npz", **tensors)
    batches = list(session.scan(tmp_path / "x.npz", batch_rows=2))
    assert [batch.num_rows for batch in batches] == [2, 2, 1]
    for name, values in tensors.items():
        assert np.concatenate([to_numpy(batch[name]) for batch in batches]).tolist() == values.tolist()


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


def test_archive_with_64_bit_sizes_is_read(session, tmp_path):
    path, file, values = tmp_path / "x.npz", io.BytesIO(), np.arange(5)
    np.save(file, values)
    with zipfile.ZipFile(path, "w") as archive, archive.open("a.npy", "w", force_zip64=True) as member:
        member.write(file.getvalue())
    assert_equal(session.read(path)["a"], values)


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


def test_metadata_that_is_not_written_is_a_warning(session, tmp_path):
    table = pa.table({"a": [1]}).replace_schema_metadata({"unit": "m"})
    with pytest.warns(cd.Warning, match="metadata that is not written: 'unit' of the schema"):
        session.write(table, tmp_path / "x.npz")


@pytest.mark.parametrize("name", EXTENSION_NUMBERS)
def test_numbers_that_only_the_extension_type_has_round_trip_in_safetensors(any_session, tmp_path, name):
    for n, row_shape in itertools.product(SIZES, ROW_SHAPES):
        expected = random_bits(number_dtype(name), (n, *row_shape))
        (tmp_path / "a.safetensors").write_bytes(safetensors({"first": np.zeros(n, "u1"), "x": expected}))
        table = any_session.read(tmp_path / "a.safetensors")
        assert_equal_numbers(table["x"], expected)
        assert_equal_numbers(table["x"].slice(min(n, 3), max(0, min(n, 11) - 3)), expected[3:11])
        part = any_session.read(tmp_path / "a.safetensors", columns=["x"], rows=(3, 11))
        assert_equal_numbers(part["x"], expected[3:11])
        table.write(tmp_path / "b.safetensors")
        got, _ = read_safetensors(tmp_path / "b.safetensors")
        assert_same(expected, got["x"])


@pytest.mark.parametrize("dtype", ["<c8", ">c8", "<c16", ">c16"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_complex_numbers_round_trip_in_npy_and_npz(any_session, tmp_path, dtype, save):
    for n, row_shape in itertools.product(SIZES, ROW_SHAPES):
        stored = (array("f8", (n, *row_shape)) * (1 - 2j)).astype(dtype)
        expected = stored.astype(stored.dtype.newbyteorder("="))
        np.save(tmp_path / "a.npy", stored)
        save(tmp_path / "a.npz", values=stored)
        for form in ("npy", "npz"):
            table = any_session.read(tmp_path / f"a.{form}")
            assert_equal_numbers(table["values"], expected)
            table.write(tmp_path / f"b.{form}")
            with np.load(tmp_path / f"b.{form}") if form == "npz" else io.BytesIO() as file:
                got = file["values"] if form == "npz" else np.load(tmp_path / "b.npy")
            assert_same(expected, got)


def test_reference_implementation_of_safetensors_agrees_on_complex_numbers(any_session, tmp_path):
    reference = pytest.importorskip("safetensors.numpy")
    expected = {"x": (array("f4", (7, 2)) * (1 - 2j)).astype("c8")}
    reference.save_file(expected, tmp_path / "a.safetensors")
    any_session.read(tmp_path / "a.safetensors").write(tmp_path / "b.safetensors")
    assert_same_elements(reference.load_file(tmp_path / "b.safetensors"), expected)
