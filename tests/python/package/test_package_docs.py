"""The programs of docs/start.md, docs/recipes.md and the pages in PAGES run unchanged, and the commands of these pages
write the shown output."""

import doctest
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys

import crossdock as cd
import pytest
from conftest import ROOT
from gpu_libraries import LIBRARIES, library_of

DOCS = ROOT / "docs"
START = (DOCS / "start.md").read_text()
RECIPES = (DOCS / "recipes.md").read_text()
FENCED = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The Python blocks of each page are a program, which runs in a folder with the file flights.arrow.
PAGES = [*sorted((DOCS / "concepts").glob("*.md")), DOCS / "dlpack.md"]
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


def programs(text):
    """Returns the Python blocks of the sections of a page that need no GPU as a program, and those of the other sections."""
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    on_gpu = [section for section in sections if "\n\nOn a GPU" in section]
    on_cpu = [section for section in sections if section not in on_gpu]
    return tuple("".join(FENCED.findall("\n".join(part))) for part in (on_cpu, on_gpu))


def commands(text):
    """Returns (command, output) of each command that begins with `$ crossdock`."""
    return [
        tuple(part.partition("\n")[::2])
        for block in CONSOLE.findall(text)
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
        if part.startswith("crossdock ")
    ]


START_ON_CPU, START_ON_GPU = programs(START)
PROGRAMS = {page.stem: programs(page.read_text())[0] for page in PAGES if FENCED.search(page.read_text())}
COMMANDS = [(page.stem, *shown) for page in [DOCS / "start.md", *PAGES] for shown in commands(page.read_text())]

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


def test_start_runs(flights):
    shown = run(START_ON_CPU, ROOT)
    with cd.Session() as session:
        assert f"{session.read_ipc(flights).num_rows} rows, 3 columns on cpu" in shown
    assert shown.rstrip().endswith("zero-copy")


def test_start_runs_on_a_gpu(gpu):
    assert run(START_ON_GPU, ROOT) == ""


@pytest.mark.parametrize("name", PROGRAMS)
def test_page_runs(name, tmp_path, flights):
    shutil.copy(flights, tmp_path / "flights.arrow")
    run(PROGRAMS[name], tmp_path)


@pytest.mark.parametrize(("page", "command", "expected"), COMMANDS, ids=[f"{page}-{c[:30]}" for page, c, _ in COMMANDS])
def test_command_of_page_writes_the_shown_output(page, command, expected, tmp_path, flights):
    sample = tmp_path / "examples" / "data" / "flights-january.arrow"
    sample.parent.mkdir(parents=True)
    for path in (sample, tmp_path / "flights.arrow"):
        shutil.copy(flights, path)
    arguments = shlex.split(command)[1:]
    done = subprocess.run(
        [sys.executable, "-m", "crossdock", *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(expected, done.stdout, options), done.stdout
