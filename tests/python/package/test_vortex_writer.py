"""The plugin vortex-writer: vortex-data and the plugin vortex-file read the tables that it writes. The plugin is not in
the workspace, so CROSSDOCK_VORTEX_WRITER_PLUGIN names its file; without it, the tests are skipped."""

import os
import warnings

import crossdock as cd
import pyarrow as pa
import pytest
import vortex as vx
import vortex_tables

PLUGIN = os.environ.get("CROSSDOCK_VORTEX_WRITER_PLUGIN")
pytestmark = pytest.mark.skipif(not PLUGIN, reason="CROSSDOCK_VORTEX_WRITER_PLUGIN is not set")


@pytest.fixture
def writer():
    with cd.Session(plugins=[PLUGIN]) as session:
        yield session


def columns(table):
    return {name: table[name].combine_chunks() for name in table.column_names}


@pytest.mark.parametrize("compression", ["default", "compact", "none"])
@pytest.mark.parametrize("n", [0, 1, 1024, 20_003])
@pytest.mark.parametrize("group", vortex_tables.GROUPS)
def test_written_table_equals_that_of_vortex_data(writer, tmp_path, group, n, compression):
    table = vortex_tables.table(n, [group])
    path, own = tmp_path / "table.vortex", tmp_path / "own.vortex"
    writer.from_arrow(table).write(path, compression=compression)
    vortex_tables.write(table, own)
    expected = columns(vx.open(str(own)).to_arrow().read_all())
    assert columns(vx.open(str(path)).to_arrow().read_all()) == expected
    assert columns(writer.read(path).to_pyarrow()) == expected


def test_metadata_of_the_schema_are_kept_and_those_of_fields_are_dropped_with_a_warning(writer, tmp_path):
    field = pa.field("a", pa.int32(), metadata={"k": "v"})
    table = pa.table({"a": pa.array([1, 2], pa.int32())}, schema=pa.schema([field], metadata={"owner": "x"}))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        writer.from_arrow(table).write(tmp_path / "a.vortex")
    assert any("dropped: those of 'a'" in str(warning.message) for warning in caught)
    assert writer.read(tmp_path / "a.vortex").to_pyarrow().to_pydict() == {"a": [1, 2]}


def test_types_without_a_vortex_type_are_errors_that_name_the_column(writer, tmp_path):
    table = pa.table({"took": pa.array([1], pa.duration("s"))})
    with pytest.raises(cd.UnsupportedError, match="column 'took': Vortex has no type for Duration"):
        writer.from_arrow(table).write(tmp_path / "a.vortex")
    assert not (tmp_path / "a.vortex").exists()


def test_unknown_compression_is_an_error_that_lists_the_values(writer, tmp_path):
    with pytest.raises(cd.Error, match="unknown compression 'lz4', expected default, compact or none"):
        writer.from_arrow(pa.table({"a": [1]})).write(tmp_path / "a.vortex", compression="lz4")
