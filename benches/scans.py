"""Measures scans with the Python package, compared to pyarrow in the same run.

    PYTHONPATH=$(cargo xtask python --release) python benches/scans.py [--mib 512] [--folder FOLDER]

The first table has the CPU time of reading one of eight columns, the second the rate and the peak memory of reading
ten copies of a file batch by batch with a memory budget of 512 MiB, and the third the time of filters. Each
measurement is a process of its own."""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

RUNS, CALLS = 5, 5
CODECS = (None, "lz4", "zstd")

READ = {
    "Crossdock": """
import crossdock as cd
session = cd.Session()
def read(path, form):
    return session.read_ipc(path, columns=["c3"]).num_rows
""",
    "pyarrow": """
import pyarrow as pa, pyarrow.ipc as ipc
def read(path, form):
    new = ipc.open_file if form == "file" else ipc.open_stream
    return new(pa.memory_map(path), options=ipc.IpcReadOptions(included_fields=[3])).read_all().num_rows
""",
}

FILTERS = {
    "Crossdock": """
import crossdock as cd
session = cd.Session()
def read(path, filter):
    return session.read_ipc(path, filter=[filter]).num_rows
""",
    "pyarrow": """
import operator
import pyarrow as pa, pyarrow.ipc as ipc, pyarrow.compute as pc
OPERATORS = {"<": operator.lt, "==": operator.eq}
def read(path, filter):
    column, symbol, value = filter
    table = ipc.open_file(pa.memory_map(path)).read_all()
    return table.filter(OPERATORS[symbol](pc.field(column), value)).num_rows
""",
}
# The share of the rows that each filter keeps.
PREDICATES = {
    ("number", "<", 1): "1 %, scattered",
    ("number", "<", 10): "10 %, scattered",
    ("number", "<", 50): "50 %, scattered",
    ("number", "<", 99): "99 %, scattered",
    ("sorted", "<", 0.1): "10 %, adjacent",
    ("text", "==", "value 7"): "1 %, scattered, by a string",
}

CPU_TIME = """
import time
read({path!r}, {form!r})
start = time.process_time()
for _ in range({calls}):
    read({path!r}, {form!r})
print((time.process_time() - start) / {calls})
"""

FILTER_TIME = """
import time
for _ in range(2):
    read({path!r}, {filter!r})
wall, cpu = time.perf_counter(), time.process_time()
for _ in range({calls}):
    read({path!r}, {filter!r})
print((time.perf_counter() - wall) / {calls}, (time.process_time() - cpu) / {calls})
"""

ITERATE = """
import re, time
import crossdock as cd
session = cd.Session(memory="512MiB")
start, total = time.perf_counter(), 0
for table in session.scan([{path!r}] * 10):
    total += table.nbytes
rate = total / (time.perf_counter() - start)
# Unlike ru_maxrss, VmHWM does not include the memory of the process that started this one.
peak = re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]
print(total, rate, int(peak) * 1024)
"""


def run(program):
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    return [float(number) for number in done.stdout.split()]


def write(path, form, codec, rows):
    """Writes eight columns of 64-bit numbers, each number eight times in a row, in batches of 262,144 rows."""
    generator = np.random.default_rng(1)
    columns = {f"c{i}": np.repeat(generator.integers(0, 100_000, rows // 8), 8) for i in range(8)}
    table = pa.table(columns)
    new = ipc.new_file if form == "file" else ipc.new_stream
    with new(path, table.schema, options=ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=1 << 18)


def write_filtered(path, rows):
    """Writes numbers, floats and strings in batches of 262,144 rows."""
    numbers = np.random.default_rng(2).integers(0, 100, rows)
    columns = {"number": numbers, "sorted": np.linspace(0, 1, rows)}
    table = pa.table(columns | {"text": pa.array([f"value {n}" for n in range(100)]).take(pa.array(numbers))})
    with ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 18)


def filters(folder, rows):
    path = str(Path(folder) / "filtered")
    write_filtered(path, rows)
    print("filters on three columns, medians:")
    for predicate, kept in PREDICATES.items():
        program = FILTER_TIME.format(path=path, filter=predicate, calls=CALLS)
        times = {name: [] for name in FILTERS}
        for _ in range(RUNS):
            for name, read in FILTERS.items():
                times[name].append(run(read + program))
        for i, kind in enumerate(["time", "CPU time"]):
            ours, theirs = (statistics.median(each[i] for each in times[name]) * 1e3 for name in FILTERS)
            print(f"{kept}, {kind}: {ours:.2f} ms, pyarrow {theirs:.2f} ms, {ours / theirs:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512, help="size of the table in MiB, uncompressed")
    parser.add_argument("--folder", help="folder for the files; a temporary one by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        rows = arguments.mib * (1 << 20) // 64
        filters(folder, rows)
        print("CPU time of reading one of eight columns, medians:")
        for form in ("file", "stream"):
            for codec in CODECS:
                path = str(Path(folder) / "table")
                write(path, form, codec, rows)
                times = {name: [] for name in READ}
                for _ in range(RUNS):
                    for name, read in READ.items():
                        times[name] += run(read + CPU_TIME.format(path=path, form=form, calls=CALLS))
                ours, theirs = (statistics.median(times[name]) * 1e3 for name in READ)
                print(f"{form}, {codec or 'uncompressed'}: {ours:.2f} ms, pyarrow {theirs:.2f} ms, {ours / theirs:.2f}")
                if form == "file" and codec != "zstd":
                    total, rate, peak = run(ITERATE.format(path=path))
                    print(f"  iteration: {total / 1e9:.1f} GB, {rate / 1e9:.1f} GB/s, peak {peak / (1 << 20):.0f} MiB")


if __name__ == "__main__":
    main()
