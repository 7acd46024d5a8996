"""Scans: columns, rows and batches of files, file objects and bytes, compared with pyarrow."""

import gc
import io
import os
import pickle
import subprocess
import sys
import threading

import crossdock as cd
import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.ipc as ipc
import pytest
from conftest import BAD_CITIZEN, assert_all_memory_freed
from hypothesis import HealthCheck, given, settings
from peers import FORMS, write

reproducible = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def batch(first, rows):
    """Returns a batch whose values depend on the row's position in the table."""
    numbers = range(first, first + rows)
    return pa.record_batch(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": pa.array([None if n % 5 == 0 else f"name {n}" for n in numbers]),
            "point": pa.array(
                [None if n % 7 == 0 else {"x": n, "y": {"deep": str(n), "other": n % 3 == 0}} for n in numbers],
                pa.struct([("x", pa.int32()), ("y", pa.struct([("deep", pa.string()), ("other", pa.bool_())]))]),
            ),
            "list": pa.array([[n] * (n % 4) for n in numbers], pa.list_(pa.int16())),
            "kind": pa.array([f"kind {n % 3}" for n in numbers]).dictionary_encode(),
            "a.b": pa.array([n % 2 == 0 for n in numbers]),
        }
    )


SIZES = [10, 0, 1, 25, 7]
SCHEMA = batch(0, 3).schema


def batches():
    # All batches have the same dictionary, as the file form requires.
    begin, result = 0, []
    for size in SIZES:
        whole = batch(0, sum(SIZES))
        result.append(whole.slice(begin, size))
        begin += size
    return result


def as_pyarrow(tables):
    """Returns the batches of tables without offsets, as one table."""
    return pa.concat_tables([pa.table(table) for table in tables], promote_options="none")


class Counting(io.BytesIO):
    """A file object that counts the bytes that were read."""

    bytes_read = 0

    def read(self, size=-1):
        data = super().read(size)
        self.bytes_read += len(data)
        return data


SOURCES = {
    "path": lambda path: path,
    "bytes": lambda path: path.read_bytes(),
    "file object": lambda path: path.open("rb"),
    "BytesIO": lambda path: io.BytesIO(path.read_bytes()),
}
if BAD_CITIZEN.exists():
    SOURCES["URI"] = lambda path: f"citizen://{path}"

# The requested column, and the column of pyarrow's table as a function of the table.
COLUMNS = {
    "id": lambda table: table["id"],
    "name": lambda table: table["name"],
    "list": lambda table: table["list"],
    "kind": lambda table: table["kind"],
    "a.b": lambda table: table["a.b"],
    "point": lambda table: table["point"],
}


@pytest.fixture
def session_with_uris():
    """Like the fixture `session`, with the plugin that opens the URIs."""
    with cd.Session(plugins=[BAD_CITIZEN] if "URI" in SOURCES else []) as session:
        yield session
        assert_all_memory_freed(session)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the same table in each form and with each compression."""
    folder = tmp_path_factory.mktemp("scan")
    for form, extension in FORMS.items():
        for codec in (None, "lz4", "zstd"):
            write(folder / f"{form}-{codec}{extension}", form, SCHEMA, batches(), compression=codec)
    return folder


def select(table, columns, rows, limit):
    """Returns what pyarrow selects."""
    if rows is not None:
        slices = [table.slice(begin, max(end - begin, 0)) for begin, end in rows]
        table = pa.concat_tables(slices) if slices else table.slice(0, 0)
    if limit is not None:
        table = table.slice(0, limit)
    return table if columns is None else table.select(columns)


@st.composite
def row_ranges(draw):
    ends = sorted(draw(st.lists(st.integers(0, 60), min_size=0, max_size=6)))
    return list(zip(ends[::2], ends[1::2]))


@reproducible
@given(
    form=st.sampled_from(list(FORMS)),
    codec=st.sampled_from([None, "lz4", "zstd"]),
    source=st.sampled_from(list(SOURCES)),
    columns=st.none() | st.lists(st.sampled_from(list(COLUMNS)), unique=True),
    rows=st.none() | row_ranges(),
    limit=st.none() | st.integers(0, 50),
    batch_rows=st.none() | st.integers(1, 30),
    prefetch=st.integers(0, 3),
)
def test_any_request_selects_the_same_rows_as_pyarrow(
    session_with_uris, folder, form, codec, source, columns, rows, limit, batch_rows, prefetch
):
    session = session_with_uris
    path = folder / f"{form}-{codec}{FORMS[form]}"
    expected = select(pa.Table.from_batches(batches(), SCHEMA), columns, rows, limit)
    request = {"columns": columns, "rows": rows, "limit": limit}
    source = SOURCES[source](path)
    scan = session.scan(source, batch_rows=batch_rows, prefetch=prefetch, **request)
    tables = list(scan)
    assert pa.schema(scan).equals(expected.schema)
    if batch_rows is not None:
        assert all(len(table) <= batch_rows for table in tables)
    assert sum(len(table) for table in tables) == len(expected)
    got = as_pyarrow(tables) if tables else pa.schema(scan).empty_table()
    got.validate(full=True)
    # pyarrow's concatenation of tables without columns has no rows.
    assert got.equals(expected) or columns == []
    if rows is None and limit is None and scan.num_rows is not None:
        assert scan.num_rows == sum(SIZES)
    assert pa.table(scan.to_table()).equals(expected)
    if hasattr(source, "seek"):
        source.seek(0)
    assert pa.table(session.read(source, **request)).equals(expected)
    if hasattr(source, "seek"):
        source.seek(0)
    assert pa.table(session.read_ipc(source, **request)).equals(expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("path", ["point.x", ("point", "x")])
def test_field_of_a_struct_keeps_the_structs_nulls(session, folder, form, path):
    table = pa.table(session.read(folder / f"{form}-lz4{FORMS[form]}", columns=[path, "id"]))
    assert table.column_names == ["point", "id"]
    assert table["point"].type == pa.struct([("x", pa.int32())])
    expected = [None if n % 7 == 0 else {"x": n} for n in range(sum(SIZES))]
    assert table["point"].to_pylist() == expected


def test_several_fields_of_a_struct_are_one_column(session, folder):
    scan = session.scan(folder / "file-None.arrow", columns=["point.y.other", "id", "point.x"])
    assert pa.schema(scan).names == ["point", "id"]
    assert pa.schema(scan).field("point").type == pa.struct(
        [("x", pa.int32()), ("y", pa.struct([("other", pa.bool_())]))]
    )


def test_path_of_names_is_not_a_name_with_dots(session, folder):
    with pytest.raises(cd.UsageError, match="there is no column 'a'"):
        session.read(folder / "file-None.arrow", columns=[("a", "b")])


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"columns": "id"}, "columns: expected a list of names"),
        ({"columns": ["id", 3]}, "columns: expected a list of names"),
        ({"columns": [()]}, "columns: expected a list of names"),
        ({"columns": ["missing"]}, "there is no column 'missing'; the columns are: id, name, point"),
        ({"columns": ["point.z"]}, "there is no column 'point.z'; the columns are: x, y"),
        ({"columns": ["id.x"]}, "the column 'id' has the type int64"),
        ({"rows": [(3, 2)]}, "rows 3..2: expected ascending ranges"),
        ({"rows": [(0, 5), (4, 6)]}, "rows 4..6: expected ascending ranges"),
        ({"rows": range(0, 10, 2)}, "rows: expected"),
        ({"rows": "all"}, "rows: expected"),
        ({"batch_rows": 0}, "batch_rows=0: expected at least 1"),
    ],
)
def test_errors_name_invalid_arguments(session, folder, request_, message):
    with pytest.raises(cd.UsageError, match=message.replace("(", r"\(")):
        session.scan(folder / "file-None.arrow", **request_)


@pytest.mark.parametrize("rows", [(2, 5), range(2, 5), slice(2, 5), [range(2, 3), (3, 5)]])
def test_rows_may_be_a_pair_a_range_or_a_slice(session, folder, rows):
    table = pa.table(session.read(folder / "file-None.arrow", columns=["id"], rows=rows))
    assert table["id"].to_pylist() == [2, 3, 4]


@pytest.mark.parametrize("form", FORMS)
def test_head_reads_only_the_first_batch(session, form):
    many = pa.Table.from_batches([batch(0, 1000)] * 50)
    path = io.BytesIO()
    new = ipc.new_file if form == "file" else ipc.new_stream
    with new(path, many.schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(many)
    source = Counting(path.getvalue())
    scan = session.scan(source)
    head = pa.table(scan.head(5))
    assert head["id"].to_pylist() == [0, 1, 2, 3, 4]
    assert source.bytes_read < len(path.getvalue()) / 5
    assert len(scan.head(0)) == 0


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("form", FORMS)
def test_only_the_bytes_of_requested_columns_are_read(session, form, compression):
    wide = pa.table({f"c{i}": pa.array(os.urandom(80_000)[::8], pa.uint8()) for i in range(20)})
    path = io.BytesIO()
    new = ipc.new_file if form == "file" else ipc.new_stream
    with new(path, wide.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(wide)
    source = Counting(path.getvalue())
    table = pa.table(session.read(source, columns=["c7"]))
    assert table.equals(wide.select(["c7"]))
    assert source.bytes_read < len(path.getvalue()) / 4


def test_files_folders_patterns_and_lists_are_read_in_order(session, tmp_path):
    names = ["part-0.arrow", "part-1.arrow", "part-2.arrow"]
    for i, name in enumerate(names):
        write(tmp_path / name, "file", SCHEMA, [batch(i * 10, 10)])
    (tmp_path / ".hidden").write_text("not a table")
    (tmp_path / "_SUCCESS").write_text("")
    expected = list(range(30))
    paths = [tmp_path / name for name in names]
    for source in (
        tmp_path,
        str(tmp_path / "part-*.arrow"),
        paths,
        [tmp_path / "part-0.arrow", tmp_path / "part-[12]*"],
    ):
        scan = session.scan(source, columns=["id"])
        assert as_pyarrow(scan)["id"].to_pylist() == expected
        assert pa.table(session.read(source, columns=["id"]))["id"].to_pylist() == expected
    ids = lambda **request: as_pyarrow(session.scan(paths, **request))["id"].to_pylist()  # noqa: E731
    assert ids(rows=[(5, 12), (28, 40)]) == [*range(5, 12), 28, 29]
    assert ids(limit=11) == list(range(11))
    assert ids(rows=(8, 25), limit=4, batch_rows=3) == [8, 9, 10, 11]
    assert len(session.scan(paths).head(15)) == 15


def test_limit_opens_no_further_files(session, tmp_path):
    write(tmp_path / "a.arrow", "file", SCHEMA, [batch(0, 10)])
    (tmp_path / "b.arrow").write_bytes(b"not a table")
    assert len(session.scan([tmp_path / "a.arrow", tmp_path / "b.arrow"], limit=10).to_table()) == 10
    with pytest.raises(cd.Error, match="b.arrow"):
        session.scan([tmp_path / "a.arrow", tmp_path / "b.arrow"]).to_table()


def test_error_for_another_schema_names_the_file_and_the_column(session, tmp_path):
    write(tmp_path / "a.arrow", "file", SCHEMA, [batch(0, 10)])
    other = batch(0, 3).set_column(1, "name", pa.array([1, 2, 3]))
    write(tmp_path / "b.arrow", "file", other.schema, [other])
    scan = session.scan(tmp_path)
    iterator = iter(scan)
    assert len(next(iterator)) == 10
    with pytest.raises(cd.UsageError, match=r"b\.arrow' does not have the schema .*name"):
        next(iterator)
    assert list(iterator) == []
    # Columns that were not requested may differ.
    assert len(session.read(tmp_path, columns=["id"])) == 13


def test_missing_files_raise_file_not_found(session, tmp_path):
    for source in (tmp_path / "no.arrow", str(tmp_path / "*.arrow"), tmp_path, [tmp_path / "no.arrow"]):
        with pytest.raises(FileNotFoundError):
            session.scan(source)
    with pytest.raises(cd.UsageError, match="at least one file"):
        session.scan([])


def test_rejects_sources_of_other_types(session):
    with pytest.raises(TypeError, match="scan: expected a path, a list of paths, a file object or a bytes-like"):
        session.scan(3)


def test_other_libraries_read_from_the_scan(session, folder):
    scan = session.scan(folder / "file-lz4.arrow", columns=["name", "id"])
    expected = pa.Table.from_batches(batches(), SCHEMA).select(["name", "id"])
    with pa.RecordBatchReader.from_stream(scan) as reader:
        assert reader.schema.equals(expected.schema)
        assert reader.read_all().equals(expected)
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(scan)["id"].to_list() == expected["id"].to_pylist()


def test_duckdb_queries_a_scan(session, folder):
    duckdb = pytest.importorskip("duckdb")
    scan = session.scan(folder / "file-lz4.arrow", columns=["name", "id"])  # noqa: F841
    assert duckdb.sql("select count(*), sum(id) from scan").fetchall() == [(43, sum(range(43)))]
    assert duckdb.sql("select count(*) from scan").fetchall() == [(43,)]


def test_stream_reads_a_file_object_while_the_consumer_holds_the_gil(session, folder):
    with (folder / "file-zstd.arrow").open("rb") as file:
        capsule_owner = session.scan(file, prefetch=1)
        assert pa.table(capsule_owner).num_rows == sum(SIZES)


def test_unfinished_stream_releases_everything(session, folder):
    reader = pa.RecordBatchReader.from_stream(session.scan(folder / "stream-lz4.arrows"))
    reader.read_next_batch()
    del reader
    assert_all_memory_freed(session)


@pytest.mark.parametrize("prefetch", [0, 1, 2, 5])
def test_iteration_that_stops_early_releases_everything(session, folder, prefetch):
    for stop in (0, 1, 3):
        iterator = iter(session.scan(folder / "file-zstd.arrow", prefetch=prefetch))
        for _ in range(stop):
            next(iterator)
        del iterator
    iterator = iter(session.scan(folder / "file-zstd.arrow", prefetch=prefetch))
    first = next(iterator)
    iterator.close()
    assert list(iterator) == []
    assert len(first) == SIZES[0]
    del first, iterator
    assert_all_memory_freed(session)


def test_each_iteration_reads_from_the_beginning(session, folder):
    scan = session.scan(folder / "file-None.arrow")
    first, second = iter(scan), iter(scan)
    assert next(first)["id"].to_pyarrow().equals(next(second)["id"].to_pyarrow())
    assert sum(len(table) for table in scan) == sum(SIZES)


def test_threads_share_an_iterator(session, tmp_path):
    parts = [batch(i * 10, 10) for i in range(40)]
    write(tmp_path / "in.arrows", "stream", SCHEMA, parts)
    iterator = iter(session.scan(tmp_path / "in.arrows", columns=["id"]))
    ids = []
    work = lambda: ids.extend(n for table in iterator for n in table["id"].to_pyarrow().to_pylist())  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(ids) == list(range(400))


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("form", FORMS)
def test_table_larger_than_the_budget_is_iterated(tmp_path, form, threads):
    rows = 100_000
    part = pa.record_batch({"n": pa.array(range(rows), pa.int64()), "text": [f"a text {n}" for n in range(rows)]})
    write(tmp_path / "in", form, part.schema, [part] * 30, compression="lz4")
    with cd.Session(memory="12MiB", threads=threads) as session:
        with pytest.raises(cd.OutOfMemoryError):
            session.read(tmp_path / "in")
        for prefetch in (0, 2, 8):
            total = 0
            for table in session.scan(tmp_path / "in", prefetch=prefetch):
                total += len(table)
                del table
            assert total == 30 * rows
        assert_all_memory_freed(session)


def test_pipe_is_scanned_once(session, folder):
    read_end, write_end = os.pipe()
    data = (folder / "stream-None.arrows").read_bytes()

    def fill():
        with open(write_end, "wb") as file:
            file.write(data)

    writer = threading.Thread(target=fill)
    writer.start()
    scan = session.scan(f"/dev/fd/{read_end}", columns=["id"])
    assert as_pyarrow(scan)["id"].to_pylist() == list(range(sum(SIZES)))
    writer.join()
    with pytest.raises(cd.UsageError, match="only once"):
        iter(scan)
    os.close(read_end)


def test_dropped_iterator_stops_waiting_for_a_silent_pipe(session, folder):
    read_end, write_end = os.pipe()
    data = (folder / "stream-None.arrows").read_bytes()
    os.write(write_end, data[: len(data) // 2])
    iterator = iter(session.scan(f"/dev/fd/{read_end}"))
    next(iterator)
    del iterator
    gc.collect()
    os.close(write_end)
    os.close(read_end)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("form", FORMS)
def test_truncated_file_is_one_error(session, folder, tmp_path, form, prefetch):
    path = tmp_path / "in"
    data = (folder / f"{form}-None{FORMS[form]}").read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4])
    with pytest.raises(cd.Error):
        for _ in session.scan(path, prefetch=prefetch):
            pass
    assert_all_memory_freed(session)


def test_file_truncated_during_the_scan_is_one_error(session, tmp_path):
    path = tmp_path / "in.arrows"
    write(path, "stream", SCHEMA, [batch(0, 1000)] * 60)
    iterator = iter(session.scan(path, prefetch=0))
    next(iterator)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises((cd.Error, OSError), match="in.arrows"):
        list(iterator)
    assert list(iterator) == []


class Failing(io.BytesIO):
    """A file object whose reads fail after some bytes."""

    left = 4000

    def read(self, size=-1):
        self.left -= size
        if self.left < 0:
            raise ConnectionError("the connection was lost")
        return super().read(size)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_exception_of_the_file_object_is_raised_unchanged(session, folder, prefetch):
    data = (folder / "stream-None.arrows").read_bytes()
    with pytest.raises(ConnectionError, match="the connection was lost"):
        list(session.scan(Failing(data), prefetch=prefetch))
    with pytest.raises(ConnectionError, match="the connection was lost"):
        session.read(Failing(data))


class Lying(io.BytesIO):
    """A file object that returns more bytes than requested, or fewer than it has declared."""

    def __init__(self, data, extra):
        super().__init__(data)
        self.extra = extra

    def read(self, size=-1):
        data = super().read(size)
        return data + b"more" if self.extra else data[: size // 2] if size > 64 else b""


@pytest.mark.parametrize("extra", [True, False])
def test_rejects_file_object_with_a_wrong_number_of_bytes(session, folder, extra):
    data = (folder / "stream-None.arrows").read_bytes()
    with pytest.raises((cd.Error, OSError, ValueError)):
        session.read(Lying(data, extra))


def test_pickled_scan_reads_the_same_rows_in_another_process(session, folder):
    scan = session.scan([folder / "file-lz4.arrow"], columns=["id", ("point", "x")], rows=[(1, 3), (40, 50)], limit=4)
    expected = pa.table(scan.to_table())
    assert pa.table(pickle.loads(pickle.dumps(scan)).to_table()).equals(expected)
    program = (
        "import pickle, sys; import pyarrow as pa\n"
        "table = pa.table(pickle.load(sys.stdin.buffer).to_table())\n"
        "with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as writer: writer.write_table(table)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(scan), stdout=subprocess.PIPE, check=True, timeout=120
    )
    assert ipc.open_stream(done.stdout).read_all().equals(expected)


def test_scan_of_bytes_cannot_be_pickled(session, folder):
    scan = session.scan((folder / "file-None.arrow").read_bytes())
    with pytest.raises(TypeError, match="only a scan of files can be pickled"):
        pickle.dumps(scan)


def test_fork_between_two_batches_leaves_the_parent_intact(session, folder):
    iterator = iter(session.scan(folder / "file-zstd.arrow"))
    next(iterator)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            next(iterator)
        except cd.UsageError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert sum(len(table) for table in iterator) == sum(SIZES[1:])


def test_scan_outlives_its_session(folder):
    with cd.Session() as session:
        scan = session.scan(folder / "file-None.arrow")
        iterator = iter(scan)
        next(iterator)
    assert sum(len(table) for table in iterator) == sum(SIZES[1:])
    assert len(scan.to_table()) == sum(SIZES)


def test_device_scan_copies_only_requested_columns(cuda_session, folder):
    for name in ("file-None.arrow", "stream-lz4.arrows"):
        scan = cuda_session.scan(folder / name, columns=["kind", "id"], rows=(5, 30), batch_rows=4)
        expected = pa.Table.from_batches(batches(), SCHEMA).slice(5, 25).select(["kind", "id"])
        tables = list(scan)
        assert {table.device for table in tables} == {"cuda:0"}
        assert as_pyarrow(tables).equals(expected)
        assert pa.RecordBatchReader.from_stream(scan).read_all().equals(expected)


def test_schema_determines_the_columns_and_types_of_all_files(session, tmp_path):
    first = pa.record_batch({"id": pa.array([1, 2], pa.int32()), "name": ["a", "b"], "more": [True, False]})
    second = pa.record_batch({"name": ["c"], "id": pa.array([3], pa.int64())})
    write(tmp_path / "a.arrow", "file", first.schema, [first])
    write(tmp_path / "b.arrow", "file", second.schema, [second])
    schema = pa.schema([("id", pa.float64()), ("name", pa.string())], metadata={"owner": "us"})
    scan = session.scan(tmp_path, schema=schema)
    assert pa.schema(scan).equals(schema, check_metadata=True)
    assert as_pyarrow(scan).to_pydict() == {"id": [1.0, 2.0, 3.0], "name": ["a", "b", "c"]}
    assert pa.table(session.read(tmp_path / "a.arrow", schema=schema)).schema.equals(schema, check_metadata=True)
    assert len(scan.head(1)) == 1
    expected = pickle.loads(pickle.dumps(scan)).to_table()
    assert pa.table(expected).equals(pa.table(scan.to_table()))


def test_error_for_a_file_that_does_not_fit_the_schema_names_file_and_column(session, tmp_path):
    write(tmp_path / "a.arrow", "file", SCHEMA, [batch(0, 10)])
    large = pa.record_batch({"id": pa.array([1 << 40], pa.int64())})
    write(tmp_path / "b.arrow", "file", large.schema, [large])
    with pytest.raises(cd.UsageError, match=r"b\.arrow': column 'id': .*1099511627776"):
        session.read(tmp_path, schema=pa.schema([("id", pa.int32())]))
    with pytest.raises(cd.UsageError, match=r"a\.arrow': column 'name': expected int32, got string"):
        session.scan(tmp_path / "a.arrow", schema=pa.schema([("name", pa.int32())]))
    with pytest.raises(cd.UsageError, match="there is no column 'none'"):
        session.scan(tmp_path, schema=pa.schema([("none", pa.int32())]))


@pytest.mark.parametrize("read", ["scan", "read"])
def test_storage_options_of_a_source_that_is_no_uri_are_rejected(session, flights, read):
    for source in (flights.read_bytes(), flights.open("rb"), flights):
        with pytest.raises(cd.UsageError, match="storage option 'token' applies only to URIs"):
            getattr(session, read)(source, storage_options={"token": "x"})
