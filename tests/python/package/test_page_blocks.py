"""The Python blocks of pages of the documentation run. A program of a page is its blocks, each after code that creates
what the block's text describes."""

import ast
import doctest
import importlib.util
import re

import crossdock as cd
import pytest
from conftest import ROOT
from test_package_docs import FENCED, run

DATA = """
import os
os.mkdir("data")
for i in range(2):
    table = pa.table({
        "id": [i, 7], "point": [{"x": 1, "y": 2}] * 2, "day": [date(2024, 3, i + 1)] * 2, "x": [0.5, 1.5], "label": [0, 1],
    })
    session.from_arrow(table).write(f"data/{i}.arrow")
"""
# A main module, because worker processes import it.
MAIN = """
import multiprocessing
from datetime import date
import pyarrow
import pyarrow as pa
import crossdock as cd
session = cd.Session()
"""
TORCH = """
import torch
train = lambda *tensors: None
"""
# For each page and each of its blocks: what precedes the block, or why the block does not run here.
PAGES = {
    "docs/encodings.md": [
        "import numpy\nimport pyarrow as pa\nimport vortex\narray = vortex.array(pa.array([1, 2, 3]))\n",
        "",
        "",
        "",
    ],
    "docs/python.md": [
        MAIN + "if __name__ == '__main__':" + DATA.replace("\n", "\n    ") + "\n",
        "",
        TORCH if importlib.util.find_spec("torch") else None,
        None,  # tests/python/object_store reads from servers
        None,
        None,  # examples of a console, see below
        "",
        "import numpy as np\nids, prices, counter = np.arange(4), np.ones(4), np.array([3])\n",
        "",
        None,
        "",
    ],
    "docs/tensor-files.md": [
        "import crossdock as cd\nimport numpy as np\nimport safetensors.numpy\nsession = cd.Session()\n"
        "layer = {'encoder.weight': np.ones((2, 3)), 'encoder.bias': np.ones(2)}\n"
        "safetensors.numpy.save_file(layer, 'model.safetensors')\nnp.savez('features.npz', x=np.ones((2000, 2)))\n",
    ],
    "docs/text-files.md": [
        "import crossdock\nflights = crossdock.read('flights.arrow')\nflights.write('flights.csv.gz')\n"
        "flights.write('events.jsonl')\n",
    ],
    "docs/vortex-files.md": [
        "import crossdock\nimport vortex\nimport pyarrow\n"
        "vortex.io.write(vortex.array(crossdock.read('flights.arrow').to_pyarrow()), 'flights.vortex')\n",
    ],
    "python/README.md": [""],
}


def program(page):
    blocks = FENCED.findall((ROOT / page).read_text())
    assert len(blocks) == len(PAGES[page]), f"{page} has {len(blocks)} blocks of Python"
    parts = [begin + block for begin, block in zip(PAGES[page], blocks, strict=True) if begin is not None]
    # The same programs work on every device.
    return "\n".join(parts).replace('Session("cuda:0")', "Session()")


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_the_page_run(page, tmp_path, flights):
    for name in ("flights.arrow", "examples/data/flights-january.arrow"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(flights.read_bytes())
    text = program(page)
    for package in re.findall(r"^import (\w+)", text, re.MULTILINE):
        # A folder of the tests that has the name of a package is a package without a file.
        if getattr(importlib.util.find_spec(package), "origin", None) is None:
            pytest.skip(f"{package} is not installed")
    (tmp_path / "page.py").write_text(text)
    shown = run("import runpy\nrunpy.run_path('page.py', run_name='__main__')", tmp_path)
    # The sum of the ids of DATA, which other processes compute.
    assert page != "docs/python.md" or shown.splitlines()[-1] == "15"


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_the_page_are_python(page):
    """Also those that do not run here, because they need a package or a server."""
    for block in FENCED.findall((ROOT / page).read_text()):
        assert block.startswith(">>>") or ast.parse(block).body


def test_console_examples_show_the_results():
    blocks = FENCED.findall((ROOT / "docs/python.md").read_text())
    (example,) = (block for block in blocks if block.startswith(">>> import pyarrow"))
    test = doctest.DocTestParser().get_doctest(example, {"cd": cd}, "docs/python.md", None, 0)
    assert doctest.DocTestRunner().run(test).failed == 0
