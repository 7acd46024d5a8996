"""Files of pyarrow are read with the same values and types, and written files are read by pyarrow and Polars."""

import datetime
import decimal
import pathlib

import crossdock as cd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tables
from separate_plugin import blocks_of

FLIGHTS = pathlib.Path(__file__).parents[3] / "examples/data/flights-january.arrow"
CODECS = ["none", "snappy", "gzip", "lz4", "zstd", "brotli"]


@pytest.mark.parametrize("n", tables.SIZES)
@pytest.mark.parametrize("group", tables.GROUPS)
def test_file_of_pyarrow_is_read_as_pyarrow_reads_it(session, tmp_path, group, n):
    path = tmp_path / "x.parquet"
    pq.write_table(tables.table(group, n), path, row_group_size=40_000, write_page_index=True)
    expected = pq.read_table(path)
    got = session.read(path).to_pyarrow()
    tables.assert_equal(got, expected)
    assert got.schema.metadata[b"table"] == group.encode()


@pytest.mark.parametrize("n", tables.SIZES)
@pytest.mark.parametrize("group", tables.GROUPS)
def test_written_file_is_read_as_it_was_written(session, tmp_path, group, n):
    path, table = tmp_path / "x.parquet", tables.table(group, n)
    session.write(table, path, row_group_rows=60_000)
    tables.assert_equal(session.read(path).to_pyarrow(), table)
    by_pyarrow = pq.read_table(path)
    tables.assert_equal(by_pyarrow, table)
    assert by_pyarrow.schema.metadata[b"table"] == group.encode()
    assert pq.ParquetFile(path).metadata.num_row_groups == -(-n // 60_000)


@pytest.mark.parametrize("codec", CODECS)
def test_codecs_are_read_and_written(session, tmp_path, codec):
    table = tables.table("texts", 5000)
    pq.write_table(table, tmp_path / "a.parquet", compression=codec)
    tables.assert_equal(session.read(tmp_path / "a.parquet").to_pyarrow(), table)
    session.write(table, tmp_path / "b.parquet", compression=codec)
    tables.assert_equal(pq.read_table(tmp_path / "b.parquet"), table)
    stored = pq.ParquetFile(tmp_path / "b.parquet").metadata.row_group(0).column(0).compression
    assert stored == {"none": "UNCOMPRESSED", "lz4": "LZ4"}.get(codec, codec.upper())


@pytest.mark.parametrize(
    "options",
    [
        {"use_dictionary": False},
        {"data_page_version": "2.0"},
        {"use_dictionary": False, "column_encoding": {"i": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"}},
        {"use_dictionary": False, "column_encoding": {"s": "DELTA_LENGTH_BYTE_ARRAY", "f": "BYTE_STREAM_SPLIT"}},
        {"store_schema": False},
        {"data_page_size": 1000, "write_page_checksum": True},
        {"version": "1.0"},
        {"write_statistics": False},
    ],
    ids=str,
)
def test_encodings_of_pyarrow_are_read(session, tmp_path, options):
    n = 20_003
    texts = tables.cycle(["a", None, tables.LONG, "prefix", "prefixes"], n)
    columns = {"i": tables.cycle([1, None, -5, 2**40], n), "s": texts, "f": tables.cycle([1.5, None], n)}
    table = pa.table({**columns, "l": tables.cycle([[1, 2], None, []], n)})
    pq.write_table(table, tmp_path / "x.parquet", **options)
    got = session.read(tmp_path / "x.parquet").to_pyarrow()
    tables.assert_equal(got, pq.read_table(tmp_path / "x.parquet"))


@pytest.mark.parametrize("compression", ["zstd", "uncompressed", "lz4"])
def test_file_of_polars_is_read(session, tmp_path, compression):
    frame = pl.DataFrame(
        {
            "i": range(30_000),
            "s": ["a", None, "a longer text"] * 10_000,
            "c": pl.Series(["x", "y", None] * 10_000, dtype=pl.Categorical),
            "l": [[1, 2], None, []] * 10_000,
            "b": [b"\xff", None, b""] * 10_000,
        }
    )
    frame.write_parquet(tmp_path / "x.parquet", compression=compression, row_group_size=9000)
    got = pl.DataFrame(session.read(tmp_path / "x.parquet"))
    assert got.with_columns(pl.col("c").cast(pl.String)).equals(frame.with_columns(pl.col("c").cast(pl.String)))


def test_written_file_is_read_by_polars(session, tmp_path):
    table = pa.table({"i": range(20_000), "s": ["a", None] * 10_000, "l": [[1.5], None] * 10_000})
    session.write(table, tmp_path / "x.parquet")
    assert pl.read_parquet(tmp_path / "x.parquet").equals(pl.from_arrow(table))


def test_timestamps_of_96_bits_are_nanoseconds(session, tmp_path):
    table = pa.table({"t": pa.array([0, None, 10**18, -1], pa.timestamp("ns"))})
    pq.write_table(table, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    assert session.read(tmp_path / "x.parquet").to_pyarrow()["t"].combine_chunks() == table["t"].combine_chunks()


def test_dictionaries_stay_dictionaries(session, tmp_path):
    table = tables.table("dictionaries", 1000)
    session.write(table, tmp_path / "x.parquet")
    got = session.read(tmp_path / "x.parquet").to_pyarrow()
    assert [field.type for field in got.schema] == [field.type for field in table.schema]


SECONDS = {
    "timestamp": pa.array([3, None, -1], pa.timestamp("s")),
    "zone": pa.array([3, None, -1], pa.timestamp("s", "Europe/Berlin")),
    "time": pa.array([3, None, 86_399], pa.time32("s")),
    "date": pa.array([86_400_000, None, -86_400_000], pa.date64()),
}


@pytest.mark.parametrize("kind", SECONDS)
def test_units_that_parquet_lacks_are_written_as_pyarrow_writes_them(session, tmp_path, kind):
    values = SECONDS[kind]
    wide = pa.chunked_array([values.slice(1), values])
    ends = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5], pa.int32()), values)
    columns = {
        "plain": wide,
        "struct": pa.chunked_array([pa.StructArray.from_arrays([chunk, chunk], ["a", "b"]) for chunk in wide.chunks]),
        "list": pa.array([values[:2].to_pylist(), None, [], [None], [values[2].as_py()]], pa.list_(values.type)),
        "pair": pa.array([[values[0].as_py(), None], None] * 2 + [None], pa.list_(values.type, 2)),
        "map": pa.array([[("k", values[0].as_py())], None, [], None, []], pa.map_(pa.string(), values.type)),
    }
    table = pa.table(columns)
    session.write(table, tmp_path / "x.parquet")
    pq.write_table(table, tmp_path / "y.parquet")
    got, expected = (pq.ParquetFile(tmp_path / f"{name}.parquet") for name in "xy")
    logical_types = [[file.schema.column(i).logical_type.to_json() for i in range(7)] for file in (got, expected)]
    assert logical_types[0] == logical_types[1]
    tables.assert_equal(got.read(), expected.read())
    read = session.read(tmp_path / "x.parquet").to_pyarrow()
    # Dates are read as they were written.
    assert read.schema.types == (table if kind == "date" else got.read()).schema.types
    assert read.to_pylist() == table.to_pylist()
    rows = session.scan(tmp_path / "x.parquet", columns=["plain"], filter=[("plain", "==", values[0].as_py())])
    assert rows.to_table().to_pyarrow()["plain"].to_pylist() == [values[0].as_py()]

    encoded = pa.table({"dictionary": values.dictionary_encode()})
    session.write(encoded, tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet")["dictionary"].to_pylist() == values.to_pylist()
    read = session.read(tmp_path / "x.parquet")["dictionary"].to_pyarrow()
    assert pa.types.is_dictionary(read.type)
    assert read.to_pylist() == values.to_pylist()
    session.write(pa.table({"ends": ends}), tmp_path / "x.parquet")
    assert session.read(tmp_path / "x.parquet")["ends"].to_pyarrow().to_pylist() == ends.to_pylist()


@pytest.mark.parametrize(
    ("data_type", "value", "error"),
    [
        (pa.timestamp("s"), 2**62, "the timestamp 4611686018427387904 s does not fit into 64 bits in milliseconds"),
        (pa.time32("s"), 2**30, "the time 1073741824 s does not fit into 32 bits in milliseconds"),
        (pa.date64(), 86_400_001, "the date 86400001 ms is not a number of days"),
        (pa.date64(), 86_400_000 * 2**31, "the date 185542587187200000 ms is not a number of days"),
    ],
    ids=str,
)
def test_value_that_parquet_cannot_store_is_an_error(session, tmp_path, data_type, value, error):
    storage = pa.array([0, value, None], pa.int32() if pa.types.is_time32(data_type) else pa.int64())
    times = storage.view(data_type)
    for column in (times, pa.ListArray.from_arrays([0, 1, 2, 3], times)):
        with pytest.raises(cd.UnsupportedError, match=f"column 'x': {error}"):
            session.write(pa.table({"x": column}), tmp_path / "x.parquet")
    # A value without meaning behind a null is not an error.
    hidden = pa.Array.from_buffers(data_type, 2, [pa.py_buffer(b"\x01"), storage.buffers()[1]])
    session.write(pa.table({"x": hidden}), tmp_path / "x.parquet")
    assert session.read(tmp_path / "x.parquet")["x"].to_pyarrow().to_pylist() == hidden.to_pylist()


@pytest.mark.parametrize("version", ["1.0", "2.4", "2.6"])
def test_zones_are_kept_if_the_file_has_another_unit(session, tmp_path, version):
    instants = tables.cycle([1, None, 1_700_000_000], 500)
    nanoseconds = tables.cycle([1000, None, 1_700_000_000_000], 500)
    columns = {
        f"{unit} {zone}": pa.array(nanoseconds if unit == "ns" else instants, pa.timestamp(unit, zone))
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "Europe/Berlin", "+02:00")
    }
    berlin = columns["s Europe/Berlin"]
    columns["dictionary"] = berlin.dictionary_encode()
    columns["struct"] = pa.StructArray.from_arrays([pa.nulls(500), berlin], ["null", "time"])
    columns["list"] = pa.ListArray.from_arrays(pa.array(range(501)), berlin)
    columns["map"] = pa.MapArray.from_arrays(pa.array(range(501)), pa.array(map(str, range(500))), berlin)
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", version=version)
    got, expected = session.read(tmp_path / "x.parquet").to_pyarrow(), pq.read_table(tmp_path / "x.parquet")
    # pyarrow loses the zone of a dictionary.
    assert got["dictionary"].type == expected["s Europe/Berlin"].type == pa.timestamp("ms", "Europe/Berlin")
    for name in set(expected.column_names) - {"dictionary"}:
        assert str(got[name].type) == str(expected[name].type).replace(" ('map')", "")
    assert got.to_pylist() == expected.to_pylist()
    later = ("s Europe/Berlin", ">", datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
    rows = session.scan(tmp_path / "x.parquet", columns=["ms UTC"], filter=[later]).to_table().num_rows
    assert rows == instants.to_pylist().count(1_700_000_000)


def test_dictionaries_of_every_type_are_read(session, tmp_path):
    decimals = [decimal.Decimal("1.5"), decimal.Decimal("-2.5")]
    values = [
        pa.array([True, False]),
        pa.array([1.5, -0.0], pa.float16()),
        pa.array([1.5, -0.0], pa.float32()),
        pa.array([7, 8], pa.uint16()),
        pa.array([7, 8], pa.date32()),
        pa.array([7, 8], pa.time64("us")),
        pa.array([7, 8], pa.duration("ms")),
        pa.array([7000, 8000], pa.timestamp("ns", "Asia/Tokyo")),
        pa.array([b"ab", b"cd"], pa.binary(2)),
        pa.array(["a", ""], pa.large_string()),
        pa.array([b"a", b""]),
        *(pa.array(decimals, type) for type in (pa.decimal128(9, 1), pa.decimal128(38, 1), pa.decimal256(50, 1))),
    ]
    for of_values in values:
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1], pa.int8()), of_values)
        nested = pa.ListArray.from_arrays([0, 2, 4], column)
        pq.write_table(pa.table({"x": column}), tmp_path / "x.parquet")
        pq.write_table(pa.table({"x": nested}), tmp_path / "nested.parquet")
        for file, expected in (("x", column), ("nested", nested)):
            got = session.read(tmp_path / f"{file}.parquet")["x"].to_pyarrow()
            assert got.to_pylist() == expected.to_pylist(), of_values.type


@pytest.mark.parametrize("store_schema", [True, False])
def test_types_that_are_only_in_the_schema_of_parquet_are_extension_types(session, tmp_path, store_schema):
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(range(16)), None], pa.binary(16)))
    texts = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["[1]", None]))
    table = pa.table({"u": uuids, "j": texts, "l": pa.ListArray.from_arrays([0, 1, 2], uuids)})
    pq.write_table(table, tmp_path / "x.parquet", store_schema=store_schema)
    got, expected = session.read(tmp_path / "x.parquet").to_pyarrow(), pq.read_table(tmp_path / "x.parquet")
    assert got.schema.types == expected.schema.types == table.schema.types
    assert got.to_pylist() == expected.to_pylist()
    session.write(table, tmp_path / "y.parquet")
    stored = pq.ParquetFile(tmp_path / "y.parquet").schema
    assert [stored.column(i).logical_type.type for i in range(3)] == ["UUID", "JSON", "UUID"]


def test_run_ends_and_views_of_lists_are_read_as_they_were_written(session, tmp_path):
    ends = pa.RunEndEncodedArray.from_arrays(pa.array([3, 5], pa.int32()), pa.array(["x", None]))
    views = pa.array([[1, 2], None, [], [3], [4]], pa.list_view(pa.int32()))
    table = pa.table({"ends": ends, "views": views})
    session.write(table, tmp_path / "x.parquet")
    got = session.read(tmp_path / "x.parquet").to_pyarrow()
    assert got.to_pylist() == table.to_pylist()


def test_batches_and_slices_are_written_as_one_table(session, tmp_path):
    whole = tables.table("nested", 30_003)
    table = pa.concat_tables([whole.slice(9, 1), whole.slice(3, 8193), whole.slice(0, 0), whole.slice(100, 9000)])
    with session.writer(tmp_path / "x.parquet", table.schema, row_group_rows=5000) as writer:
        for batch in table.to_batches():
            writer.write(batch)
    tables.assert_equal(pq.read_table(tmp_path / "x.parquet"), table)
    metadata = pq.ParquetFile(tmp_path / "x.parquet").metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [5000, 5000, 5000, 2194]


def test_options_change_the_file(session, tmp_path):
    table = pa.table({"s": ["a", "b"] * 5000})
    path = tmp_path / "x.parquet"

    def chunk(**options):
        session.write(table, path, **options)
        return pq.ParquetFile(path).metadata.row_group(0).column(0)

    assert chunk().has_dictionary_page and chunk().statistics.max == "b"
    assert chunk().has_column_index and chunk().has_offset_index
    assert not chunk(dictionary=False).has_dictionary_page
    assert not chunk(statistics=False).is_stats_set
    without_index = chunk(page_index=False)
    assert without_index.statistics.max == "b"
    assert not without_index.has_column_index and not without_index.has_offset_index
    sizes = {level: chunk(compression="zstd", compression_level=level, dictionary=False) for level in (1, 19)}
    assert sizes[19].total_compressed_size <= sizes[1].total_compressed_size


def test_convert_keeps_the_codec(tmp_path, plugin, run):
    pq.write_table(pa.table({"a": range(1000)}), tmp_path / "a.parquet", compression="brotli")
    done = run("convert", "--plugins", plugin, tmp_path / "a.parquet", tmp_path / "b.parquet", "--quiet")
    assert done.returncode == 0, done.stderr
    assert pq.ParquetFile(tmp_path / "b.parquet").metadata.row_group(0).column(0).compression == "BROTLI"


def test_isolated_plugin_reads_and_writes(tmp_path, plugin, run):
    table = tables.table("nested", 3000)
    pq.write_table(table, tmp_path / "a.parquet")
    arguments = (tmp_path / "a.parquet", tmp_path / "b.parquet", "--quiet", "--isolate=parquet")
    done = run("convert", "--plugins", plugin, *arguments)
    assert done.returncode == 0, done.stderr
    tables.assert_equal(pq.read_table(tmp_path / "b.parquet"), table)


def test_source_of_bytes_and_of_a_file_object_is_read(session, tmp_path):
    table = tables.table("texts", 5000)
    pq.write_table(table, tmp_path / "x.parquet")
    content = (tmp_path / "x.parquet").read_bytes()
    tables.assert_equal(session.read(content).to_pyarrow(), table)
    with open(tmp_path / "x.parquet", "rb") as file:
        tables.assert_equal(session.read(file, "parquet", columns=["string"]).to_pyarrow(), table.select(["string"]))
    tables.assert_equal(session.read(tmp_path / "x.parquet", map=False).to_pyarrow(), table)


def test_plugin_is_named_by_the_session(session):
    assert any("parquet" in name for name in session.plugins)
    assert isinstance(session, cd.Session)


def test_program_of_the_page_runs(plugin, tmp_path, monkeypatch):
    (program,) = blocks_of("docs/parquet.md")
    monkeypatch.chdir(tmp_path)
    flights = pa.ipc.open_file(FLIGHTS).read_all()
    pq.write_table(flights, "flights.parquet")
    # On a device, the program needs a GPU.
    assert 'Session("cuda:0")' in program
    program = program.replace('Session("cuda:0")', f"Session(plugins=[{plugin!r}])")
    names = {"crossdock": cd}
    exec(program, names)
    distances = pq.read_table("long.parquet")["distance"].to_pylist()
    assert distances == [distance for distance in flights["distance"].to_pylist() if distance > 1000]
    assert pq.ParquetFile("long.parquet").metadata.row_group(0).column(1).compression == "ZSTD"
    names.clear()
