"""A hundred thousand exchanges of each kind do not increase memory. The test detects a leak of 40 bytes per
exchange."""

import gc
import io
import os
import sys

import numpy
import pyarrow as pa
import pytest
from conftest import assert_all_memory_freed

EXCHANGES = int(os.environ.get("CROSSDOCK_LEAK_EXCHANGES", "100000"))
# This exchange opens, plans and closes a file, which takes a hundred times as long as the other
# exchanges.
FILES = EXCHANGES // 20
WARM_UP = 2000
# A leak increases memory in each round. Threads of packages that earlier tests in the process have
# used can increase it once.
ROUNDS = 3
ALLOWED_BYTES = 4 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")

BATCH = pa.record_batch({"n": pa.array([1, None, 3], pa.int32()), "t": ["a", "b", None]})
DEVICE_PAIR = "__arrow_c_device_array__"


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * PAGE


def ipc_bytes():
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema) as out:
        out.write(BATCH)
    return sink.getvalue().to_pybytes()


def kinds(session):
    """Returns a function for each kind of exchange."""
    table = session.from_arrow(BATCH)
    column = session.from_arrow(pa.array([1.0, 2.0, 3.0]))
    tensor = numpy.arange(3.0)
    content = ipc_bytes()
    chunks = session.from_arrow(pa.Table.from_batches([BATCH, BATCH]))

    def rejected_object():
        try:
            session.from_arrow(7)
        except TypeError:
            pass

    def consumed_twice():
        schema, array = table.__arrow_c_array__()
        session.from_capsules(schema, array)
        try:
            session.from_capsules(schema, array)
        except ValueError:
            pass

    return {
        "import of a batch": lambda: session.from_arrow(BATCH),
        "export of a batch whose capsules are not consumed": lambda: table.__arrow_c_device_array__(),
        "export and import of a batch": lambda: session.from_capsules(*table.__arrow_c_device_array__()),
        "export of a batch to pyarrow": lambda: pa.record_batch(table),
        "export of a stream that is not consumed": lambda: chunks.__arrow_c_stream__(),
        "export and import of a device stream": lambda: session.from_arrow(chunks),
        "export of a schema": lambda: table.__arrow_c_schema__(),
        "export of a column to pyarrow": lambda: pa.array(column),
        "import of a tensor": lambda: session.from_dlpack(tensor),
        "export of a tensor": lambda: numpy.from_dlpack(column),
        "export of a tensor that is not consumed": lambda: column.__dlpack__(),
        "slices and selections": lambda: table.select(["t"]).slice(1, 1)[0].null_count,
        "rejected objects": rejected_object,
        "a pair consumed twice": consumed_twice,
        "bytes read": lambda: session.read_ipc(content),
        "bytes written": lambda: table.write_ipc(io.BytesIO(), form="stream"),
    }


KINDS = [
    "import of a batch",
    "export of a batch whose capsules are not consumed",
    "export and import of a batch",
    "export of a batch to pyarrow",
    "export of a stream that is not consumed",
    "export and import of a device stream",
    "export of a schema",
    "export of a column to pyarrow",
    "import of a tensor",
    "export of a tensor",
    "export of a tensor that is not consumed",
    "slices and selections",
    "rejected objects",
    "a pair consumed twice",
    "bytes read",
    "bytes written",
]


@pytest.mark.parametrize("kind", KINDS)
def test_memory_stays_flat(session, kind):
    exchange, n = kinds(session)[kind], FILES if kind.startswith("bytes") else EXCHANGES
    for _ in range(WARM_UP):
        exchange()
    grown = []
    for _ in range(ROUNDS):
        gc.collect()
        before, blocks = resident(), sys.getallocatedblocks()
        for _ in range(n):
            exchange()
        gc.collect()
        assert sys.getallocatedblocks() - blocks < max(1000, n // 100)
        grown.append(resident() - before)
        if grown[-1] < ALLOWED_BYTES:
            break
    assert min(grown) < ALLOWED_BYTES
    assert_all_memory_freed(session)
