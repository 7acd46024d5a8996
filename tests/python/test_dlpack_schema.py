"""DLPack with nulls, with a schema given, and as a stop on the way of a conversion."""

import capi
import numpy as np
import pyarrow as pa
import pytest
from peers import FORMS, assert_equal, read, write
from tensors import (
    FORMATS,
    Lender,
    assert_same,
    bring,
    copied,
    lend,
    sample,
    send,
    send_one,
    values,
)

forms = pytest.mark.parametrize("form", FORMATS)


def batch_of(**columns):
    return pa.record_batch(list(columns.values()), names=list(columns))


# ---------------------------------------------------------------------------------------------------------- nulls ---


@forms
def test_nulls_are_refused_with_the_column_and_what_to_do(session, form):
    batch = batch_of(whole=pa.array([1, 2, 3]), part=pa.array([1, None, None]))
    with pytest.raises(capi.CrossdockError, match="batch 0: column 'part': 2 of 3 rows are null") as caught:
        send(session, batch, form)
    assert caught.value.code == "unsupported"
    for advice in ("fill or drop them", "leave the column out", "--nulls mask", "nulls=mask"):
        assert advice in str(caught.value)


@forms
def test_a_slice_without_nulls_is_not_refused_for_the_rest(session, form):
    column = pa.array([None, 1, 2, 3, None])
    assert send_one(session, column.slice(1, 3), form).tolist() == [1, 2, 3]
    with pytest.raises(capi.CrossdockError, match="1 of 4 rows"):
        send_one(session, column.slice(1, 4), form)


@pytest.mark.parametrize("nulls", ["error", "mask"])
def test_nulls_within_rows_are_refused_either_way(session, nulls):
    lists = pa.array([[1, 2], [3, None]], pa.list_(pa.int32(), 2))
    with pytest.raises(capi.CrossdockError, match="column 'c': 1 values within its rows are null.*fill them"):
        send_one(session, lists, nulls=nulls)
    assert send_one(session, lists.slice(0, 1)).tolist() == [[1, 2]]


MASKED = {
    "integers": pa.array([1, None, 3, None, 5, 6, 7, None, 9, 10], pa.int16()),
    "floats": pa.array([None, 2.5, None] * 50, pa.float64()),
    "booleans": pa.array([True, None, False] * 7),
    "none null": pa.array([1, 2, 3], pa.uint8()),
    "all null": pa.nulls(9, pa.float32()),
    "lists": pa.array([[1, 2], [3, 4], None, [5, 6]], pa.list_(pa.int64(), 2)).fill_null([0, 0]),
    "no rows": pa.array([], pa.int32()),
}


@forms
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("name", MASKED)
def test_a_mask_is_true_where_a_row_is_null(session, name, offset, form):
    column = MASKED[name].slice(offset)
    capsules = send(session, batch_of(c=column, d=column), form, nulls="mask")
    assert len(capsules) == 4
    for tensor, mask in (capsules[:2], capsules[2:]):
        tensor, mask = (np.from_dlpack(Lender(capsule)) for capsule in (tensor, mask))
        assert_same(column.is_null().to_numpy(zero_copy_only=False), mask)
        assert tensor.shape[0] == len(column)
        if tensor.ndim == 1:
            there = ~mask
            assert tensor[there].tolist() == column.drop_null().to_pylist()


@forms
@pytest.mark.parametrize("name", MASKED)
def test_a_column_comes_back_from_its_tensor_and_its_mask(session, name, form):
    for offset in (0, 1):
        batch = batch_of(c=MASKED[name].slice(offset))
        capsules = send(session, batch, form, nulls="mask")
        (back,) = bring(session, *capsules, schema=batch.schema, nulls="mask")
        back.validate(full=True)
        assert back.equals(batch)


@forms
def test_numpy_s_masked_arrays_come_in_as_pyarrow_makes_them(session, form):
    data, mask = sample("int32", 131), sample("bool", 131)
    (batch,) = bring(session, lend(data, form), lend(mask, form), nulls="mask", names="n")
    batch.validate(full=True)
    expected = pa.array(data, mask=mask)
    assert batch.equals(batch_of(n=expected))
    assert batch.column(0).null_count == expected.null_count
    assert batch.column(0).buffers()[1].address == data.__array_interface__["data"][0]


@forms
def test_a_mask_of_any_stride_is_read(session, form):
    data, mask = sample("int64", 40), sample("bool", 80)
    for part in (mask[::2], mask[40:][::-1]):
        (batch,) = bring(session, lend(data, form), lend(part, form), nulls="mask")
        assert batch.column(0).equals(pa.array(data, mask=part.copy()))


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.zeros(3, np.uint8), r"a tensor of uint8 of shape \[3\], expected bool of shape \[3\]"),
        (np.zeros(4, bool), r"a tensor of bool of shape \[4\], expected bool of shape \[3\]"),
        (np.zeros((3, 1), bool), r"a tensor of bool of shape \[3, 1\]"),
    ],
)
def test_a_mask_that_is_none_is_refused(session, mask, words):
    with pytest.raises(capi.CrossdockError, match=f"column 'col_0'.*mask.* {words}"):
        bring(session, lend(np.arange(3), "versioned"), lend(mask, "versioned"), nulls="mask")


def test_a_tensor_without_its_mask_is_refused(session):
    with pytest.raises(capi.CrossdockError, match="3 tensors with nulls=mask, expected an even number"):
        bring(session, *(lend(np.zeros(3, bool), "versioned") for _ in range(3)), nulls="mask")


def test_a_schema_without_nulls_holds_against_the_mask(session):
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(capi.CrossdockError, match="column 'n'.*the mask says that rows are null") as caught:
        bring(session, lend(np.arange(3), "legacy"), lend(np.ones(3, bool), "legacy"), schema=schema, nulls="mask")
    assert caught.value.code == "bad_data"
    (batch,) = bring(
        session, lend(np.arange(3), "legacy"), lend(np.zeros(3, bool), "legacy"), schema=schema, nulls="mask"
    )
    assert batch.equals(pa.record_batch([pa.array([0, 1, 2])], schema=schema))


# -------------------------------------------------------------------------------------------------- a schema given ---


@pytest.mark.parametrize(
    ("field", "array", "words"),
    [
        (pa.int32(), np.zeros(3, np.int64), "column 'c' is a tensor of int64, expected int32 by the schema"),
        (pa.uint8(), np.zeros(3, bool), "column 'c' is a tensor of bool, expected uint8 by the schema"),
        (pa.int8(), np.zeros(3, bool), "column 'c' is a tensor of bool, expected int8 by the schema"),
        (pa.bool8(), np.zeros(3, np.int8), "column 'c' is a tensor of int8, expected bool by the schema"),
        (pa.float64(), np.zeros((3, 2)), r"shape \[3, 2\], expected \[3\] by the schema"),
        (pa.list_(pa.float64(), 2), np.zeros(3), r"shape \[3\], expected \[3, 2\] by the schema"),
        (pa.list_(pa.float64(), 2), np.zeros((3, 3)), r"shape \[3, 3\], expected \[3, 2\]"),
        (pa.fixed_shape_tensor(pa.float64(), [2, 3]), np.zeros((4, 6)), r"shape \[4, 6\], expected \[4, 2, 3\]"),
        (pa.fixed_shape_tensor(pa.float64(), [2, 3], permutation=[1, 0]), np.zeros((4, 2, 3)), r"expected \[4, 3, 2\]"),
    ],
)
def test_a_tensor_that_is_not_the_schema_s_is_refused(session, field, array, words):
    with pytest.raises(capi.CrossdockError, match=words) as caught:
        bring(session, lend(array, "versioned"), schema=pa.schema([("c", field)]))
    assert caught.value.code == "invalid_argument"


def test_a_schema_that_dlpack_cannot_hold_is_refused(session):
    with pytest.raises(capi.CrossdockError, match="column 'c' of type Utf8"):
        bring(session, lend(np.arange(3), "versioned"), schema=pa.schema([("c", pa.string())]))


def test_the_number_of_tensors_is_held_against_that_of_columns(session):
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    with pytest.raises(capi.CrossdockError, match="3 tensors for 2 columns"):
        bring(session, *(lend(np.arange(3), "versioned") for _ in range(3)), schema=schema)
    capsules = [lend(np.arange(3) + i, "versioned") for i in range(4)]
    batches = bring(session, *capsules, schema=schema)
    assert [batch.to_pydict() for batch in batches] == [
        {"a": [0, 1, 2], "b": [1, 2, 3]},
        {"a": [2, 3, 4], "b": [3, 4, 5]},
    ]
    with pytest.raises(capi.CrossdockError, match="0 tensors|no capsules"):
        bring(session, schema=schema)


@forms
def test_rows_must_be_as_many_in_each_column(session, form):
    with pytest.raises(capi.CrossdockError, match="column 'b'.* 4 rows.*, expected 3 as the first column"):
        bring(session, lend(np.arange(3), form), lend(np.arange(4), form), names="a,b")


def test_names_are_those_given_or_numbers(session):
    def capsules():
        return lend(np.arange(3), "versioned"), lend(np.arange(3), "legacy")

    assert bring(session, *capsules())[0].schema.names == ["col_0", "col_1"]
    assert bring(session, *capsules(), names="x,é")[0].schema.names == ["x", "é"]
    with pytest.raises(capi.CrossdockError, match="1 names for 2 columns"):
        bring(session, *capsules(), names="x")
    with pytest.raises(capi.CrossdockError, match="names and a schema were given"):
        bring(session, *capsules(), names="x,y", schema=pa.schema([("a", pa.int64()), ("b", pa.int64())]))


def test_a_schema_s_types_names_and_metadata_are_the_batch_s(host, session):
    array = np.asfortranarray(sample("float32", (2, 3)))[None].repeat(5, 0)
    array = np.ascontiguousarray(array.transpose(0, 2, 1)).transpose(0, 2, 1)
    tensor = pa.fixed_shape_tensor(pa.float32(), [3, 2], permutation=[1, 0], dim_names=["h", "w"])
    fields = [
        pa.field("t", tensor, metadata={"unit": "m"}),
        pa.field("s", pa.uint32(), metadata={"xlog.symbol": "true"}),
        pa.field("b", pa.bool8()),
    ]
    schema = pa.schema(fields, metadata={"from": "elsewhere"})
    arrays = [array, sample("uint32", 5), sample("bool", 5)]
    (batch,) = bring(session, *(lend(a, "versioned") for a in arrays), schema=schema)
    assert batch.schema.equals(schema, check_metadata=True)
    for column, expected in zip(batch.columns, arrays):
        assert_same(expected, values(column))
    assert copied(host) == 0 and host.ledger()["live_bytes"] == 0


def test_booleans_are_bits_where_the_schema_says_so(session):
    array = sample("bool", (9, 5))
    (batch,) = bring(session, lend(array, "legacy"), schema=pa.schema([("c", pa.list_(pa.bool_(), 5))]))
    assert_same(array, values(batch.column(0)))


def test_dimensions_in_the_schema_s_order_are_gathered_where_they_lie_otherwise(session):
    array = np.ascontiguousarray(sample("int32", (4, 3, 2)).transpose(0, 2, 1)).transpose(0, 2, 1)
    (batch,) = bring(session, lend(array, "versioned"), schema=pa.schema([("c", pa.list_(pa.list_(pa.int32(), 2), 3))]))
    assert_same(array, values(batch.column(0)))


def test_only_capsules_of_tensors_are_taken(session):
    with pytest.raises(capi.CrossdockError, match="dlpack.* speaks through capsules"):
        session.read(__file__, format="dlpack")
    with pytest.raises(capi.CrossdockError, match="dlpack.* speaks through capsules"):
        session.write("never.dlpack", pa.schema([("a", pa.int8())]), format="dlpack")


# ---------------------------------------------------------------------------------------------------- on the way ---


def numeric(nulls=False):
    """A table that a DLPack pass must leave as it is, metadata and extension types included."""
    n = 131
    tensor = pa.fixed_shape_tensor(pa.int16(), [2, 3], dim_names=["y", "x"], permutation=[1, 0])
    columns = {
        "symbol": (pa.array(sample("uint32", n)), {"xlog.symbol": "true"}),
        "f16": (pa.array(sample("float16", n)), {"unit": "K"}),
        "f64": (pa.array(sample("float64", n)), None),
        "bits": (pa.array(sample("bool", n)), {"xlog.type": "bool"}),
        "bytes": (pa.ExtensionArray.from_storage(pa.bool8(), pa.array(sample("bool", n).view(np.int8))), None),
        "list": (pa.FixedSizeListArray.from_arrays(pa.array(sample("uint8", n * 4)), 4), None),
        "tensor": (
            pa.ExtensionArray.from_storage(
                tensor, pa.FixedSizeListArray.from_arrays(pa.array(sample("int16", n * 6)), 6)
            ),
            {"k": "v"},
        ),
    }
    if nulls:
        columns["i64"] = (pa.array(sample("int64", n), mask=sample("bool", n)), {"nulls": "some"})
        columns["b"] = (pa.array(sample("bool", n), mask=sample("bool", n)[::-1].copy()), None)
    fields = [pa.field(name, array.type, metadata=meta) for name, (array, meta) in columns.items()]
    schema = pa.schema(fields, metadata={"xlog.relation": "r", "é": "ü"})
    batch = pa.record_batch([array for array, _ in columns.values()], schema=schema)
    return schema, [batch, batch.slice(3, 40), batch.slice(0, 0), batch.slice(100)]


@pytest.mark.parametrize("via", ["dlpack", "dlpack-legacy"])
@pytest.mark.parametrize("form", FORMS)
def test_a_table_of_numbers_passes_through_dlpack_with_all_its_metadata(convert, tmp_path, form, via):
    source, target = tmp_path / f"in{FORMS[form]}", tmp_path / f"out{FORMS[form]}"
    write(source, form, *numeric())
    convert(source, target, "--via", via)
    assert_equal(read(source, form), read(target, form))


@pytest.mark.parametrize("via", ["dlpack", "dlpack-legacy"])
def test_nulls_pass_with_masks_and_not_without(run, convert, tmp_path, via):
    source, target = tmp_path / "in.arrow", tmp_path / "out.arrow"
    write(source, "file", *numeric(nulls=True))
    done = run("convert", source, target, "--via", via, "--quiet")
    assert done.returncode != 0
    assert b"column 'i64'" in done.stderr and b"--nulls mask" in done.stderr
    assert not target.exists()
    convert(source, target, "--via", via, "--nulls", "mask")
    assert_equal(read(source, "file"), read(target, "file"))


def test_a_column_without_a_place_is_named_and_may_be_left_out(run, convert, tmp_path):
    source, target = tmp_path / "in.arrow", tmp_path / "out.arrow"
    batch = batch_of(name=pa.array(["a", "b"]), n=pa.array([1, 2]))
    write(source, "file", batch.schema, [batch])
    done = run("convert", source, target, "--via", "dlpack", "--quiet")
    assert done.returncode != 0 and b"column 'name'" in done.stderr and b"leave it out" in done.stderr
    convert(source, target, "--via", "dlpack", "--columns", "n")
    assert read(target, "file")[1][0].to_pydict() == {"n": [1, 2]}


@pytest.mark.parametrize("arrow", ["arrow-c-device", "arrow-c-stream", "arrow-c-data"])
def test_dlpack_and_arrow_s_interfaces_follow_each_other(convert, tmp_path, arrow):
    source, target = tmp_path / "in.arrow", tmp_path / "out.arrow"
    write(source, "file", *numeric())
    convert(source, target, "--via", "dlpack", "--via", arrow, "--via", "dlpack-legacy")
    assert_equal(read(source, "file"), read(target, "file"))


@pytest.mark.parametrize("via", [(), ("--via", "dlpack")])
def test_a_batch_s_own_metadata_passes_too(convert, tmp_path, via):
    source, target = tmp_path / "in.arrow", tmp_path / "out.arrow"
    batch = batch_of(n=pa.array([1, 2]))
    with pa.ipc.new_file(source, batch.schema) as out:
        out.write_batch(batch, custom_metadata={"part": "one"})
    convert(source, target, *via)
    got, metadata = pa.ipc.open_file(target).get_batch_with_custom_metadata(0)
    assert got.equals(batch)
    assert dict(metadata or {}) == {b"part": b"one"}
