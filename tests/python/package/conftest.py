"""What the tests of the package share. They need the package on the path (`PYTHONPATH=$(cargo xtask python)`, or installed) and
pytest, and each the peer that it speaks of.

Tests that use the fixture `cuda` are marked so, for they need a driver, a real one or the simulated one, that the process finds
from its start on: `LD_LIBRARY_PATH=$(cargo xtask sim-cuda) pytest -m cuda`."""

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
# Samples of every type, and what equal means, are those of the command's tests.
sys.path.insert(0, str(HERE.parent))
# Trees of Vortex's kinds, from its own wheel and by hand.
sys.path.append(str(HERE.parent / "vortex"))

import crossdock as cd  # noqa: E402
from sampling import skip_unselected  # noqa: E402


def missing_peers(path):
    """Those that a file imports first of all, itself or with what the files share, and that are not installed."""
    text = path.read_text()
    names = re.findall(r"^(?:import|from) (pyarrow|numpy|nanoarrow|vortex)\b", text, re.MULTILINE)
    if re.search(r"^from (?:peers|samples|tensors\w*|capi_structs) import", text, re.MULTILINE):
        names += ["pyarrow", "numpy"]
    if re.search(r"^(?:from|import) (?:trees|vortex_\w+)\b", text, re.MULTILINE):
        names += ["pyarrow", "numpy", "vortex"]
    return sorted({name for name in names if not is_installed(name)})


def is_installed(name):
    """A folder of the tests of that name is no package."""
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
def imports_not_collected():
    """Tests look for what they left by a collection of all garbage: it need not go through all that was imported each time,
    which would be most of what they do. Before each module, for its tests import as they go: torch and cupy alone are about
    150,000 objects."""
    gc.collect()
    gc.freeze()


def assert_nothing_held(session):
    """Everything that was made in the session has been given back: what waited for the device by a thread of the host's, which may
    be late where all cores are busy."""
    until = time.monotonic() + 20
    while True:
        gc.collect()
        session.synchronize()
        if not session.memory_used():
            return
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    assert session.memory_used() == {}, "something was not given back"


@pytest.fixture
def session():
    """A session on the cpu, to which everything has been given back in the end."""
    with cd.Session() as session:
        yield session
        assert_nothing_held(session)


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
    """The same, if it is a real one, on which strangers' kernels run."""
    if hasattr(ctypes.CDLL("libcuda.so.1"), "crossdock_sim_cuda_violations"):
        pytest.skip("the driver is simulated, and runs no kernels of others")
    return cuda


@pytest.fixture
def there(cuda):
    """A session on the first CUDA device, to which everything has been given back in the end."""
    with cd.Session(cuda) as session:
        yield session
        assert_nothing_held(session)


@pytest.fixture(scope="session")
def flights():
    """January's flights, an Arrow IPC file."""
    return ROOT / "examples" / "data" / "flights-january.arrow"


@pytest.fixture(scope="session", params=["January", "the whole year"])
def flights_of(request, flights):
    """January's, and all of them where there is a file with those."""
    if request.param == "January":
        return flights
    path = os.environ.get("CROSSDOCK_TEST_FLIGHTS")
    return path or pytest.skip("CROSSDOCK_TEST_FLIGHTS names no file with the flights of the whole year")
