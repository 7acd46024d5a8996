"""Runs pyarrow's side of the benchmarks. Prints a JSON list of times in ns.

peer.py make DIR FLIGHTS.arrow     creates the input files of the benchmarks
peer.py mapped FILE RUNS           reads a mapped IPC file to record batches
peer.py read FILE RUNS             reads an IPC stream file to a table
peer.py copy IN OUT RUNS           copies an IPC stream file batch by batch
peer.py dlpack RUNS                exports a column as a DLPack tensor and imports it again
peer.py long_... FILE COLUMNS      converts 10 million rows to /dev/null; the caller measures the process
peer.py c_device RUNS              exports a ten-column batch through the C Device interface and imports it again
"""

import ctypes
import json
import os
import sys
import time

import pyarrow as pa
import pyarrow.ipc as ipc

LONG_ROWS = 10_000_000
MAPPED_BATCHES, MAPPED_ROWS, MAPPED_COLUMNS = 64, 1 << 18, 8


def make(folder: str, flights: str) -> None:
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "mapped.arrow")
    if not os.path.exists(path):
        values = pa.array(range(MAPPED_ROWS), pa.int64())
        batch = pa.record_batch([values] * MAPPED_COLUMNS, names=[f"c{i}" for i in range(MAPPED_COLUMNS)])
        with ipc.new_file(path, batch.schema) as out:
            for _ in range(MAPPED_BATCHES):
                out.write_batch(batch)
    table = ipc.open_file(flights).read_all()
    path = os.path.join(folder, "flights10m.arrows")
    if not os.path.exists(path):
        with ipc.new_stream(path, table.schema) as out:
            for _ in range(-(-LONG_ROWS // table.num_rows)):
                out.write_table(table.unify_dictionaries(), max_chunksize=65536)
    table = pa.concat_tables([table] * 12).unify_dictionaries()
    for codec in (None, "lz4", "zstd"):
        path = os.path.join(folder, f"flights.{codec or 'none'}.arrows")
        if not os.path.exists(path):
            with ipc.new_stream(path, table.schema, options=ipc.IpcWriteOptions(compression=codec)) as out:
                out.write_table(table, max_chunksize=65536)


def timed(runs: int, work) -> None:
    times = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - start)
    print(json.dumps(times))


def mapped(path: str) -> None:
    reader = ipc.open_file(pa.memory_map(path))
    batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
    assert sum(b.num_rows for b in batches) > 0


def read(path: str) -> None:
    assert ipc.open_stream(pa.memory_map(path)).read_all().num_rows > 0


def copy(source: str, target: str) -> None:
    reader = ipc.open_stream(pa.memory_map(source))
    with pa.OSFile(target, "wb") as sink, ipc.new_stream(sink, reader.schema) as out:
        for batch in reader:
            out.write_batch(batch)


def c_device(runs: int) -> None:
    batch = pa.record_batch([pa.array(range(1000), pa.int64())] * 10, names=[f"c{i}" for i in range(10)])
    device_array = ctypes.create_string_buffer(128)  # sizeof(struct ArrowDeviceArray)
    at = ctypes.addressof(device_array)
    times = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        batch._export_to_c_device(at)
        middle = time.perf_counter_ns()
        back = pa.RecordBatch._import_from_c_device(at, batch.schema)
        times.append([middle - start, time.perf_counter_ns() - middle])
        assert back.num_columns == 10
    print(json.dumps([[t[0] for t in times], [t[1] for t in times]]))


class CapsuleOwner:
    """A producer for pyarrow that returns a given capsule."""

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


def dlpack(runs: int) -> None:
    array = pa.array([float(i) for i in range(1000)])
    producer = CapsuleOwner()
    exports, imports = [], []
    for _ in range(runs):
        start = time.perf_counter_ns()
        capsule = array.__dlpack__(max_version=(1, 0))
        middle = time.perf_counter_ns()
        producer.capsule = capsule
        resume = time.perf_counter_ns()
        back = pa.Array.from_dlpack(producer)
        imports.append(time.perf_counter_ns() - resume)
        exports.append(middle - start)
        assert len(back) == 1000
    print(json.dumps([exports, imports]))


def long_ipc(source: str, columns: str, through=lambda batch: batch) -> None:
    reader = ipc.open_stream(pa.memory_map(source))
    with pa.OSFile("/dev/null", "wb") as sink:
        out = None
        for batch in reader:
            batch = through(batch)
            out = out or ipc.new_stream(sink, batch.schema)
            out.write_batch(batch)
        out.close()


def long_c_device(source: str, columns: str) -> None:
    device_array = ctypes.create_string_buffer(128)  # sizeof(struct ArrowDeviceArray)
    at = ctypes.addressof(device_array)

    def through(batch):
        batch._export_to_c_device(at)
        return pa.RecordBatch._import_from_c_device(at, batch.schema)

    long_ipc(source, columns, through)


def long_dlpack(source: str, columns: str) -> None:
    names = columns.split(",")

    def through(batch):
        arrays = [pa.Array.from_dlpack(batch.column(name)) for name in names]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    long_ipc(source, columns, through)


def long_to_csv(source: str, columns: str) -> None:
    import pyarrow.csv as csv

    reader = ipc.open_stream(pa.memory_map(source))
    names = columns.split(",")
    with csv.CSVWriter("/dev/null", pa.schema([reader.schema.field(name) for name in names])) as out:
        for batch in reader:
            out.write_batch(batch.select(names))


def long_from_csv(source: str, columns: str) -> None:
    import pyarrow.csv as csv

    types = {name: pa.string() for name in columns.split(",")}
    with (
        csv.open_csv(source, convert_options=csv.ConvertOptions(column_types=types)) as reader,
        pa.OSFile("/dev/null", "wb") as sink,
    ):
        with ipc.new_stream(sink, reader.schema) as out:
            for batch in reader:
                out.write_batch(batch)


def main() -> None:
    what, *rest = sys.argv[1:]
    if what == "make":
        make(*rest)
    elif what == "mapped":
        timed(int(rest[1]), lambda: mapped(rest[0]))
    elif what == "read":
        timed(int(rest[1]), lambda: read(rest[0]))
    elif what == "copy":
        timed(int(rest[2]), lambda: copy(rest[0], rest[1]))
    elif what == "c_device":
        c_device(int(rest[0]))
    elif what == "dlpack":
        dlpack(int(rest[0]))
    elif what.startswith("long_"):
        globals()[what](*rest)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
