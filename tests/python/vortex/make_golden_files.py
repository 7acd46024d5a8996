"""Writes the golden Vortex files. Run it with each version of vortex-data whose files must stay readable:
`PYTHONPATH=tests/python python tests/python/vortex/make_golden_files.py [--table]`."""

import sys
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import vortex.io as vio
import vortex_tables

FOLDER = Path(__file__).parent / "golden_files"
ROWS = 120

FOLDER.mkdir(exist_ok=True)
table = vortex_tables.table(ROWS)
# The IPC file has the types that were written, without dictionaries.
index = table.column_names.index("dictionary")
table = table.set_column(index, "dictionary", table["dictionary"].cast(pa.string()))
if "--table" in sys.argv:
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(FOLDER / "table.arrow", table.schema, options=options) as writer:
        writer.write_table(table)
name = f"{version('vortex-data')}"
vortex_tables.write(table, FOLDER / f"{name}.vortex")
vortex_tables.write(table, FOLDER / f"{name}-compact.vortex", "compact")
vio.VortexWriteOptions.default().with_edition("core2025.10.0").write(table, str(FOLDER / f"{name}-core2025.vortex"))
