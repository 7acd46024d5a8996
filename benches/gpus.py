"""Measures reading an Arrow file to several GPUs at once, next to copies of pinned memory and to the host's memory.

    PYTHONPATH=$(cargo xtask python --release) python benches/gpus.py TABLE.arrow [--repeat 60] [--gpus 1 2]

The table is repeated, and written in batches of several sizes. Each GPU has its own process, or its own thread of one process. All
of them repeat the same work for two seconds. Needs cupy."""

import argparse
import multiprocessing
import os
import queue
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc

import crossdock as cd

SECONDS = 2
BLOCK_BYTES = 1 << 28
BATCH_ROWS = [1 << 18, 1 << 20, 1 << 22]


def repeated(work, barrier):
    """The bytes and the seconds of repeating `work`, which returns its bytes, after two runs."""
    work(), work()
    barrier.wait()
    begin, nbytes = time.perf_counter(), 0
    while (now := time.perf_counter()) - begin < SECONDS:
        nbytes += work()
    return nbytes, now - begin


def pinned(gpu):
    import cupy

    cupy.cuda.Device(gpu).use()
    host, to = cupy.cuda.alloc_pinned_memory(BLOCK_BYTES), cupy.cuda.alloc(BLOCK_BYTES)

    def work():
        cupy.cuda.runtime.memcpy(to.ptr, host.ptr, BLOCK_BYTES, 1)
        return BLOCK_BYTES

    return work


class Reads:
    """Reads a file to a GPU."""

    def __init__(self, path, threads=None):
        self.path, self.threads, self.nbytes = path, threads, os.path.getsize(path)

    def __call__(self, gpu):
        session = cd.Session(f"cuda:{gpu}", **({} if self.threads is None else {"threads": self.threads}))

        def work():
            table = session.read_ipc(self.path)
            session.synchronize()
            del table
            return self.nbytes

        return work


def run(make, gpu, barrier, results):
    results.put(repeated(make(gpu), barrier))


def total(make, gpus, context):
    """GB/s of all GPUs together. `context` starts processes or threads."""
    start, barrier, results = context
    barrier, results = barrier(gpus), results()
    workers = [start(target=run, args=(make, gpu, barrier, results)) for gpu in range(gpus)]
    for worker in workers:
        worker.start()
    got = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    return sum(nbytes for nbytes, _ in got) / max(seconds for _, seconds in got) / 1e9


def host_copies(threads):
    """GB/s at which threads copy memory that is in no cache. The bytes are counted once."""
    blocks = [(np.ones(BLOCK_BYTES, np.uint8), np.ones(BLOCK_BYTES, np.uint8)) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        begin = time.perf_counter()
        for _ in range(3):
            list(pool.map(lambda block: np.copyto(block[1], block[0]), blocks))
        return 3 * threads * BLOCK_BYTES / (time.perf_counter() - begin) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="an Arrow IPC file")
    parser.add_argument("--repeat", type=int, default=60, help="how often the table is repeated")
    parser.add_argument("--gpus", type=int, nargs="*", default=[1, 2], help="the numbers of GPUs")
    parser.add_argument("--threads", type=int, nargs="*", default=[], help="numbers of threads of a session")
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    processes = (spawn.Process, spawn.Barrier, spawn.SimpleQueue)
    threads = (threading.Thread, threading.Barrier, queue.SimpleQueue)
    for n in (1, 8, 16, 32):
        if n <= (os.cpu_count() or 1):
            print(f"copies in the host's memory, {n} threads: {host_copies(n):.1f} GB/s", flush=True)
    with pa.ipc.open_file(options.table) as file:
        table = pa.concat_tables([file.read_all()] * options.repeat).combine_chunks()
    with tempfile.TemporaryDirectory() as folder:
        works = [("pinned memory", pinned)]
        for rows in BATCH_ROWS:
            path = os.path.join(folder, f"{rows}.arrow")
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=rows)
            size = table.nbytes / table.num_rows * rows / 1e6
            works.append((f"read_ipc, batches of {size:.0f} MB", Reads(path)))
            works += [(f"  the same, {n} threads", Reads(path, n)) for n in options.threads]
        for name, work in works:
            of_processes = " ".join(f"{total(work, gpus, processes):7.1f}" for gpus in options.gpus)
            of_threads = " ".join(f"{total(work, gpus, threads):7.1f}" for gpus in options.gpus)
            print(f"{name:36} processes: {of_processes}   threads: {of_threads} GB/s", flush=True)


if __name__ == "__main__":
    main()
