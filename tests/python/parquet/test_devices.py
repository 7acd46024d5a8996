"""Files are read to a CUDA device and written from it. The device is simulated, in a process that loads its driver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

USE = """
import gc, sys
import crossdock as cd
import pyarrow.parquet as pq
import tables

plugin, folder = sys.argv[1:]
with cd.Session("cuda:0", plugins=[plugin], threads=2) as session:
    for group in tables.GROUPS:
        table = tables.table(group, 20_003)
        pq.write_table(table, f"{folder}/a.parquet", row_group_size=6000)
        got = session.read(f"{folder}/a.parquet")
        assert got.device == "cuda:0"
        tables.assert_equal(got.to_pyarrow(), table)
        session.write(got, f"{folder}/b.parquet")
        tables.assert_equal(pq.read_table(f"{folder}/b.parquet"), table)
        first = table.column_names[-1]
        batches = list(session.scan(f"{folder}/a.parquet", columns=[first], rows=range(5000, 13_000), batch_rows=1000))
        assert [batch.num_rows for batch in batches] == [1000] * 8
        del got, batches
    row = session.read(f"{folder}/a.parquet", limit=0)
    del row
    gc.collect()
print("done")
"""


def test_tables_are_read_to_a_device_and_written_from_it(plugin, tmp_path):
    driver = os.environ.get("CROSSDOCK_SIM_CUDA")
    if not driver:
        pytest.skip("CROSSDOCK_SIM_CUDA is not set to the folder of the simulated driver (cargo xtask sim-cuda)")
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", USE, plugin, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path, "LD_LIBRARY_PATH": driver},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr[-4000:]
    assert "crossdock-sim-cuda" not in done.stderr, done.stderr[-4000:]
