"""Tens of thousands of exchanges of each kind do not increase memory."""

import gc
import resource

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest

ROUNDS = 20_000
REPETITIONS = 3
"""The maximum number of measurements. A leak increases memory in each of them, and threads of packages that earlier
tests in the process have used only once."""
PAGE = resource.getpagesize()
FLAT = 1 << 20
"""Number of bytes that an allocator may keep, which is less than 53 bytes for each round."""


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def ignore(kind, work):
    try:
        work()
    except kind:
        pass


def kinds(session):
    array, nested = np.arange(1000), np.arange(24).reshape(4, 6)
    column = session.from_dlpack(array)
    bits = session.from_arrow(pa.array([True, False]))
    nulls = session.from_arrow(pa.array([1, None]))
    table = session.from_dlpack({"a": array, "b": array * 2.0})
    fresh = {"max_version": (1, 0)}
    return {
        "import by the protocol": lambda: session.from_dlpack(array),
        "import by the exchange API": lambda: session.from_dlpack(column),
        "import of a capsule": lambda: session.from_dlpack(array.__dlpack__()),
        "import of several dimensions": lambda: session.from_dlpack(nested),
        "import with a gather": lambda: session.from_dlpack(array[::2]),
        "import as a table": lambda: session.from_dlpack({"a": array, "b": array}),
        "rejected import": lambda: ignore(cd.UnsupportedError, lambda: session.from_dlpack(array * 1j)),
        "export": lambda: np.from_dlpack(column),
        "export of a new column": lambda: table["b"].__dlpack__(**fresh),
        "export that is not consumed": lambda: column.__dlpack__(**fresh),
        "export as a legacy copy": lambda: column.__dlpack__(),
        "export as a copy": lambda: column.__dlpack__(copy=True, **fresh),
        "export with a conversion": lambda: bits.__dlpack__(**fresh),
        "rejected export": lambda: ignore(BufferError, lambda: nulls.__dlpack__(**fresh)),
        "export as a buffer": lambda: memoryview(column),
        "as an array": lambda: np.asarray(column),
        "no interface": lambda: hasattr(column, "__cuda_array_interface__"),
        "in and out": lambda: np.from_dlpack(session.from_dlpack(array)),
    }


with cd.Session() as _session:
    NAMES = list(kinds(_session))


@pytest.mark.parametrize("name", NAMES)
def test_memory_stays_flat(session, name):
    work = kinds(session)[name]
    for _ in range(2_000):
        work()
    grown = []
    while not grown or (grown[-1] >= FLAT and len(grown) < REPETITIONS):
        before = resident()
        for _ in range(ROUNDS):
            work()
        grown.append(resident() - before)
    assert min(grown) < FLAT
    assert "dlpack" not in session.memory_used()
