"""Fixtures of the tests of the plugin object-store. `cargo xtask test --all --only object-store` builds the plugin, sets
CROSSDOCK_OBJECT_STORE_PLUGIN to its file, and runs the tests."""

import os
import threading

import pytest
from separate_plugin import assert_freed, path_of

cd = pytest.importorskip("crossdock")
pa = pytest.importorskip("pyarrow")

from range_server import Server  # noqa: E402

# Requests to the servers on this machine must use neither a proxy nor the user's credentials.
for name in list(os.environ):
    if name.upper().startswith("AWS_") or name.lower().endswith("_proxy"):
        del os.environ[name]


@pytest.fixture(scope="session")
def plugin():
    """The path of the built plugin."""
    return path_of("CROSSDOCK_OBJECT_STORE_PLUGIN")


@pytest.fixture
def session(plugin):
    """A session with the plugin. At the end of the test, all memory must be freed."""
    with cd.Session(plugins=[plugin]) as session:
        yield session
        assert_freed(session)


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.ends.set()
        server.shutdown()
        thread.join()


def table(rows=1000, first=0):
    numbers = range(first, first + rows)
    return pa.table({"id": pa.array(numbers, pa.int64()), "name": [f"name {n}" for n in numbers]})


def ipc_bytes(data, batch_rows=100):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, data.schema) as writer:
        writer.write_table(data, batch_rows)
    return sink.getvalue().to_pybytes()
