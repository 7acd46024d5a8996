"""Tables of pyarrow with types and shapes that Arrow's golden files lack."""

import datetime
import decimal
import uuid

import numpy as np
import pyarrow as pa

# Maps the name of each sample to the function that creates the sample.
SAMPLES = {}

# With this number of rows, a validity bitmap has more than two 64-bit words, and its last byte is
# not full.
ROWS = 131


def sample(function):
    """Registers a function that returns {column: array} or (schema, batches)."""
    SAMPLES[function.__name__] = function
    return function


def make(name):
    """Returns (schema, batches) of a sample."""
    content = SAMPLES[name]()
    if isinstance(content, dict):
        fields = [pa.field(column, array.type) for column, array in content.items()]
        batch = pa.record_batch(list(content.values()), schema=pa.schema(fields))
        return batch.schema, [batch]
    return content


def repeated(values, kind, every=3):
    """Returns an array of ROWS rows that repeats the values. By default every third row is null. With
    `every=0`, no row is null."""
    values_of_rows = (None if every and i % every == 1 else values[i % len(values)] for i in range(ROWS))
    return pa.array(values_of_rows, kind)


TEXTS = ["", "a", "twelve bytes", "thirteen bytes", "ein längerer Text, der nirgends hineinpasst", "日本語"]
BYTES = [text.encode() + b"\x00\xff" for text in TEXTS]


@sample
def views():
    return {
        "utf8_view": repeated(TEXTS, pa.string_view()),
        "binary_view": repeated(BYTES, pa.binary_view()),
        "short_only": repeated(["a", "bc"], pa.string_view()),
        "no_nulls": repeated(TEXTS, pa.string_view(), every=0),
        "all_null": pa.nulls(ROWS, pa.string_view()),
    }


@sample
def views_of_several_buffers():
    parts = [pa.array([f"{part}: a text of more than twelve bytes, {i}" for i in range(40)]) for part in range(3)]
    return {"utf8_view": pa.concat_arrays([part.cast(pa.string_view()) for part in parts])}


@sample
def large_forms():
    return {
        "large_utf8": repeated(TEXTS, pa.large_string()),
        "large_binary": repeated(BYTES, pa.large_binary()),
        "large_list": repeated([[], [1], [1, None, 3]], pa.large_list(pa.int32())),
        "large_list_of_text": repeated([[], ["a"], TEXTS], pa.large_list(pa.large_string())),
    }


@sample
def list_views():
    return {
        "list_view": repeated([[], [1], [1, None, 3]], pa.list_view(pa.int32())),
        "large_list_view": repeated([[], ["a"], TEXTS], pa.large_list_view(pa.string())),
        "of_list_views": repeated([[], [[1]], [[1, 2], None, []]], pa.list_view(pa.list_view(pa.int8()))),
    }


@sample
def list_views_out_of_order():
    """List views that overlap, descend, and leave a gap. Only arrays with both offsets and sizes can represent
    such lists."""
    values = pa.array(range(10), pa.int64())
    offsets, sizes = [7, 0, 2, 2, 9], [3, 4, 0, 5, 1]
    mask = pa.array([False, False, False, True, False])
    small = pa.ListViewArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(sizes, pa.int32()), values, mask=mask)
    large = pa.LargeListViewArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(sizes, pa.int64()), values)
    return {"list_view": small, "large_list_view": large}


@sample
def run_ends():
    def encoded(bits, values):
        ends = pa.array(range(7, 7 * len(values) + 1, 7), getattr(pa, f"int{bits}")())
        return pa.RunEndEncodedArray.from_arrays(ends, values)

    return {
        "int16_of_text": encoded(16, pa.array(["a", None, "längerer Text", "d", "d"])),
        "int32_of_floats": encoded(32, pa.array([1.5, None, -0.0, None, 3.0])),
        "int64_of_lists": encoded(64, pa.array([[1, 2], None, [], [3], [None]], pa.list_(pa.int16()))),
        "all_in_one_run": pa.RunEndEncodedArray.from_arrays(pa.array([35], pa.int32()), pa.array([True])),
    }


@sample
def decimals():
    numbers = [decimal.Decimal(text) for text in ("0.00", "-1.23", "99999.99", "-99999.99")]
    kinds = [pa.decimal32(7, 2), pa.decimal64(18, 2), pa.decimal128(38, 2), pa.decimal256(76, 2)]
    columns = {str(kind): repeated(numbers, kind) for kind in kinds}
    columns["negative scale"] = repeated([decimal.Decimal("12300")], pa.decimal64(9, -2))
    return columns


@sample
def floats():
    odd = [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan")]
    halves = np.array([value for _ in range(ROWS) for value in odd][:ROWS], dtype=np.float16)
    return {
        "f16": pa.array(halves, mask=np.arange(ROWS) % 3 == 1),
        "f16_no_nulls": pa.array(halves),
        "f32": repeated(odd, pa.float32()),
        "f64": repeated(odd, pa.float64()),
        "f16_list": repeated([[], [np.float16(1)]], pa.list_(pa.float16())),
    }


@sample
def temporal():
    columns = {
        "month_day_nano": repeated([(0, 0, 0), (-14, 31, -1), (1, -2, 10**18)], pa.month_day_nano_interval()),
        "date32": repeated([0, -719162, 2932896], pa.date32()),
        "date64": repeated([0, 86_400_000, -86_400_000], pa.date64()),
        "time32_s": repeated([0, 86_399], pa.time32("s")),
        "time32_ms": repeated([0, 86_399_999], pa.time32("ms")),
        "time64_us": repeated([0, 86_399_999_999], pa.time64("us")),
        "time64_ns": repeated([0, 86_399_999_999_999], pa.time64("ns")),
    }
    for unit in ("s", "ms", "us", "ns"):
        columns[f"timestamp_{unit}"] = repeated([0, -1, 2**40], pa.timestamp(unit))
        columns[f"timestamp_{unit}_zone"] = repeated([0, -1, 2**40], pa.timestamp(unit, "Europe/Zürich"))
        columns[f"duration_{unit}"] = repeated([0, -1, 2**62], pa.duration(unit))
    return columns


@sample
def lists_of_fixed_size():
    return {
        "three": repeated([[1, 2, 3], [None, 5, 6]], pa.list_(pa.int16(), 3)),
        "none": repeated([[]], pa.list_(pa.int16(), 0)),
        "bools": repeated([[True, False, None]], pa.list_(pa.bool_(), 3)),
        "text": repeated([["a", None]], pa.list_(pa.string(), 2)),
        "bytes": repeated([b"abc", b"\x00\x01\x02"], pa.binary(3)),
        "no_bytes": repeated([b""], pa.binary(0)),
    }


@sample
def nested():
    deep = pa.struct([("a", pa.list_(pa.struct([("b", pa.map_(pa.string(), pa.list_(pa.float64())))])))])
    value = {"a": [{"b": [("x", [1.0, None]), ("y", None)]}, None, {"b": []}]}
    return {
        "deep": repeated([value, {"a": None}, {"a": []}], deep),
        "map_sorted": repeated([[("a", 1), ("b", None)], []], pa.map_(pa.string(), pa.int32(), keys_sorted=True)),
        "no_fields": repeated([{}], pa.struct([])),
        "null_inside": repeated([{"n": None}], pa.struct([("n", pa.null())])),
    }


@sample
def unions():
    codes = pa.array([5, 7, 5, 9, 7, 9], pa.int8())
    names, numbers = ["text", "number", "list"], [5, 7, 9]
    text = pa.array(["a", None, "c", None, None, "f"])
    number = pa.array([None, 2, None, None, 5, 6], pa.int64())
    lists = pa.array([[], None, [1], [2, None], [3], []], pa.list_(pa.int8()))
    sparse = pa.UnionArray.from_sparse(codes, [text, number, lists], names, numbers)
    offsets = pa.array([0, 0, 1, 3, 5, 5], pa.int32())
    dense = pa.UnionArray.from_dense(codes, offsets, [text, number, lists], names, numbers)
    return {"sparse": sparse, "dense": dense}


@sample
def dictionaries():
    columns = {}
    for kind in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        indices = repeated([0, 2, 1], getattr(pa, kind)())
        columns[kind] = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "längerer Text", None]))
    columns["ordered"] = pa.DictionaryArray.from_arrays(repeated([0, 1], pa.int8()), pa.array([1.5, 2.5]), ordered=True)
    columns["empty"] = pa.DictionaryArray.from_arrays(pa.nulls(ROWS, pa.int8()), pa.array([], pa.string()))
    columns["of_views"] = pa.DictionaryArray.from_arrays(
        repeated([0, 1], pa.int32()), pa.array(TEXTS, pa.string_view())
    )
    return columns


@sample
def dictionaries_nested():
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0, 2], pa.int8()), pa.array(["a", "b", "c"]))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 5], pa.int32()), words)
    structs = pa.StructArray.from_arrays([words, pa.array(range(5))], ["word", "n"])
    of_lists = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int16()), pa.array([[1, 2], [None]]))
    of_structs = pa.DictionaryArray.from_arrays(pa.array([3, 0, 4], pa.int32()), structs)
    of_dictionary_lists = pa.DictionaryArray.from_arrays(pa.array([2, 0, None], pa.int8()), lists)
    return {
        "list_of": lists,
        "struct_of": structs.slice(1, 3),
        "of_lists": of_lists,
        "of_structs_of_dictionaries": of_structs,
        "of_lists_of_dictionaries": of_dictionary_lists,
    }


class Unregistered(pa.ExtensionType):
    """An extension type that is not registered in the reader. Its name and parameters must survive as
    metadata."""

    def __init__(self):
        super().__init__(pa.struct([("lat", pa.float32()), ("lon", pa.float32())]), "example.point")

    def __arrow_ext_serialize__(self):
        return b'{"crs": "EPSG:4326"}'

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


@sample
def extensions():
    uuids = pa.array([None if i % 3 else uuid.UUID(int=i).bytes for i in range(ROWS)], pa.binary(16))
    tensors = pa.array([[float(i)] * 6 for i in range(ROWS)], pa.list_(pa.float32(), 6))
    tensor_type = pa.fixed_shape_tensor(pa.float32(), (2, 3), dim_names=("y", "x"), permutation=(1, 0))
    points = repeated([{"lat": 1.0, "lon": None}], Unregistered().storage_type)
    opaque = pa.opaque(pa.binary(), "geometry", "someone")
    return {
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), uuids),
        "json": pa.ExtensionArray.from_storage(pa.json_(), repeated(['{"a": 1}', "[]"], pa.string())),
        "bool8": pa.ExtensionArray.from_storage(pa.bool8(), repeated([0, 1, -1], pa.int8())),
        "tensor": pa.ExtensionArray.from_storage(tensor_type, tensors),
        "opaque": pa.ExtensionArray.from_storage(opaque, repeated(BYTES, pa.binary())),
        "unregistered": pa.ExtensionArray.from_storage(Unregistered(), points),
    }


@sample
def all_kinds_of_nulls():
    kinds = [pa.bool_(), pa.int8(), pa.string(), pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.null()]
    columns = {f"all_null_{kind}": pa.nulls(ROWS, kind) for kind in kinds}
    columns |= {f"first_{n}": pa.array([None] + [True] * (n - 1) + [None] * (ROWS - n)) for n in (7, 8, 9, 63, 64, 65)}
    return columns


@sample
def metadata():
    inner = pa.field("inner", pa.int32(), nullable=False, metadata={"unit": "m", "empty": ""})
    item = pa.field("item", pa.string(), metadata={"of": "items"})
    words = pa.field("words", pa.dictionary(pa.int8(), pa.string()), metadata={"on": "a dictionary"})
    fields = [
        pa.field("s", pa.struct([inner]), metadata={"a": "1", "Umlaut ä": "日本"}),
        pa.field("l", pa.list_(item)),
        words,
    ]
    schema = pa.schema(fields, metadata={"origin": "a test", "long": "x" * 10_000, "": "no name"})
    rows = [{"s": {"inner": 1}, "l": ["a"], "words": "w"}, {"s": None, "l": None, "words": None}]
    rows[1]["s"] = {"inner": 2}
    return schema, pa.Table.from_pylist(rows, schema=schema).to_batches()


@sample
def names_twice_and_none():
    schema = pa.schema([("a", pa.int8()), ("a", pa.string()), ("", pa.bool_())])
    return schema, [pa.record_batch([pa.array([1]), pa.array(["x"]), pa.array([None], pa.bool_())], schema=schema)]


def mixed():
    """One batch with several types, for samples that vary the batches."""
    return pa.record_batch(
        {
            "n": repeated([1, 2, 3], pa.int32()),
            "b": repeated([True, False], pa.bool_()),
            "t": repeated(TEXTS, pa.string()),
            "v": repeated(TEXTS, pa.string_view()),
            "l": repeated([[], [1, None]], pa.list_(pa.int64())),
            "f": repeated([[True, None]], pa.list_(pa.bool_(), 2)),
            "s": repeated(
                [{"x": 1, "y": "a"}, {"x": None, "y": None}], pa.struct([("x", pa.int8()), ("y", pa.string())])
            ),
            "d": repeated(["a", "b"], pa.string()).dictionary_encode(),
            "z": repeated([datetime.datetime(2013, 1, 1)], pa.timestamp("us", "UTC")),
        }
    )


@sample
def no_rows():
    return mixed().schema, [mixed().slice(0, 0)]


@sample
def no_batches():
    return mixed().schema, []


@sample
def empty_batches_between():
    batch = mixed()
    return batch.schema, [batch.slice(0, 0), batch, batch.slice(5, 0), batch.slice(0, 1), batch.slice(0, 0)]


@sample
def no_columns():
    rows = pa.array([{}] * 5, pa.struct([]))
    batch = pa.RecordBatch.from_struct_array(rows)
    return batch.schema, [batch]


@sample
def slices():
    """Slices with every bit offset within a byte, and with offsets past a 64-bit word. Their lengths are
    odd."""
    batch = mixed()
    return batch.schema, [batch.slice(offset, 3 + offset) for offset in (*range(1, 10), 31, 63, 64, 65)]


@sample
def slices_of_special_forms():
    batches = [make(name)[1][0] for name in ("views", "list_views", "large_forms", "extensions")]
    columns = {f"{i}_{name}": batch.column(name) for i, batch in enumerate(batches) for name in batch.schema.names}
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    return batch.schema, [batch.slice(offset, 50) for offset in (1, 7, 8, 65)]


@sample
def slices_of_runs():
    batch = make("run_ends")[1][0]
    return batch.schema, [batch.slice(offset, 9) for offset in (1, 6, 7, 20)]


@sample
def slices_of_unions():
    batch = make("unions")[1][0]
    return batch.schema, [batch.slice(1, 4), batch.slice(5, 1), batch.slice(2, 0)]
