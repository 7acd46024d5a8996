"""Writes `golden/VERSION.zip`, with the installed version of vortex-data: a few trees of each encoding as
bytes, and an Arrow IPC file with the values that Vortex decodes from each tree."""

import importlib.metadata
import io
import json
import sys
import zipfile
from pathlib import Path

import crossdock as cd
import pyarrow as pa
import trees

GOLDEN = Path(__file__).resolve().parent / "golden"
# Pairs (rows, count): for each encoding, the file has at most `count` arrays with this number of
# rows.
KEPT = ((37, 4), (1100, 1))
# A constant date makes the file reproducible.
DATE = (1980, 1, 1, 0, 0, 0)


def selected_arrays(kind):
    """Yields (name, array) of a few arrays of an encoding. The arrays come from all generators of the
    encoding."""
    for rows, most in KEPT:
        arrays = list(trees.arrays(kind, (rows,)))
        yield from arrays[:: max(1, -(-len(arrays) // most))]


def as_file(array):
    """Returns the values as an Arrow IPC file, with one batch for each chunk."""
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    sink = io.BytesIO()
    schema = pa.schema([pa.field("", array.type)])
    with pa.ipc.new_file(sink, schema) as writer:
        for chunk in chunks:
            writer.write_batch(pa.record_batch([chunk], schema=schema))
    return sink.getvalue()


def main():
    version = importlib.metadata.version("vortex-data")
    GOLDEN.mkdir(exist_ok=True)
    names, missing = [], {}
    with cd.Session() as session, zipfile.ZipFile(GOLDEN / f"{version}.zip", "w") as out:

        def add(name, data):
            out.writestr(zipfile.ZipInfo(name, DATE), data, zipfile.ZIP_DEFLATED, 9)

        for kind in trees.KINDS:
            try:
                for name, array in selected_arrays(kind):
                    values = as_file(array.to_arrow_array())
                    add(f"{len(names)}.cdenc", session.encoded(array).to_bytes())
                    add(f"{len(names)}.arrow", values)
                    names.append(name)
            except (AssertionError, RuntimeError, ValueError, OSError) as error:
                # This version of Vortex lacks the encoding, or chooses another representation.
                missing[kind] = str(error).splitlines()[0]
        add("names.json", json.dumps({"names": names, "lacks": missing}, indent=1))
    print(f"{version}: {len(names)} trees; missing: {missing}")


if __name__ == "__main__":
    sys.exit(main())
