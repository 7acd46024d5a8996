"""Tests exports that fail because Python has no memory for a capsule. The capsule's content is released, and
the export's earlier capsules are released too."""

import gc
import os
import sys

import capsules
import craft
import numpy as np
import pyarrow as pa
import pytest
from test_leaks import resident

# This module makes allocations of the interpreter fail. Some distributions lack it.
failing = pytest.importorskip("_testcapi", reason="this Python has no _testcapi, which makes allocations fail")

FIELDS = 300
TIMES = 1000
# If the schemas leaked, they would need much more memory than these 8 MiB.
ALLOWED_BYTES = 8 << 20


class Bytes(bytearray):
    """Bytes that record their release."""

    released = 0

    def __del__(self):
        Bytes.released += 1


def wide(session):
    """A table of many columns over bytes that record their release."""
    Bytes.released = 0
    batch = pa.record_batch({f"a column with a long name, number {i}": [1, 2] for i in range(FIELDS)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as out:
        out.write(batch)
    return session.read_ipc(Bytes(sink.getvalue().to_pybytes()))


def fails(export, allocation):
    """Returns whether the export fails if the allocation with this index fails."""
    failing.set_nomemory(allocation, allocation + 1)
    try:
        export()
    except MemoryError:
        return True
    finally:
        failing.remove_mem_hooks()
    return False


# The indices of the allocations that create capsules, by protocol. Python takes other objects from
# free lists, without an allocation.
ALLOCATIONS = {
    "__arrow_c_schema__": [0],
    "__arrow_c_array__": [0, 1],
    "__arrow_c_device_array__": [0, 1],
    "__arrow_c_stream__": [0],
    "__arrow_c_device_stream__": [0],
}


@pytest.mark.parametrize("protocol, allocation", [(name, i) for name, all in ALLOCATIONS.items() for i in all])
def test_failed_capsule_creation_releases_everything(session, protocol, allocation):
    """Creating the array capsule of a pair fails after the schema capsule was created."""
    table = wide(session)
    export = getattr(table, protocol)
    export()
    gc.collect()
    before, blocks = resident(), sys.getallocatedblocks()
    assert all(fails(export, allocation) for _ in range(TIMES)), "an export succeeded"
    assert not fails(export, max(ALLOCATIONS[protocol]) + 1), "the export creates more capsules"
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 1000
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        assert resident() - before < ALLOWED_BYTES
    assert not Bytes.released
    del export, table
    gc.collect()
    # The next call releases views that were dropped without the interpreter's lock.
    session.synchronize()
    assert Bytes.released == 1


def test_encoded_array_survives_failed_export(session):
    live = dict(capsules.LIVE)
    array = session.encoded(capsules.Exporter(craft.primitive(np.arange(3, dtype="u4"))))
    assert fails(array.__crossdock_encoded_array__, 0)
    assert session.encoded(array.__crossdock_encoded_array__()).decode().to_pyarrow().to_pylist() == [0, 1, 2]
    del array
    gc.collect()
    assert live == capsules.LIVE, "the buffers were not released"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_failed_tuple_creation_releases_all_buffers(session):
    """Vortex's protocol puts capsules into lists and tuples. The allocation of a list or tuple may fail
    too."""
    live = dict(capsules.LIVE)
    array = session.encoded(capsules.Exporter(craft.primitive(np.arange(3.0), np.array([True, False, True]))))
    errors = []
    for allocation in range(30):
        failing.set_nomemory(allocation, allocation + 1)
        try:
            array.__vortex_array_metadata__()
        except BaseException as error:
            # A failed allocation of a Python object may cause a panic, which raises PanicException.
            errors.append(type(error).__name__)
        finally:
            failing.remove_mem_hooks()
    assert "MemoryError" in errors and set(errors) <= {"MemoryError", "PanicException"}
    assert session.from_vortex(array).to_pyarrow().to_pylist() == [0.0, None, 2.0]
    del array
    gc.collect()
    assert live == capsules.LIVE, "the buffers were not released"
