"""The package crossdock-parquet contains the plugin, and each session of the package crossdock finds it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PYTHON = Path(__file__).resolve().parents[3] / "plugins" / "parquet" / "python"

USE = """
import sys
import crossdock as cd
session = cd.Session()
table = session.read(sys.argv[1])
session.write(table, sys.argv[2], compression="snappy")
print(table.num_rows, *(name for name in session.plugins if "parquet" in name))
"""


@pytest.fixture
def installed(tmp_path, plugin):
    """A folder into which the wheel was installed. The build takes the library that the tests use."""
    profile = Path(plugin).parent.name
    target = str(Path(plugin).parents[1])
    environment = {**os.environ, "CARGO_TARGET_DIR": target}
    settings = f"profile={'dev' if profile == 'debug' else profile}"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", str(PYTHON), "--no-deps", "--no-build-isolation", "--config-settings", settings]
    subprocess.run([*build, "--wheel-dir", str(tmp_path)], check=True, env=environment)
    (wheel,) = tmp_path.glob("crossdock_parquet-*.whl")
    assert "-py3-none-manylinux_2_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert "crossdock_parquet/libcrossdock_parquet_plugin.so" in names
    folder = tmp_path / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", str(folder), str(wheel)], check=True)
    return folder


def test_sessions_find_the_installed_plugin(installed, tmp_path):
    pq.write_table(pa.table({"a": range(10)}), tmp_path / "a.parquet")
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", USE, tmp_path / "a.parquet", tmp_path / "b.parquet"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "10" and "parquet" in done.stdout
    assert pq.read_table(tmp_path / "b.parquet").to_pydict() == {"a": list(range(10))}
