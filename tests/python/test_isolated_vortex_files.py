"""Isolated plugins read the same tables from Vortex files."""

import pytest
from conftest import ROOT

FILE = ROOT / "tests" / "python" / "vortex" / "golden_files" / "0.93.0-compact.vortex"


@pytest.mark.parametrize("plugins", ["vortex-file", "encodings", "vortex-file,encodings"])
def test_isolated_plugins_read_the_same_table(run, tmp_path, plugins):
    alone, isolated = tmp_path / "alone.arrow", tmp_path / "isolated.arrow"
    done = run("convert", FILE, alone, "--quiet")
    assert done.returncode == 0, done.stderr
    done = run("convert", FILE, isolated, "--quiet", f"--isolate={plugins}")
    if b"this system cannot" in done.stderr:
        pytest.skip(done.stderr.decode().strip())
    assert done.returncode == 0, done.stderr
    assert isolated.read_bytes() == alone.read_bytes()
