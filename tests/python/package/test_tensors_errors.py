"""Files of tensors that are malformed, damaged or not supported, and tables that have no such file."""

import io
import json
import os
import struct
import warnings
import zipfile

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from tensor_files import CountedFile, array, assert_equal, safetensors
from tensor_producers import tensor_of
from tensors import number_dtype


def test_rows_that_are_null_are_errors(session, tmp_path):
    lists = pa.array([[1, 2], None], pa.list_(pa.timestamp("s"), 2))
    with pytest.raises(cd.Error, match="column 'x': 1 of 2 rows are null"):
        session.write(pa.table({"x": lists}), tmp_path / "x.npz")


def test_time_that_equals_nat_is_an_error(any_session, tmp_path):
    values = pa.array([1, -(2**63), None], pa.int64()).cast(pa.duration("ns"))
    with pytest.raises(cd.Error, match="column 'x': value 1 is -9223372036854775808, which NumPy reads as NaT"):
        any_session.write(any_session.from_arrow(pa.table({"x": values})), tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("name", "form", "match"),
    [
        ("bfloat16", "npy", "column 'x': NumPy has no bfloat16: write safetensors, or cast it"),
        ("float8_e5m2", "npz", "column 'x': NumPy has no float8_e5m2: write safetensors, or cast it"),
        ("complex128", "safetensors", "column 'x': safetensors has no complex128: write npz, or cast it"),
        ("float8_e3m4", "safetensors", "column 'x': safetensors has no float8_e3m4: cast it"),
        ("float8_e3m4", "npz", "column 'x': NumPy has no float8_e3m4: cast it"),
    ],
)
def test_numbers_that_a_format_does_not_have_are_errors(any_session, tmp_path, name, form, match):
    for shape in ((3,), (3, 2)):
        tensor = tensor_of(np.zeros(shape, number_dtype(name)))
        table = any_session.from_dlpack({"x": tensor.capsule})
        with pytest.raises(cd.Error, match=match):
            table.write(tmp_path / f"x.{form}")


def test_nulls_of_extension_numbers_are_errors(session, tmp_path):
    tensor = tensor_of(np.zeros(3, number_dtype("bfloat16")))
    table = session.from_dlpack({"x": tensor.capsule}, masks={"x": np.array([False, True, False])})
    with pytest.raises(cd.Error, match="column 'x': 1 of 3 rows are null"):
        table.write(tmp_path / "x.safetensors")


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
        "f6.a": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]},
        "f4": {"dtype": "F4", "shape": [6], "data_offsets": [3, 6]},
        "ok.a": {"dtype": "U8", "shape": [2], "data_offsets": [6, 8]},
    }
    header = json.dumps(header).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(8)
    for arguments, match in [
        ({}, "'f6.a': type F6_E2M3: several elements share a byte.*: store the tensor as F32"),
        ({"columns": ["f4"]}, "'f4': type F4: .*store the tensor as F32"),
        ({"columns": ["f6.a"]}, "'f6.a': type F6_E2M3: .*store the tensor as F32"),
        ({"tensor": "f4"}, "'f4': type F4: .*store the tensor as F32"),
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
        (np.zeros(3, "c32"), "expected complex64 or complex128: cast the array first"),
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
    values = np.zeros((1 << 18, 4), "f8")
    np.savez_compressed(tmp_path / "x.npz", a=values)
    assert (tmp_path / "x.npz").stat().st_size < 100_000
    with cd.Session(memory="2 MiB") as session:
        n_rows = 0
        for batch in session.scan(tmp_path / "x.npz", prefetch=0):
            assert batch.nbytes <= 1 << 19
            n_rows += batch.num_rows
        assert n_rows == len(values)
        with pytest.raises(cd.OutOfMemoryError):
            session.read(tmp_path / "x.npz")


@pytest.mark.parametrize("n_tensors", [1, 5])
def test_decompression_bombs_are_errors_before_they_are_decompressed(tmp_path, n_tensors):
    # One row cannot be divided into batches.
    bomb, path = np.zeros((1, 1 << 20), "f8"), tmp_path / "x.npz"
    np.savez_compressed(path, **{f"t{i}": bomb for i in range(n_tensors)})
    assert path.stat().st_size < 10_000 * n_tensors
    with cd.Session(memory="4 MiB") as session:
        with CountedFile(path) as source:
            with pytest.raises(cd.OutOfMemoryError, match="tensor 't0'"):
                session.read(source, "npz", map=False)
            n_bytes = source.n_bytes
        with CountedFile(path) as source:
            assert session.scan(source, "npz", map=False).schema.names[0] == "t0"
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


@pytest.mark.parametrize("form", ["npz", "safetensors", "npy"])
def test_nulls_and_types_without_tensors_are_errors(any_session, tmp_path, form):
    path = tmp_path / f"x.{form}"
    lists = pa.FixedSizeListArray.from_arrays(pa.array([1, None, None, 4]), 2)
    keyed = pa.array(["a", "b"]).dictionary_encode()
    for values, match in [
        (pa.array([1.5, None, None]), "column 'x': 2 of 3 rows are null"),
        (lists, "column 'x': 2 of 4 values within rows are null"),
        (pa.array(["a", "b"]), "column 'x' of type string: the values of a tensor have a fixed width"),
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


def test_pipes_are_errors(session):
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as file:
        file.write(safetensors({"a": array("f4", (3,))}))
    with os.fdopen(reader, "rb"), pytest.raises(cd.Error, match="is a pipe: store it in a file first"):
        session.read(f"/dev/fd/{reader}", "safetensors")
