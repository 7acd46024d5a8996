"""Shared fixtures of the package's tests. The package must be installed, or on Python's path:
`PYTHONPATH=$(cargo xtask python)`.

A test is skipped if its file imports a library that is missing. Tests that use the fixture `cuda` have the
mark `cuda`: they need a CUDA driver, real or simulated, from the start of the process:
`LD_LIBRARY_PATH=$(cargo xtask sim-cuda) pytest -m cuda`."""

import ctypes
import gc
import importlib.util
import os
import re
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
# This folder has the samples of every type and the comparison of tables, which the tests of the
# command use too.
sys.path.insert(0, str(HERE.parent))
# This folder has trees of every Vortex encoding.
sys.path.append(str(HERE.parent / "vortex"))

# A plugin of the tests, which opens the URIs citizen://PATH. It is built with the workspace.
BAD_CITIZEN = ROOT / "target" / "debug" / "libbad_citizen.so"

import crossdock as cd  # noqa: E402
from sampling import skip_unselected  # noqa: E402


def missing_peers(path):
    """Returns the missing libraries that a file imports at its top, directly or through shared files of the
    tests."""
    text = path.read_text()
    names = re.findall(r"^(?:import|from) (pyarrow|numpy|nanoarrow|vortex|duckdb|polars)\b", text, re.MULTILINE)
    if re.search(r"^from (?:peers|samples|tensors\w*|capi_structs) import", text, re.MULTILINE):
        names += ["pyarrow", "numpy"]
    if re.search(r"^(?:from|import) (?:trees|vortex_\w+)\b", text, re.MULTILINE):
        names += ["pyarrow", "numpy", "vortex"]
    return sorted({name for name in names if not is_installed(name)})


def is_installed(name):
    """Returns whether a package is installed. Ignores a folder of tests with the same name."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


collect_ignore = []
for path in sorted(HERE.glob("test_*.py")):
    if missing := missing_peers(path):
        collect_ignore.append(path.name)
        print(f"skipped: {path.name}: {', '.join(missing)} not installed", file=sys.stderr)


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: needs a CUDA driver, a real one or the simulated one")


def pytest_collection_modifyitems(items):
    for item in items:
        if "cuda" in getattr(item, "fixturenames", ()):
            item.add_marker("cuda")
    skip_unselected(items)


@pytest.fixture(scope="module", autouse=True)
def freeze_imported_objects():
    """Excludes imported objects from garbage collection. Otherwise the tests would spend most of their time in
    collections, because torch and cupy create about 150,000 objects. Runs before each test module, because
    test modules import libraries too."""
    gc.collect()
    gc.freeze()


def write_in_batches(table, path, rows):
    """Writes a table of pyarrow as an Arrow IPC file with batches of at most `rows` rows."""
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=rows):
            writer.write_batch(batch)


def assert_all_memory_freed(session):
    """Checks that all memory of the session is freed. Waits, because a thread of the host releases memory
    only after pending work has run."""
    until = time.monotonic() + 20
    while True:
        gc.collect()
        session.synchronize()
        if not session.memory_used():
            return
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    assert session.memory_used() == {}, "memory was not freed"


@pytest.fixture
def session():
    """A session on the cpu. At the end of the test, all memory must be freed."""
    with cd.Session() as session:
        yield session
        assert_all_memory_freed(session)


@pytest.fixture(scope="session")
def cuda():
    """The name of the first CUDA device."""
    try:
        cd.Session("cuda:0")
    except cd.DeviceError as error:
        pytest.skip(f"neither a simulated CUDA driver nor a real one: {error}")
    return "cuda:0"


@pytest.fixture(scope="session")
def gpu(cuda):
    """The name of the first CUDA device. Requires a real device, so that kernels of other libraries run."""
    if hasattr(ctypes.CDLL("libcuda.so.1"), "crossdock_sim_cuda_violations"):
        pytest.skip("the simulated driver runs no kernels of other libraries")
    return cuda


@pytest.fixture
def cuda_session(cuda):
    """A session on the first CUDA device. At the end of the test, all memory must be freed."""
    with cd.Session(cuda) as session:
        yield session
        assert_all_memory_freed(session)


@pytest.fixture(params=["session", pytest.param("cuda_session", marks=pytest.mark.cuda)])
def any_session(request):
    """A session on the cpu, and one on the first CUDA device."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def flights():
    """The path of an Arrow IPC file with the flights of January."""
    return ROOT / "examples" / "data" / "flights-january.arrow"


@pytest.fixture(scope="session", params=["January", "the whole year"])
def flights_of(request, flights):
    """The paths of the file with the flights of January, and of the file with all flights if it exists."""
    if request.param == "January":
        return flights
    path = os.environ.get("CROSSDOCK_TEST_FLIGHTS")
    return path or pytest.skip("CROSSDOCK_TEST_FLIGHTS names no file with the flights of the whole year")
