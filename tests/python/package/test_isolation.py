"""Plugins in processes of their own, where the host is in Python: a policy asks for it, and this interpreter runs them."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT

SAMPLE = ROOT / "examples" / "data" / "flights-january.arrow"

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


@pytest.mark.parametrize("isolate", ['["*"]', "[]"])
def test_tables_are_read_and_written_the_same(tmp_path, isolate):
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
