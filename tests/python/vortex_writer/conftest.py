"""Fixtures of the tests of the plugin vortex-writer. `cargo xtask test --all --only vortex-writer` builds the plugin,
sets CROSSDOCK_VORTEX_WRITER_PLUGIN to its file, and runs the tests."""

import pytest
from separate_plugin import assert_freed, path_of

cd = pytest.importorskip("crossdock")
pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="session")
def plugin():
    """The path of the built plugin."""
    return path_of("CROSSDOCK_VORTEX_WRITER_PLUGIN")


@pytest.fixture
def session(plugin):
    """A session with the plugin. At the end of the test, all memory must be freed."""
    with cd.Session(plugins=[plugin], threads=2) as session:
        yield session
        assert_freed(session)
