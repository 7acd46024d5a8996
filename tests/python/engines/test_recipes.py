"""The programs for Ray and Dask in docs/recipes.md run unchanged."""

import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

RECIPES = (ROOT / "docs" / "recipes.md").read_text()
BEGIN, *PROGRAMS = re.findall(r"^```python\n(.*?)^```$", RECIPES, re.MULTILINE | re.DOTALL)
PROGRAMS = {
    name: [program for program in PROGRAMS if f"import crossdock.{name}\n" in program] for name in ["ray", "dask"]
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_recipe_runs(name, flights, tmp_path):
    (program,) = PROGRAMS[name]
    shutil.copy(flights, tmp_path / "flights.arrow")
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
