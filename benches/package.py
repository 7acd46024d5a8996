"""Measures the overhead of small exchanges with the Python package, compared to peers in the same run.

    PYTHONPATH=$(cargo xtask python --release) python benches/package.py [--device cuda:0] [--json FILE]
    ... --large-mib 8192 [--folder /dev/shm]      measures one large file instead, as `crossdock-benches --only ipc` does
    ... --decoding                                measures decoding of arrays of vortex-data instead

Peers that are not installed are skipped and listed."""

import argparse
import gc
import io
import json
import statistics
import tempfile
import time
from pathlib import Path

import crossdock as cd

ROWS = 1000
WARM, ROUNDS, RUNS = 300, 3000, 25
DECODED = 9
MISSING = set()


def peer(name):
    try:
        return __import__(name)
    except ImportError:
        MISSING.add(name)
        return None


class Rows:
    """The benchmarks. They run alternately, so that a temporary slowdown of the machine affects all of them."""

    def __init__(self):
        self.work, self.rows = [], []

    def add(self, what, work, rounds=ROUNDS):
        self.work.append((what, work, rounds))

    def measure(self):
        """Prints the median over the runs of the mean time of a call, without garbage collection, as timeit does."""
        for _, work, rounds in self.work:
            for _ in range(min(WARM, rounds)):
                work()
        times = [[] for _ in self.work]
        gc.collect()
        gc.disable()
        try:
            for _ in range(RUNS):
                for (_, work, rounds), durations in zip(self.work, times, strict=True):
                    start = time.perf_counter_ns()
                    for _ in range(rounds):
                        work()
                    durations.append((time.perf_counter_ns() - start) / rounds)
        finally:
            gc.enable()
        for (what, _, _), durations in zip(self.work, times, strict=True):
            median, minimum = statistics.median(durations), min(durations)
            self.rows.append({"what": what, "ns": round(median), "minimum_ns": round(minimum)})
            print(f"| {what} | {median:,.0f} | {minimum:,.0f} |", flush=True)


def tensors(rows, session, on_cuda):
    """Imports a tensor as a column and exports a column as a tensor, with each library and protocol."""
    producers = {}
    if on_cuda:
        torch, cupy = peer("torch"), peer("cupy")
        if torch:
            producers["torch"] = torch.arange(ROWS, device=session.device)
        if cupy:
            producers["cupy"] = cupy.arange(ROWS)
    else:
        numpy, torch, cupy = peer("numpy"), peer("torch"), None
        producers["numpy"] = numpy.arange(ROWS)
        if torch:
            producers["torch"] = torch.arange(ROWS)
    tvm = None if on_cuda else peer("tvm_ffi")
    if tvm:
        producers["tvm_ffi"] = tvm.from_dlpack(producers["numpy"])
    for name, tensor in producers.items():
        way = "exchange API" if hasattr(type(tensor), "__dlpack_c_exchange_api__") else "Python protocol"
        rows.add(f"from_dlpack({name}), {way}", lambda tensor=tensor: session.from_dlpack(tensor))
        if way == "exchange API":
            protocol_only = PythonProtocolTensor(tensor)
            rows.add(f"from_dlpack({name}), Python protocol", lambda tensor=protocol_only: session.from_dlpack(tensor))
        rows.add(
            f"column.__dlpack__(max_version=(1, 0)) of each from_dlpack({name})",
            lambda tensor=tensor: session.from_dlpack(tensor).__dlpack__(max_version=(1, 0)),
        )
        if hasattr(tensor, "__cuda_array_interface__"):
            rows.add(
                f"from_cuda_array_interface({name})",
                lambda tensor=tensor: session.from_cuda_array_interface(tensor),
            )
    column = session.from_dlpack(next(iter(producers.values())))
    session.synchronize()
    rows.add("column.__dlpack__(max_version=(1, 0))", lambda: column.__dlpack__(max_version=(1, 0)))
    if on_cuda:
        rows.add("the same with stream=1", lambda: column.__dlpack__(max_version=(1, 0), stream=1))
        rows.add("column.__cuda_array_interface__", lambda: column.__cuda_array_interface__)
    libraries = {"numpy": None if on_cuda else peer("numpy"), "torch": torch, "cupy": cupy}
    for name, library in libraries.items():
        if library:
            rows.add(f"{name}.from_dlpack(column)", lambda library=library: library.from_dlpack(column))
    if torch and cupy:
        rows.add("peer: torch.from_dlpack(cupy)", lambda: torch.from_dlpack(producers["cupy"]))
        rows.add("peer: cupy.from_dlpack(torch)", lambda: cupy.from_dlpack(producers["torch"]))
    if "numpy" in producers:
        rows.add("peer: numpy.from_dlpack(numpy)", lambda: peer("numpy").from_dlpack(producers["numpy"]))


class PythonProtocolTensor:
    """A tensor that has only the Python protocol."""

    def __init__(self, tensor):
        self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


def arrow(rows, session, pyarrow):
    columns = {"a": list(range(ROWS)), "b": [float(i) for i in range(ROWS)]}
    batch = pyarrow.record_batch(columns)
    table = session.from_arrow(batch)
    session.synchronize()
    rows.add("table.__arrow_c_device_array__(), 2 columns", table.__arrow_c_device_array__)
    rows.add("the same and from_capsules", lambda: session.from_capsules(*table.__arrow_c_device_array__()))
    if session.device == "cpu":
        rows.add("from_arrow(pyarrow.RecordBatch)", lambda: session.from_arrow(batch))
        rows.add("peer: pyarrow.RecordBatch.__arrow_c_device_array__()", batch.__arrow_c_device_array__)
    pylibcudf = peer("pylibcudf") if session.device != "cpu" else None
    if pylibcudf:
        cudf_table = pylibcudf.Table.from_arrow(table)
        rows.add("peer: pylibcudf.Table.from_arrow(table)", lambda: pylibcudf.Table.from_arrow(table), 300)
        rows.add("from_arrow(pylibcudf.Table)", lambda: session.from_arrow(cudf_table), 300)


def files(rows, session, pyarrow, path):
    table = session.from_arrow(pyarrow.record_batch({"a": list(range(ROWS)), "b": [0.5] * ROWS}))
    table.write_ipc(path)
    data = path.read_bytes()
    rows.add(f"read_ipc(path), {ROWS} rows", lambda: session.read_ipc(path), 300)
    rows.add(f"read_ipc(bytes), {ROWS} rows", lambda: session.read_ipc(data), 300)
    rows.add(
        "peer: pyarrow, memory_map and read_all",
        lambda: pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).read_all(),
        300,
    )
    rows.add("write_ipc(BytesIO)", lambda: table.write_ipc(io.BytesIO()), 300)


def large(session, mib, folder, pyarrow):
    """Reads eight columns of small integers, 8 MiB per batch, to the session's device, and waits for the device."""
    numpy = peer("numpy")
    columns = {f"c{i}": numpy.random.default_rng(i).integers(0, 5000, 1 << 20) for i in range(8)}
    batch = pyarrow.record_batch(columns)
    path = Path(folder) / "crossdock-package.arrow"
    print(f"| {mib} MiB of Arrow IPC, read_ipc to {session.device} | GB/s |\n|---|---|")
    try:
        for codec in (None, "lz4", "zstd"):
            options = pyarrow.ipc.IpcWriteOptions(compression=codec)
            with pyarrow.ipc.new_file(str(path), batch.schema, options=options) as writer:
                for _ in range(max(mib // 64, 1)):
                    writer.write(batch)
            speeds = []
            for _ in range(6):
                start = time.perf_counter_ns()
                table = session.read_ipc(path)
                session.synchronize()
                speeds.append(table.nbytes / (time.perf_counter_ns() - start))
                del table
            # The first run starts threads and fills pools.
            print(f"| {codec or 'not compressed'} | {statistics.median(speeds[1:]):.1f} |", flush=True)
    finally:
        path.unlink(missing_ok=True)


def decoding(numpy, pyarrow):
    """Decodes arrays of vortex-data with Crossdock and with vortex-data, on one thread; GB/s of decoded bytes."""
    vortex = peer("vortex")
    if vortex is None:
        print(f"skipped, not installed: {', '.join(sorted(MISSING))}")
        return
    rows, random = 4_000_000, numpy.random.default_rng(1)

    def addresses(n):
        every = pyarrow.array([f"https://example.org/{i}/{i % 97}" for i in range(n)])
        return every.take(pyarrow.array(random.integers(0, n, rows)))

    cases = {
        "u32, 6 bits": random.integers(0, 64, rows).astype("u4"),
        "u32 above a reference": (random.integers(0, 1000, rows) + 10**6).astype("u4"),
        "i64 above a reference": random.integers(-(1 << 16), 1 << 16, rows),
        "u32 with 0.5% patches": numpy.where(
            random.random(rows) < 0.005, random.integers(0, 2**31, rows), random.integers(0, 100, rows)
        ).astype("u4"),
        "f64 of 2 decimals": numpy.round(random.random(rows) * 1000, 2),
        "f32 of 1 decimal": numpy.round(random.random(rows) * 100, 1).astype("f4"),
        "f64, random": random.random(rows),
        "i64, 50 values": random.choice(random.integers(0, 10**12, 50), rows),
        "i64, runs of 64": numpy.repeat(random.integers(0, 10**9, rows // 64), 64),
        "i64, a sequence": numpy.arange(rows) * 3,
        "i64, signs": numpy.where(random.random(rows) < 0.02, -(10**15), 1) * random.integers(0, 2000, rows),
        "i64, mostly the same": numpy.where(random.random(rows) < 0.01, random.integers(0, 10**9, rows), 7),
        "f64, runs of 64": numpy.repeat(random.random(rows // 64), 64),
        "bool": random.random(rows) < 0.3,
        "i64, a tenth null": pyarrow.array(random.integers(0, 1 << 17, rows), mask=random.random(rows) < 0.1),
        "timestamps of whole hours": pyarrow.array(random.integers(0, 10**5, rows) * 3600 * 10**6).view(
            pyarrow.timestamp("us")
        ),
        "decimals of 2 places": pyarrow.array(random.integers(0, 10**6, rows)).cast(pyarrow.decimal128(19, 0)),
        "text, 5,000 addresses": addresses(5000),
        "text, hexadecimal": pyarrow.array([f"{n:x}" for n in random.integers(0, 2**32, rows)]),
        "text, a million addresses": addresses(1_000_000),
    }
    session = cd.Session(threads=1)
    print("| decoded, encodings | GB/s | vortex-data | ratio |\n|---|---|---|---|")
    for what, values in cases.items():
        array = vortex.compress(vortex.array(pyarrow.array(values)))
        nbytes, times = session.from_vortex(array).nbytes, ([], [])
        for _ in range(DECODED):
            for decode, durations in zip((session.from_vortex, lambda a: a.to_arrow_array()), times, strict=True):
                start = time.perf_counter_ns()
                decode(array)
                durations.append(time.perf_counter_ns() - start)
        rate, vortex_rate = (nbytes / statistics.median(durations) for durations in times)
        node, ids = array.__vortex_array_metadata__(), []
        while node:
            ids.append(node[0].split(".")[-1])
            node = node[5][0] if node[5] else None
        print(f"| {what}: {' of '.join(ids)} | {rate:.1f} | {vortex_rate:.1f} | {rate / vortex_rate:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="device of the session: cpu, cuda:N")
    parser.add_argument(
        "--no-exchange-api",
        action="store_true",
        help="remove DLPack's C exchange API from torch's tensors, as before torch 2.9",
    )
    parser.add_argument("--own-stream", action="store_true", help="let torch use its own stream")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--large-mib", type=int, metavar="N", help="read a file of N MiB instead")
    parser.add_argument("--decoding", action="store_true", help="decode arrays encoded by vortex-data instead")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="folder of the temporary file")
    arguments = parser.parse_args()
    if arguments.decoding:
        return decoding(peer("numpy"), peer("pyarrow"))
    session, rows = cd.Session(arguments.device), Rows()
    if arguments.large_mib:
        import pyarrow.ipc

        return large(session, arguments.large_mib, arguments.folder, pyarrow)
    torch = peer("torch") if arguments.no_exchange_api or arguments.own_stream else None
    if torch and arguments.no_exchange_api:
        del torch.Tensor.__dlpack_c_exchange_api__
    if torch and arguments.own_stream:
        torch.cuda.set_stream(torch.cuda.Stream())
    print(f"| {arguments.device} | ns | minimum |\n|---|---|---|")
    tensors(rows, session, arguments.device != "cpu")
    pyarrow = peer("pyarrow")
    if pyarrow:
        import pyarrow.ipc

        arrow(rows, session, pyarrow)
    with tempfile.TemporaryDirectory() as folder:
        if pyarrow:
            files(rows, session, pyarrow, Path(folder) / "small.arrow")
        rows.measure()
    if MISSING:
        print(f"skipped, not installed: {', '.join(sorted(MISSING))}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"device": arguments.device, "rows": rows.rows}) + "\n")


if __name__ == "__main__":
    main()
