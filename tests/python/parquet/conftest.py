"""Fixtures of the tests of the plugin parquet. `cargo xtask test --all --only parquet` builds the plugin, sets
CROSSDOCK_PARQUET_PLUGIN to its file, and runs the tests."""

import pytest
from separate_plugin import assert_freed, path_of

cd = pytest.importorskip("crossdock")
pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="session")
def plugin():
    """The path of the built plugin."""
    return path_of("CROSSDOCK_PARQUET_PLUGIN")


@pytest.fixture
def session(plugin):
    """A session with the plugin. At the end of the test, all memory must be freed."""
    with cd.Session(plugins=[plugin], threads=3) as session:
        yield session
        assert_freed(session)
