"""Tests that the comparisons in peers.py detect each kind of difference."""

import pyarrow as pa
import pytest
from peers import FORMS, assert_equal, differs, read, write
from samples import SAMPLES, make, mixed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SAMPLES)
def test_pyarrow_round_trips_each_sample(tmp_path, name, form):
    """Checks pyarrow alone: if this test passes, a failure of another test is a fault of Crossdock."""
    schema, batches = make(name)
    path = tmp_path / f"sample{FORMS[form]}"
    write(path, form, schema, batches)
    read_schema, read_batches = read(path, form)
    assert read_schema.names == schema.names
    assert [b.num_rows for b in read_batches] == [b.num_rows for b in batches]
    assert_equal((read_schema, read_batches), read(path, form))


def test_equal_values_with_other_dictionaries_are_equal():
    a = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), pa.array(["x", "y"]))
    b = pa.DictionaryArray.from_arrays(pa.array([2, 1, 0], pa.int8()), pa.array(["y", None, "x"]))
    assert differs(a, b) is None
    lists = [pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), array) for array in (a, b)]
    assert differs(*lists) is None
    structs = [pa.StructArray.from_arrays([array], ["d"]) for array in lists]
    assert differs(*structs) is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (pa.array([1, 2]), pa.array([1, 3])),
        (pa.array([1, None]), pa.array([1, 0])),
        (pa.array([1, 2]), pa.array([1, 2], pa.int32())),
        (pa.array([1, 2]), pa.array([1, 2, 3])),
        (pa.array([0.0, float("nan")]), pa.array([-0.0, float("nan")])),
        (pa.array([[float("nan")], [1.0]]), pa.array([[float("nan")], [2.0]])),
        (pa.array([[float("nan")], []]), pa.array([[], [float("nan")]])),
        (pa.array(["a", "b"]).dictionary_encode(), pa.array(["a", "c"]).dictionary_encode()),
        (pa.array([{"x": float("nan"), "y": 1}]), pa.array([{"x": float("nan"), "y": 2}])),
        (
            pa.array([[("k", float("nan"))]], pa.map_(pa.string(), pa.float64())),
            pa.array([[("j", float("nan"))]], pa.map_(pa.string(), pa.float64())),
        ),
    ],
)
def test_comparison_detects_each_kind_of_difference(a, b):
    assert differs(a, a) is None
    assert differs(b, b) is None
    assert differs(a, b)


def test_comparison_detects_changed_union_member():
    def union(texts):
        codes = pa.array([0, 1, 0], pa.int8())
        numbers = pa.array([float("nan")] * 3)
        return pa.UnionArray.from_sparse(codes, [pa.array(texts), numbers])

    assert differs(union(["a", "", "c"]), union(["a", "ignored", "c"])) is None
    assert "member 0" in differs(union(["a", "", "c"]), union(["a", "", "d"]))


def test_comparison_detects_lost_metadata_rows_and_batches():
    batch = mixed()
    whole = (batch.schema, [batch, batch])
    assert_equal(whole, whole)
    marked = batch.schema.set(0, batch.schema.field(0).with_metadata({"unit": "m"}))
    for other in [(marked, [batch, batch]), (batch.schema, [batch]), (batch.schema, [batch, batch.slice(1)])]:
        with pytest.raises(AssertionError):
            assert_equal(whole, other)
