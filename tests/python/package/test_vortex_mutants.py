"""Changed trees, and trees that declare very large sizes, in separate processes that must not crash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import vortex as vx  # noqa: F401  creates the trees

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


def test_mutated_trees_are_rejected_or_decode(tmp_path):
    """CROSSDOCK_MUTATIONS, CROSSDOCK_MUTATIONS_SEED and CROSSDOCK_MUTATIONS_FIRST set the number, the seed
    and the first mutation."""
    current = tmp_path / "current"
    for first in range(FIRST, FIRST + CASES, PER_PROCESS):
        count = min(PER_PROCESS, FIRST + CASES - first)
        code, out, errors = run("vortex_mutants.py", SEED, first, count, current, timeout=60 + count // 20)
        assert code == 0, (
            f"mutant {SEED} {current.read_text() if current.exists() else '?'}: exit {code}\n{out}{errors}"
        )
        # Some mutants must decode. If every tree failed an early check, later checks would not be
        # tested.
        assert int(out.split(" mutants, ")[1].split()[0]) > count // 20, out


def test_mutated_trees_are_rejected_or_decode_on_a_device(cuda, tmp_path):
    """The simulated driver ends a process whose kernels access memory outside their ranges."""
    current, count = tmp_path / "current", CASES // 4
    code, out, errors = run("vortex_mutants.py", SEED, FIRST, count, current, cuda, timeout=60 + count // 10)
    assert code == 0, f"mutant {SEED} {current.read_text() if current.exists() else '?'}: exit {code}\n{out}{errors}"


@pytest.mark.parametrize("budget", [("64MiB",), ()], ids=["a budget", "no budget"])
def test_wrong_declarations_are_not_trusted(budget):
    code, out, errors = run("vortex_huge.py", *budget)
    assert code == 0, f"exit {code}\n{out}{errors}"


def test_wrong_declarations_are_not_trusted_on_a_device(cuda):
    code, out, errors = run("vortex_huge.py", "64MiB", cuda)
    assert code == 0, f"exit {code}\n{out}{errors}"
