"""Columns of every type that Parquet files store."""

import datetime
import decimal

import numpy as np
import pyarrow as pa

DAY = datetime.date(2020, 2, 29)
TENTH = decimal.Decimal("0.1")
LONG = "a text of more than twelve bytes"
SIZES = [0, 1, 1024, 100_003]


def cycle(values, n, data_type=None):
    """Returns an array of `n` values, which are repeated."""
    whole = pa.array(values, data_type)
    parts = [whole] * (n // len(values)) + [whole.slice(0, n % len(values))]
    return pa.concat_arrays(parts)


def _fixed_width(n):
    columns = {"null": pa.nulls(n), "all_null": pa.nulls(n, pa.int32())}
    columns["bool"] = cycle([True, None, False], n, pa.bool_())
    for bits in (8, 16, 32, 64):
        columns[f"i{bits}"] = cycle([-(2 ** (bits - 1)), None, 3, 3], n, getattr(pa, f"int{bits}")())
        columns[f"u{bits}"] = cycle([0, 2**bits - 1, None], n, getattr(pa, f"uint{bits}")())
    columns["f16"] = cycle([np.float16(1.5), None, np.float16("inf")], n, pa.float16())
    columns["f32"] = cycle([-0.0, None, 1.5e38], n, pa.float32())
    columns["f64"] = cycle([0.1, None, float("nan"), -0.0], n, pa.float64())
    columns["date32"] = cycle([DAY, None], n, pa.date32())
    columns["time_ms"] = cycle([1, None], n, pa.time32("ms"))
    columns["time_us"] = cycle([1, None], n, pa.time64("us"))
    columns["time_ns"] = cycle([1000, None], n, pa.time64("ns"))
    for unit in ("ms", "us", "ns"):
        columns[f"timestamp_{unit}"] = cycle([10**6, None, -1000], n, pa.timestamp(unit))
    columns["timestamp_zone"] = cycle([10**15, None], n, pa.timestamp("us", "Europe/Berlin"))
    for unit in ("s", "ms", "us", "ns"):
        columns[f"duration_{unit}"] = cycle([10**6, None, -1000], n, pa.duration(unit))
    columns["decimal32"] = cycle([TENTH, None, -TENTH], n, pa.decimal32(5, 2))
    columns["decimal64"] = cycle([TENTH, None, -TENTH], n, pa.decimal64(15, 2))
    columns["decimal128"] = cycle([decimal.Decimal(10**37), None], n, pa.decimal128(38, 0))
    columns["decimal256"] = cycle([decimal.Decimal(-(10**70)), None], n, pa.decimal256(76, 0))
    columns["fixed_size_binary"] = cycle([b"abcd", None, b"\x00\xff\x00\xff"], n, pa.binary(4))
    generator = np.random.default_rng(n)
    columns["sequence"] = pa.array(np.arange(n) * 3 + 5)
    columns["random"] = pa.array(generator.random(n))
    columns["rarely_null"] = pa.array(generator.integers(0, 1000, n), mask=generator.random(n) < 0.01)
    return columns


def _texts(n):
    columns = {}
    for name in ("string", "large_string", "string_view"):
        columns[name] = cycle(["", None, LONG, "ä"], n, getattr(pa, name)())
    for name in ("binary", "large_binary", "binary_view"):
        columns[name] = cycle([b"\xff\x00", None, LONG.encode()], n, getattr(pa, name)())
    columns["distinct"] = pa.array([f"prefix-{i}-suffix" for i in range(n)], pa.string())
    return columns


def _nested(n):
    columns = {}
    for name in ("list_", "large_list"):
        columns[name] = cycle([[1, None], None, [], [3]], n, getattr(pa, name)(pa.int16()))
    columns["list_of_strings"] = cycle([["a", LONG], None, [None]], n, pa.list_(pa.string()))
    columns["list_of_lists"] = cycle([[[1], None, []], None], n, pa.list_(pa.list_(pa.int64())))
    columns["fixed_size_list"] = cycle([[1.5, None], None, [3, 4]], n, pa.list_(pa.float32(), 2))
    inner = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
    columns["struct"] = cycle([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}], n, inner)
    columns["struct_of_structs"] = cycle([{"s": {"a": 1, "b": []}}, None], n, pa.struct([("s", inner)]))
    columns["list_of_structs"] = cycle([[{"s": {"a": 1}}], None, []], n, pa.list_(pa.struct([("s", inner)])))
    columns["map"] = cycle([[("k", 1), (LONG, None)], None, []], n, pa.map_(pa.string(), pa.int32()))
    required = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])
    columns["struct_with_required"] = cycle([{"a": 1, "b": "x"}, None], n, required)
    return columns


def _dictionaries(n):
    words = pa.array(["a", "", LONG])
    indices = cycle([0, 1, 2, None], n, pa.int8())
    return {
        "dictionary": pa.DictionaryArray.from_arrays(indices.cast(pa.int32()), words),
        "dictionary_i8": pa.DictionaryArray.from_arrays(indices, words),
        "dictionary_of_large_strings": pa.DictionaryArray.from_arrays(
            indices.cast(pa.int32()), words.cast("large_string")
        ),
        "dictionary_of_bytes": pa.DictionaryArray.from_arrays(indices.cast(pa.int32()), words.cast(pa.binary())),
    }


GROUPS = {"fixed_width": _fixed_width, "texts": _texts, "nested": _nested, "dictionaries": _dictionaries}


def table(group, n):
    """Returns a table with the columns of a group and with metadata of the schema and of fields."""
    columns = GROUPS[group](n)
    required = {"sequence", "distinct"}
    fields = [
        pa.field(name, array.type, nullable=name not in required, metadata={"field": name})
        for name, array in columns.items()
    ]
    return pa.table(list(columns.values()), schema=pa.schema(fields, metadata={"table": group}))


def differs_in_the_dictionary_only(got, expected):
    """pyarrow reads all dictionaries with indices of 32 bits, and with strings of one type."""
    return pa.types.is_dictionary(got) and pa.types.is_dictionary(expected)


def assert_equal(got, expected):
    """Compares names, types, nullability, metadata of fields and values. NaN equals NaN, and -0.0 differs from 0.0. The
    test `test_dictionaries_stay_dictionaries` compares the types of dictionaries."""
    assert got.schema.names == expected.schema.names
    assert got.num_rows == expected.num_rows
    for field in expected.schema:
        column, wanted = got[field.name], expected[field.name]
        column.validate(full=True)
        got_field = got.schema.field(field.name)
        assert column.type == field.type or differs_in_the_dictionary_only(column.type, field.type), field.name
        assert got_field.nullable == field.nullable, field.name
        assert (got_field.metadata or {}).items() >= (field.metadata or {}).items(), field.name
        assert_values_equal(column, wanted, field.name)


def assert_values_equal(column, wanted, name):
    column, wanted = (array.combine_chunks() for array in (column, wanted))
    if pa.types.is_floating(wanted.type):
        integers = {16: np.uint16, 32: np.uint32, 64: np.uint64}[wanted.type.bit_width]
        assert column.is_null().equals(wanted.is_null()), name
        column, wanted = (array.drop_null().to_numpy().view(integers) for array in (column, wanted))
        assert (column == wanted).all(), name
    elif pa.types.is_dictionary(wanted.type):
        assert column.cast(wanted.type.value_type).equals(wanted.cast(wanted.type.value_type)), name
    elif not column.equals(wanted):
        assert column.to_pylist() == wanted.to_pylist(), name
