"""Damaged files, and what Parquet cannot store, are errors within the memory budget, and the session stays usable."""

import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import crossdock as cd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tables
from separate_plugin import assert_error_of_the_sink_is_passed_on


# The number of changed files for each seed.
MUTATIONS = int(os.environ.get("CROSSDOCK_PARQUET_MUTATIONS", "100"))


# Options of pyarrow for files with different pages.
KINDS = [
    {},
    {
        "data_page_version": "2.0",
        "use_dictionary": ["d"],
        "compression": "zstd",
        "column_encoding": {"i": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"},
    },
    {"compression": "none", "use_dictionary": False, "column_encoding": {"s": "DELTA_LENGTH_BYTE_ARRAY"}},
    {"compression": "lz4", "write_page_checksum": False, "store_schema": False},
]


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The bytes of a file with several row groups, encodings and a page index."""
    return write(tmp_path_factory.mktemp("content") / "x.parquet", KINDS[0])


def write(path, options):
    table = pa.table(
        {
            "i": range(3000),
            "s": ["a", None, "some text"] * 1000,
            "l": [[1, 2], None, []] * 1000,
            "d": pa.array(["x", "y", None] * 1000).dictionary_encode(),
            "st": [{"a": 1, "b": "t"}, None, {"a": None, "b": ""}] * 1000,
        }
    )
    pq.write_table(table, path, row_group_size=1100, data_page_size=500, write_page_index=True, **options)
    return path.read_bytes()


@pytest.fixture
def validating(plugin):
    with cd.Session(plugins=[plugin], threads=2, validate="full", memory="64MiB") as session:
        yield session


def read_all(session, content):
    """Reads everything, a part with a filter, and the fragments. Returns the error, or None."""
    try:
        session.read(content, "parquet")
        session.read(content, "parquet", rows=range(500, 2000), filter=[("i", ">", 700)])
        for fragment in session.scan(content, "parquet").fragments():
            fragment.scan().to_table()
    except cd.Error as error:
        assert isinstance(error, cd.DataError | cd.UnsupportedError | cd.OutOfMemoryError), error
        return str(error)
    return None


def test_truncated_files_are_errors(session, content):
    for end in [0, 3, 4, 11, 12, *range(100, len(content), 997), len(content) - 9, len(content) - 1]:
        assert read_all(session, content[:end]) is not None, end
    assert read_all(session, content) is None


@pytest.mark.filterwarnings("ignore:.*Arrow's schema in the metadata is ignored")
@pytest.mark.parametrize("seed", range(4))
def test_changed_bytes_are_errors_or_other_values(validating, tmp_path, seed):
    """The metadata and the pages are changed at random places. The host validates the contents of the arrays."""
    session, content = validating, write(tmp_path / "x.parquet", KINDS[seed % len(KINDS)])
    generator = random.Random(seed)
    errors = 0
    for _ in range(MUTATIONS):
        damaged = bytearray(content)
        for _ in range(generator.choice([1, 1, 4])):
            at = generator.choice(
                [generator.randrange(len(content)), generator.randrange(len(content) - 6000, len(content))]
            )
            damaged[at] = generator.choice([0, 0xFF, damaged[at] ^ 1 << generator.randrange(8)])
        errors += read_all(session, bytes(damaged)) is not None
    assert errors > 10
    assert read_all(session, content) is None


@pytest.mark.parametrize("map", [True, False])
def test_file_that_is_truncated_while_it_is_read_is_an_error(session, tmp_path, map):
    """Threads decode the next row groups while no call is running."""
    path = tmp_path / "x.parquet"
    random = np.random.default_rng(1).random(400_000)
    pq.write_table(pa.table({"a": random, "b": random}), path, row_group_size=10_000, use_dictionary=False)
    for _ in range(5):
        content = path.read_bytes()
        batches = iter(session.scan(path, prefetch=0, map=map))
        next(batches)
        os.truncate(path, 100_000)
        with pytest.raises((cd.Error, OSError)):
            for _ in batches:
                pass
        del batches
        path.unlink()
        path.write_bytes(content)


def with_footer(pages, metadata):
    return pages + metadata + struct.pack("<I", len(metadata)) + b"PAR1"


def test_length_of_the_footer_outside_of_the_file_is_an_error(session, content):
    for length in (len(content), 2**32 - 1):
        with pytest.raises(cd.DataError, match=f"the metadata have {length} bytes"):
            session.read(content[:-8] + struct.pack("<I", length) + b"PAR1", "parquet")


def test_encrypted_footer_is_unsupported(session, content):
    with pytest.raises(cd.UnsupportedError, match="the footer is encrypted"):
        session.read(content[:-4] + b"PARE", "parquet")


def varint(n):
    encoded = b""
    while n > 127:
        encoded += bytes([n & 127 | 128])
        n >>= 7
    return encoded + bytes([n])


def metadata_of(nodes, rows=0):
    """Thrift's compact form of the metadata of a file without row groups."""
    schema = b"".join(nodes)
    return b"\x15\x02\x19\xfc" + varint(len(nodes)) + schema + b"\x16" + varint(2 * rows) + b"\x19\x0c\x00"


def group(n_children):
    """A node `g`: optional, with children."""
    return b"\x35\x02\x18\x01g\x15" + varint(2 * n_children) + b"\x00"


def test_deeply_nested_schema_is_unsupported(session):
    nodes = [group(1)] * 100_000 + [b"\x15\x02\x25\x02\x18\x01v\x00"]
    with pytest.raises(cd.UnsupportedError, match="the schema nests deeper than 192 levels"):
        session.read(with_footer(b"PAR1", metadata_of(nodes)), "parquet")


def test_number_of_children_beyond_the_schema_is_an_error(session):
    with pytest.raises(cd.DataError, match="node 0 of the schema has 1000000000 children"):
        session.read(with_footer(b"PAR1", metadata_of([group(10**9)])), "parquet")


def test_inconsistent_row_count_is_an_error(session):
    nodes = [group(1), b"\x15\x02\x25\x02\x18\x01v\x00"]
    with pytest.raises(cd.DataError, match="the file declares 5 rows, but its row groups have 0 rows"):
        session.read(with_footer(b"PAR1", metadata_of(nodes, rows=5)), "parquet")


def test_huge_list_in_the_metadata_is_an_error(session):
    with pytest.raises(cd.DataError, match="a list of 2147483647 elements"):
        session.read(with_footer(b"PAR1", b"\x15\x02\x19\xfc\xff\xff\xff\xff\x07\x00"), "parquet")


BOMB = """
import resource, sys
import crossdock as cd
plugin, path, limit = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_AS, (1500 << 20, 1500 << 20))
with cd.Session(plugins=[plugin], memory=int(limit), threads=1) as session:
    try:
        n = sum(batch.num_rows for batch in session.scan(path, prefetch=0))
        print("read", n)
    except cd.Error as error:
        print("error", error)
"""


def read_in_a_small_process(plugin, path, limit):
    """Reads a file in a process with little address space. Returns what the process printed."""
    done = subprocess.run([sys.executable, "-c", BOMB, plugin, path, str(limit)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_page_that_exceeds_the_budget_is_an_error(plugin, tmp_path):
    path = tmp_path / "x.parquet"
    zeros = pa.table({"a": pa.array([bytes(100 << 20)])})
    pq.write_table(zeros, path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 1 << 20
    text = read_in_a_small_process(plugin, path, 32 << 20)
    assert "memory for decoding a batch: 'parquet' asked for 104857608 bytes" in text


def test_dictionary_that_expands_is_read_in_small_batches(plugin, tmp_path):
    """A file of some kilobytes contains 2 GB of text."""
    path = tmp_path / "x.parquet"
    schema = pa.schema([("a", pa.large_string())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(20):
            writer.write_table(pa.table({"a": pa.array(["x" * (1 << 20)] * 100, pa.large_string())}))
    assert path.stat().st_size < 1 << 20
    assert read_in_a_small_process(plugin, path, 128 << 20) == "read 2000\n"


@pytest.mark.skipif(
    "CROSSDOCK_PARQUET_HUGE" not in os.environ, reason="needs 4 GB of memory; CROSSDOCK_PARQUET_HUGE is not set"
)
def test_texts_beyond_the_offsets_are_read_in_several_batches(session, tmp_path):
    """A batch of this row group would have more than 2^31 bytes of text."""
    path = tmp_path / "x.parquet"
    part = pa.table({"a": pa.array(["x" * (1 << 16)] * 10_000)})
    with pq.ParquetWriter(path, part.schema, compression="zstd") as writer:
        writer.write_table(pa.concat_tables([part] * 4), row_group_size=40_000)
    batches = [batch.num_rows for batch in session.scan(path, prefetch=0)]
    assert sum(batches) == 40_000
    assert max(batches) < 2**31 >> 16


def test_budget_that_suffices_for_batches_suffices_for_a_file(plugin, tmp_path):
    path = tmp_path / "x.parquet"
    table = tables.table("texts", 200_000).select(["string", "distinct"])
    pq.write_table(table, path)
    with cd.Session(plugins=[plugin], memory=5 << 20) as session:
        assert sum(batch.num_rows for batch in session.scan(path)) == 200_000
        with pytest.raises(cd.Error, match="memory"):
            session.read(path)


UNSUPPORTED = {
    "interval": pa.month_day_nano_interval(),
    "sparse_union": pa.sparse_union([pa.field("a", pa.int8()), pa.field("b", pa.string())]),
    "empty_struct": pa.struct([]),
    "list_of_empty_structs": pa.list_(pa.struct([])),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_type_that_parquet_lacks_is_an_error_that_names_the_column(session, tmp_path, name):
    schema = pa.schema([("first", pa.int8()), (f"my {name}", UNSUPPORTED[name])])
    with pytest.raises(cd.UnsupportedError, match=f"column 'my {name}': Parquet has no type for"):
        session.writer(tmp_path / "x.parquet", schema)
    assert os.listdir(tmp_path) == []


def test_unknown_options_are_errors(session, tmp_path):
    table = pa.table({"a": [1]})
    for options, expected in [
        ({"compression": "lzo"}, "unknown compression 'lzo'"),
        ({"compression": "snappy", "compression_level": 3}, "has no levels"),
        ({"compression_level": 99}, "compression_level"),
        ({"row_group_rows": 0}, "row_group_rows is '0'"),
        ({"level": 3}, "no option 'level'"),
    ]:
        with pytest.raises(cd.Error, match=expected):
            session.write(table, tmp_path / "x.parquet", **options)
    assert os.listdir(tmp_path) == []


def test_rows_without_columns_are_an_error(session, tmp_path):
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 5, pa.struct([])))
    with pytest.raises(cd.Error, match="rows without columns"):
        session.write(pa.Table.from_batches([batch]), tmp_path / "x.parquet")


def test_error_of_the_sink_is_passed_on(tmp_path, plugin, run):
    table = pa.table({"a": np.random.default_rng(1).random(50_000)})
    assert_error_of_the_sink_is_passed_on(run, plugin, table, tmp_path, "b.parquet")


def test_too_little_memory_for_writing_is_an_error_and_enough_memory_suffices(plugin, tmp_path):
    table = pa.table({"a": np.random.default_rng(1).random(500_000)})
    with cd.Session(plugins=[plugin], memory=2 << 20) as session:
        with pytest.raises(cd.Error, match="memory for encoding: write smaller batches"):
            session.write(table, tmp_path / "x.parquet")
    with cd.Session(plugins=[plugin], memory=16 << 20) as session:
        session.write(table, tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet").equals(table)


def test_null_in_a_column_that_is_not_nullable_is_an_error(session, tmp_path):
    schema = pa.schema([pa.field("a", pa.int8(), nullable=False)])
    table = pa.Table.from_arrays([pa.array([1, None], pa.int8())], schema=schema)
    with pytest.raises(cd.Error, match="column a: the null count is 1, but its field is not nullable"):
        session.write(table, tmp_path / "x.parquet")


def test_plan_names_the_columns_that_cannot_be_written(plugin, run, tmp_path):
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), pa.schema([("a", pa.int8()), ("s", pa.struct([]))])):
        pass
    done = run("plan", "--plugins", plugin, tmp_path / "a.arrow", "--to", "parquet")
    text = done.stdout.decode() + done.stderr.decode()
    assert "compressed with zstd" in text
    assert "column 's': Parquet has no type for" in text


def test_plugin_passes_verification(plugin, run, tmp_path, content):
    (tmp_path / "x.parquet").write_bytes(content)
    done = run("verify", plugin, "--seeds", "1", "--sample", tmp_path / "x.parquet")
    assert done.returncode == 0, done.stdout.decode()


def files_of_apache(folder):
    root = os.environ.get("CROSSDOCK_PARQUET_TESTING")
    if not root:
        pytest.skip("CROSSDOCK_PARQUET_TESTING is not set to a clone of apache/parquet-testing")
    files = sorted(Path(root, folder).glob("*.parquet"))
    assert files
    return files


def test_bad_files_of_apache_are_errors_or_tables(validating):
    for path in files_of_apache("bad_data"):
        try:
            validating.read(path, "parquet")
        except cd.Error as error:
            assert isinstance(error, cd.DataError | cd.UnsupportedError), (path.name, error)


def values_of(column):
    """Returns the values as text. Python has no objects for some timestamps and durations."""
    try:
        return repr(column.to_pylist())
    except (ValueError, OverflowError):
        return column.combine_chunks().to_string()


# These files break the format, but pyarrow reads them.
MALFORMED = {
    "datapage_v1-corrupt-checksum.parquet",
    "dict-page-offset-zero.parquet",
    "nation.dict-malformed.parquet",
    "rle-dict-uncompressed-corrupt-checksum.parquet",
}


def test_good_files_of_apache_are_read_as_pyarrow_reads_them(session):
    for path in files_of_apache("data"):
        try:
            expected = pq.read_table(path)
        except (pa.ArrowException, OSError):
            continue
        if path.name in MALFORMED:
            with pytest.raises(cd.DataError):
                session.read(path, "parquet")
            continue
        if path.name == "int96_from_spark.parquet":
            continue  # A timestamp that nanoseconds cannot represent becomes another one, in pyarrow too.
        got = session.read(path, "parquet").to_pyarrow()
        assert got.num_rows == expected.num_rows and got.column_names == expected.column_names, path.name
        assert [values_of(column) for column in got.columns] == [values_of(column) for column in expected.columns]
