"""`decode_dictionary`, and the functions that error messages recommend."""

import re

import crossdock as cd
import pyarrow as pa
import pytest
from conftest import ROOT

VALUES = {
    "texts": pa.array(["red", None, "", "green and blue", "größer als zwölf"]),
    "large texts": pa.array(["red", None, "", "green and blue", "größer als zwölf"], pa.large_string()),
    "bytes": pa.array([b"a", b"", None, b"\xff\x00", b"bcd"]),
    "fixed bytes": pa.array([b"ab", b"cd", None, b"ef", b"gh"], pa.binary(2)),
    "numbers": pa.array([1, 2, None, -4, 5], pa.int16()),
    "booleans": pa.array([True, False, None, True, True]),
    "decimals": pa.array([1, 2, None, 4, 5], pa.decimal128(9, 2)),
    "times": pa.array([1, 2, None, 4, 5], pa.timestamp("us", "UTC")),
    "lists": pa.array([["a", None], [], None, ["b"], ["c", "d"]]),
    "structs": pa.array([{"a": "x", "b": 1}, {"a": None, "b": 2}, None, {"a": "y", "b": None}, {"a": "z", "b": 0}]),
}
KEYS = [4, None, 0, 0, 3, 1, None, 2]


def dictionary(values, keys="int8"):
    return pa.DictionaryArray.from_arrays(pa.array(KEYS, keys), values)


@pytest.mark.parametrize("keys", ["int8", "uint16", "int64"])
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_column_is_decoded(session, values, keys):
    array = dictionary(values, keys)
    chunked = pa.chunked_array([array, array.slice(2, 4)])
    column = session.from_arrow(pa.table({"c": chunked}))["c"]
    decoded = column.decode_dictionary()
    assert (decoded.name, decoded.num_chunks, len(decoded)) == ("c", 2, 12)
    assert pa.chunked_array(decoded).type == values.type
    assert pa.chunked_array(decoded).to_pylist() == chunked.to_pylist()


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_column_is_decoded_on_its_device(cuda_session, cuda, values):
    column = cuda_session.from_arrow(pa.table({"c": dictionary(values)}))["c"]
    decoded = column.decode_dictionary()
    assert decoded.device == cuda
    assert pa.chunked_array(decoded).to_pylist() == dictionary(values).to_pylist()


def test_table_decodes_all_or_named_columns(session):
    texts, numbers = dictionary(VALUES["texts"]), dictionary(VALUES["numbers"])
    source = pa.table({"a": texts, "n": range(8), "b": numbers}, metadata={"k": "v"})
    table = session.from_arrow(source)
    assert pa.table(table.decode_dictionary()).equals(
        pa.table(
            {"a": texts.dictionary_decode(), "n": range(8), "b": numbers.dictionary_decode()}, metadata={"k": "v"}
        ),
        check_metadata=True,
    )
    partly_decoded = pa.table(table.decode_dictionary(["b"]))
    assert [str(field.type) for field in partly_decoded.schema] == [str(texts.type), "int64", "int16"]
    with pytest.raises(cd.UsageError, match="column 'n': expected a dictionary to decode, got int64"):
        table.decode_dictionary(["a", "n"])
    with pytest.raises(cd.UsageError, match="'n'"):
        table["n"].decode_dictionary()


def test_nested_dictionaries_are_decoded_level_by_level(session):
    inner = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int8()), pa.array(["x", "y"]))
    outer = pa.DictionaryArray.from_arrays(pa.array([2, 1, 0, None, 0], pa.int16()), inner)
    column = session.from_arrow(outer)
    once = column.decode_dictionary()
    assert pa.chunked_array(once).type == inner.type
    assert pa.chunked_array(once.decode_dictionary()).to_pylist() == ["x", None, "y", None, "y"]


@pytest.mark.parametrize("has_nulls", [True, False])
def test_field_becomes_nullable_if_dictionary_values_are_null(session, has_nulls):
    values = pa.array(["a", None] if has_nulls else ["a", "b"])
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), values)
    schema = pa.schema([pa.field("c", array.type, nullable=False, metadata={"k": "v"})])
    decoded = session.from_arrow(pa.record_batch([array], schema=schema))["c"].decode_dictionary()
    assert (decoded.field.nullable, decoded.field.metadata) == (has_nulls, {"k": "v"})


def texts_of(path):
    """Yields the string literals of a Rust file."""
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"', path.read_text(), re.DOTALL):
        yield re.sub(r"\\\n\s*", "", match.group(1))


def test_functions_that_error_messages_name_exist():
    crates = "arrays capi cli host isolation kernels memory/* plugin-api plugins/* python".split()
    sources = [path for crate in crates for path in ROOT.glob(f"{crate}/src/**/*.rs")]
    if not sources:
        pytest.skip("the sources of the crates are not installed")
    rust = "\n".join(path.read_text() for path in sources)
    functions = set()
    for text in (text for path in sources for text in texts_of(path)):
        functions |= set(re.findall(r"\b(Table|Column|Session|EncodedArray|Schema|Field)(\.|::)(\w+)", text))
    for name, separator, function in sorted(functions):
        if separator == ".":
            assert hasattr(getattr(cd, name), function), f"a message names {name}.{function}"
        else:
            assert re.search(rf"pub fn {function}\b", rust), f"a message names {name}::{function}"
    assert ("Table", ".", "decode_dictionary") in functions and ("Table", "::", "decode_dictionaries") in functions
