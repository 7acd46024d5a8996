"""Files of the plugin vortex-writer have the values and the types of the tables, for vortex-data and for vortex-file."""

import numpy as np
import pyarrow as pa
import pytest
import tables
import vortex as vx
import vortex_tables


def read_by_vortex(path):
    return vx.open(str(path)).to_arrow().read_all()


def assert_equal(got, table):
    """Compares with the written table. NaN equals NaN, and -0.0 differs from 0.0."""
    expected = tables.logical_schema(table.schema)
    assert got.schema.names == expected.names
    assert got.num_rows == table.num_rows
    for field in expected:
        column = got[field.name]
        column.validate(full=True)
        assert column.type == field.type, field.name
        assert got.schema.field(field.name).nullable == field.nullable, field.name
        assert repr(column.to_pylist()) == repr(table[field.name].to_pylist()), field.name


def assert_file_has(session, path, table):
    assert_equal(read_by_vortex(path), table)
    assert_equal(session.read(path).to_pyarrow(), table)


@pytest.mark.parametrize("compression", ["default", "compact", "none"])
@pytest.mark.parametrize("n", [0, 1, 1024, 20_003])
@pytest.mark.parametrize("group", tables.GROUPS)
def test_table_is_read_as_it_was_written(session, tmp_path, group, n, compression):
    path, table = tmp_path / "x.vortex", tables.table(group, n)
    session.write(table, path, compression=compression)
    assert_file_has(session, path, table)


@pytest.mark.parametrize("compression", ["default", "compact", "none"])
@pytest.mark.parametrize("n", [0, 1, 1024, 20_003])
@pytest.mark.parametrize("group", vortex_tables.GROUPS)
def test_table_equals_the_one_that_vortex_data_writes(session, tmp_path, group, n, compression):
    """The columns have values for which the compressor chooses many encodings."""
    path, other = tmp_path / "x.vortex", tmp_path / "other.vortex"
    table = vortex_tables.table(n, [group])
    if group == "extensions":
        # The crate of the plugin has no type for JSON, and writes it as text, with a warning.
        table = table.drop_columns(["json"])
    session.from_arrow(table).write(path, compression=compression)
    vortex_tables.write(table, other)
    expected = read_by_vortex(other)
    assert read_by_vortex(path) == expected
    assert session.read(path).to_pyarrow() == expected


@pytest.mark.parametrize("group", tables.GROUPS)
def test_batches_and_slices_are_read_as_one_table(session, tmp_path, group):
    whole = tables.table(group, 20_003)
    table = pa.concat_tables([whole.slice(9, 1), whole.slice(3, 8193), whole.slice(0, 0), whole.slice(100, 9000)])
    path = tmp_path / "x.vortex"
    with session.writer(path, table.schema) as writer:
        for batch in table.to_batches():
            writer.write(batch)
    assert_file_has(session, path, table)


def test_many_small_batches_are_read_as_one_table(session, tmp_path):
    table = pa.table({"i": pa.array(range(3000)), "s": [f"text {i % 70}" for i in range(3000)]})
    path = tmp_path / "x.vortex"
    with session.writer(path, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=10):
            writer.write(batch)
    assert_file_has(session, path, table)


def test_table_without_batches_is_read_as_an_empty_table(session, tmp_path):
    schema = tables.table("nested", 0).schema
    path = tmp_path / "x.vortex"
    with session.writer(path, schema):
        pass
    assert_file_has(session, path, schema.empty_table())


def test_table_without_columns_keeps_its_rows(session, tmp_path):
    path = tmp_path / "x.vortex"
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 5, pa.struct([])))
    with session.writer(path, batch.schema) as writer:
        writer.write(batch)
    assert session.read(path).to_pyarrow().num_rows == 5
    assert len(vx.open(str(path))) == 5


def test_columns_of_one_row_are_stored_in_any_number(session, tmp_path):
    table = pa.table({f"c{i}": [i] for i in range(300)})
    session.write(table, tmp_path / "x.vortex")
    assert_file_has(session, tmp_path / "x.vortex", table)


def test_file_is_written_again_as_it_was_read(session, tmp_path):
    table = tables.table("nested", 10_000)
    session.write(table, tmp_path / "a.vortex")
    session.write(session.read(tmp_path / "a.vortex"), tmp_path / "b.vortex")
    assert_file_has(session, tmp_path / "b.vortex", table)


def test_several_writers_of_a_session_write_at_the_same_time(session, tmp_path):
    table = pa.table({"i": range(100), "s": ["a", "b"] * 50})
    with (
        session.writer(tmp_path / "a.vortex", table.schema) as a,
        session.writer(tmp_path / "b.vortex", table.schema) as b,
    ):
        for _ in range(5):
            a.write(table)
            b.write(table.slice(10))
    assert_file_has(session, tmp_path / "a.vortex", pa.concat_tables([table] * 5))
    assert_file_has(session, tmp_path / "b.vortex", pa.concat_tables([table.slice(10)] * 5))


@pytest.mark.parametrize("zone_rows", [1, 100, 1 << 20])
@pytest.mark.parametrize(
    "option, value", [("chunk_rows", 1), ("chunk_rows", 130), ("chunk_bytes", 1), ("chunk_bytes", 1 << 40)]
)
def test_zones_and_chunks_have_any_size(session, tmp_path, zone_rows, option, value):
    path, table = tmp_path / "x.vortex", tables.table("fixed_width", 300)
    session.write(table, path, zone_rows=zone_rows, **{option: value})
    assert_file_has(session, path, table)


# 87 zones of 8192 rows. A row has 18.125 bytes.
@pytest.mark.parametrize(
    "options, chunk_rows", [({"chunk_rows": 1 << 19}, 1 << 19), ({"chunk_bytes": 13 << 20}, 712_704)]
)
def test_fragments_are_chunks_of_all_columns(session, tmp_path, options, chunk_rows):
    """Columns of different widths, with and without nulls, have chunks of the same rows."""
    n = 3_000_000
    generator = np.random.default_rng(1)
    numbers, small = generator.random((2, n)), generator.integers(0, 1 << 15, n).astype("int16")
    table = pa.table({"a": numbers[0], "b": pa.array(numbers[1], mask=numbers[0] < 0.1), "small": small})
    path = tmp_path / "x.vortex"
    session.write(table, path, **options)
    rows = [fragment.scan().to_table().num_rows for fragment in session.scan(path).fragments()]
    assert len(rows) > 1 and sum(rows) == n
    assert [count % chunk_rows for count in rows[:-1]] == [0] * (len(rows) - 1)


def test_large_chunks_are_smaller(session, tmp_path):
    """Numbers that repeat seldom have a dictionary only if enough of them are compressed together."""
    table = pa.table({"f": np.random.default_rng(1).integers(0, 3000, 300_000) / 7})
    session.write(table, tmp_path / "a.vortex", chunk_rows=1 << 14)
    session.write(table, tmp_path / "b.vortex", chunk_rows=1 << 18)
    assert_file_has(session, tmp_path / "b.vortex", table)
    assert (tmp_path / "b.vortex").stat().st_size < 0.6 * (tmp_path / "a.vortex").stat().st_size


def test_compressions_differ_in_size(session, tmp_path):
    table = tables.table("texts", 20_003).select(["distinct"])
    sizes = {}
    for compression in ("none", "default", "compact"):
        path = tmp_path / f"{compression}.vortex"
        session.write(table, path, compression=compression)
        sizes[compression] = path.stat().st_size
    assert sizes["compact"] < sizes["default"] < sizes["none"]
    with_default = tmp_path / "x.vortex"
    session.write(table, with_default)
    assert with_default.stat().st_size == sizes["default"]
