"""Measures reading a Vortex file, next to the same table as an Arrow file and to vortex-data.

    PYTHONPATH=$(cargo xtask python --release) python benches/vortex_files.py TABLE.arrow [--device cuda:0] [--repeat 60]

The table is repeated, and written by vortex-data and pyarrow. Needs vortex-data; a device also needs cupy."""

import argparse
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import vortex
import vortex.io

from read_times import show, timed

import crossdock as cd

LINK_BYTES = 1 << 28


def write(table, folder):
    """Writes the table as a Vortex file and as an Arrow file."""
    to, arrow = folder / "table.vortex", folder / "table.arrow"
    vortex.io.write(table, str(to))
    with pa.ipc.new_file(arrow, table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 20)
    return to, arrow


def link(device):
    """Copies pinned memory to the device."""
    import cupy

    with cupy.cuda.Device(int(device.split(":")[1])):
        host, to = cupy.cuda.alloc_pinned_memory(LINK_BYTES), cupy.cuda.alloc(LINK_BYTES)
        return timed(lambda: cupy.cuda.runtime.memcpy(to.ptr, host.ptr, LINK_BYTES, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="an Arrow IPC file")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeat", type=int, default=60, help="how often the table is repeated")
    options = parser.parse_args()
    with pa.ipc.open_file(options.table) as file:
        table = pa.concat_tables([file.read_all()] * options.repeat).combine_chunks()
    session = cd.Session(options.device)

    def read(path, columns=None):
        result = session.read(path, columns=columns)
        session.synchronize()
        return result

    with tempfile.TemporaryDirectory() as folder:
        path, arrow = write(table, Path(folder))
        size = path.stat().st_size
        print(f"{table.num_rows} rows; Vortex {size / 1e9:.3f} GB, Arrow {arrow.stat().st_size / 1e9:.3f} GB")
        if options.device != "cpu":
            show("link, pinned memory", link(options.device), LINK_BYTES)
        show("Arrow file", timed(lambda: read(arrow)), arrow.stat().st_size)
        show("Vortex file", timed(lambda: read(path)), size)
        show("2 columns", timed(lambda: read(path, table.column_names[:2])))
        for name in table.column_names:
            show(f"  {name}", timed(lambda name=name: read(path, [name])))
        show("vortex-data to Arrow", timed(lambda: vortex.open(str(path)).to_arrow().read_all()), size)


if __name__ == "__main__":
    main()
