"""Columns of every type that the plugin writes, and the types with which Vortex files are read."""

import datetime
import decimal

import numpy as np
import pyarrow as pa

DAY = datetime.date(2020, 2, 29)
TENTH = decimal.Decimal("0.1")
LONG = "a text of more than twelve bytes"


def _cycle(values, n, data_type=None):
    return pa.array((values * (n // len(values) + 1))[:n], data_type)


def _fixed_width(n):
    columns = {"null": pa.nulls(n), "all_null": pa.nulls(n, pa.int32())}
    columns["bool"] = _cycle([True, None, False], n, pa.bool_())
    for bits in (8, 16, 32, 64):
        columns[f"i{bits}"] = _cycle([-(2 ** (bits - 1)), None, 3, 3], n, getattr(pa, f"int{bits}")())
        columns[f"u{bits}"] = _cycle([0, 2**bits - 1, None], n, getattr(pa, f"uint{bits}")())
    columns["f16"] = _cycle([np.float16(1.5), None, np.float16("inf")], n, pa.float16())
    columns["f32"] = _cycle([-0.0, None, 1.5e38], n, pa.float32())
    columns["f64"] = _cycle([0.1, None, float("nan"), -0.0], n, pa.float64())
    columns["date32"] = _cycle([DAY, None], n, pa.date32())
    columns["date64"] = _cycle([DAY, None], n, pa.date64())
    columns["time_s"] = _cycle([1, None, 86_399], n, pa.time32("s"))
    columns["time_ms"] = _cycle([1, None], n, pa.time32("ms"))
    columns["time_us"] = _cycle([1, None], n, pa.time64("us"))
    columns["time_ns"] = _cycle([1000, None], n, pa.time64("ns"))
    for unit in ("s", "ms", "us", "ns"):
        columns[f"timestamp_{unit}"] = _cycle([10**6, None, -1000], n, pa.timestamp(unit))
    columns["timestamp_zone"] = _cycle([10**15, None], n, pa.timestamp("us", "Europe/Berlin"))
    columns["decimal32"] = _cycle([TENTH, None, -TENTH], n, pa.decimal32(5, 2))
    columns["decimal64"] = _cycle([TENTH, None, -TENTH], n, pa.decimal64(15, 2))
    columns["decimal128"] = _cycle([decimal.Decimal(10**37), None], n, pa.decimal128(38, 0))
    columns["decimal256"] = _cycle([decimal.Decimal(10**70), None], n, pa.decimal256(76, 0))
    # Values that the compressor stores in different encodings.
    columns["sequence"] = pa.array(np.arange(n) * 3 + 5)
    columns["runs"] = pa.array(np.repeat(np.arange(n // 50 + 1), 50)[:n])
    generator = np.random.default_rng(n)
    columns["small"] = pa.array(generator.integers(0, 100, n).astype("i8"))
    columns["prices"] = pa.array(np.round(generator.random(n) * 100, 2))
    columns["random"] = pa.array(generator.random(n))
    columns["sparse"] = pa.array(np.where(generator.random(n) < 0.01, generator.integers(0, 10**9, n), 7))
    return columns


def _texts(n):
    columns = {}
    for name in ("string", "large_string", "string_view"):
        columns[name] = _cycle(["", None, LONG, "ä"], n, getattr(pa, name)())
    for name in ("binary", "large_binary", "binary_view"):
        columns[name] = _cycle([b"\xff\x00", None, LONG.encode()], n, getattr(pa, name)())
    columns["distinct"] = pa.array([f"prefix-{i}-suffix" for i in range(n)], pa.string())
    return columns


def _nested(n):
    columns = {}
    for name in ("list_", "large_list", "list_view", "large_list_view"):
        columns[name] = _cycle([[1, None], None, [], [3]], n, getattr(pa, name)(pa.int16()))
    columns["list_of_strings"] = _cycle([["a", LONG], None, [None]], n, pa.list_(pa.string()))
    columns["list_of_lists"] = _cycle([[[1], None, []], None], n, pa.list_(pa.list_(pa.int64())))
    columns["fixed_size_list"] = _cycle([[1.5, None], None, [3, 4]], n, pa.list_(pa.float32(), 2))
    inner = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
    columns["struct"] = _cycle([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}], n, inner)
    columns["struct_of_structs"] = _cycle([{"s": {"a": 1, "b": []}}, None], n, pa.struct([("s", inner)]))
    columns["fixed_size_list_of_structs"] = _cycle([[{"s": {"a": 1}}], None], n, pa.list_(pa.struct([("s", inner)]), 1))
    columns["list_of_structs"] = _cycle([[{"s": {"a": 1}}], None, []], n, pa.list_(pa.struct([("s", inner)])))
    columns["lists_of_size_0"] = _cycle([[], None], n, pa.list_(pa.int8(), 0))
    columns["empty_struct"] = _cycle([{}, None], n, pa.struct([]))
    columns["map"] = _cycle([[("k", 1), (LONG, None)], None, []], n, pa.map_(pa.string(), pa.int32()))
    required = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])
    columns["struct_with_required"] = _cycle([{"a": 1, "b": "x"}, None], n, required)
    return columns


def _encoded(n):
    words = pa.array(["a", None, LONG])
    indices = _cycle([0, 1, 2, None], n, pa.int8())
    ends = [*range(3, n, 3), n] if n else []
    return {
        "dictionary": pa.DictionaryArray.from_arrays(indices, words),
        "dictionary_u64": pa.DictionaryArray.from_arrays(indices.cast(pa.uint64()), pa.array([1.5, 2.5, 3.5])),
        "dictionary_of_structs": pa.DictionaryArray.from_arrays(
            indices, pa.array([{"a": 1}, None, {"a": None}], pa.struct([("a", pa.int8())]))
        ),
        "list_of_dictionaries": pa.ListArray.from_arrays(
            pa.array(range(n + 1), pa.int32()), pa.DictionaryArray.from_arrays(indices, words)
        ),
        "run_end": pa.RunEndEncodedArray.from_arrays(
            pa.array(ends, pa.int32()), _cycle([1, None, 3], len(ends), pa.int64())
        ),
        "run_end_strings": pa.RunEndEncodedArray.from_arrays(
            pa.array(ends, pa.int16() if n < 2**15 else pa.int32()), _cycle(["x", None, LONG], len(ends), pa.string())
        ),
    }


GROUPS = {"fixed_width": _fixed_width, "texts": _texts, "nested": _nested, "encoded": _encoded}


def table(group, n):
    columns = GROUPS[group](n)
    required = {"sequence", "distinct", "runs"}
    fields = [pa.field(name, array.type, nullable=name not in required) for name, array in columns.items()]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


def logical(data_type):
    """Returns the type with which a column of this type is read from a Vortex file."""
    if pa.types.is_dictionary(data_type) or pa.types.is_run_end_encoded(data_type):
        return logical(data_type.value_type)
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return pa.string_view()
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return pa.binary_view()
    if pa.types.is_decimal32(data_type) or pa.types.is_decimal64(data_type):
        return pa.decimal128(data_type.precision, data_type.scale)
    if pa.types.is_fixed_size_list(data_type):
        return pa.list_(_logical_field(data_type.value_field, "item"), data_type.list_size)
    if isinstance(data_type, pa.ListType | pa.LargeListType | pa.ListViewType | pa.LargeListViewType):
        return pa.list_(_logical_field(data_type.value_field, "item"))
    if pa.types.is_map(data_type):
        return pa.map_(_logical_field(data_type.key_field), _logical_field(data_type.item_field))
    if pa.types.is_struct(data_type):
        return pa.struct([_logical_field(field) for field in data_type])
    return data_type


def _logical_field(field, name=None):
    return pa.field(name or field.name, logical(field.type), field.nullable)


def logical_schema(schema):
    """Returns the schema with which a table of this schema is read from a Vortex file."""
    return pa.schema([_logical_field(field) for field in schema])
