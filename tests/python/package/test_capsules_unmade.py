"""Capsules that cannot be made, because Python has no memory for one: what would have been in it, and in one that was made before
it, is given back."""

import gc
import os
import sys

import capsules
import craft
import numpy as np
import pyarrow as pa
import pytest
from test_leaks import resident

# Makes any allocation of the interpreter's fail; not every distribution has it.
failing = pytest.importorskip(
    "_testcapi", reason="this Python has no _testcapi, whose allocations fail as they are told to"
)

FIELDS = 300
TIMES = 1000
# So many schemas of so many fields would take far more.
ALLOWED_BYTES = 8 << 20


class Bytes(bytearray):
    """Says when it is let go."""

    gone = 0

    def __del__(self):
        Bytes.gone += 1


def wide(session):
    """A table of many columns, over bytes that say when they are let go."""
    Bytes.gone = 0
    batch = pa.record_batch({f"a column with a long name, number {i}": [1, 2] for i in range(FIELDS)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as out:
        out.write(batch)
    return session.read_ipc(Bytes(sink.getvalue().to_pybytes()))


def fails(give, allocation):
    """Whether it fails where the allocation of this number does."""
    failing.set_nomemory(allocation, allocation + 1)
    try:
        give()
    except MemoryError:
        return True
    finally:
        failing.remove_mem_hooks()
    return False


# The allocations that capsules are; what else is made comes from lists of free objects.
GIVEN = {
    "__arrow_c_schema__": [0],
    "__arrow_c_array__": [0, 1],
    "__arrow_c_device_array__": [0, 1],
    "__arrow_c_stream__": [0],
    "__arrow_c_device_stream__": [0],
}


@pytest.mark.parametrize("protocol, allocation", [(name, i) for name, all in GIVEN.items() for i in all])
def test_whichever_capsule_is_not_made_all_of_them_are_given_back(session, protocol, allocation):
    """Of a pair also the second: the schema lies in the first one by then."""
    table = wide(session)
    give = getattr(table, protocol)
    give()
    gc.collect()
    before, blocks = resident(), sys.getallocatedblocks()
    assert all(fails(give, allocation) for _ in range(TIMES)), "no capsule was made there"
    assert not fails(give, max(GIVEN[protocol]) + 1), "more capsules are made"
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 1000
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        assert resident() - before < ALLOWED_BYTES
    assert not Bytes.gone
    del give, table
    gc.collect()
    # A view that was let go without the interpreter's lock goes at the next call.
    session.synchronize()
    assert Bytes.gone == 1


def test_an_encoded_array_that_is_not_given_stays_what_it_is(session):
    live = dict(capsules.LIVE)
    array = session.encoded(capsules.Exporter(craft.primitive(np.arange(3, dtype="u4"))))
    assert fails(array.__crossdock_encoded_array__, 0)
    assert session.encoded(array.__crossdock_encoded_array__()).decode().to_pyarrow().to_pylist() == [0, 1, 2]
    del array
    gc.collect()
    assert live == capsules.LIVE, "its buffers were not given back"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_buffer_of_a_tree_is_lost_where_a_tuple_of_it_is_not_made(session):
    """In Vortex's protocol, whose capsules lie in lists and tuples of other objects: each of these may fail too."""
    live = dict(capsules.LIVE)
    array = session.encoded(capsules.Exporter(craft.primitive(np.arange(3.0), np.array([True, False, True]))))
    failed = []
    for allocation in range(30):
        failing.set_nomemory(allocation, allocation + 1)
        try:
            array.__vortex_array_metadata__()
        except BaseException as error:
            # Of an object of Python's own that cannot be made it is a panic, which unwinds.
            failed.append(type(error).__name__)
        finally:
            failing.remove_mem_hooks()
    assert "MemoryError" in failed and set(failed) <= {"MemoryError", "PanicException"}
    assert session.from_vortex(array).to_pyarrow().to_pylist() == [0.0, None, 2.0]
    del array
    gc.collect()
    assert live == capsules.LIVE, "its buffers were not given back"
