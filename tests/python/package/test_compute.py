"""`take`, `filter`, `fill_null`, `cast`, `dictionary_encode` and `to_tensor` for columns of every type, compared
with pyarrow and NumPy."""

import datetime
import decimal
import itertools
import random
import re

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from samples import SAMPLES, make


def rows_of(table):
    """The rows as text, in which NaN equals NaN, and 0.0 differs from -0.0."""
    table = pa.table(table)
    if table.num_columns == 0:
        return [()] * table.num_rows
    return [*zip(*([repr(value) for value in values(column)] for column in table.columns), strict=True)]


def values(column):
    """The values of a chunked array. Python has no times of nanoseconds and no dates far from today, so their
    numbers are used."""
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):
        return [scalar.value for chunk in column.chunks for scalar in chunk]


def sliced(table):
    """The same rows in another layout: an offset in each batch, and two chunks."""
    return table[1:] if table.num_rows else table


def samples():
    return [name for name in SAMPLES if name not in ("no_columns", "no_batches")]


@pytest.mark.parametrize("name", samples())
def test_take_gives_the_rows_at_the_indices(any_session, name):
    schema, batches = make(name)
    source = pa.Table.from_batches(batches, schema)
    table = sliced(any_session.from_arrow(source, as_column=False))
    expected = rows_of(source)[1:]
    indices = [random.Random(7).randrange(len(expected)) for _ in range(100)] if expected else []
    if name == "slices_of_unions" and any_session.device != "cpu":
        with pytest.raises(cd.UnsupportedError, match="cannot be concatenated on cuda:0, only on the cpu"):
            table.take(indices)
        return
    taken = table.take(indices)
    assert taken.device == any_session.device
    assert taken.schema.names == table.schema.names
    assert rows_of(taken.to("cpu")) == [expected[i] for i in indices]


@pytest.mark.parametrize("name", samples())
def test_filter_gives_the_rows_of_the_mask(any_session, name):
    schema, batches = make(name)
    source = pa.Table.from_batches(batches, schema)
    table = sliced(any_session.from_arrow(source, as_column=False))
    expected = rows_of(source)[1:]
    mask = [random.Random(i).choice([True, False, None]) for i in range(len(expected))]
    filtered = table.filter(pa.array(mask, pa.bool_()))
    assert filtered.schema == table.schema
    assert rows_of(filtered.to("cpu")) == [row for row, keep in zip(expected, mask, strict=True) if keep]
    assert table.filter([False] * len(expected)).num_rows == 0
    assert rows_of(table.filter(np.ones(len(expected), bool)).to("cpu")) == expected


NULLABLE = {
    "int8": pa.array([1, None, 3], pa.int8()),
    "uint64": pa.array([2**64 - 1, None, 3], pa.uint64()),
    "bool": pa.array([True, None, False]),
    "float32": pa.array([1.5, None, -0.0], pa.float32()),
    "float16": pa.array(np.array([1.5, 0, 2], np.float16), mask=np.array([False, True, False])),
    "decimal32": pa.array([decimal.Decimal("1.25"), None], pa.decimal32(5, 2)),
    "decimal128": pa.array([decimal.Decimal("1.25"), None], pa.decimal128(20, 2)),
    "decimal256": pa.array([decimal.Decimal("-1.25"), None], pa.decimal256(50, 2)),
    "date32": pa.array([datetime.date(2024, 2, 29), None]),
    "date64": pa.array([datetime.date(2024, 2, 29), None], pa.date64()),
    "time32": pa.array([datetime.time(1, 2, 3), None], pa.time32("ms")),
    "timestamp": pa.array([datetime.datetime(2024, 2, 29, 1), None], pa.timestamp("us")),
    "duration": pa.array([datetime.timedelta(seconds=3), None], pa.duration("ns")),
    "string": pa.array(["a", None, "", "a longer text"]),
    "large_string": pa.array(["a", None, "", "a longer text"], pa.large_string()),
    "string_view": pa.array(["a", None, "", "a longer text"], pa.string_view()),
    "binary": pa.array([b"a", None, b"\xff"]),
    "binary_view": pa.array([b"a", None, b"\xff"], pa.binary_view()),
    "fixed_size_binary": pa.array([b"abc", None, b"def"], pa.binary(3)),
    "fixed_size_binary16": pa.array([b"0123456789abcdef", None], pa.binary(16)),
    "dictionary": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays([2, 3, 5], pa.array([1, None, 3], pa.int16())),
}
FILLS = {
    "bool": [True, False],
    "float32": [0.1, 3, float("nan"), float("-inf")],
    "float16": [2.5, 65504],
    "decimal32": [decimal.Decimal("7.5"), 3],
    "decimal128": [decimal.Decimal("7.5"), 3],
    "decimal256": [decimal.Decimal("7.5")],
    "date32": [datetime.date(1969, 12, 31)],
    "date64": [datetime.date(1969, 12, 31)],
    "time32": [datetime.time(23, 59, 59)],
    "timestamp": [datetime.datetime(1969, 1, 1)],
    "duration": [datetime.timedelta(days=-1)],
    "string": ["x", "a text of more than twelve bytes", ""],
    "large_string": ["x", "a text of more than twelve bytes"],
    "string_view": ["x", "a text of more than twelve bytes"],
    "binary": [b"\x00", b""],
    "binary_view": [b"\x00", b"a text of more than twelve bytes"],
    "fixed_size_binary": [b"\x00\x01\x02"],
    "fixed_size_binary16": [b"fedcba9876543210"],
    "dictionary": ["c", "a"],
}


@pytest.mark.parametrize("name", NULLABLE)
def test_fill_null_replaces_nulls(any_session, name):
    array = NULLABLE[name]
    for value in FILLS.get(name, [7]):
        for source in (array, array.slice(1), array.slice(0, 1), pa.chunked_array([array, array.slice(1)])):
            filled = any_session.from_arrow(source, as_column=True).fill_null(value)
            typed = value if array.type.id == pa.lib.Type_DECIMAL128 else value
            expected = [pa.scalar(typed, plain_type(array.type)).as_py() if v is None else v for v in flat(source)]
            assert filled.null_count == 0
            got = pa.chunked_array(filled.to("cpu"))
            assert got.type == array.type
            assert repr(flat(got)) == repr(expected), (value, source)


def plain_type(kind):
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return kind.value_type if pa.types.is_run_end_encoded(kind) else kind


def flat(source):
    return source.to_pylist()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("int8", 128, "cannot be a value of type int8"),
        ("int8", 1.5, "cannot be a value of type int8"),
        ("int8", "1", "expected a number"),
        ("uint64", -1, "uint64"),
        ("string", b"x", "expected a string"),
        ("fixed_size_binary", b"ab", "expected 3 bytes, got 2"),
        ("timestamp", datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), "without a time zone"),
        ("decimal32", decimal.Decimal("0.001"), "exactly"),
        ("int8", None, "fill_null: None is no value"),
        ("int8", [1], "fill_null: expected"),
    ],
)
def test_fill_null_rejects_a_value_of_another_type(session, name, value, message):
    column = session.from_arrow(pa.table({"c": NULLABLE[name]}))["c"]
    with pytest.raises(cd.UsageError, match=message):
        column.fill_null(value)


def test_fill_null_says_that_a_dictionary_is_full(session):
    array = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.array(range(128)))
    with pytest.raises(cd.UnsupportedError, match="column '': the dictionary has 128 values"):
        session.from_arrow(array).fill_null(7)


NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "bool"]


@pytest.mark.parametrize(("of", "to"), [*itertools.product(NUMBERS, NUMBERS)])
def test_numbers_are_cast_as_pyarrow_casts_them(any_session, of, to):
    kind, target = pa.type_for_alias(of), pa.type_for_alias(to)
    for numbers in ([0, 1, None, 1], [1, None, 100, 127], [0, None, 255], [-1, None, -128], [2**31, None], [2**53 + 1]):
        try:
            array = pa.array(numbers, kind) if kind != pa.bool_() else pa.array([bool(n) for n in numbers])
        except (pa.ArrowInvalid, OverflowError):
            continue
        column = any_session.from_arrow(pa.chunked_array([array, array.slice(1)]), as_column=True)
        try:
            expected = array.cast(target)
        except pa.ArrowInvalid:
            # pyarrow also rejects large integers that a float represents exactly.
            if to.startswith("float") and all(n is None or int(np.dtype(to).type(n)) == n for n in numbers):
                assert column.cast(to).to_pylist()[: len(numbers)] == numbers
                continue
            with pytest.raises(cd.UsageError, match="row [0-3]: the value .* cannot be represented") as error:
                column.cast(to)
            assert error.value.row is not None
            continue
        got = pa.chunked_array(column.cast(to).to("cpu"))
        assert got.type == target
        assert got.to_pylist() == [*expected.to_pylist(), *expected.slice(1).to_pylist()]


@pytest.mark.parametrize("to", ["int32", "uint8", "bool", "float16"])
def test_floats_that_are_no_integers_are_errors(any_session, to):
    for value in (1.5, float("nan"), float("inf"), 1e300):
        column = any_session.from_arrow(pa.table({"c": [None, 1.0, value]}))["c"]
        if to == "bool" or (to == "float16" and value != 1e300):
            assert column.cast(to).null_count == 1
            continue
        with pytest.raises(cd.UsageError, match="column 'c', row 2: the value"):
            column.cast(to)
        assert column.cast(to, safe=False).null_count == 1


def test_unsafe_casts_truncate(any_session):
    column = any_session.from_arrow(pa.array([1.9, -1.9, None, float("nan"), 300.0]))
    assert column.cast("int8", safe=False).to_pylist() == [1, -1, None, 0, 127]
    wide = any_session.from_arrow(pa.array([257, None, -1]))
    assert wide.cast("uint8", safe=False).to_pylist() == [1, None, 255]


TIMES = [
    pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns"), pa.date32(), pa.date64(),
    pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    pa.duration("s"), pa.duration("ms"), pa.duration("us"), pa.duration("ns"), pa.int32(), pa.int64(),
]  # fmt: skip


@pytest.mark.parametrize(("of", "to"), [*itertools.product(TIMES, TIMES)], ids=str)
def test_times_are_cast_as_pyarrow_casts_them(any_session, of, to):
    n = 0
    for numbers in ([0, None, 1], [86_400, None], [86_400_000_000_000, None, -86_400_000_000_000], [1001, None]):
        try:
            array = pa.array(numbers, pa.int64()).cast(pa.int64() if of.bit_width == 64 else pa.int32()).cast(of)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        if of == pa.date64() and any(number is not None and number % 86_400_000 for number in numbers):
            continue
        column = any_session.from_arrow(pa.chunked_array([array.slice(1), array]), as_column=True)
        try:
            expected = array.cast(to)
        except pa.ArrowNotImplementedError:
            with pytest.raises(cd.UnsupportedError, match="there is no cast from"):
                column.cast(to)
            continue
        except pa.ArrowInvalid:
            with pytest.raises((cd.UsageError, cd.UnsupportedError), match="cannot be represented|no cast"):
                column.cast(to)
            continue
        if {of, to} == {pa.int32(), to} and of != to and to.bit_width == 64 and to != pa.int64():
            continue
        try:
            got = column.cast(to)
        except cd.UnsupportedError as error:
            assert "there is no cast" in str(error)
            n += 1
            continue
        got = pa.chunked_array(got.to("cpu"))
        assert got.type == to
        assert got.cast(pa.int64() if to.bit_width == 64 else pa.int32()) == pa.chunked_array(
            [expected.slice(1), expected]
        ).cast(pa.int64() if to.bit_width == 64 else pa.int32())


def test_decimals_are_cast_to_floats(any_session):
    numbers = ["0", "1.25", "-1.25", None, "-9999999999999.99"]
    for kind in (pa.decimal64(18, 2), pa.decimal128(38, 2), pa.decimal256(76, 2), pa.decimal128(38, -3)):
        array = pa.array([None if n is None else decimal.Decimal(n) for n in numbers])
        array = array.cast(pa.decimal256(60, 10)).cast(kind, safe=False)
        column = any_session.from_arrow(array)
        expected = [None if v is None else float(v) for v in array.to_pylist()]
        assert column.cast(pa.float64()).to_pylist() == expected
        assert column.cast(pa.float32()).to_pylist() == pa.array(expected, pa.float32()).to_pylist()


TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]


@pytest.mark.parametrize(("of", "to"), [*itertools.product(TEXTS, TEXTS)], ids=str)
def test_texts_are_cast(any_session, of, to):
    array = pa.array(["", "a", None, "a text of more than twelve bytes", "größer"]).cast(pa.binary()).cast(of)
    for source in (array, array.slice(2), array.slice(0, 0)):
        got = any_session.from_arrow(source).cast(to)
        assert pa.chunked_array(got.to("cpu")).type == to
        assert got.to_pylist() == source.cast(pa.binary()).cast(to).to_pylist()


def test_bytes_that_are_no_text_are_an_error(any_session):
    column = any_session.from_arrow(pa.table({"c": [b"a", b"\xff"]}))["c"]
    for to in (pa.string(), pa.large_string(), pa.string_view()):
        with pytest.raises(cd.DataError, match="column 'c'.*UTF-8"):
            column.cast(to)


def test_dictionaries_runs_and_lists_are_cast(any_session):
    texts = pa.array(["1", None, "b", "1"])
    assert any_session.from_arrow(texts.dictionary_encode()).cast(pa.large_string()).to_pylist() == texts.to_pylist()
    runs = pa.RunEndEncodedArray.from_arrays([2, 3, 5], pa.array([1, None, 3], pa.int16())).slice(1)
    assert any_session.from_arrow(runs).cast("float32").to_pylist() == [1.0, None, 3.0, 3.0]
    lists = pa.array([[1, None], None, [], [3, 4]])
    assert any_session.from_arrow(lists).cast(pa.list_(pa.float32())).to_pylist() == [[1.0, None], None, [], [3.0, 4.0]]
    pairs = pa.array([[9, 9], [1, 2], [3, 4]]).slice(1)
    assert any_session.from_arrow(pairs).cast(pa.list_(pa.int8(), 2)).to_pylist() == [[1, 2], [3, 4]]
    with pytest.raises(cd.UsageError, match="the elements of the lists: the value 4 .* Boolean|row"):
        any_session.from_arrow(pa.array([[1, 300]])).cast(pa.list_(pa.int8()))


@pytest.mark.parametrize(
    "to",
    ["struct<a: int64>", "list<item: int64>", pa.binary(), "dictionary<values=string, indices=int8, ordered=0>"],
    ids=str,
)
def test_a_cast_that_does_not_exist_names_both_types(session, to):
    with pytest.raises(cd.UnsupportedError, match=f"there is no cast from int64 to {re.escape(str(to))}"):
        session.from_arrow(pa.array([1, 2])).cast(to)
    with pytest.raises(cd.UnsupportedError, match="there is no cast from"):
        session.from_arrow(pa.array([], pa.int64())).cast(to)


@pytest.mark.parametrize("of", [pa.int8(), pa.float64(), pa.bool_(), pa.timestamp("s"), pa.decimal128(5, 2)], ids=str)
@pytest.mark.parametrize("to", [pa.int8(), pa.float64(), pa.bool_(), pa.timestamp("ms"), pa.date32()], ids=str)
def test_empty_columns_are_cast_to_the_same_types_as_others(any_session, of, to):
    empty = any_session.from_arrow(pa.array([], of))
    try:
        full = any_session.from_arrow(pa.array([None], of)).cast(to)
    except cd.UnsupportedError:
        with pytest.raises(cd.UnsupportedError):
            empty.cast(to)
        return
    assert empty.cast(to).type == full.type
    assert len(empty.cast(to)) == 0


@pytest.mark.parametrize("name", [name for name in NULLABLE if name not in ("run_end_encoded",)])
def test_dictionary_encode_numbers_the_values_in_the_order_of_their_first_rows(any_session, name):
    array = pa.concat_arrays([NULLABLE[name]] * 3 + [NULLABLE[name].slice(1)])
    for source in (array, array.slice(1, 4), array.slice(0, 0), pa.chunked_array([array.slice(2), array])):
        encoded = any_session.from_arrow(source, as_column=True).dictionary_encode()
        assert encoded.device == any_session.device
        got = pa.chunked_array(encoded.to("cpu"))
        assert pa.types.is_dictionary(got.type)
        assert repr(got.to_pylist()) == repr(source.to_pylist())
        if not pa.types.is_dictionary(array.type):
            seen = [*dict.fromkeys(v for v in source.to_pylist() if v is not None)]
            assert repr(got.combine_chunks().dictionary.to_pylist()) == repr(seen)


def test_dictionary_encode_of_many_values(any_session):
    numbers = np.random.default_rng(3).integers(0, 20_000, 50_000)
    texts = pa.array([f"value {n}" for n in numbers])
    encoded = any_session.from_arrow(texts).dictionary_encode()
    assert pa.chunked_array(encoded.to("cpu")).combine_chunks().equals(texts.dictionary_encode())


def test_take_with_null_indices_gives_nulls(any_session):
    indices = pa.array([2, None, 0, None], pa.int8())
    source = pa.table(
        {
            "n": [1, None, 3],
            "t": ["a", "b", None],
            "l": [[1], None, [2, 3]],
            "s": [{"a": 1}, {"a": None}, None],
            "d": pa.array(["x", "y", "x"]).dictionary_encode(),
            "z": pa.nulls(3),
        }
    )
    table = any_session.from_arrow(source)
    assert pa.table(table.take(indices).to("cpu")).to_pylist() == source.take(indices).to_pylist()
    assert table[["n"]][:0].take([None]).to_pyarrow().to_pylist() == [{"n": None}]
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([1, 2]))
    with pytest.raises(cd.UnsupportedError, match="cannot be null"):
        any_session.from_arrow(runs).take([0, None])


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()], ids=str
)
def test_indices_of_every_type(any_session, kind):
    column = any_session.from_arrow(pa.array(range(100)))
    assert column.take(pa.array([99, 0, 5], kind)).to_pylist() == [99, 0, 5]
    for wrong in (100, -1):
        if wrong >= 0 or pa.types.is_signed_integer(kind):
            with pytest.raises(cd.UsageError, match="indices, row 1: an index is out of range for 100 rows"):
                column.take(pa.array([5, wrong], kind))


@pytest.mark.parametrize("indices", [["a"], [1.5], "12", 3, pa.array(["a"]), pa.array([1.0])], ids=str)
def test_indices_of_another_type_are_an_error(session, indices):
    column = session.from_arrow(pa.array(range(100)))
    with pytest.raises((cd.UsageError, TypeError), match="expected"):
        column.take(indices)


@pytest.mark.parametrize("mask", [[True], [True, False, 3], pa.array([1, 0, 1]), "abc"], ids=str)
def test_a_mask_of_another_type_or_length_is_an_error(session, mask):
    table = session.from_arrow(pa.table({"a": [1, 2, 3]}))
    with pytest.raises((cd.UsageError, TypeError), match="expected"):
        table.filter(mask)


def test_filter_by_comparisons_equals_the_filter_of_a_scan(any_session, tmp_path):
    source = pa.table({"a": [1, None, 3, 4], "b": ["x", "y", "x", "x"]})
    table = any_session.from_arrow(source)
    assert table.filter([("a", ">", 1), ("b", "==", "x")]).to_pyarrow()["a"].to_pylist() == [3, 4]
    assert table.filter([("a", ">", 2**70)]).num_rows == 0
    with pytest.raises(cd.UsageError, match="the filter is invalid"):
        table.filter([("nope", ">", 1)])


TENSORS = {
    "int16": (pa.array([1, 2, 3], pa.int16()), np.array([1, 2, 3], np.int16)),
    "bool": (pa.array([True, False, True]), np.array([True, False, True])),
    "date32": (pa.array([0, 1, -1], pa.date32()), np.array([0, 1, -1], np.int32)),
    "timestamp": (pa.array([0, 1, -1], pa.timestamp("ns", "UTC")), np.array([0, 1, -1])),
    "duration": (pa.array([0, 1, -1], pa.duration("s")), np.array([0, 1, -1])),
    "time32": (pa.array([0, 1, 2], pa.time32("s")), np.array([0, 1, 2], np.int32)),
    "dictionary": (pa.array(["b", "a", "b"]).dictionary_encode(), np.array([0, 1, 0], np.int32)),
    "runs": (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([7, 8], pa.int8())), np.array([7, 7, 8], np.int8)),
    "lists": (pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32())), np.array([[1, 2], [3, 4], [5, 6]], np.int32)),
    "large lists": (pa.array([[1.5], [2.5], [0.0]], pa.large_list(pa.float32())), np.array([[1.5], [2.5], [0]], "f4")),
    "fixed lists": (
        pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int8(), 2)),
        np.array([[1, 2], [3, 4], [5, 6]], "i1"),
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_columns_become_tensors(any_session, name):
    array, expected = TENSORS[name]
    whole = any_session.from_arrow(array, as_column=True)
    chunked = any_session.from_arrow(pa.chunked_array([array, array.slice(1)]), as_column=True)
    for column, rows in [
        (whole, expected),
        (whole[1:], expected[1:]),
        (chunked, np.concatenate([expected, expected[1:]])),
    ]:
        tensor = column.to_tensor()
        assert (tensor.device, tensor.num_chunks) == (any_session.device, 1)
        got = np.asarray(tensor.to("cpu"))
        np.testing.assert_array_equal(got, rows)
        assert got.dtype == rows.dtype


def test_nulls_of_tensors(any_session):
    column = any_session.from_arrow(pa.table({"c": [1.5, None, 2.5]}))["c"]
    with pytest.raises(cd.UsageError, match="column 'c', row 1: a tensor has no nulls"):
        column.to_tensor()
    with pytest.raises(cd.UsageError, match='nulls="what": expected'):
        column.to_tensor(nulls="what")
    numbers, mask = column.to_tensor(nulls="mask")
    np.testing.assert_array_equal(np.asarray(numbers.to("cpu")), [1.5, 0, 2.5])
    np.testing.assert_array_equal(np.asarray(mask.to("cpu")), [False, True, False])
    np.testing.assert_array_equal(np.asarray(column.to_tensor(nulls=float("nan")).to("cpu")), [1.5, np.nan, 2.5])
    dates = any_session.from_arrow(pa.array([datetime.date(1970, 1, 2), None]))
    assert np.asarray(dates.to_tensor(nulls=datetime.date(1970, 1, 11)).to("cpu")).tolist() == [1, 10]
    assert np.asarray(dates.to_tensor(nulls=-1).to("cpu")).tolist() == [1, -1]
    keys = any_session.from_arrow(pa.array(["a", None]).dictionary_encode())
    assert np.asarray(keys.to_tensor(nulls=-1).to("cpu")).tolist() == [0, -1]
    inner = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", None]))
    with pytest.raises(cd.UsageError, match="row 1: a tensor has no nulls"):
        any_session.from_arrow(inner).to_tensor()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (pa.array(["a"]), "dictionary_encode"),
        (pa.array([b"a"]), "dictionary_encode"),
        (pa.array([decimal.Decimal(1)]), r'cast\("float64"\)'),
        (pa.array([{"a": 1}]), "numbers or booleans"),
        (pa.array([[1], [2, 3]]), "row 1: the rows of a tensor have one length: the first list has 1 .* has 2"),
        (pa.array([[1], None]), "row 1: a null list has no elements"),
        (pa.array([[1, 2], [3, None]]), "row 1 has a null element"),
        (pa.array([[[1, 2]], [[3, None]]], pa.list_(pa.list_(pa.int8(), 2), 1)), "row 1 has a null element"),
        (pa.array([["a"], ["b"]]), "the elements are of type string"),
    ],
    ids=["text", "bytes", "decimal", "struct", "lists", "null list", "null element", "nested null", "list of texts"],
)
def test_columns_that_are_no_tensors_say_what_to_do(any_session, array, message):
    column = any_session.from_arrow(pa.table({"c": array}))["c"]
    for nulls in ("error", "mask", 0):
        with pytest.raises(cd.UsageError, match=f"column 'c'.*{message}"):
            column.to_tensor(nulls)


@pytest.mark.parametrize("kind", [pa.list_(pa.int16()), pa.large_list(pa.int16())], ids=str)
def test_lists_of_any_length_become_elements_and_offsets(any_session, kind):
    lists = pa.array([[9], [1, 2], [], [3]], kind)
    for source, elements, offsets in (
        (lists, [9, 1, 2, 3], [0, 1, 3, 3, 4]),
        (lists.slice(1), [1, 2, 3], [0, 2, 2, 3]),
        (lists.slice(0, 0), [], [0]),
        (pa.chunked_array([lists.slice(2), lists.slice(0, 1)]), [3, 9], [0, 0, 1, 2]),
    ):
        got = any_session.from_arrow(source, as_column=True).elements_and_offsets()
        assert [np.asarray(column.to("cpu")).tolist() for column in got] == [elements, offsets]
    with pytest.raises(cd.UsageError, match="a null list has no offsets"):
        any_session.from_arrow(pa.array([[1], None], kind)).elements_and_offsets()
    with pytest.raises(cd.UnsupportedError, match="expected lists with offsets"):
        any_session.from_arrow(pa.array([1])).elements_and_offsets()


def test_extension_types_follow_their_values(session):
    names = pa.array([b"a", b"b", b"a"], pa.binary(1))
    extension = {"ARROW:extension:name": "some.name", "ARROW:extension:metadata": "", "k": "v"}
    schema = pa.schema([pa.field("c", names.type, metadata=extension)])
    column = session.from_arrow(pa.table([names], schema=schema))["c"]
    encoded = column.dictionary_encode()
    assert encoded.field.metadata == {"k": "v"}
    assert encoded.decode_dictionary().field == column.field
    booleans = session.from_dlpack(np.array([True, False]))
    assert booleans.cast("bool").to_pyarrow().type == pa.bool_()
    assert booleans.cast("bool").field.metadata == {}


def test_table_without_batches_moves_to_another_device(cuda_session):
    empty = cuda_session.from_arrow(pa.table({"a": pa.array([], pa.int64())}).to_reader())
    assert (empty.num_batches, empty.to("cpu").device, empty.to("cpu").num_rows) == (0, "cpu", 0)
    assert np.asarray(empty["a"].to("cpu")).shape == (0,)


def test_chunked_columns_export_as_one_tensor(session):
    column = session.from_arrow(pa.chunked_array([[1, 2], [3]]), as_column=True)
    assert np.asarray(column).tolist() == [1, 2, 3]
    assert np.from_dlpack(column).tolist() == [1, 2, 3]
    with pytest.raises(BufferError, match="needs a copy"):
        memoryview(column)
    with pytest.raises(ValueError, match="needs a copy"):
        np.array(column, copy=False)


def test_to_numpy(any_session):
    assert any_session.from_arrow(pa.array([1.5, 2.5])).to_numpy().tolist() == [1.5, 2.5]
    times = any_session.from_arrow(pa.array([0, None, 1], pa.timestamp("ms"))).to_numpy()
    assert times.dtype == "M8[ms]" and np.isnat(times).tolist() == [False, True, False]
    assert any_session.from_arrow(pa.array([0, 1], pa.date32())).to_numpy().dtype == "M8[D]"
    assert any_session.from_arrow(pa.array([1, None])).to_numpy()[0] == 1.0
    assert any_session.from_arrow(pa.array(["a", None])).to_numpy().tolist() == ["a", None]


def test_brackets_iteration_and_head(any_session):
    source = pa.table({"a": range(10), "b": [str(i) for i in range(10)]})
    table = any_session.from_arrow(source)
    assert table[["b", "a"]].column_names == ["b", "a"]
    assert table[[1]].column_names == ["b"]
    for key in (slice(2, 5), slice(None), slice(-3, None), slice(8, 2), slice(None, None, 3), slice(None, None, -1)):
        assert table[key].to_pyarrow()["a"].to_pylist() == [*range(10)][key]
        assert table["b"][key].to_pylist() == [str(i) for i in range(10)][key]
    assert (table["a"][0], table["a"][-1], [*table["b"][:2]]) == (0, 9, ["0", "1"])
    for row in (10, -11):
        with pytest.raises(IndexError, match="out of range for 10 rows"):
            table["a"][row]
    assert [column.name for column in table] == ["a", "b"]
    assert table.head(3).num_rows == 3 and table.head().num_rows == 5
    with pytest.raises(KeyError):
        table[["a", "nope"]]
    assert table.to_pandas()["a"].tolist() == [*range(10)] if has_pandas() else True


def has_pandas():
    try:
        import pandas  # noqa: F401
    except ImportError:
        return False
    return True


def test_table_and_concat(session):
    column = session.from_arrow(pa.chunked_array([[1], [2, 3]]), as_column=True)
    table = cd.table({"a": column, "b": ["x", None, "z"], "c": np.arange(3), "d": pa.array([True, False, None])})
    expected = {"a": [1, 2, 3], "b": ["x", None, "z"], "c": [0, 1, 2], "d": [True, False, None]}
    assert table.to_pyarrow().to_pydict() == expected
    both = cd.concat([table, table[1:]])
    assert both.to_pyarrow()["a"].to_pylist() == [1, 2, 3, 2, 3]
    assert cd.table(pa.table({"a": [1]})).to_pyarrow().to_pydict() == {"a": [1]}
    with pytest.raises(cd.UsageError, match="column 'b' has 2 rows, and column 'a' has 3"):
        cd.table({"a": column, "b": [1, 2]})
    with pytest.raises(cd.UsageError, match="table 1 does not have the schema"):
        cd.concat([table, table[["a"]]])
    with pytest.raises(cd.UsageError, match="column 'a'"):
        cd.table({"a": [1, "x"]})
    for wrong in ({1: [1]}, 5):
        with pytest.raises(TypeError, match="table: expected"):
            cd.table(wrong)
    for empty in (cd.table, cd.concat):
        with pytest.raises(cd.UsageError, match="at least one"):
            empty({} if empty is cd.table else [])


def test_cast_and_fill_null_of_tables(any_session):
    table = any_session.from_arrow(pa.table({"a": [1, None], "b": ["x", None], "c": [1.5, 2.5]}, metadata={"k": "v"}))
    changed = table.fill_null({"a": 7, "b": "y"}).cast({"a": "float32", 2: pa.int8()}, safe=False)
    assert changed.to_pyarrow().to_pydict() == {"a": [1.0, 7.0], "b": ["x", "y"], "c": [1, 2]}
    assert changed.schema.metadata == {"k": "v"}
    assert [str(f.type) for f in changed.to_pyarrow().schema] == ["float", "string", "int8"]
    with pytest.raises(KeyError):
        table.cast({"nope": "int8"})
