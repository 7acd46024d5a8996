"""Measures reading Vortex files, next to the same table as an Arrow file and to vortex-data.

    PYTHONPATH=$(cargo xtask python --release) python benches/vortex_files.py TABLE.arrow [--device cuda:0] [--repeat 60]
        [--writer PLUGIN.so] [--chunk-rows 2097152 ...]

The table is repeated, and written by vortex-data and pyarrow. With the library of `plugins/vortex-writer`, it is also
written with chunks of several sizes. `random` instead of a file is a table of random values. Needs vortex-data; a device also
needs cupy. A device is compared with libcudf, which reads a Parquet file, if pylibcudf is installed."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import vortex
import vortex.io

from read_times import LINK_BYTES, libcudf, link, show, timed

import crossdock as cd

# The number of rows of the random table, if it is repeated once.
RANDOM_ROWS = 1_000_000
TWO_COLUMNS = {"flights": ["distance", "carrier"], "random": ["price", "word"]}


def random_table(rows):
    """Integers of three sizes, timestamps, prices with two decimals, floats, and 1,000 texts."""
    random = np.random.default_rng(1)
    words = np.array([f"word {i} of a text" for i in range(1000)], object)
    return pa.table(
        {
            "small": random.integers(0, 100, rows, np.int16),
            "medium": random.integers(0, 1 << 20, rows, np.int32),
            "large": random.integers(0, 1 << 40, rows, np.int64),
            "time": pa.array(1_700_000_000_000_000 + random.integers(0, 1 << 45, rows), pa.timestamp("us")),
            "price": np.round(random.random(rows) * 1000, 2),
            "noise": random.random(rows, np.float32),
            "word": pa.array(words).take(pa.array(random.integers(0, 1000, rows))),
        }
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="an Arrow IPC file of flights, or `random`")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeat", type=int, default=60, help="how often the table is repeated")
    parser.add_argument("--writer", help="the library of the plugin vortex-writer")
    parser.add_argument("--chunk-rows", nargs="*", default=[1 << 21], help="options of the plugin")
    parser.add_argument("--rounds", type=int, default=1, help="how often everything is measured")
    parser.add_argument("--columns", action="store_true", help="also measure each column")
    options = parser.parse_args()
    if options.table == "random":
        table = random_table(RANDOM_ROWS * options.repeat)
    else:
        with pa.ipc.open_file(options.table) as file:
            table = pa.concat_tables([file.read_all()] * options.repeat).combine_chunks()
    two = TWO_COLUMNS["random" if options.table == "random" else "flights"]
    session = cd.Session(options.device, plugins=[options.writer] if options.writer else [])
    peer = libcudf() if options.device != "cpu" else None

    def read(path, columns=None):
        result = session.read(path, columns=columns)
        session.synchronize()
        return result

    with tempfile.TemporaryDirectory() as folder:
        arrow, parquet = Path(folder, "table.arrow"), Path(folder, "table.parquet")
        with pa.ipc.new_file(arrow, table.schema) as writer:
            writer.write_table(table, max_chunksize=1 << 20)
        files = {"vortex-data's chunks": Path(folder, "default.vortex")}
        vortex.io.write(table, str(files["vortex-data's chunks"]))
        if options.writer:
            for rows in options.chunk_rows:
                files[f"chunks of {rows}"] = path = Path(folder, f"{rows}.vortex")
                with cd.Session(plugins=[options.writer]) as host:
                    host.write(table, path, chunk_rows=str(rows))
        if peer:
            pq.write_table(table, parquet, compression="snappy")
        print(f"{table.num_rows} rows, {table.nbytes / 1e9:.3f} GB in memory")
        for path in [arrow, *files.values()]:
            print(f"{path.name}: {path.stat().st_size / 1e9:.3f} GB")
        for _ in range(options.rounds):
            if options.device != "cpu":
                show("link, pinned memory", link(options.device), LINK_BYTES)
            show("Arrow file", timed(lambda: read(arrow)), arrow.stat().st_size)
            for name, path in files.items():
                print(name)
                show("  crossdock", timed(lambda path=path: read(path)), path.stat().st_size)
                show("  crossdock, 2 columns", timed(lambda path=path: read(path, two)))
                for column in table.column_names if options.columns else []:
                    show(f"    {column}", timed(lambda path=path, column=column: read(path, [column])))
                to_arrow = timed(lambda path=path: vortex.open(str(path)).to_arrow().read_all())
                show("  vortex-data to Arrow", to_arrow, path.stat().st_size)
            if peer:
                show("libcudf, Parquet", timed(lambda: peer(parquet)), parquet.stat().st_size)
                show("libcudf, 2 columns", timed(lambda: peer(parquet, two)))


if __name__ == "__main__":
    main()
