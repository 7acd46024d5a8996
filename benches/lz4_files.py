"""Measures reading Arrow files with LZ4 to a device, next to the link and to nvCOMP.

    PYTHONPATH=$(cargo xtask python --release) python benches/lz4_files.py TABLE.arrow --device cuda:0 [--repeat 60]
        [--batch-rows 65536 1048576] [--nvcomp libnvcomp.so.5]

The table is repeated. Crossdock writes it without compression, with LZ4 and with Zstandard, and pyarrow writes it with
LZ4, whose blocks are linked. `text` instead of a file is a table of texts that LZ4 compresses about 3:1. nvCOMP
decompresses the same content in blocks of 64 KiB, which are on the device already. Needs cupy."""

import argparse
import ctypes
import random
import statistics
import tempfile
from pathlib import Path

import cupy
import numpy as np
import pyarrow as pa
import pyarrow.ipc

from read_times import LINK_BYTES, RUNS, link, show, timed

import crossdock as cd

BLOCK_BYTES = 1 << 16
TEXT_ROWS = 1 << 20


def text_table(rows):
    """Texts of words. Phrases repeat."""
    source = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(source.choices(letters, k=source.randint(3, 9))) for _ in range(2000)]
    phrases = [" ".join(source.choices(words, k=source.randint(3, 6))) for _ in range(500)]
    distinct = pa.array([" ".join(source.choices(phrases, k=3)) for _ in range(rows // 4)])
    return pa.table({"text": pa.concat_arrays([distinct] * 4)})


class Options(ctypes.Structure):
    """nvcompBatchedLZ4DecompressOpts_t, with the default options."""

    _fields_ = [("values", ctypes.c_int * 4), ("reserved", ctypes.c_char * 48)]


def nvcomp(library, table):
    """Returns the milliseconds that nvCOMP takes to decompress the buffers of the table, the bytes, and the compressed
    bytes. All blocks are decompressed with one call."""
    codec = pa.Codec("lz4_raw")
    content = [memoryview(b) for column in table.itercolumns() for c in column.chunks for b in c.buffers() if b]
    blocks = [buffer[i : i + BLOCK_BYTES] for buffer in content for i in range(0, len(buffer), BLOCK_BYTES)]
    stored = [bytes(codec.compress(block)) for block in blocks]
    lengths, sizes = np.array([len(b) for b in stored], "u8"), np.array([len(b) for b in blocks], "u8")
    source = cupy.asarray(np.frombuffer(b"".join(stored), "u1"))
    target = cupy.zeros(int(sizes.sum()), "u1")
    starts = cupy.asarray(np.cumsum(lengths) - lengths + source.data.ptr)
    targets = cupy.asarray(np.cumsum(sizes) - sizes + target.data.ptr)
    lengths, sizes = cupy.asarray(lengths), cupy.asarray(sizes)
    actual, status = cupy.zeros_like(sizes), cupy.zeros(len(blocks), "i4")
    library = ctypes.CDLL(library)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    temporary = size()
    needed = library.nvcompBatchedLZ4DecompressGetTempSizeAsync
    needed.argtypes = [size, size, Options, pointer, size]
    assert needed(len(blocks), BLOCK_BYTES, Options(), ctypes.addressof(temporary), target.size) == 0
    scratch = cupy.zeros(max(1, temporary.value), "u1")
    run = library.nvcompBatchedLZ4DecompressAsync
    run.argtypes = [pointer, pointer, pointer, pointer, size, pointer, size, pointer, Options, pointer, pointer]
    arrays = [array.data.ptr for array in (starts, lengths, sizes, actual)]
    times = []
    for _ in range(RUNS):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        outputs = [scratch.data.ptr, temporary.value, targets.data.ptr, Options(), status.data.ptr, None]
        code = run(*arrays, len(blocks), *outputs)
        end.record()
        end.synchronize()
        assert code == 0 and not status.any()
        times.append(cupy.cuda.get_elapsed_time(begin, end))
    return statistics.median(times), target.size, source.size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="an Arrow IPC file, or `text`")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--repeat", type=int, default=60, help="how often the table is repeated")
    parser.add_argument("--batch-rows", nargs="*", type=int, default=[1 << 16, 1 << 20])
    parser.add_argument("--nvcomp", help="the library of nvCOMP")
    options = parser.parse_args()
    if options.table == "text":
        table = pa.concat_tables([text_table(TEXT_ROWS)] * options.repeat)
    else:
        with pa.ipc.open_file(options.table) as file:
            table = pa.concat_tables([file.read_all()] * options.repeat)
    table = table.combine_chunks()
    session = cd.Session(options.device)

    def read(path):
        result = session.read(path)
        session.synchronize()
        return result

    print(f"{table.num_rows} rows, {table.nbytes / 1e9:.3f} GB in memory")
    seconds = statistics.median(link(options.device))
    show("link, pinned memory", [seconds], LINK_BYTES)
    if options.nvcomp:
        part = table.slice(0, 1 << 22).combine_chunks()
        part = pa.table({name: pa.concat_arrays([part[name].chunk(0)]) for name in part.column_names})
        ms, size, stored = nvcomp(options.nvcomp, part)
        copy = stored / (LINK_BYTES / seconds) * 1e3
        print(f"nvCOMP: {size / ms / 1e6:.1f} GB/s; with the copy over the link, {size / (ms + copy) / 1e6:.1f} GB/s")
    with tempfile.TemporaryDirectory() as folder:
        for rows in options.batch_rows:
            batches = pa.Table.from_batches(table.to_batches(max_chunksize=rows))
            print(f"batches of {rows} rows")
            for codec in ("none", "lz4", "zstd", "pyarrow's lz4"):
                path = Path(folder, "table.arrow")
                if codec.startswith("pyarrow"):
                    written = pa.ipc.IpcWriteOptions(compression="lz4")
                    with pa.ipc.new_file(path, batches.schema, options=written) as writer:
                        writer.write_table(batches)
                else:
                    cd.Session().from_arrow(batches).write_ipc(path, compression=codec)
                times = timed(lambda path=path: read(path))
                show(f"  {codec}, {path.stat().st_size / 1e9:.3f} GB", times, table.nbytes)
                assert read(path).num_rows == table.num_rows


if __name__ == "__main__":
    main()
