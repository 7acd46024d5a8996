"""Column chunks are decoded on a CUDA device from their encoded pages. The device is simulated, in a process that loads
its driver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Prepares a session on the simulated device.
BEGIN = """
import ctypes, gc, random, sys
import crossdock as cd
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import tables

plugin, folder = sys.argv[1:]
path = f"{folder}/x.parquet"
calls = ctypes.CDLL("libcuda.so.1").crossdock_sim_cuda_calls
calls.restype = ctypes.c_uint64

def decoded_on_device(session, name):
    "The column, and whether a kernel decoded it."
    before = calls(b"cuLaunchKernel")
    column = session.read(path, columns=[name])[name]
    return column, calls(b"cuLaunchKernel") > before
"""

TYPES = """
# The types whose values the crate decodes on the host.
on_host = {"null", "all_null", "f16", "decimal32", "decimal64", "decimal128", "decimal256", "fixed_size_binary",
           "string_view", "binary_view"}
on_host |= {f"duration_{unit}" for unit in ("s", "ms", "us", "ns")}
with cd.Session("cuda:0", plugins=[plugin], threads=2) as session:
    for group in ("fixed_width", "texts", "dictionaries"):
        table = tables.table(group, 20_003)
        pq.write_table(table, path, row_group_size=6000)
        expected = pq.read_table(path)
        for name in table.column_names:
            column, on_device = decoded_on_device(session, name)
            assert on_device == (name not in on_host), (name, on_device)
            got = pa.table({name: column.to_pyarrow()}, schema=pa.schema([expected.schema.field(name)]))
            tables.assert_equal(got, expected.select([name]))
    del column, got
    gc.collect()
print("done")
"""

OPTIONS = """
n = 30_011
options = [
    {"use_dictionary": False},
    {"use_dictionary": False, "data_page_version": "2.0", "compression": "none"},
    {"data_page_version": "2.0", "compression": "zstd"},
    # The dictionaries become too large, so that plain pages follow pages of codes.
    {"dictionary_pagesize_limit": 3000, "data_page_size": 1000},
    {"dictionary_pagesize_limit": 3000, "data_page_size": 1000, "data_page_version": "2.0"},
    {"data_page_size": 300, "row_group_size": 7001, "write_page_checksum": True},
    {"use_dictionary": False, "column_encoding": {"i": "DELTA_BINARY_PACKED", "f": "BYTE_STREAM_SPLIT"}},
    {"use_dictionary": False, "column_encoding": {"t": "DELTA_BYTE_ARRAY", "required_t": "DELTA_LENGTH_BYTE_ARRAY"}},
    {"store_schema": False},
    {"version": "1.0"},
]
generator = np.random.default_rng(1)
def numbers(data_type, distinct, nulls=0.1):
    values = generator.integers(0, distinct, n).astype(data_type)
    # Some values repeat, so that there are runs.
    values[5000:9000] = values[5000]
    mask = generator.random(n) < nulls
    mask[12_000:15_000] |= nulls > 0
    return pa.array(values, mask=mask if nulls else None)
words = pa.array([f"word {i}" * (i % 4) for i in range(700)])
texts = words.take(pa.array(generator.integers(0, 700, n), mask=generator.random(n) < 0.3))
columns = {
    "i": numbers("int64", 5000), "few": numbers("int8", 3), "many": numbers("uint16", 60_000, 0), "wide": numbers("int32", 2**31),
    "f": pa.array(generator.random(n)), "repeated_f": pa.array((generator.random(50) * 9)[generator.integers(0, 50, n)]),
    "unsigned": numbers("uint64", 2**63, 0.9), "one": pa.array([7] * n, pa.int16()), "none": pa.nulls(n, pa.int32()),
    "b": pa.array(generator.random(n) < 0.01, mask=generator.random(n) < 0.1), "required_b": numbers("int8", 2, 0).cast("bool"),
    "t": texts, "required_t": texts.fill_null(""), "codes": texts.dictionary_encode(), "empty": pa.array([""] * n),
}
required = {"many", "required_b", "f", "one", "required_t", "empty"}
schema = pa.schema([pa.field(name, values.type, nullable=name not in required) for name, values in columns.items()])
table = pa.table(list(columns.values()), schema=schema)
host = cd.Session(plugins=[plugin], threads=2)
with cd.Session("cuda:0", plugins=[plugin], threads=3) as session:
    for option in options:
        pq.write_table(table, path, **option)
        expected = pq.read_table(path)
        got = session.read(path)
        tables.assert_equal(got.to_pyarrow(), expected)
        assert got.to_pyarrow().schema.equals(host.read(path).to_pyarrow().schema, check_metadata=True)
        # Parts of a row group, and batches of a part of its rows.
        part = session.read(path, rows=range(3000, 20_000), columns=["t", "i"])
        tables.assert_equal(part.to_pyarrow(), expected.select(["t", "i"]).slice(3000, 17_000))
        batches = [batch.to_pyarrow() for batch in session.scan(path, batch_rows=999)]
        assert max(batch.num_rows for batch in batches) <= 999
        tables.assert_equal(pa.concat_tables(pa.table(batch) for batch in batches), expected)
        first = session.read(path, filter=[("few", "==", 1)], columns=["i", "few"])
        tables.assert_equal(first.to_pyarrow(), expected.select(["i", "few"]).filter(pa.compute.equal(expected["few"], 1)))
    pq.write_table(table.slice(0, 0), path)
    assert session.read(path).num_rows == 0
    del got, part, batches, first
with cd.Session("cuda:0", plugins=[plugin], threads=2, memory="64MiB") as limited:
    pq.write_table(table, path)
    assert not decoded_on_device(limited, "i")[1], "with a memory limit, the crate decodes"
    tables.assert_equal(limited.read(path).to_pyarrow(), pq.read_table(path))
gc.collect()
print("done")
"""

DAMAGED = """
n = 3000
values = pa.array([i * 7 % 300 for i in range(n)], mask=np.arange(n) % 11 == 0)
table = pa.table({
    "i": values, "plain": pa.array(range(n)), "small": values.cast(pa.int16()),
    "b": pa.array([i % 50 < 20 for i in range(n)]), "t": pa.array(["a", None, "some text", "ä"] * (n // 4)), "d": pa.array(["x", "y", None] * 1000).dictionary_encode(),
})
kinds = [
    {"use_dictionary": ["i", "small", "t", "d"]},
    {"use_dictionary": ["i", "small", "t", "d"], "data_page_version": "2.0"},
]
host = cd.Session(plugins=[plugin], threads=2, validate="full")
outcomes = {"equal": 0, "error": 0}
with cd.Session("cuda:0", plugins=[plugin], threads=2, validate="full") as session:
    generator = random.Random(5)
    for kind in kinds:
        pq.write_table(table, path, row_group_size=1100, data_page_size=500, compression="none", **kind)
        content = open(path, "rb").read()
        for _ in range(MUTATIONS):
            damaged = bytearray(content)
            at = generator.randrange(len(content) - 2500)
            damaged[at] = generator.choice([0, 0xFF, damaged[at] ^ 1 << generator.randrange(8)])
            results = []
            for each in (session, host):
                try:
                    results.append(each.read(bytes(damaged), "parquet").to_pyarrow())
                except (cd.DataError, cd.UnsupportedError) as error:
                    results.append(None)
            if results[0] is None or results[1] is None:
                outcomes["error"] += 1
            else:
                tables.assert_equal(*results)
                outcomes["equal"] += 1
    assert outcomes["equal"] > 10 and outcomes["error"] > 10, outcomes
    results = None
gc.collect()
print("done")
"""

WRONG_CODE = """
# Codes of 2 bits for 3 values, of which the last one becomes 3.
table = pa.table({"i": pa.array([10, 20, 30] * 8, pa.int32())}, schema=pa.schema([pa.field("i", pa.int32(), nullable=False)]))
pq.write_table(table, path, compression="none", write_statistics=False)
content = bytearray(open(path, "rb").read())
packed = bytes([0b00100100, 0b01001001, 0b10010010] * 2)
at = content.index(packed)
content[at + 5] |= 0b11000000
with cd.Session("cuda:0", plugins=[plugin]) as session:
    try:
        session.read(bytes(content), "parquet")
    except cd.DataError as error:
        text = str(error)
        assert "row group 0, column 'i': the code of row 23 is not less than 3" in text, text
    else:
        raise AssertionError("a wrong code was accepted")
print("done")
"""


ISOLATED = """
with cd.Session("cuda:0", plugins=[plugin], threads=2) as session:
    for group in ("fixed_width", "texts", "dictionaries"):
        pq.write_table(tables.table(group, 2003), path, row_group_size=600)
        tables.assert_equal(session.read(path).to_pyarrow(), pq.read_table(path))
gc.collect()
print("done")
"""


@pytest.mark.parametrize("program", ["TYPES", "OPTIONS", "DAMAGED", "WRONG_CODE", "ISOLATED"])
def test_pages_are_decoded_on_a_device(plugin, tmp_path, program):
    driver = os.environ.get("CROSSDOCK_SIM_CUDA")
    if not driver:
        pytest.skip("CROSSDOCK_SIM_CUDA is not set to the folder of the simulated driver (cargo xtask sim-cuda)")
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    mutations = os.environ.get("CROSSDOCK_PARQUET_MUTATIONS", "150")
    environment = {**os.environ, "PYTHONPATH": path, "LD_LIBRARY_PATH": driver}
    if program == "ISOLATED":
        policy = tmp_path / "crossdock.toml"
        policy.write_text('isolate = ["parquet"]\n')
        for file in (tmp_path, policy):
            file.chmod(0o700)
        environment["CROSSDOCK_POLICY"] = str(policy)
    done = subprocess.run(
        [sys.executable, "-c", f"MUTATIONS = {mutations}\n{BEGIN}{globals()[program]}", plugin, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if "this system cannot" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr[-4000:]
    assert "crossdock-sim-cuda" not in done.stderr, done.stderr[-4000:]
