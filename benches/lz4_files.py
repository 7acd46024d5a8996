"""Measures reading Arrow files with LZ4 to a device, next to the link and to nvCOMP.

    PYTHONPATH=$(cargo xtask python --release) python benches/lz4_files.py TABLE.arrow --device cuda:0 [--repeat 60]
        [--batch-rows 65536 1048576] [--nvcomp libnvcomp.so.6]

The table is repeated. Crossdock writes it without compression, with LZ4 and with Zstandard, and pyarrow writes it with
LZ4, whose blocks are linked. `text` instead of a file is a table of texts that LZ4 compresses about 3:1. nvCOMP
decompresses the same content in blocks of 64 KiB, which are on the device already. Needs cupy."""

import argparse
import random
import statistics
import tempfile
from pathlib import Path

import nvcomp_lz4
import pyarrow as pa
import pyarrow.ipc
from read_times import LINK_BYTES, link, show, timed

import crossdock as cd

TEXT_ROWS = 1 << 20


def text_table(rows):
    """Texts of words. Phrases repeat."""
    source = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(source.choices(letters, k=source.randint(3, 9))) for _ in range(2000)]
    phrases = [" ".join(source.choices(words, k=source.randint(3, 6))) for _ in range(500)]
    distinct = pa.array([" ".join(source.choices(phrases, k=3)) for _ in range(rows // 4)])
    return pa.table({"text": pa.concat_arrays([distinct] * 4)})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="an Arrow IPC file, or `text`")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--repeat", type=int, default=60, help="how often the table is repeated")
    parser.add_argument("--batch-rows", nargs="*", type=int, default=[1 << 16, 1 << 20])
    parser.add_argument("--nvcomp", default=nvcomp_lz4.find(), help="the library of nvCOMP")
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
        peer = nvcomp_lz4.Lz4(options.nvcomp, part)
        show("nvCOMP", timed(peer.decompress), part.nbytes)
        show("nvCOMP, and the copy", timed(peer.copy_and_decompress), part.nbytes)
        assert peer.is_right()
    else:
        print("skipped: nvCOMP is not installed")
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
