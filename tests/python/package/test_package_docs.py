"""The programs of README.md and docs/recipes.md run unchanged."""

import importlib.util
import re
import shutil
import subprocess
import sys

import crossdock as cd
import pytest
from conftest import ROOT
from gpu_libraries import LIBRARIES, library_of

README = (ROOT / "README.md").read_text()
RECIPES = (ROOT / "docs" / "recipes.md").read_text()
FENCED = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STATES = ("Run in CI", "Run with `cargo xtask test --all`", "Run on an H100", "Run on an H200", "Not run yet")


def recipes():
    """Returns the common beginning, and (heading, text, program) of each recipe."""
    head, *sections = re.split(r"^## ", RECIPES, flags=re.MULTILINE)
    (begin,) = FENCED.findall(head)
    parts = []
    for section in sections:
        heading, _, text = section.partition("\n")
        (program,) = FENCED.findall(text)
        parts.append((heading, FENCED.sub("", text).strip(), program))
    return begin, parts


BEGIN, ALL = recipes()
# tests/python/engines runs the programs for Ray and Dask.
ON_CPU = [recipe for recipe in ALL if not recipe[1].startswith("On a GPU") and "--all`" not in recipe[1]]
ON_GPU = [recipe for recipe in ALL if recipe[1].startswith("On a GPU")]


def run(program, folder):
    """Runs the program in a separate process, and returns its output. Skips the test if a library is
    missing."""
    for peer in re.findall(r"^(?:import|from) (\w+)", program, re.MULTILINE):
        if importlib.util.find_spec(peer) is None:
            pytest.skip(f"{peer} is not installed")
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_recipe_text_says_where_it_was_run():
    assert len(ON_CPU) >= 5 and len(ON_GPU) >= 5
    for heading, text, program in ALL:
        assert sum(state in text for state in STATES) == 1, heading
        compile(program, heading, "exec")
    assert all("Run in CI" in text for _, text, _ in ON_CPU)


@pytest.mark.parametrize(("heading", "text", "program"), ON_CPU, ids=[recipe[0] for recipe in ON_CPU])
def test_recipe_runs(heading, text, program, tmp_path, flights):
    shutil.copy(flights, tmp_path / "flights.arrow")
    run(BEGIN + program, tmp_path)


@pytest.mark.parametrize(("heading", "text", "program"), ON_GPU, ids=[recipe[0] for recipe in ON_GPU])
def test_recipe_runs_on_a_gpu(heading, text, program, tmp_path, flights, cuda):
    # Skipped if the library does not work with this GPU.
    for name in LIBRARIES:
        if re.search(rf"^(?:import|from) {name}\b", program, re.MULTILINE):
            library_of(name)
    shutil.copy(flights, tmp_path / "flights.arrow")
    run(BEGIN.replace("cd.Session()", f"cd.Session({cuda!r})", 1) + program, tmp_path)


def test_readme_runs(flights):
    program, _ = FENCED.findall(README)
    shown = run(program, ROOT)
    with cd.Session() as session:
        assert f"{session.read_ipc(flights).num_rows} rows, 3 columns on cpu" in shown
    assert shown.rstrip().endswith("zero-copy")


def test_readme_runs_on_a_gpu(gpu):
    _, program = FENCED.findall(README)
    assert run(program, ROOT) == ""
