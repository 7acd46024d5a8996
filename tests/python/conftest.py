"""What the peer tests share: the command under test, the sample, Arrow's golden files."""

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
    """The stems of Arrow's golden cases; empty where there are none."""
    folder = os.environ.get("ARROW_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        return []
    return sorted(path.with_suffix("") for path in Path(folder).glob("*/*.arrow_file"))


@pytest.fixture(scope="session")
def crossdock():
    """Path of the built command."""
    path = os.environ.get("CROSSDOCK_BIN")
    if not path:
        pytest.skip("CROSSDOCK_BIN is not set; `cargo xtask test` sets it to the command that it built")
    assert Path(path).is_file(), f"CROSSDOCK_BIN: there is no file {path}"
    return Path(path)


@pytest.fixture(scope="session")
def sample():
    """January's flights."""
    return ROOT / "examples" / "data" / "flights-january.arrow"


@pytest.fixture(scope="session")
def golden():
    """The folder of Arrow's golden files."""
    folder = os.environ.get("ARROW_TEST_DATA")
    if not folder:
        pytest.skip("ARROW_TEST_DATA is not set: Arrow's golden files are not here")
    if not golden_cases():
        pytest.skip(f"ARROW_TEST_DATA={folder} holds no golden files")
    return Path(folder)


@pytest.fixture
def run(crossdock):
    """Runs the command with arguments; the finished process, whatever its exit status."""

    def run(*arguments, **keywords):
        keywords.setdefault("stdin", subprocess.DEVNULL if "input" not in keywords else None)
        if keywords["stdin"] is None:
            del keywords["stdin"]
        command = [str(crossdock), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, **keywords)

    return run


@pytest.fixture
def convert(run):
    """Runs `crossdock convert` and insists that it succeeds."""

    def convert(source, target, *flags, **keywords):
        done = run("convert", source, target, *flags, "--quiet", **keywords)
        message = done.stderr.decode(errors="replace").strip()
        assert done.returncode == 0, f"convert {source} {target} {' '.join(flags)}: exit {done.returncode}: {message}"
        return done

    return convert


@pytest.fixture(scope="session")
def cuda(crossdock):
    """What there is of CUDA, as the command tells: a simulated driver, where LD_LIBRARY_PATH leads to one, or a real one."""
    told = subprocess.run([crossdock, "devices", "--json"], capture_output=True, check=True, timeout=TIMEOUT_S)
    devices = json.loads(told.stdout)
    if devices["cuda"]["missing"]:
        pytest.skip(f"neither a simulated CUDA driver nor a real one: {devices['cuda']['missing']}")
    return [device for device in devices["devices"] if device["name"].startswith("cuda:")]


@pytest.fixture
def convert_on_cuda(cuda, convert):
    """The same as `convert`, on the first CUDA device: nothing is said on stderr, where leaks and accesses out of order of a
    simulated device would be."""

    def convert_on_cuda(source, target, *flags, **keywords):
        done = convert(source, target, "--device", "cuda", *flags, **keywords)
        assert done.stderr == b""
        return done

    return convert_on_cuda


@pytest.fixture
def library():
    """Path of the built libcrossdock.so."""
    path = capi.library_path()
    if path is None:
        pytest.skip("neither CROSSDOCK_LIB nor CROSSDOCK_BIN is set; `cargo xtask test` sets them to what it built")
    assert path.is_file(), f"there is no library {path}"
    return path


@pytest.fixture
def host(library):
    """A host with the plugins beside the library, to which everything has been given back in the end."""
    with capi.Host() as host:
        yield host
        if host.settle():
            gc.collect()
            assert host.settle() == [], "something was not given back"


@pytest.fixture
def session(host):
    with host.session() as session:
        yield session
