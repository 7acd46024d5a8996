"""Isolated plugins with a host in Python: a policy requires isolation, and this interpreter runs the
plugins."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT

SAMPLE = ROOT / "examples" / "data" / "flights-january.arrow"

METADATA = """
import sys, warnings
import crossdock as cd
import pyarrow as pa

warnings.simplefilter("error")
uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
encoded = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int32()), uuids)
odd = {b"\\xff": b"\\xfe"}
schema = pa.schema([pa.field("u", encoded.type, metadata=odd)], metadata=odd)
session = cd.Session()
session.from_arrow(pa.table({"u": encoded}, schema=schema)).write(sys.argv[1])
assert session.read(sys.argv[1]).to_pyarrow().schema.equals(schema, check_metadata=True)
"""

READS = """
import os, pathlib, sys
import crossdock as cd

def others():
    def parent(process):
        try:
            return int((process / "stat").read_text().rpartition(") ")[2].split()[1])
        except OSError:
            return None

    return [process for process in pathlib.Path("/proc").glob("[0-9]*") if parent(process) == os.getpid()]

session = cd.Session()
table = session.read(sys.argv[1])
print(len(table), len(others()) > 0, flush=True)
table.write(sys.argv[2])
"""


def test_metadata_round_trips_through_the_process(tmp_path):
    policy = tmp_path / "crossdock.toml"
    policy.write_text('isolate = ["*"]\n')
    for path in (tmp_path, policy):
        path.chmod(0o700)
    environment = {**os.environ, "CROSSDOCK_POLICY": str(policy)}
    command = [sys.executable, "-c", METADATA, str(tmp_path / "out.arrow")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    if "this system cannot" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("isolate", ['["*"]', "[]"])
def test_isolation_does_not_change_results(tmp_path, isolate):
    policy = tmp_path / "crossdock.toml"
    policy.write_text(f"isolate = {isolate}\n")
    for path in (tmp_path, policy):
        path.chmod(0o700)
    out = tmp_path / "out.arrow"
    environment = {**os.environ, "CROSSDOCK_POLICY": str(policy)}
    command = [sys.executable, "-c", READS, str(SAMPLE), str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    if "this system cannot" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["27004", str(isolate != "[]")]
    assert done.stderr == ""
    plain = tmp_path / "plain.arrow"
    done = subprocess.run([sys.executable, "-c", READS, str(SAMPLE), str(plain)], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == plain.read_bytes()
