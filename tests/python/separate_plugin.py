"""Helpers of the tests of plugins that are built separately."""

import gc
import os
import re
import resource
import time
from pathlib import Path

import pytest


def path_of(variable):
    """The path of a built plugin, which the environment variable names."""
    path = os.environ.get(variable)
    if not path:
        pytest.skip(f"{variable} is not set; `cargo xtask test --all` sets it to what it built")
    assert Path(path).is_file(), f"{variable}: there is no file {path}"
    return path


def blocks_of(page):
    """The Python blocks of a page of the documentation."""
    text = (Path(__file__).parents[2] / page).read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def assert_freed(session):
    until = time.monotonic() + 20
    while session.memory_used() and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert session.memory_used() == {}, "memory was not freed"


def assert_error_of_the_sink_is_passed_on(run, plugin, table, folder, name):
    """Writes `table` with the command to a file that may not have enough bytes."""
    pa = pytest.importorskip("pyarrow")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    with pa.ipc.new_file(str(folder / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    arguments = ("convert", "--plugins", plugin, folder / "a.arrow", folder / name, "--quiet")
    # Python ignores SIGXFSZ, so a write beyond the limit fails with EFBIG.
    done = run(*arguments, preexec_fn=limit, restore_signals=False)
    assert done.returncode != 0
    assert b"File too large" in done.stderr
    assert os.listdir(folder) == ["a.arrow"]
