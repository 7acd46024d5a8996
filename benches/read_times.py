"""Measures the reads of `vortex_files.py` and `parquet_files.py`."""

import statistics
import time

RUNS = 7


def timed(work):
    """The seconds of each run."""
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - begin)
        del result
    return times


def show(what, times, size=None):
    """Prints the first time and the median, and the rate of reading `size` bytes."""
    median = statistics.median(times)
    rate = f"{size / median / 1e9:6.1f} GB/s" if size else ""
    print(f"{what:28}first {times[0] * 1e3:7.1f} ms, median {median * 1e3:7.1f} ms {rate}", flush=True)
