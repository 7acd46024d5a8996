"""Columns as Vortex's protocol has them: the trees that Vortex makes of the same arrays, and the same values again."""

import datetime
import decimal

import crossdock as cd
import pyarrow as pa
import pytest
import vortex as vx
from flat import Tree, export_of, flatten
from ipc import build
from test_vortex_kinds import whole

TEXT = ["a", None, "a long text that does not lie in a view", "", "ä"]
WHEN = datetime.date(2020, 2, 29)

# Made by Vortex as the same nodes with the same metadata.
ALIKE = {
    "integers": pa.array([1, None, 3]),
    "bytes": pa.array([1, 2], pa.uint8()),
    "halves": pa.array([1.5, None], pa.float16()),
    "floats": pa.array([1.5, -0.0, float("inf")]),
    "truths": pa.array([True, None, False] * 5),
    "nulls": pa.nulls(3),
    "text": pa.array(TEXT),
    "binary": pa.array([b"a", None]),
    "large text": pa.array(TEXT, pa.large_utf8()),
    "views": pa.array(TEXT, pa.string_view()),
    "dates": pa.array([WHEN, None]),
    "dates in ms": pa.array([WHEN], pa.date64()),
    "instants": pa.array([1, None], pa.timestamp("us", "Europe/Berlin")),
    "times": pa.array([1], pa.time32("s")),
    "times in ns": pa.array([1000], pa.time64("ns")),
    "wide decimals": pa.array([decimal.Decimal("1.25"), None], pa.decimal256(50, 2)),
    "narrow decimals": pa.array([decimal.Decimal("1.25")], pa.decimal32(5, 2)),
    "lists": pa.array([[1, None], None, []]),
    "large lists": pa.array([[1], [2, 3]], pa.large_list(pa.int64())),
    "list views": pa.array([[1], None], pa.list_view(pa.int32())),
    "pairs": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
    "maps": pa.array([[("k", 1)], None], pa.map_(pa.utf8(), pa.int32())),
    "structs": pa.array([{"a": 1, "b": "x"}, None]),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array([7, None])),
}
# Of these it makes other trees of the same values: decimals narrowed, and what it knows of codes.
OTHERWISE = {
    "decimals": pa.array([decimal.Decimal("1.25"), None]),
    "dictionaries": pa.array(["a", None, "b", "a"]).dictionary_encode(),
}
ALL = ALIKE | OTHERWISE


def shape(tree):
    """A tree of tuples without its types, of which there are several spellings, and its buffers' contents."""
    encoding, _dtype, length, metadata, buffers, children = tree
    return encoding, length, metadata, len(buffers), [shape(child) for child in children]


def column_of(session, *arrays):
    return session.from_arrow(pa.table({"c": pa.chunked_array(list(arrays), arrays[0].type)}))["c"]


def values(column):
    return column.to_pyarrow().to_pylist()


@pytest.mark.parametrize("name", ALIKE)
def test_a_column_is_the_tree_that_vortex_makes_of_it(session, name):
    ours = column_of(session, ALIKE[name]).__vortex_array_metadata__()
    assert shape(ours) == shape(vx.array(ALIKE[name]).__vortex_array_metadata__())


@pytest.mark.parametrize("name", ALL)
def test_what_is_given_comes_back_with_its_values(session, name):
    array = ALL[name]
    n = len(array)
    for given in ([array], [array.slice(1)], [array.slice(n - 1, 1)], [array.slice(0, 0)], [array, array.slice(1)]):
        column = column_of(session, *given)
        again = session.from_vortex(column)
        assert values(again) == values(column)
        assert len(again) == len(column)


@pytest.mark.parametrize("name", ALL)
def test_vortex_takes_it_for_the_same(session, name):
    array = ALL[name]
    for given in ([array], [array.slice(1)], [array, array.slice(1)]):
        column = column_of(session, *given)
        assert build(Tree.of(column)).to_arrow_array().to_pylist() == values(column)


@pytest.mark.parametrize("name", ALL)
def test_the_type_is_the_one_that_vortex_reads(session, name):
    column = column_of(session, ALL[name])
    theirs = session.from_vortex(vx.array(ALL[name]))
    assert session.from_vortex(column).type == theirs.type


@pytest.mark.parametrize("name", ALL)
def test_what_lies_on_a_device_is_given_there(there, session, name):
    column = column_of(session, ALL[name])
    moved = column_of(there, ALL[name])
    assert moved.device == "cuda:0"
    _, capsules = flatten(moved)
    exports = [export_of(capsule) for capsule in capsules]
    # A map's sizes are worked out on the host.
    made = [(export.kind, export.device_id, export.len) for export in exports if export.kind == 0]
    assert made == ([(0, -1, 4 * len(moved))] if name == "maps" else [])
    for export in exports:
        if export.kind != 0:
            assert (export.kind, export.device_id, bool(export.sync_event)) == (1, 0, True)
    assert exports or name == "nulls"
    assert values(there.from_vortex(moved)) == values(column)
    # Where it is not, it comes as a copy.
    assert session.from_vortex(moved).device == "cpu"
    assert values(session.from_vortex(moved)) == values(column)


def test_nothing_is_copied_and_each_consumer_gets_its_own(session):
    array = pa.array(range(100_000))
    column = column_of(session, array)
    held = sum(session.memory_used().get("encodings", {}).values())
    first, second = column.__vortex_array_metadata__(), session.encoded(column)
    assert sum(session.memory_used().get("encodings", {}).values()) <= held + 64
    del column
    again = session.from_vortex(second)
    assert again.to_pyarrow().chunk(0).buffers()[1].address == array.buffers()[1].address
    assert first[0] == "vortex.primitive" and whole(again.to_pyarrow()).equals(array)


def test_an_extension_keeps_its_name_and_its_metadata(session):
    field = pa.field(
        "c", pa.int32(), metadata={"ARROW:extension:name": "somebody.else", "ARROW:extension:metadata": "x"}
    )
    table = pa.Table.from_arrays([pa.array([1, None], pa.int32())], schema=pa.schema([field]))
    column = session.from_arrow(table)["c"]
    tree = column.__vortex_array_metadata__()
    assert (tree[0], tree[5][0][0]) == ("vortex.ext", "vortex.primitive")
    again = session.from_vortex(column)
    assert dict(again.field.metadata) == dict(column.field.metadata)
    assert values(again) == [1, None]


@pytest.mark.parametrize("type", [pa.duration("s"), pa.month_day_nano_interval()])
def test_what_vortex_has_no_type_for_is_refused_with_its_name(session, type):
    column = column_of(session, pa.nulls(2, type))
    with pytest.raises(cd.UnsupportedError, match="Vortex has no type for Arrow's"):
        column.__vortex_array_metadata__()
