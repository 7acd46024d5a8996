"""Fixtures of the tests of the plugin vortex-writer. `cargo xtask test --all --only vortex-writer` builds the plugin,
sets CROSSDOCK_VORTEX_WRITER_PLUGIN to its file, and runs the tests."""

import gc
import os
import time
from pathlib import Path

import pytest

cd = pytest.importorskip("crossdock")
pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="session")
def plugin():
    """The path of the built plugin."""
    path = os.environ.get("CROSSDOCK_VORTEX_WRITER_PLUGIN")
    if not path:
        pytest.skip("CROSSDOCK_VORTEX_WRITER_PLUGIN is not set; `cargo xtask test --all` sets it to what it built")
    assert Path(path).is_file(), f"CROSSDOCK_VORTEX_WRITER_PLUGIN: there is no file {path}"
    return path


def assert_freed(session):
    until = time.monotonic() + 20
    while session.memory_used() and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert session.memory_used() == {}, "memory was not freed"


@pytest.fixture
def session(plugin):
    """A session with the plugin. At the end of the test, all memory must be freed."""
    with cd.Session(plugins=[plugin], threads=2) as session:
        yield session
        assert_freed(session)
