"""Fixtures of the tests of the example avro. `cargo xtask test --all --only avro` builds the plugin, sets
CROSSDOCK_AVRO_PLUGIN to its file, and runs the tests."""

import pytest
from separate_plugin import assert_freed, path_of

cd = pytest.importorskip("crossdock")


@pytest.fixture(scope="session")
def plugin():
    """The path of the built plugin."""
    return path_of("CROSSDOCK_AVRO_PLUGIN")


@pytest.fixture
def session(plugin):
    """A session with the plugin. At the end of the test, all memory must be freed."""
    with cd.Session(plugins=[plugin]) as session:
        yield session
        assert_freed(session)
