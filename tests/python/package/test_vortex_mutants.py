"""Trees with anything changed in them, and trees that claim very much: in processes of their own, which come back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import vortex as vx  # noqa: F401  the trees are made by it

HERE = Path(__file__).resolve().parent
SEED = os.environ.get("CROSSDOCK_MUTATIONS_SEED", "7")
FIRST = int(os.environ.get("CROSSDOCK_MUTATIONS_FIRST", "0"))
CASES = int(os.environ.get("CROSSDOCK_MUTATIONS", "8000"))
PER_PROCESS = 50_000


def run(script, *args, timeout=600):
    folders = [HERE, HERE.parent, HERE.parent / "vortex"]
    path = os.pathsep.join(map(str, [os.environ.get("PYTHONPATH", ""), *folders]))
    command = [sys.executable, HERE / script, *map(str, args)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, timeout=timeout
    )
    return done.returncode, done.stdout, done.stderr[-4000:]


def test_no_mutant_does_harm(tmp_path):
    """CROSSDOCK_MUTATIONS asks for more of them, CROSSDOCK_MUTATIONS_SEED for others, CROSSDOCK_MUTATIONS_FIRST for later ones."""
    place = tmp_path / "under way"
    for first in range(FIRST, FIRST + CASES, PER_PROCESS):
        count = min(PER_PROCESS, FIRST + CASES - first)
        code, out, errors = run("vortex_mutants.py", SEED, first, count, place, timeout=60 + count // 20)
        assert code == 0, f"mutant {SEED} {place.read_text() if place.exists() else '?'}: exit {code}\n{out}{errors}"
        # Else they are changed so much that only the first checks are tested.
        assert int(out.split(" mutants, ")[1].split()[0]) > count // 20, out


def test_no_mutant_does_harm_on_a_device(cuda, tmp_path):
    """Kernels stay within their ranges whatever a tree says: the simulated driver ends a process whose kernels do not."""
    place, count = tmp_path / "under way", CASES // 4
    code, out, errors = run("vortex_mutants.py", SEED, FIRST, count, place, cuda, timeout=60 + count // 10)
    assert code == 0, f"mutant {SEED} {place.read_text() if place.exists() else '?'}: exit {code}\n{out}{errors}"


@pytest.mark.parametrize("budget", [("64MiB",), ()], ids=["a budget", "no budget"])
def test_claims_are_not_believed(budget):
    code, out, errors = run("vortex_huge.py", *budget)
    assert code == 0, f"exit {code}\n{out}{errors}"


def test_claims_are_not_believed_on_a_device(cuda):
    code, out, errors = run("vortex_huge.py", "64MiB", cuda)
    assert code == 0, f"exit {code}\n{out}{errors}"
