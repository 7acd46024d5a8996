"""Encoded arrays built from parts."""

import struct

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest

WORDS = np.array([3, 1, 2], "<i4")


def primitive(session, values, **more):
    """Builds a node of uncompressed numbers from its parts."""
    type = pa.field("", pa.from_numpy_dtype(values.dtype), nullable=False)
    return session.build_encoded("vortex.primitive", type, len(values), buffers=[values], **more)


def test_array_without_children_decodes_to_the_values_in_its_buffer(session):
    array = primitive(session, WORDS)
    assert (array.encoding, array.type, len(array)) == ("vortex.primitive", "int32", 3)
    assert array.decode().to_pyarrow().to_pylist() == [3, 1, 2]


@pytest.mark.parametrize("kind", ["built", "column", "bytes"])
def test_children_may_be_trees_columns_and_bytes(session, kind):
    codes = primitive(session, np.array([0, 2, 1, 0], "u1"))
    values = {
        "built": lambda: primitive(session, WORDS),
        "column": lambda: session.from_arrow(pa.array(WORDS)),
        "bytes": lambda: primitive(session, WORDS).to_bytes(),
    }[kind]()
    array = session.build_encoded("vortex.dict", pa.int32(), 4, metadata=b"\x08\x03", children=[codes, values])
    # The serialised tree is independent of the parts.
    del codes, values
    again = session.encoded(array.to_bytes())
    for tree in (array, again):
        assert tree.decode().to_pyarrow().to_pylist() == [3, 2, 1, 3]


def test_buffers_are_copied(session):
    words = WORDS.copy()
    array = primitive(session, words)
    words[:] = 0
    assert array.decode().to_pyarrow().to_pylist() == [3, 1, 2]


def test_unknown_encoding_is_written_and_read(session, tmp_path):
    array = session.build_encoded(
        "example.unknown",
        session.from_arrow(pa.table({"a": WORDS})).schema["a"],
        7,
        metadata=struct.pack("<i", 9),
        buffers=[b"", b"xyz"],
    )
    again = session.encoded(array.to_bytes())
    assert (again.encoding, len(again), again.to_bytes()) == ("example.unknown", 7, array.to_bytes())
    with pytest.raises(cd.Error, match="no plugin of the session decodes 'example.unknown'"):
        array.decode()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"type": 7}, TypeError, "type: expected an object with __arrow_c_schema__, got int"),
        ({"length": -1}, OverflowError, "negative"),
        ({"buffers": [7]}, TypeError, "bytes-like"),
        ({"buffers": [np.arange(8)[::2]]}, TypeError, "contiguous"),
        ({"children": [7]}, TypeError, "build_encoded: expected an object with .*, got int"),
        ({"encoding": ""}, cd.Error, "an id of 0 bytes"),
    ],
)
def test_build_encoded_rejects_invalid_arguments(session, change, error, message):
    parts = {"encoding": "a.b", "type": pa.int32(), "length": 1, **change}
    with pytest.raises(error, match=message):
        session.build_encoded(**parts)
