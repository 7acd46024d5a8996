"""Fixtures of the tests of the plugin parquet. `cargo xtask test --all --only parquet` builds the plugin, sets
CROSSDOCK_PARQUET_PLUGIN to its file, and runs the tests."""

import gc
import os
import time
from pathlib import Path

import pytest

cd = pytest.importorskip("crossdock")
pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="session")
def plugin():
    """The path of the built plugin."""
    path = os.environ.get("CROSSDOCK_PARQUET_PLUGIN")
    if not path:
        pytest.skip("CROSSDOCK_PARQUET_PLUGIN is not set; `cargo xtask test --all` sets it to what it built")
    assert Path(path).is_file(), f"CROSSDOCK_PARQUET_PLUGIN: there is no file {path}"
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
    with cd.Session(plugins=[plugin], threads=3) as session:
        yield session
        assert_freed(session)
