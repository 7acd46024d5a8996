"""Columns exported with Vortex's protocol: the trees equal those of Vortex, and the values round-trip."""

import datetime
import decimal

import crossdock as cd
import pyarrow as pa
import pytest
import vortex as vx
from flat import Tree, export_of, flatten
from ipc import build
from test_vortex_kinds import whole

TEXT = ["a", None, "a long text that is not within a view", "", "ä"]
WHEN = datetime.date(2020, 2, 29)

# For these columns Vortex creates the same nodes with the same metadata.
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
# For these columns Vortex creates different trees of the same values: it narrows decimals, and
# writes other metadata for dictionary codes.
OTHERWISE = {
    "decimals": pa.array([decimal.Decimal("1.25"), None]),
    "dictionaries": pa.array(["a", None, "b", "a"]).dictionary_encode(),
}
ALL = ALIKE | OTHERWISE
# Extension types that Arrow and Vortex define under different names.
EXTENSIONS = {
    "vortex.uuid": pa.array([bytes(range(16)), None, b"a" * 16], pa.uuid()),
    "vortex.json": pa.array(["[1]", None, '{"a": "a long text that is not within a view"}'], pa.json_()),
}


def shape(tree):
    """Returns the encoding, the length, the metadata and the number of buffers of a tree and of its
    children. Types are omitted, because one type has several representations."""
    encoding, _dtype, length, metadata, buffers, children = tree
    return encoding, length, metadata, len(buffers), [shape(child) for child in children]


def column_of(session, *arrays):
    return session.from_arrow(pa.table({"c": pa.chunked_array(list(arrays), arrays[0].type)}))["c"]


def values(column):
    return column.to_pyarrow().to_pylist()


@pytest.mark.parametrize("name", ALIKE)
def test_column_exports_the_same_tree_as_vortex(session, name):
    tree = column_of(session, ALIKE[name]).__vortex_array_metadata__()
    assert shape(tree) == shape(vx.array(ALIKE[name]).__vortex_array_metadata__())


@pytest.mark.parametrize("name", ALL)
def test_export_round_trips(session, name):
    array = ALL[name]
    n = len(array)
    for chunks in ([array], [array.slice(1)], [array.slice(n - 1, 1)], [array.slice(0, 0)], [array, array.slice(1)]):
        column = column_of(session, *chunks)
        again = session.from_vortex(column)
        assert values(again) == values(column)
        assert len(again) == len(column)


@pytest.mark.parametrize("name", ALL)
def test_vortex_imports_equal_values(session, name):
    array = ALL[name]
    for chunks in ([array], [array.slice(1)], [array, array.slice(1)]):
        column = column_of(session, *chunks)
        assert build(Tree.of(column)).to_arrow_array().to_pylist() == values(column)


@pytest.mark.parametrize("name", ALL)
def test_exported_type_is_read_by_vortex(session, name):
    column = column_of(session, ALL[name])
    column_of_vortex = session.from_vortex(vx.array(ALL[name]))
    assert session.from_vortex(column).type == column_of_vortex.type


@pytest.mark.parametrize("name", EXTENSIONS)
def test_extension_types_of_arrow_become_those_of_vortex(any_session, session, name):
    array = EXTENSIONS[name]
    nested = pa.StructArray.from_arrays([array], ["x"])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), array)
    for whole_array in (array, nested, lists):
        for chunks in (
            [whole_array],
            [whole_array.slice(1)],
            [whole_array.slice(0, 0)],
            [whole_array, whole_array.slice(1)],
        ):
            column = column_of(any_session, *chunks)
            again = any_session.from_vortex(column).to("cpu").to_pyarrow()
            assert again.to_pylist() == pa.chunked_array(chunks).to_pylist()
            kind = again.type if whole_array is array else again.type.field(0).type
            assert kind.extension_name == array.type.extension_name
    imported = build(Tree.of(column_of(session, array)))
    assert str(imported.dtype).startswith(f"{name}(")


@pytest.mark.parametrize("name", ALL)
def test_device_column_exports_device_buffers(cuda_session, session, name):
    column = column_of(session, ALL[name])
    moved = column_of(cuda_session, ALL[name])
    assert moved.device == "cuda:0"
    _, capsules = flatten(moved)
    exports = [export_of(capsule) for capsule in capsules]
    # The sizes of a map are computed on the host.
    host_buffers = [(export.kind, export.device_id, export.len) for export in exports if export.kind == 0]
    assert host_buffers == ([(0, -1, 4 * len(moved))] if name == "maps" else [])
    for export in exports:
        if export.kind != 0:
            assert (export.kind, export.device_id, bool(export.sync_event)) == (1, 0, True)
    assert exports or name == "nulls"
    assert values(cuda_session.from_vortex(moved)) == values(column)
    # A session on the cpu copies the buffers.
    assert session.from_vortex(moved).device == "cpu"
    assert values(session.from_vortex(moved)) == values(column)


def test_exports_are_zero_copy_and_independent(session):
    array = pa.array(range(100_000))
    column = column_of(session, array)
    used_before = sum(session.memory_used().get("encodings", {}).values())
    first, second = column.__vortex_array_metadata__(), session.encoded(column)
    assert sum(session.memory_used().get("encodings", {}).values()) <= used_before + 64
    del column
    again = session.from_vortex(second)
    assert again.to_pyarrow().chunk(0).buffers()[1].address == array.buffers()[1].address
    assert first[0] == "vortex.primitive" and whole(again.to_pyarrow()).equals(array)


def test_extension_keeps_name_and_metadata(session):
    field = pa.field(
        "c", pa.int32(), metadata={"ARROW:extension:name": "example.type", "ARROW:extension:metadata": "x"}
    )
    table = pa.Table.from_arrays([pa.array([1, None], pa.int32())], schema=pa.schema([field]))
    column = session.from_arrow(table)["c"]
    tree = column.__vortex_array_metadata__()
    assert (tree[0], tree[5][0][0]) == ("vortex.ext", "vortex.primitive")
    again = session.from_vortex(column)
    assert dict(again.field.metadata) == dict(column.field.metadata)
    assert values(again) == [1, None]


@pytest.mark.parametrize("type", [pa.duration("s"), pa.month_day_nano_interval()])
def test_error_for_type_without_vortex_equivalent_names_it(session, type):
    column = column_of(session, pa.nulls(2, type))
    with pytest.raises(cd.UnsupportedError, match="Vortex has no type for Arrow's"):
        column.__vortex_array_metadata__()
