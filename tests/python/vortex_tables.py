"""Tables with every type and value pattern that Vortex files store, and files of them."""

import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import vortex.io as vio


def with_nulls(array, generator, share=0.1):
    """Replaces a share of the values by nulls."""
    mask = pa.array(generator.random(len(array)) < share)
    return pc.if_else(mask, pa.scalar(None, array.type), array) if len(array) else array


def words(n, generator, count=50):
    """Returns n strings out of a few, of different lengths."""
    letters = list("abcdefgäö ")
    some = ["".join(generator.choice(letters, generator.integers(0, 30))) for _ in range(count)]
    return [some[i] for i in generator.integers(0, count, n)]


def integers(n, generator):
    columns = {}
    for code in ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]:
        dtype = np.dtype(code)
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        small = generator.integers(0, min(high, 1000), n).astype(dtype)
        base = generator.integers(0, 60, n).astype(dtype)
        patched = np.where(generator.random(n) < 0.005, dtype.type(high), base)
        columns[code] = pa.array(small)
        columns[code + "_any"] = pa.array(generator.integers(low, high, n, dtype=dtype))
        columns[code + "_patched"] = pa.array(patched)
        columns[code + "_null"] = with_nulls(pa.array(small), generator)
    columns["sequence"] = pa.array(np.arange(n) * 3 + 5)
    columns["constant"] = pa.array(np.full(n, 42))
    columns["nulls"] = pa.nulls(n, pa.int32())
    columns["null"] = pa.nulls(n)
    columns["runs"] = pa.array(np.repeat(generator.integers(0, 5, n // 50 + 1), 50)[:n])
    columns["sparse"] = pa.array(np.where(generator.random(n) < 0.01, generator.integers(0, 10**9, n), 7))
    columns["sparse_null"] = with_nulls(pa.array(np.arange(n)), generator, 0.99)
    return columns


def numbers(n, generator):
    random = generator.random(n)
    return {
        "f2": pa.array(random.astype("f2")),
        "f4": pa.array(np.round(random * 100, 1).astype("f4")),
        "f4_any": pa.array(random.astype("f4")),
        "f8": pa.array(np.round(random * 1000, 2)),
        "f8_any": pa.array(random),
        "f8_null": with_nulls(pa.array(random), generator),
        "bool": pa.array(random < 0.5),
        "bool_null": with_nulls(pa.array(random < 0.5), generator),
        "true": pa.array(np.ones(n, bool)),
        "date": pa.array((random * 20_000).astype("i4"), pa.date32()),
        "date64": pa.array((random * 20_000).astype("i8") * 86_400_000, pa.date64()),
        "time": pa.array((random * 86_400_000).astype("i4"), pa.time32("ms")),
        "time64": pa.array((random * 86_400_000_000).astype("i8"), pa.time64("us")),
        "timestamp": pa.array((random * 1e15).astype("i8"), pa.timestamp("us")),
        "timestamp_zone": with_nulls(
            pa.array((random * 1e18).astype("i8"), pa.timestamp("ns", "Europe/Berlin")), generator
        ),
        "decimal": pa.array([decimal.Decimal(int(x * 10**6)).scaleb(-2) for x in random], pa.decimal128(12, 2)),
        "decimal38": with_nulls(
            pa.array([decimal.Decimal(int(x * 1e18) * 10**15).scaleb(-5) for x in random], pa.decimal128(38, 5)),
            generator,
        ),
    }


def texts(n, generator):
    return {
        "string": pa.array(words(n, generator)),
        "string_any": pa.array([f"prefix-{i}-{generator.integers(10**6)}-suffix" for i in range(n)], pa.string()),
        "string_null": with_nulls(pa.array(words(n, generator), pa.string()), generator),
        "large_string": pa.array(words(n, generator), pa.large_string()),
        "view": pa.array(words(n, generator), pa.string_view()),
        "dictionary": pa.array(words(n, generator), pa.string()).dictionary_encode(),
        "binary": pa.array([word.encode() for word in words(n, generator, 20)], pa.binary()),
        "binary_any": pa.array([generator.bytes(generator.integers(0, 40)) for _ in range(n)], pa.binary()),
    }


def nested(n, generator):
    def lists(elements, list_type):
        """Returns n lists of 0 to 4 elements."""
        offsets = np.concatenate([[0], np.cumsum(generator.integers(0, 5, n))])
        return list_type.from_arrays(pa.array(offsets, pa.int32()), elements(int(offsets[-1])))

    small = lists(lambda count: pa.array(generator.integers(0, 100, count).astype("i4")), pa.ListArray)
    small16 = lists(lambda count: pa.array(generator.integers(0, 100, count).astype("i2")), pa.ListArray)
    text_lists = lists(lambda count: pa.array(words(count, generator, 9), pa.string()), pa.ListArray)
    text, index = pa.array(words(n, generator), pa.string()), pa.array(np.arange(n) % 9)
    inner = pa.StructArray.from_arrays([text], ["text"])
    mask = pa.array(generator.random(n) < 0.2)
    return {
        "list": small,
        "list_null": with_nulls(text_lists, generator),
        "large_list": small.cast(pa.large_list(pa.int64())),
        "fixed_size_list": pa.FixedSizeListArray.from_arrays(pa.array(generator.random(3 * n)), 3),
        "struct": pa.StructArray.from_arrays([index, text, small16], ["x", "y", "z"]),
        "struct_null": pa.StructArray.from_arrays([with_nulls(index, generator), inner], ["x", "y"], mask=mask),
    }


def extensions(n, generator):
    """Extension types that Arrow and Vortex define under different names."""

    def uuids(values):
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))

    ids = uuids([None if i % 7 == 3 else generator.bytes(16) for i in range(n)])
    few = uuids([bytes([i // 100 % 5]) * 16 for i in range(n)])
    texts = pa.array([None if i % 5 == 1 else f'{{"value": {i % 1000}}}' for i in range(n)], pa.string())
    return {
        "uuid": ids,
        "uuid, few": few,
        "uuid, constant": uuids([b"constant of bytes"[:16]] * n),
        "uuid, null": uuids([None] * n),
        "uuid, in a list": pa.ListArray.from_arrays(pa.array(range(n + 1), pa.int32()), few),
        "uuid, in a struct": pa.StructArray.from_arrays([ids], ["x"]),
        "json": pa.ExtensionArray.from_storage(pa.json_(), texts),
    }


GROUPS = {"integers": integers, "numbers": numbers, "texts": texts, "nested": nested, "extensions": extensions}


def table(n, groups=("integers", "numbers", "texts", "nested")):
    """Returns a table of n rows with the columns of some groups. The default is that of the golden files."""
    generator = np.random.default_rng(n)
    columns = {}
    for group in groups:
        columns |= GROUPS[group](n, generator)
    return pa.table(columns)


def write(table, path, form="default"):
    """Writes a table with one of Vortex's options."""
    options = {"default": vio.VortexWriteOptions.default, "compact": vio.VortexWriteOptions.compact}
    options[form]().write(table, str(path))
