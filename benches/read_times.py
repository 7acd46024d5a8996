"""Measures the reads of `vortex_files.py` and `parquet_files.py`."""

import statistics
import time

RUNS = 7
LINK_BYTES = 1 << 28


def libcudf():
    """A function that reads a Parquet file with libcudf. `None` if it is not installed."""
    try:
        import cupy
        import pylibcudf as plc
        import rmm
    except ImportError:
        return None
    rmm.reinitialize(pool_allocator=True, initial_pool_size=8 << 30)

    def read(path, columns=None):
        options = plc.io.parquet.ParquetReaderOptions.builder(plc.io.SourceInfo([str(path)])).build()
        if columns:
            options.set_column_names(columns)
        result = plc.io.parquet.read_parquet(options)
        cupy.cuda.Device().synchronize()
        return result

    return read


def link(device):
    """The seconds of copies of LINK_BYTES of pinned memory to a device. Needs cupy."""
    import cupy

    with cupy.cuda.Device(int(device.split(":")[1])):
        host, to = cupy.cuda.alloc_pinned_memory(LINK_BYTES), cupy.cuda.alloc(LINK_BYTES)
        return timed(lambda: cupy.cuda.runtime.memcpy(to.ptr, host.ptr, LINK_BYTES, 1))


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
