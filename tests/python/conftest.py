"""Shared fixtures of the peer tests: the command under test, the sample, Arrow's golden files."""

import gc
import json
import os
import subprocess
from pathlib import Path

import capi
import pytest
from sampling import skip_unselected

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120


def pytest_collection_modifyitems(items):
    skip_unselected(items)


def golden_cases():
    """Returns the stems of Arrow's golden cases, or an empty list if there are none."""
    folder = os.environ.get("ARROW_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        return []
    return sorted(path.with_suffix("") for path in Path(folder).glob("*/*.arrow_file"))


@pytest.fixture(scope="session")
def crossdock():
    """The path of the built command."""
    path = os.environ.get("CROSSDOCK_BIN")
    if not path:
        pytest.skip("CROSSDOCK_BIN is not set; `cargo xtask test` sets it to the command that it built")
    assert Path(path).is_file(), f"CROSSDOCK_BIN: there is no file {path}"
    return Path(path)


@pytest.fixture(scope="session")
def sample():
    """The path of the sample, the flights of January."""
    return ROOT / "examples" / "data" / "flights-january.arrow"


@pytest.fixture(scope="session")
def golden():
    """The folder of Arrow's golden files."""
    folder = os.environ.get("ARROW_TEST_DATA")
    if not folder:
        pytest.skip("ARROW_TEST_DATA is not set to a folder with Arrow's golden files")
    if not golden_cases():
        pytest.skip(f"ARROW_TEST_DATA={folder} has no golden files")
    return Path(folder)


@pytest.fixture
def run(crossdock):
    """Runs the command, and returns the finished process. The exit status is not checked."""

    def run(*arguments, **keywords):
        keywords.setdefault("stdin", subprocess.DEVNULL if "input" not in keywords else None)
        if keywords["stdin"] is None:
            del keywords["stdin"]
        command = [str(crossdock), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, **keywords)

    return run


@pytest.fixture
def convert(run):
    """Runs `crossdock convert`, and checks that it succeeds."""

    def convert(source, target, *flags, **keywords):
        done = run("convert", source, target, *flags, "--quiet", **keywords)
        message = done.stderr.decode(errors="replace").strip()
        assert done.returncode == 0, f"convert {source} {target} {' '.join(flags)}: exit {done.returncode}: {message}"
        return done

    return convert


@pytest.fixture(scope="session")
def cuda(crossdock):
    """The CUDA devices that the command lists. Uses the simulated driver if LD_LIBRARY_PATH contains it, else
    a real driver."""
    done = subprocess.run([crossdock, "devices", "--json"], capture_output=True, check=True, timeout=TIMEOUT_S)
    devices = json.loads(done.stdout)
    if devices["cuda"]["missing"]:
        pytest.skip(f"neither a simulated CUDA driver nor a real one: {devices['cuda']['missing']}")
    return [device for device in devices["devices"] if device["name"].startswith("cuda:")]


@pytest.fixture
def convert_on_cuda(cuda, convert):
    """Runs `convert` on the first CUDA device. stderr must be empty, because the simulated driver reports
    leaks and unordered accesses there."""

    def convert_on_cuda(source, target, *flags, **keywords):
        done = convert(source, target, "--device", "cuda", *flags, **keywords)
        assert done.stderr == b""
        return done

    return convert_on_cuda


@pytest.fixture
def library():
    """The path of the built libcrossdock.so."""
    path = capi.library_path()
    if path is None:
        pytest.skip("neither CROSSDOCK_LIB nor CROSSDOCK_BIN is set; `cargo xtask test` sets them to what it built")
    assert path.is_file(), f"there is no library {path}"
    return path


@pytest.fixture
def host(library):
    """A host with the plugins in the library's folder. At the end of the test, all memory must be freed."""
    with capi.Host() as host:
        yield host
        if host.settle():
            gc.collect()
            assert host.settle() == [], "memory was not released"


@pytest.fixture
def session(host):
    with host.session() as session:
        yield session
