"""Fixtures of the tests with engines."""

import gc
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

import crossdock as cd
import crossdock.cuda

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def flights():
    return str(ROOT / "examples/data/flights-january.arrow")


@pytest.fixture
def table(flights):
    return cd.default_session().read_ipc(flights)


@pytest.fixture
def mixed():
    """A table of several batches and types, one of which is nested."""
    session = cd.default_session()
    whole = pa.table(
        {
            "number": pa.array([None if i % 5 == 0 else i for i in range(1000)], pa.int64()),
            "text": [f"text {i}" for i in range(1000)],
            "list": pa.array([list(range(i % 4)) for i in range(1000)], pa.list_(pa.int32())),
            "word": pa.array(["a", "b", None, "c"] * 250).dictionary_encode(),
        }
    )
    return session.from_arrow(pa.Table.from_batches(whole.to_batches(max_chunksize=250)))


@pytest.fixture
def session():
    """A session whose memory is freed at the end of the test."""
    with cd.Session() as session:
        yield session
        until = time.monotonic() + 20
        while session.memory_used() and time.monotonic() < until:
            gc.collect()
            time.sleep(0.01)
        assert session.memory_used() == {}


@pytest.fixture(scope="session")
def has_gpu():
    try:
        return crossdock.cuda.get_num_devices() > 0
    except cd.DeviceError:
        return False


@pytest.fixture
def cuda_environment(has_gpu):
    """The environment of programs that use a CUDA device, real or simulated."""
    if has_gpu:
        return dict(os.environ)
    driver = os.environ.get("CROSSDOCK_TEST_SIM_CUDA")
    if driver is None:
        pytest.skip("no CUDA device, and CROSSDOCK_TEST_SIM_CUDA does not name the folder of the simulated driver")
    return {**os.environ, "LD_LIBRARY_PATH": driver, "CROSSDOCK_SIM_CUDA_LEAKS": "ignore"}
