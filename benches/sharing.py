"""Measures passing a table on a GPU to another process, next to copies by the driver.

    PYTHONPATH=$(cargo xtask python --release) python benches/sharing.py TABLE.arrow [--repeat 60]

The table is repeated. The other process opens it on each GPU, up to two. The limits are copies of the same number of
bytes by cuMemcpyDtoD and cuMemcpyPeer in the same run."""

import argparse
import ctypes
import multiprocessing
import statistics
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.ipc

import crossdock as cd
import crossdock.multiprocessing

RUNS = 12
# The first runs allocate memory.
SKIPPED = 2

OPENER = """
import sys, time
import crossdock as cd

session = cd.Session(sys.argv[1])
print(session.device, flush=True)
while line := sys.stdin.readline().strip():
    table = session.open_shared(bytes.fromhex(line))
    session.synchronize()
    print(time.clock_gettime_ns(time.CLOCK_MONOTONIC), flush=True)
    del table
"""


class Driver:
    """Calls of the CUDA driver."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        count = ctypes.c_int()
        self("cuDeviceGetCount", ctypes.byref(count))
        self.contexts = []
        for device in range(min(count.value, 2)):
            context = ctypes.c_void_p()
            self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self.contexts.append(context)
        if len(self.contexts) == 2:
            for context, other in (self.contexts, self.contexts[::-1]):
                self("cuCtxSetCurrent", context)
                self.library.cuCtxEnablePeerAccess(other, 0)

    def __call__(self, name, *arguments):
        if code := getattr(self.library, name)(*arguments):
            raise RuntimeError(f"{name} returned {code}")

    def copy_ms(self, nbytes, to):
        """The milliseconds of a copy from GPU 0 to a GPU."""
        size, addresses = ctypes.c_size_t(nbytes), []
        for device in (0, to):
            address = ctypes.c_uint64()
            self("cuCtxSetCurrent", self.contexts[device])
            self("cuMemAlloc_v2", ctypes.byref(address), size)
            addresses.append(address)
        source, target = addresses
        self("cuCtxSetCurrent", self.contexts[0])

        def copy():
            if to == 0:
                self("cuMemcpyDtoD_v2", target, source, size)
            else:
                self("cuMemcpyPeer", target, self.contexts[to], source, self.contexts[0], size)
            self("cuCtxSynchronize")

        copy()
        result = statistics.median(timed(copy) for _ in range(RUNS))
        for device, address in zip((0, to), addresses, strict=True):
            self("cuCtxSetCurrent", self.contexts[device])
            self("cuMemFree_v2", address)
        return result


def timed(work):
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1e3


def opened_ms(table, device):
    """The milliseconds from the call of `share` until the other process can use the table, for each run."""
    process = subprocess.Popen(
        [sys.executable, "-c", OPENER, device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    times = []
    for _ in range(RUNS):
        begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        with table.share() as shared:
            process.stdin.write(shared.description.hex() + "\n")
            process.stdin.flush()
            times.append((int(process.stdout.readline()) - begin) / 1e6)
    process.communicate("\n")
    return times


class ThroughHost:
    """A table that is pickled as the module pickle does."""

    def __init__(self, table):
        self.table = table

    def __reduce__(self):
        return self.table.__reduce_ex__(4)


def receive(tasks, results):
    """Runs in another process."""
    results.put("ready")
    while (table := tasks.get()) is not None:
        results.put(table.num_rows)
        del table


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table")
    parser.add_argument("--repeat", type=int, default=60)
    arguments = parser.parse_args()
    with pa.ipc.open_file(arguments.table) as reader:
        arrow = pa.concat_tables([reader.read_all()] * arguments.repeat).combine_chunks()
    driver, session = Driver(), cd.Session("cuda:0")
    table = session.from_arrow(arrow).to("cuda:0")
    print(f"{arrow.nbytes / 1e9:.3f} GB, {arrow.num_columns} columns")
    for device in range(len(driver.contexts)):
        times, limit = opened_ms(table, f"cuda:{device}"), driver.copy_ms(arrow.nbytes, device)
        median = statistics.median(times[SKIPPED:])
        print(
            f"opened on cuda:{device}: first {times[0]:.2f} ms, median {median:.2f} ms; copy by the driver {limit:.2f} ms"
        )
    context = multiprocessing.get_context("spawn")
    tasks, results = context.Queue(), context.Queue()
    process = context.Process(target=receive, args=(tasks, results))
    process.start()
    results.get()
    for name, sent in (("device", table), ("host", ThroughHost(table))):
        times = [timed(lambda: (tasks.put(sent), results.get())) for _ in range(5)]  # noqa: B023
        print(f"queue of multiprocessing through the {name}: {statistics.median(times):.1f} ms")
    tasks.put(None)
    process.join()


if __name__ == "__main__":
    main()
