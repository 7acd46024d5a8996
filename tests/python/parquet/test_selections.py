"""Projections, row ranges, filters and fragments return the rows and columns that pyarrow selects."""

import multiprocessing
import operator as operators
import pickle

import crossdock as cd
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import tables

N = 30_000


@pytest.fixture(scope="module")
def whole():
    """Sorted and unsorted columns, with nulls and nesting."""
    generator = np.random.default_rng(7)
    row = pa.array(range(N))
    struct = pa.StructArray.from_arrays(
        [row, tables.cycle(["x", None, "y"], N), pa.StructArray.from_arrays([row], ["deep"])], ["a", "b", "s"]
    )
    return pa.table(
        {
            "row": row,
            "random": pa.array(generator.integers(0, 1000, N), mask=generator.random(N) < 0.1),
            "text": pa.array([f"{i:06}" for i in range(N)]),
            "list": tables.cycle([[1, 2, 3], None, [], [4]], N),
            "struct": struct,
            "float": pa.array(np.where(np.arange(N) % 10 == 0, np.nan, np.arange(N) / 2)),
            "day": pa.array(np.arange(N) // 100, pa.int32()).cast(pa.date32()),
            "time": pa.array(np.arange(N) * 1000, pa.timestamp("ms")),
            "decimal": pa.array(np.arange(N)).cast(pa.decimal128(20, 0)),
            "unsigned": pa.array(np.arange(N, dtype=np.uint64) + np.uint64(2**63)),
            "word": tables.cycle(["a", "b", "c"], N).dictionary_encode(),
            "half_null": pa.array(np.arange(N), mask=np.arange(N) < N // 2),
        }
    )


@pytest.fixture(scope="module", params=["pages", "no page index", "one row group"])
def path(whole, tmp_path_factory, request):
    """A file of several row groups with many pages, one without a page index, and one with one row group."""
    path = tmp_path_factory.mktemp("selections") / "x.parquet"
    rows = N if request.param == "one row group" else 7000
    has_index = request.param != "no page index"
    pq.write_table(
        whole, path, row_group_size=rows, data_page_size=2000, write_batch_size=500, write_page_index=has_index
    )
    return path


@pytest.mark.parametrize(
    "columns",
    [["row"], ["list", "row"], ["struct.b"], ["struct.s.deep", "struct.a"], ["word", "struct"], []],
    ids=str,
)
def test_projection(session, path, whole, columns):
    got = session.read(path, columns=columns).to_pyarrow()
    assert got.num_rows == N
    if columns == ["struct.b"]:
        assert got["struct"].combine_chunks().field("b").equals(whole["struct"].combine_chunks().field("b"))
        assert got.schema.field("struct").type == pa.struct([("b", pa.string())])
    elif columns == ["struct.s.deep", "struct.a"]:
        inner = got["struct"].combine_chunks()
        assert {field.name for field in inner.type} == {"a", "s"}
        assert inner.field("s").field("deep").to_pylist() == list(range(N))
    else:
        tables.assert_equal(got, whole.select(columns) if columns else whole.select([]))


def test_projection_reads_only_the_needed_column_chunks(session, path):
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    read = []

    class Recorder:
        def __init__(self):
            self.file = open(path, "rb")

        def seek(self, *arguments):
            return self.file.seek(*arguments)

        def tell(self):
            return self.file.tell()

        def seekable(self):
            return True

        def read(self, n=-1):
            content = self.file.read(n)
            read.append(len(content))
            return content

    assert session.read(Recorder(), "parquet", columns=["row"], rows=range(10)).to_pyarrow().num_rows == 10
    # The host reads the beginning, the end and the footer. The file has a megabyte.
    assert sum(read) < 250_000 + column.total_compressed_size, read


@pytest.mark.parametrize("rows", [range(0), range(1), range(6999, 7001), range(100, 29_000), range(N - 1, N)], ids=str)
@pytest.mark.parametrize("batch_rows", [None, 100])
def test_row_ranges(session, path, whole, rows, batch_rows):
    columns = ["row", "text", "list", "struct", "word"]
    scan = session.scan(path, columns=columns, rows=rows, batch_rows=batch_rows)
    tables.assert_equal(scan.to_table().to_pyarrow(), whole.select(columns).slice(rows.start, len(rows)))
    if batch_rows:
        assert all(batch.num_rows <= batch_rows for batch in scan)


def test_several_row_ranges(session, path, whole):
    ranges = [(5, 10), (500, 505), (6990, 7010), (20_000, 20_001)]
    expected = pa.concat_tables([whole.slice(begin, end - begin) for begin, end in ranges])
    got = session.read(path, rows=[range(begin, end) for begin, end in ranges]).to_pyarrow()
    tables.assert_equal(got, expected)


def test_limit_and_number_of_rows(session, path, whole):
    assert session.scan(path).num_rows == N
    assert (
        session.read(path, columns=["list"], limit=123).to_pyarrow()["list"].to_pylist()
        == whole["list"].to_pylist()[:123]
    )


@pytest.mark.parametrize("operator", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("row", 12_345),
        ("row", -1),
        ("random", 500),
        ("text", "012345"),
        ("float", 7777.5),
        ("day", tables.DAY.replace(year=1970, day=1)),
        ("decimal", 12_345),
        ("unsigned", 2**63 + 20_000),
        ("word", "b"),
        ("half_null", 20_000),
        ("struct.a", 25_000),
        ("struct.b", "x"),
    ],
    ids=str,
)
def test_filter(session, path, whole, name, operator, value):
    got = session.read(path, columns=["row"], filter=[(name, operator, value)]).to_pyarrow()
    column = whole
    for part in name.split("."):
        column = column[part] if column is whole else pc.struct_field(column, part)
    matches = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[operator]
    matches = getattr(operators, matches)
    expected = [i for i, other in enumerate(column.to_pylist()) if other is not None and matches(other, value)]
    assert got["row"].to_pylist() == expected


def test_filters_rows_and_limit_together(session, path):
    condition = [("row", ">=", 10_000), ("random", "<", 900), ("text", "<", "020000")]
    scan = session.scan(path, columns=["row"], filter=condition, rows=range(9000, 15_000), limit=10)
    expected = session.read(path, columns=["row", "random", "text"]).to_pyarrow().slice(9000, 6000)
    expected = expected.filter((pc.field("row") >= 10_000) & (pc.field("random") < 900)).slice(0, 10)
    assert scan.to_table().to_pyarrow()["row"].to_pylist() == expected["row"].to_pylist()


TYPES = [pa.int64(), pa.date32(), pa.date64(), pa.time32("s"), pa.timestamp("s", "UTC"), pa.timestamp("us")]


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_filter_leaves_out_row_groups_and_pages(session, tmp_path, data_type):
    """A damaged page that cannot match is not read."""
    path = tmp_path / "x.parquet"
    numbers = pa.array(range(N), pa.int64() if pa.types.is_timestamp(data_type) else pa.int32())
    values = (numbers.cast(pa.date32()) if data_type == pa.date64() else numbers).cast(data_type)
    pq.write_table(pa.table({"x": values}), path, row_group_size=10_000, use_dictionary=False, compression="snappy")
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    content = bytearray(path.read_bytes())
    begin = chunk.data_page_offset
    content[begin : begin + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(content)
    last = values[-2:].to_pylist()
    assert session.read(path, filter=[("x", ">=", last[0])]).to_pyarrow()["x"].to_pylist() == last
    with pytest.raises(cd.DataError, match="row group 0, column 'x'"):
        session.read(path)


def test_fragments_are_row_groups(session, path, whole):
    fragments = session.scan(path, columns=["row", "list"]).fragments()
    metadata = pq.ParquetFile(path).metadata
    expected = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert [fragment.num_rows for fragment in fragments] == expected
    got = pa.concat_tables([fragment.scan().to_table().to_pyarrow() for fragment in fragments])
    tables.assert_equal(got, whole.select(["row", "list"]))
    part = session.scan(path, rows=range(6990, 7010), columns=["row"]).fragments()
    got = [fragment.scan().to_table().to_pyarrow()["row"].to_pylist() for fragment in part]
    assert sum(got, []) == list(range(6990, 7010))


def test_statistics_of_fragments_are_those_of_the_row_groups(session, path, whole):
    fragment = session.scan(path).fragments()[-1]
    rows = whole.slice(N - fragment.num_rows)
    table = fragment.statistics.to_pyarrow()
    statistics = dict(zip(table["column"].to_pylist(), map(dict, table["statistics"].to_pylist())))
    assert statistics[None] == {"ARROW:row_count:exact": fragment.num_rows}
    names = ["row", "random", "text", "list", None, "struct", None, None, None, None, "float", "day", "time", "decimal"]
    names += ["unsigned", "word", "half_null"]
    for number, name in enumerate(names):
        if name in ("row", "random", "text", "unsigned", "half_null"):
            column = rows[name]
            assert statistics[number]["ARROW:null_count:exact"] == column.null_count, name
            assert statistics[number]["ARROW:min_value:exact"] == pc.min(column).as_py(), name
            assert statistics[number]["ARROW:max_value:exact"] == pc.max(column).as_py(), name
    # The fields of the struct follow it.
    assert statistics[6]["ARROW:max_value:exact"] == N - 1
    assert statistics[9]["ARROW:max_value:exact"] == N - 1
    assert statistics[7]["ARROW:max_value:exact"] == "y"
    assert 3 not in statistics, "a list"


def _sum(arguments):
    plugin, source, token = arguments
    with cd.Session(plugins=[plugin]) as session:
        return pc.sum(session.scan(source, fragment=token).to_table().to_pyarrow()["row"]).as_py()


def test_fragment_is_read_in_another_process(plugin, session, path):
    fragments = session.scan(path, columns=["row"]).fragments()
    arguments = [(plugin, str(path), pickle.loads(pickle.dumps(fragment.token))) for fragment in fragments]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert sum(pool.map(_sum, arguments)) == N * (N - 1) // 2


def test_fragment_of_another_file_is_an_error(session, path, tmp_path):
    token = session.scan(path).fragments()[0].token
    pq.write_table(pa.table({"row": range(10)}), tmp_path / "x.parquet")
    with pytest.raises(cd.Error):
        session.scan(tmp_path / "x.parquet", fragment=token).to_table()


def test_several_files_are_read_in_order(session, tmp_path, whole):
    for i in range(3):
        pq.write_table(whole.slice(i * 100, 100), tmp_path / f"{i}.parquet")
    scan = session.scan(str(tmp_path / "*.parquet"), columns=["row"], filter=[("row", ">=", 150)])
    assert scan.to_table().to_pyarrow()["row"].to_pylist() == list(range(150, 300))


@pytest.mark.parametrize("limit", [8 << 20, 64 << 20])
def test_budget_bounds_the_batches(plugin, path, whole, limit):
    with cd.Session(plugins=[plugin], memory=limit, threads=2) as session:
        rows = 0
        for batch in session.scan(path, columns=["row", "text", "struct"]):
            rows += batch.num_rows
            del batch
        assert rows == N
