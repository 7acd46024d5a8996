"""Reads Arrow's integration JSON, which contains the expected values of each golden case. Builds pyarrow
arrays from buffers."""

import ctypes
import gzip
import json
from functools import lru_cache

import numpy as np
import pyarrow as pa

UNITS = {"SECOND": "s", "MILLISECOND": "ms", "MICROSECOND": "us", "NANOSECOND": "ns"}
FLOATS = {"HALF": pa.float16(), "SINGLE": pa.float32(), "DOUBLE": pa.float64()}
SIMPLE = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "utf8": pa.string(),
    "binary": pa.binary(),
    "largeutf8": pa.large_string(),
    "largebinary": pa.large_binary(),
}


# pyarrow has no classes for two interval types: months, and days with milliseconds. Integers with
# the same bytes substitute for these intervals.
SUBSTITUTES = {"YEAR_MONTH": pa.int32(), "DAY_TIME": pa.int64()}
LAYOUTS = {
    "YEAR_MONTH": np.dtype("<i4"),
    "DAY_TIME": np.dtype([("days", "<i4"), ("milliseconds", "<i4")]),
    "MONTH_DAY_NANO": np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")]),
}
BY_NAME = {"month_interval": "YEAR_MONTH", "day_time_interval": "DAY_TIME"}


def with_substitutes(table):
    """Returns (schema, batches) with the integer types that `truth` substitutes for intervals. The buffers are
    unchanged."""
    schema, batches = table
    fields = [f.with_type(SUBSTITUTES[BY_NAME[str(f.type)]]) if str(f.type) in BY_NAME else f for f in schema]
    if fields == list(schema):
        return table
    schema = pa.schema(fields, metadata=schema.metadata)
    array = ctypes.create_string_buffer(80)  # struct ArrowArray
    imported = []
    for batch in batches:
        batch._export_to_c(ctypes.addressof(array))
        imported.append(pa.RecordBatch._import_from_c(ctypes.addressof(array), schema))
    return schema, imported


@lru_cache(maxsize=4)
def truth(case):
    """Returns (schema, batches) of a case, with integers in place of the older interval types."""
    with gzip.open(f"{case}.json.gz", "rt", encoding="utf-8") as file:
        content = json.load(file)
    fields = content["schema"]["fields"]
    values = {d["id"]: d["data"]["columns"][0] for d in content.get("dictionaries", [])}
    schema = pa.schema([_field(f) for f in fields], metadata=_metadata(content["schema"]))
    batches = []
    for batch in content["batches"]:
        columns = [_array(f, column, values) for f, column in zip(fields, batch["columns"])]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    return schema, batches


def _metadata(node):
    pairs = node.get("metadata") or []
    return {pair["key"]: pair["value"] for pair in pairs} or None


def _field(field):
    kind = _type(field)
    dictionary = field.get("dictionary")
    if dictionary:
        index = dictionary["indexType"]
        kind = pa.dictionary(_integer(index), kind, ordered=dictionary["isOrdered"])
    return pa.field(field["name"], kind, field["nullable"], _metadata(field))


def _integer(kind):
    return getattr(pa, f"{'int' if kind['isSigned'] else 'uint'}{kind['bitWidth']}")()


def _type(field):
    kind, children = field["type"], field["children"]
    match kind["name"]:
        case name if name in SIMPLE:
            return SIMPLE[name]
        case "int":
            return _integer(kind)
        case "floatingpoint":
            return FLOATS[kind["precision"]]
        case "decimal":
            return (pa.decimal256 if kind.get("bitWidth") == 256 else pa.decimal128)(kind["precision"], kind["scale"])
        case "fixedsizebinary":
            return pa.binary(kind["byteWidth"])
        case "date":
            return pa.date32() if kind["unit"] == "DAY" else pa.date64()
        case "time":
            return (pa.time32 if kind["bitWidth"] == 32 else pa.time64)(UNITS[kind["unit"]])
        case "timestamp":
            return pa.timestamp(UNITS[kind["unit"]], kind.get("timezone"))
        case "duration":
            return pa.duration(UNITS[kind["unit"]])
        case "interval":
            return SUBSTITUTES.get(kind["unit"], pa.month_day_nano_interval())
        case "list":
            return pa.list_(_field(children[0]))
        case "largelist":
            return pa.large_list(_field(children[0]))
        case "fixedsizelist":
            return pa.list_(_field(children[0]), kind["listSize"])
        case "struct":
            return pa.struct([_field(child) for child in children])
        case "map":
            # pyarrow renames the fields of a map to their canonical names.
            key, item = (_field(child).with_name(n) for child, n in zip(children[0]["children"], ("key", "value")))
            return pa.map_(key, item, keys_sorted=kind["keysSorted"])
        case "union":
            make = pa.dense_union if kind["mode"] == "DENSE" else pa.sparse_union
            return make([_field(child) for child in children], kind["typeIds"])
    raise ValueError(f"the type is not supported: {kind}")


def _bits(flags):
    return pa.py_buffer(np.packbits(np.array(flags, dtype=bool), bitorder="little").tobytes())


def _numbers(values, dtype):
    # 64-bit integers are strings, because JSON's numbers cannot represent all of them.
    return pa.py_buffer(np.array([int(v) if isinstance(v, str) else v for v in values], dtype=dtype).tobytes())


def _array(field, column, dictionaries):
    dictionary = field.get("dictionary")
    if dictionary:
        plain = {"type": {"name": "int", **dictionary["indexType"]}, "children": []}
        indices = _array(plain, column, dictionaries)
        values = {key: value for key, value in field.items() if key != "dictionary"}
        values = _array(values, dictionaries[dictionary["id"]], dictionaries)
        return pa.DictionaryArray.from_arrays(indices, values, ordered=dictionary["isOrdered"], safe=False)
    kind, name, count = _type(field), field["type"]["name"], column["count"]
    if name == "null":
        return pa.nulls(count)
    children = [_array(f, c, dictionaries) for f, c in zip(field["children"], column.get("children", []))]
    if name == "union":
        buffers = [None, _numbers(column["TYPE_ID"], np.int8)]
        buffers += [_numbers(column["OFFSET"], np.int32)] if field["type"]["mode"] == "DENSE" else []
        return pa.Array.from_buffers(kind, count, buffers, children=children)
    unit = field["type"].get("unit")
    buffers = [_bits(column["VALIDITY"]), *_buffers(name, kind, unit, column)]
    return pa.Array.from_buffers(kind, count, buffers, children=children)


def _buffers(name, kind, unit, column):
    """Returns all buffers except the validity bitmap."""
    data = column.get("DATA")
    if "OFFSET" in column:
        offsets = _numbers(column["OFFSET"], np.int64 if name.startswith("large") else np.int32)
        if data is None:
            return [offsets]
        encode = str.encode if name.endswith("utf8") else bytes.fromhex
        return [offsets, pa.py_buffer(b"".join(map(encode, data)))]
    match name:
        case "struct" | "fixedsizelist":
            return []
        case "bool":
            return [_bits(data)]
        case "fixedsizebinary":
            return [pa.py_buffer(b"".join(map(bytes.fromhex, data)))]
        case "decimal":
            width = kind.bit_width // 8
            return [pa.py_buffer(b"".join(int(v).to_bytes(width, "little", signed=True) for v in data))]
        case "interval":
            layout = LAYOUTS[unit]
            rows = [tuple(v[n] for n in layout.names) for v in data] if layout.names else data
            return [pa.py_buffer(np.array(rows, layout).tobytes())]
        case "floatingpoint":
            return [_numbers(data, {16: np.float16, 32: np.float32, 64: np.float64}[kind.bit_width])]
    signed = name != "int" or pa.types.is_signed_integer(kind)
    return [_numbers(data, f"<{'i' if signed else 'u'}{kind.bit_width // 8}")]
