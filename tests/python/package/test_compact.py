"""compact, combine_batches and combine_chunks return offset 0. Options of formats are converted to
strings."""

import crossdock as cd
import pyarrow as pa
import pytest


def offsets(array):
    """Returns the offsets of an array and its children."""
    below = [array.field(i) for i in range(array.type.num_fields)] if pa.types.is_struct(array.type) else []
    if pa.types.is_list(array.type):
        below = [array.values]
    if pa.types.is_dictionary(array.type):
        below = [array.dictionary]
    return {array.offset}.union(*(offsets(child) for child in below))


TABLE = pa.table(
    {
        "number": pa.array([1, None, 3, 4, 5], pa.int32()),
        "flag": [True, None, False, True, True],
        "text": ["a", None, "ccc", "", "e"],
        "list": [[1], None, [], [2, 3], [4]],
        "struct": [{"x": 1}, None, {"x": 3}, {"x": 4}, {"x": None}],
        "dictionary": pa.array(["a", "b", None, "a", "b"]).dictionary_encode(),
    }
)


@pytest.mark.parametrize("way", ["compact", "combine_batches"])
def test_compact_table_has_offset_0(way):
    with cd.Session() as session:
        part = session.from_arrow(TABLE).slice(1, 3)
        assert any(column.chunk(0).offset for column in part.to_pyarrow().columns)
        compact = getattr(part, way)().to_pyarrow()
        assert compact.equals(TABLE.slice(1, 3))
        for column in compact.columns:
            assert offsets(column.chunk(0)) == {0}, column.type


@pytest.mark.parametrize("way", ["compact", "combine_chunks"])
def test_compact_column_has_offset_0_and_is_zero_copy_if_possible(way):
    with cd.Session() as session:
        column = session.from_arrow(TABLE)["number"]
        address = column.to_pyarrow().chunk(0).buffers()[1].address
        assert getattr(column, way)().to_pyarrow().chunk(0).buffers()[1].address == address
        part = getattr(column.slice(2), way)().to_pyarrow()
        assert part.to_pylist() == [3, 4, 5] and part.chunk(0).offset == 0


def test_rejects_options_of_unsupported_types(tmp_path):
    path = tmp_path / "a.arrow"
    with cd.Session() as session:
        table = session.from_arrow(TABLE)
        table.write(path, compression="zstd")
        for value, kind in [([1], "list"), ({"a": 1}, "dict"), (None, "NoneType"), (b"x", "bytes")]:
            with pytest.raises(TypeError, match=f"option 'compression': expected str, bool or number, got {kind}"):
                table.write(path, compression=value)
            with pytest.raises(TypeError, match="option 'x'"):
                session.read(path, x=value)
            with pytest.raises(TypeError, match="option 'x'"):
                table.plan("arrow-ipc-file", x=value)
        for value, text in [(True, "true"), (3, "3"), (0.5, "0.5")]:
            with pytest.raises(cd.Error, match=f"'?{text}'?"):
                table.write(path, compression=value)
