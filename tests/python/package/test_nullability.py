"""Nulls in fields that are not nullable are either kept, or rejected with an error that names the column. No
value changes."""

import io
import re

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest


def field(type, nullable=False):
    return pa.field("x", type, nullable=nullable)


def child(type):
    return pa.field("item", type, nullable=False)


def not_null(type, values):
    """A column with a null whose field is not nullable."""
    return pa.table([pa.array(values, type)], schema=pa.schema([field(type)]))


def below(parent, buffers, child):
    """A column of the type `parent`, with a null in a child whose field is not nullable."""
    array = pa.Array.from_buffers(
        parent, len(child) if buffers == [None] else len(child) - 1, buffers, children=[child]
    )
    return pa.table([array], schema=pa.schema([field(parent, nullable=True)]))


NUMBERS = pa.array([1, None, 3], pa.int64())
FORBIDDEN = {
    "int": not_null(pa.int64(), [1, None, 3]),
    "bool": not_null(pa.bool_(), [True, None, False]),
    "text": not_null(pa.string(), ["a", None, "c"]),
    "view": not_null(pa.string_view(), ["a", None, "c"]),
    "decimal": not_null(pa.decimal128(5, 2), [1, None, 3]),
    "list": not_null(pa.list_(pa.int64()), [[1], None, []]),
    "struct": not_null(pa.struct([("a", pa.int64())]), [{"a": 1}, None, {"a": 3}]),
    "dictionary": not_null(pa.dictionary(pa.int8(), pa.string()), ["a", None, "c"]),
    "values of a dictionary": pa.table(
        [pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["a", None]))],
        schema=pa.schema([field(pa.dictionary(pa.int8(), pa.string()))]),
    ),
    "field of a struct": below(pa.struct([child(pa.int64())]), [None], NUMBERS),
    "element of a list": below(pa.list_(child(pa.int64())), [None, pa.py_buffer(np.array([0, 1, 3], "i4"))], NUMBERS),
}


def to_vortex(session, table):
    return session.from_vortex(session.from_arrow(table)["x"]).to_pyarrow().to_pylist()


def to_bytes(session, table):
    out = io.BytesIO()
    session.from_arrow(table).write_ipc(out)
    return session.read_ipc(out.getvalue())["x"].to_pyarrow().to_pylist()


def to_arrow(session, table):
    return session.from_arrow(table)["x"].to_pyarrow().to_pylist()


def to_other_library(session, table):
    return pa.table(session.from_arrow(table)).column("x").to_pylist()


EXPORTS = [to_vortex, to_bytes, to_arrow, to_other_library]


@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: export.__name__)
@pytest.mark.parametrize("name", FORBIDDEN)
def test_nulls_in_non_nullable_fields_are_kept_or_rejected(name, export):
    with cd.Session() as session:
        try:
            values = export(session, FORBIDDEN[name])
        except cd.Error as error:
            assert re.search("column.* null count is .*, but its field is not nullable", str(error))
            assert export is to_vortex or "column x" in str(error)
        else:
            assert values == FORBIDDEN[name].column("x").to_pylist()


@pytest.mark.parametrize("name", FORBIDDEN)
def test_full_validation_names_the_path_of_the_column(name):
    path = {"field of a struct": "x.item", "element of a list": "x.item"}.get(name, "x")
    with cd.Session(validate="full") as session:
        with pytest.raises(cd.DataError, match=f"{path}\\W.* null count is .*, but its field is not nullable"):
            session.from_arrow(FORBIDDEN[name])
