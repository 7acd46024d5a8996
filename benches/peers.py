"""Compares Crossdock with the libraries that are installed, on one table, and draws the times.

    cargo xtask bench --peers [-- TABLE.arrow] [--device cuda:0] [--repeat 20] [--parquet PLUGIN.so] [--output DIR]

The table is repeated, and written in each format. The programs of a case run in turn, so that a temporary slowdown of the
machine affects all of them. The output folder receives peers.json and peers.html. On a device, the limit is the rate at
which the link copies pinned memory. Needs pyarrow; polars, vortex-data, cupy, torch and pylibcudf are used if they are
installed, and listed otherwise. nvCOMP does not read files: it gets the compressed blocks of the table, which are
independent, in pinned memory."""

import argparse
import io
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from functools import cache
from html import escape
from pathlib import Path

import numpy as np
import nvcomp_lz4
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

import crossdock as cd
from read_times import LINK_BYTES, libcudf, link

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs" / "site"))
import plots  # noqa: E402

RUNS = 7
# A run of a short call repeats the call for this time.
MIN_SECONDS = 0.02
OURS = "Crossdock"
STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #1c2126; background: #fff }
svg { width: 100%; font-size: 13px } .figure { text-anchor: end } .case { font-weight: bold }
.ours { fill: #0a5c8f } .peer { fill: #9aa4ad } .limit { fill: none; stroke: #4d565e }
"""


@cache
def optional(name):
    """A module, or `None` if it is not installed or does not find its device."""
    try:
        return __import__(name)
    except Exception as error:
        print(f"skipped: {name}: {error}", file=sys.stderr)
        return None


class Case:
    """Programs that have the same result."""

    def __init__(self, title, nbytes=None):
        self.title, self.nbytes, self.programs, self.limit = title, nbytes, {}, None

    def add(self, name, work):
        self.programs[name] = work
        return self

    def measure(self):
        """The seconds of the first call of each program, and the median of its runs."""
        first, repeats, times = {}, {}, {}
        for name, work in self.programs.items():
            first[name] = once(work)
            repeats[name] = max(1, round(MIN_SECONDS / max(once(work), 1e-7)))
            times[name] = []
        for _ in range(RUNS):
            for name, work in self.programs.items():
                begin = time.perf_counter()
                for _ in range(repeats[name]):
                    work()
                times[name].append((time.perf_counter() - begin) / repeats[name])
        return {name: (first[name], statistics.median(times[name])) for name in self.programs}


def once(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def lz4_blocks(table):
    """The table compressed for nvCOMP. `None` if it is not installed."""
    library = nvcomp_lz4.find()
    if not library:
        print("skipped: nvCOMP: its library is not installed", file=sys.stderr)
        return None
    return nvcomp_lz4.Lz4(library, table)


def files(table, folder):
    """Writes the table in each format. Returns the paths by the names of the formats."""
    paths = {name: folder / name for name in ("none.arrow", "lz4.arrow", "zstd.arrow", "snappy.parquet", "table.csv")}
    for codec in ("none", "lz4", "zstd"):
        options = ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
        with ipc.new_file(paths[f"{codec}.arrow"], table.schema, options=options) as out:
            out.write_table(table, max_chunksize=1 << 20)
    pq.write_table(table, paths["snappy.parquet"], compression="snappy")
    pa.csv.write_csv(table.slice(0, 1 << 20), paths["table.csv"])
    return paths


def reads(session, table, paths, options):
    """The cases that read files."""
    polars, vortex = optional("polars"), optional("vortex")
    cupy = optional("cupy") if session.device != "cpu" else None
    peer = libcudf() if session.device != "cpu" else None

    def read(path):
        result = session.read(path)
        session.synchronize()
        return result

    def to_device(result):
        """Copies the buffers of a table of pyarrow to the device."""
        if session.device == "cpu":
            return result
        buffers = [
            buffer for column in result.columns for chunk in column.chunks for buffer in chunk.buffers() if buffer
        ]
        copies = [cupy.asarray(np.frombuffer(buffer, np.uint8)) for buffer in buffers]
        cupy.cuda.Device().synchronize()
        return copies

    has_pyarrow = session.device == "cpu" or cupy is not None
    others = "pyarrow" if session.device == "cpu" else "pyarrow and cupy"
    for codec, shown in (("none", "not compressed"), ("lz4", "LZ4"), ("zstd", "Zstandard")):
        path = paths[f"{codec}.arrow"]
        case = Case(f"Read an Arrow IPC file, {shown}", path.stat().st_size)
        case.add(OURS, lambda path=path: read(path))
        if has_pyarrow:
            case.add(others, lambda path=path: to_device(ipc.open_file(pa.memory_map(str(path))).read_all()))
        if polars and session.device == "cpu":
            case.add("polars", lambda path=path: polars.read_ipc(path))
        if codec == "lz4" and cupy:
            blocks = lz4_blocks(table)
            if blocks:
                case.add("nvCOMP", blocks.copy_and_decompress)
        yield case
    path = paths["snappy.parquet"]
    case = Case("Read a Parquet file, Snappy", path.stat().st_size)
    if options.parquet:
        case.add(OURS, lambda: read(path))
    else:
        print("skipped: Parquet files with Crossdock: --parquet was not passed", file=sys.stderr)
    if has_pyarrow:
        case.add(others, lambda: to_device(pq.read_table(path)))
    if polars and session.device == "cpu":
        case.add("polars", lambda: polars.read_parquet(path))
    if peer:
        case.add("libcudf", lambda: peer(path))
    yield case
    csv = paths["table.csv"]
    case = Case("Read a CSV file of 1,048,576 rows at most", csv.stat().st_size).add(OURS, lambda: read(csv))
    if has_pyarrow:
        case.add(others, lambda: to_device(pa.csv.read_csv(csv)))
    if polars and session.device == "cpu":
        case.add("polars", lambda: polars.read_csv(csv, try_parse_dates=True))
    yield case
    if vortex:
        import vortex.io

        to = paths["none.arrow"].with_name("table.vortex")
        vortex.io.write(table, str(to))
        case = Case("Read a Vortex file", to.stat().st_size).add(OURS, lambda: read(to))
        if has_pyarrow:
            name = "vortex-data" if session.device == "cpu" else "vortex-data and cupy"
            case.add(name, lambda: to_device(vortex.open(str(to)).to_arrow().read_all()))
        yield case


def writes(session, table, folder):
    """The cases that write files."""
    polars = optional("polars") if session.device == "cpu" else None
    ours = session.from_arrow(table).to(session.device)
    frame = polars.from_arrow(table) if polars else None
    for codec, shown in ((None, "not compressed"), ("lz4", "LZ4"), ("zstd", "Zstandard")):
        case = Case(f"Write an Arrow IPC file, {shown}", table.nbytes)

        def pyarrow_write(codec=codec):
            with ipc.new_file(folder / "p.arrow", table.schema, options=ipc.IpcWriteOptions(compression=codec)) as out:
                out.write_table(table)

        case.add(OURS, lambda codec=codec: ours.write_ipc(folder / "c.arrow", compression=codec))
        if session.device == "cpu":
            case.add("pyarrow", pyarrow_write)
        if frame is not None:
            case.add(
                "polars", lambda codec=codec: frame.write_ipc(folder / "q.arrow", compression=codec or "uncompressed")
            )
        yield case


def calls(session):
    """The cases of short calls."""
    batch = pa.record_batch({f"c{i}": np.arange(1000.0) for i in range(10)})
    wide = pa.record_batch({f"c{i}": np.arange(10.0) for i in range(10_000)})
    column = cd.Session().from_arrow(batch.column(0))
    case = Case("Import a RecordBatch of pyarrow with 10 columns")
    case.add(OURS, lambda: session.from_arrow(batch)).add("pyarrow", lambda: pa.record_batch(Exporter(batch)))
    if session.device != "cpu":
        cupy, torch = optional("cupy"), optional("torch")
        if cupy and torch:
            array = cupy.arange(1000.0)
            case = Case("Import an array of cupy by DLPack").add(OURS, lambda: session.from_dlpack(array))
            yield case.add("torch", lambda: torch.from_dlpack(array))
        return
    yield case
    case = Case("Pass a column of 1,000 numbers to NumPy by DLPack")
    yield case.add(OURS, lambda: np.from_dlpack(column)).add("pyarrow", lambda: np.from_dlpack(batch.column(0)))
    table = pa.Table.from_batches([batch] * 10)
    ours = session.from_arrow(table)

    def pyarrow_write():
        with ipc.new_file(io.BytesIO(), table.schema) as out:
            out.write_table(table)

    case = Case("Write 10 batches of 10 columns of 1,000 rows to BytesIO")
    yield case.add(OURS, lambda: ours.write_ipc(io.BytesIO())).add("pyarrow", pyarrow_write)
    sink = io.BytesIO()
    with ipc.new_file(sink, wide.schema) as out:
        for _ in range(10):
            out.write_batch(wide)
    data = sink.getvalue()
    case = Case("Read 10 batches of 10,000 columns from memory", len(data)).add(OURS, lambda: session.read_ipc(data))
    yield case.add("pyarrow", lambda: ipc.open_file(data).read_all())


class Exporter:
    """Hides the class of a batch, so that pyarrow imports it through the Arrow C interface."""

    def __init__(self, batch):
        self.batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(requested_schema)


def shown(seconds):
    return f"{seconds * 1e3:,.2f}" if seconds >= 1e-3 else f"{seconds * 1e3:.4f}"


def report(results, about, folder):
    """Writes the results as JSON, and as a page with a plot for each case."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "peers.json").write_text(json.dumps({"about": about, "cases": results}, indent=1) + "\n")
    parts = [
        f"<h1>Crossdock and other libraries</h1><p>{escape('; '.join(about))}. Milliseconds; shorter bars are better.</p>"
    ]
    for number, result in enumerate(results):
        bars = [
            {
                "label": f"{name}, first call {shown(first)} ms" if name != "limit" else "limit: the link alone",
                "figure": shown(median),
                "series": {OURS: "ours", "limit": "limit"}.get(name, "peer"),
            }
            for name, (first, median) in result["seconds"].items()
        ]
        drawn = plots.draw(f"case-{number}", {"title": result["title"], "unit": "ms", "bars": bars})
        parts.append(f"<h2>{escape(result['title'])}</h2>\n{drawn}")
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Benchmarks</title><style>{STYLE}</style>'
    (folder / "peers.html").write_text(page + "\n".join(parts) + "</html>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    table = ROOT / "examples/data/flights-january.arrow"
    parser.add_argument("table", type=Path, nargs="?", default=table, help="an Arrow IPC file")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N")
    parser.add_argument("--repeat", type=int, default=100, help="how often the table is repeated")
    parser.add_argument("--parquet", help="the library of the plugin parquet")
    parser.add_argument("--output", type=Path, default=Path("target/peers"), help="the folder of the report")
    options = parser.parse_args()
    session = cd.Session(options.device, plugins=[options.parquet] if options.parquet else [])
    with ipc.open_file(options.table) as file:
        table = pa.concat_tables([file.read_all()] * options.repeat).combine_chunks()
    about = [
        f"{options.table.name}, {table.num_rows} rows, {table.nbytes / 1e6:.0f} MB in memory",
        f"{options.device}, {os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}",
        f"pyarrow {pa.__version__}, {time.strftime('%Y-%m-%d')}",
    ]
    print("\n".join(about), flush=True)
    rate, results = None, []
    if options.device != "cpu" and optional("cupy"):
        rate = LINK_BYTES / statistics.median(link(options.device))
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        paths = files(table, folder)
        for case in (*reads(session, table, paths, options), *writes(session, table, folder), *calls(session)):
            seconds = case.measure()
            if rate and case.nbytes:
                seconds["limit"] = (case.nbytes / rate, case.nbytes / rate)
            results.append({"title": case.title, "bytes": case.nbytes, "seconds": seconds})
            print(f"\n{case.title}")
            ours = seconds.get(OURS, (None, None))[1]
            for name, (first, median) in seconds.items():
                speed = f", {case.nbytes / median / 1e9:.2f} GB/s" if case.nbytes else ""
                ratio = f", {OURS} takes {ours / median:.2f} of it" if ours and name != OURS else ""
                print(f"  {name:20} first {shown(first)} ms, median {shown(median)} ms{speed}{ratio}", flush=True)
    report(results, about, options.output)
    print(f"\n{options.output / 'peers.html'}")


if __name__ == "__main__":
    main()
