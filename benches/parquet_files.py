"""Measures reading Parquet files, next to pyarrow and, where it is installed, libcudf (pylibcudf).

    PYTHONPATH=$(cargo xtask python --release) python benches/parquet_files.py TABLE.arrow PLUGIN.so [--device cuda:0] [--repeat 60]

The table is repeated, and written by pyarrow with several codecs. The plugin is the library of `plugins/parquet`."""

import argparse
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from read_times import libcudf, show, timed

import crossdock as cd

CODECS = ["snappy", "zstd", "none"]
COLUMNS = ["distance", "carrier"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="an Arrow IPC file")
    parser.add_argument("plugin", help="the library of the plugin parquet")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeat", type=int, default=60, help="how often the table is repeated")
    parser.add_argument("--check", action="store_true", help="compare the values with pyarrow's")
    options = parser.parse_args()
    with pa.ipc.open_file(options.table) as file:
        table = pa.concat_tables([file.read_all()] * options.repeat).combine_chunks()
    session = cd.Session(options.device, plugins=[options.plugin])
    peer = libcudf() if options.device != "cpu" else None

    def read(path, columns=None):
        result = session.read(path, columns=columns)
        session.synchronize()
        return result

    with tempfile.TemporaryDirectory() as folder:
        for codec in CODECS:
            path = Path(folder) / f"{codec}.parquet"
            pq.write_table(table, path, compression=codec)
            size = path.stat().st_size
            print(f"{codec}: {table.num_rows} rows, {size / 1e9:.3f} GB, decoded {table.nbytes / 1e9:.3f} GB")
            if options.check:
                got, expected = pa.table(read(path).to("cpu")), pq.read_table(path)
                for name in expected.column_names:
                    a, b = got[name], expected[name]
                    if pa.types.is_dictionary(b.type):
                        a, b = a.cast(b.type.value_type), b.cast(b.type.value_type)
                    a, b = a.combine_chunks(), b.combine_chunks()
                    assert a.equals(b) or a.is_null().equals(b.is_null()) and a.to_pandas().equals(b.to_pandas()), name
                print("  equal to pyarrow")
                del got, expected, a, b
            show("  crossdock", timed(lambda path=path: read(path)), size)
            show("  crossdock, 2 columns", timed(lambda path=path: read(path, COLUMNS)))
            if peer:
                show("  libcudf", timed(lambda path=path: peer(path)), size)
                show("  libcudf, 2 columns", timed(lambda path=path: peer(path, COLUMNS)))
            show("  pyarrow", timed(lambda path=path: pq.read_table(path)), size)


if __name__ == "__main__":
    main()
