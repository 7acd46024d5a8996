"""The programs in docs/recipes.md for the libraries of this folder run unchanged."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

RECIPES = (ROOT / "docs" / "recipes.md").read_text()
BEGIN, *PROGRAMS = re.findall(r"^```python\n(.*?)^```$", RECIPES, re.MULTILINE | re.DOTALL)
PROGRAMS = {
    name: [program for program in PROGRAMS if f"import crossdock.{name}\n" in program]
    for name in ["ray", "dask", "spark", "datafusion", "torch"]
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_recipe_runs(name, flights, tmp_path):
    if name == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    if name == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    (program,) = PROGRAMS[name]
    shutil.copy(flights, tmp_path / "flights.arrow")
    # The interpreter of Spark's workers, which is python3 by default.
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    if name == "torch":
        # The threads of torch's small operations wait for each other if the machine is busy.
        environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, "-c", BEGIN + program]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
