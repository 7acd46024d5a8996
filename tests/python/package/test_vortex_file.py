"""Vortex files: the tables equal those that vortex-data and pyarrow read, and no more than the needed bytes is
read."""

import io
import pickle
import random

import crossdock as cd
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pytest
import vortex as vx
import vortex_tables
from conftest import HERE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SIZES = (0, 1, 1024, 100_003)
GOLDEN = HERE.parent / "vortex" / "golden_files"


def assert_equal(expected, got):
    assert got.column_names == expected.column_names
    assert got.num_rows == expected.num_rows
    for name in expected.column_names:
        # pyarrow cannot combine no chunks of an extension type.
        columns = (table[name] for table in (got, expected))
        column, wanted = (column.combine_chunks() if column.num_chunks else column for column in columns)
        column.validate(full=True)
        assert column.type == wanted.type, name
        assert column.equals(wanted), name


def assert_read_as_by_vortex(session, path):
    assert_equal(vx.open(str(path)).to_arrow().read_all(), session.read(path).to_pyarrow())


@pytest.mark.parametrize("form", ["default", "compact"])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("group", vortex_tables.GROUPS)
def test_table_equals_that_of_vortex_data(session, tmp_path, group, n, form):
    path = tmp_path / "table.vortex"
    vortex_tables.write(vortex_tables.table(n, [group]), path, form)
    assert_read_as_by_vortex(session, path)


@pytest.mark.parametrize("form", ["default", "compact"])
@pytest.mark.parametrize("n", [0, 1, 70_003])
@pytest.mark.parametrize("group", vortex_tables.GROUPS)
def test_table_on_a_device_equals_that_of_vortex_data(cuda_session, tmp_path, group, n, form):
    path = tmp_path / "table.vortex"
    vortex_tables.write(vortex_tables.table(n, [group]), path, form)
    assert_read_as_by_vortex(cuda_session, path)


# The plugin vortex-writer wrote this file from {"a": [1, 2, 3]} with the metadata.
WITH_METADATA = (GOLDEN.parent / "metadata.vortex").read_bytes()
METADATA = {b"first": b"one", b"fir\xc3\xbe": "zwei \u00fc".encode(), b"empty": b""}


def test_metadata_of_the_user_is_the_metadata_of_the_schema(session):
    table = session.read(WITH_METADATA).to_pyarrow()
    assert table.schema.metadata == METADATA
    assert table.to_pydict() == {"a": [1, 2, 3]}
    assert session.read(WITH_METADATA, columns=["a"]).to_pyarrow().schema.metadata == METADATA


def test_invalid_keys_of_metadata_are_errors(session):
    with pytest.raises(cd.DataError, match="the metadata: the key 'first' occurs twice"):
        session.read(WITH_METADATA.replace("fir\u00fe".encode(), b"first"))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.vortex")), ids=lambda path: path.stem)
def test_golden_file_has_the_values_that_were_written(session, path):
    with pa.ipc.open_file(GOLDEN / "table.arrow") as reader:
        expected = reader.read_all()
    got = session.read(path).to_pyarrow()
    assert got.column_names == expected.column_names
    for name in expected.column_names:
        # Vortex's types are logical, so that a string is read as a view.
        assert got[name].cast(expected[name].type).combine_chunks().equals(expected[name].combine_chunks()), name


def test_array_that_is_no_table_is_one_column_without_a_name(session, tmp_path):
    path = str(tmp_path / "root.vortex")
    vx.io.write(vx.array([1, None, 3]), path)
    assert session.read(path).to_pyarrow().to_pydict() == {"": [1, None, 3]}
    rows = [{"a": 1, "b": "x"}, None, {"a": 3, "b": "z"}]
    vx.io.write(vx.array(rows), path)
    assert session.read(path).to_pyarrow().to_pydict() == {"": rows}


ROWS = 100_003


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """A file with sorted and unsorted columns, in several chunks, and its table."""
    generator = np.random.default_rng(1)
    index = np.arange(ROWS)
    table = pa.table(
        {
            "index": index,
            "half": pa.array(index // 2, pa.int32()),
            "null": pa.array([None if i < 30_000 else i for i in range(ROWS)], pa.int32()),
            "float": np.where(generator.random(ROWS) < 0.01, np.nan, np.sort(generator.random(ROWS))),
            "text": pa.array([f"{i // 100:06d}" for i in range(ROWS)]),
            "flag": pa.array(index > 50_000),
            "date": pa.array(index.astype("i4"), pa.date32()),
            "struct": pa.StructArray.from_arrays([pa.array(index % 20_000), pa.array(index % 7)], ["x", "y"]),
            "random": generator.random(ROWS),
        }
    )
    path = tmp_path_factory.mktemp("vortex") / "numbered.vortex"
    vortex_tables.write(table, path)
    return path, table


LITERALS = {
    "index": st.integers(-1, ROWS),
    "half": st.integers(-1, ROWS // 2),
    "null": st.integers(29_990, ROWS),
    "float": st.floats(-0.1, 1.1),
    "text": st.sampled_from(["", "000100", "000500x", "zz"]),
    "flag": st.booleans(),
    "date": st.integers(0, ROWS).map(lambda days: pa.scalar(days, pa.date32()).as_py()),
}
OPERATORS = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "==": pc.equal,
    "!=": pc.not_equal,
}


@st.composite
def requests(draw):
    column = draw(st.sampled_from(sorted(LITERALS)))
    condition = st.tuples(st.just(column), st.sampled_from(sorted(OPERATORS)), LITERALS[column])
    begin = draw(st.integers(0, ROWS))
    return {
        "columns": draw(st.none() | st.lists(st.sampled_from(["index", "text", "struct.y", "random"]), unique=True)),
        "rows": draw(st.none() | st.just((begin, draw(st.integers(begin, ROWS))))),
        "limit": draw(st.none() | st.integers(0, 5000)),
        "filter": draw(st.none() | st.lists(condition, min_size=1, max_size=2)),
        "batch_rows": draw(st.none() | st.integers(10_000, 50_000)),
    }


def expected_rows(table, request):
    begin, end = request["rows"] or (0, ROWS)
    table = table.slice(begin, end - begin)
    for column, operator, literal in request["filter"] or []:
        table = table.filter(OPERATORS[operator](table[column], pa.scalar(literal, table[column].type)))
    if request["limit"] is not None:
        table = table.slice(0, request["limit"])
    return table["index"].to_pylist()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests())
def test_scan_has_the_rows_and_columns_of_pyarrow(session, numbered, request):
    path, table = numbered
    columns = request.pop("columns")
    needed = None if columns is None else [*(set(columns) - {"index"}), "index"]
    scan = session.scan(path, columns=needed, **request)
    got = scan.to_table().to_pyarrow()
    assert got["index"].to_pylist() == expected_rows(table, request)
    rows = got["index"]
    for column in columns or []:
        name, _, field = column.partition(".")
        values, expected = got[name], table[name].take(rows)
        if field:
            values, expected = pc.struct_field(values, field), pc.struct_field(expected, field)
        assert values.cast(expected.type).combine_chunks().equals(expected.combine_chunks()), column


class CountedFile(io.FileIO):
    """A file that counts the bytes that are read."""

    n_bytes = 0

    def read(self, size=-1):
        data = super().read(size)
        self.n_bytes += len(data)
        return data

    def readinto(self, buffer):
        n = super().readinto(buffer)
        self.n_bytes += n
        return n


def bytes_read(session, path, **request):
    with CountedFile(path) as file:
        session.read(file, format="vortex", **request)
        return file.n_bytes


def test_only_the_segments_of_needed_columns_rows_and_zones_are_read(session, numbered):
    path, _ = numbered
    everything = bytes_read(session, path)
    metadata = bytes_read(session, path, columns=[])
    assert everything > path.stat().st_size * 0.8
    assert metadata < everything / 10
    assert bytes_read(session, path, columns=["flag"]) < metadata + 20_000
    assert bytes_read(session, path, columns=["struct.y"]) < everything / 4
    random = bytes_read(session, path, columns=["random"])
    assert everything / 4 < random < everything
    assert bytes_read(session, path, columns=["random"], filter=[("index", "<", 0)]) < everything / 4


def test_fragments_contain_each_row_once(session, tmp_path):
    random = np.random.default_rng(2).random((2, 3_000_000))
    # The values of `flag` are one chunk, which each fragment needs.
    table = pa.table({"index": np.arange(3_000_000), "a": random[0], "b": random[1], "flag": random[0] < 0.5})
    path = tmp_path / "large.vortex"
    vortex_tables.write(table, path)
    scan = session.scan(path, columns=["index"])
    fragments = scan.fragments()
    assert len(fragments) > 1
    assert sum(fragment.bytes for fragment in fragments) <= path.stat().st_size
    parts = [pickle.loads(pickle.dumps(fragment)).scan().to_table().to_pyarrow() for fragment in fragments]
    assert pa.concat_tables(parts)["index"].to_pylist() == list(range(3_000_000))


@pytest.mark.parametrize("form", ["default", "compact"])
def test_damaged_file_gives_an_error_or_a_table(session, tmp_path, form):
    path = tmp_path / "table.vortex"
    vortex_tables.write(vortex_tables.table(300), path, form)
    original = path.read_bytes()
    choose, n_errors = random.Random(3), 0
    for i in range(250):
        damaged = bytearray(original)
        if i % 5 == 0:
            del damaged[choose.randrange(len(damaged)) :]
        else:
            # Most of the metadata is at the end of the file.
            first = 0 if i % 5 == 1 else len(damaged) - 40_000
            for _ in range(choose.randrange(1, 4)):
                damaged[choose.randrange(first, len(damaged))] = choose.choice(
                    [0, 1, 0x7F, 0xFF, choose.randrange(256)]
                )
        try:
            session.read(bytes(damaged), format="vortex").to_pyarrow().validate(full=True)
        except cd.Error as error:
            assert "panicked" not in str(error), error
            n_errors += 1
    assert n_errors > 100
