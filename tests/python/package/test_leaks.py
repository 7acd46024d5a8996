"""A hundred thousand exchanges of each kind, and memory as it was: what one exchange forgets would be seen from 40 bytes on."""

import gc
import io
import os
import sys

import numpy
import pyarrow as pa
import pytest
from conftest import assert_nothing_held

EXCHANGES = int(os.environ.get("CROSSDOCK_LEAK_EXCHANGES", "100000"))
# A file is opened, planned and closed: no exchange, and a hundred times as long.
FILES = EXCHANGES // 20
WARM_UP = 2000
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
    """Of each kind what one exchange does."""
    table = session.from_arrow(BATCH)
    column = session.from_arrow(pa.array([1.0, 2.0, 3.0]))
    tensor = numpy.arange(3.0)
    content = ipc_bytes()
    chunks = session.from_arrow(pa.Table.from_batches([BATCH, BATCH]))

    def refused():
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
        "a batch in": lambda: session.from_arrow(BATCH),
        "a batch out as capsules that nobody takes": lambda: table.__arrow_c_device_array__(),
        "a batch out and in": lambda: session.from_capsules(*table.__arrow_c_device_array__()),
        "a batch out to pyarrow": lambda: pa.record_batch(table),
        "a stream out that nobody takes": lambda: chunks.__arrow_c_stream__(),
        "a device stream out and in": lambda: session.from_arrow(chunks),
        "a schema out": lambda: table.__arrow_c_schema__(),
        "a column out to pyarrow": lambda: pa.array(column),
        "a tensor in": lambda: session.from_dlpack(tensor),
        "a tensor out": lambda: numpy.from_dlpack(column),
        "a tensor out that nobody takes": lambda: column.__dlpack__(),
        "slices and selections": lambda: table.select(["t"]).slice(1, 1)[0].null_count,
        "refusals": refused,
        "a pair consumed twice": consumed_twice,
        "bytes read": lambda: session.read_ipc(content),
        "bytes written": lambda: table.write_ipc(io.BytesIO(), form="stream"),
    }


KINDS = [
    "a batch in",
    "a batch out as capsules that nobody takes",
    "a batch out and in",
    "a batch out to pyarrow",
    "a stream out that nobody takes",
    "a device stream out and in",
    "a schema out",
    "a column out to pyarrow",
    "a tensor in",
    "a tensor out",
    "a tensor out that nobody takes",
    "slices and selections",
    "refusals",
    "a pair consumed twice",
    "bytes read",
    "bytes written",
]


@pytest.mark.parametrize("kind", KINDS)
def test_memory_stays_flat(session, kind):
    exchange, n = kinds(session)[kind], FILES if kind.startswith("bytes") else EXCHANGES
    for _ in range(WARM_UP):
        exchange()
    gc.collect()
    before, blocks = resident(), sys.getallocatedblocks()
    for _ in range(n):
        exchange()
    gc.collect()
    assert resident() - before < ALLOWED_BYTES
    assert sys.getallocatedblocks() - blocks < max(1000, n // 100)
    assert_nothing_held(session)
