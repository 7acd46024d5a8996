"""Keeps what a wheel makes: `make_golden.py`, run by a Python that has some version of vortex-data and the package beside it,
writes `golden/VERSION.zip`: a few trees of each kind as bytes, and Arrow's file of what Vortex itself makes of each."""

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
# Rows, and how many arrays of so many are kept of each kind.
KEPT = ((37, 4), (1100, 1))
# The same bytes each time.
DATE = (1980, 1, 1, 0, 0, 0)


def some(kind):
    """(name, array) of a few arrays of a kind, spread over its makers."""
    for rows, most in KEPT:
        made = list(trees.arrays(kind, (rows,)))
        yield from made[:: max(1, -(-len(made) // most))]


def as_file(array):
    """The values as a file of Arrow's, in batches as Vortex has them."""
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
    names, lacks = [], {}
    with cd.Session() as session, zipfile.ZipFile(GOLDEN / f"{version}.zip", "w") as out:

        def keep(name, data):
            out.writestr(zipfile.ZipInfo(name, DATE), data, zipfile.ZIP_DEFLATED, 9)

        for kind in trees.KINDS:
            try:
                for name, array in some(kind):
                    values = as_file(array.to_arrow_array())
                    keep(f"{len(names)}.cdenc", session.encoded(array).to_bytes())
                    keep(f"{len(names)}.arrow", values)
                    names.append(name)
            except (AssertionError, RuntimeError, ValueError, OSError) as error:
                # Of what this version lacks, or has otherwise than the others.
                lacks[kind] = str(error).splitlines()[0]
        keep("names.json", json.dumps({"names": names, "lacks": lacks}, indent=1))
    print(f"{version}: {len(names)} trees; not made: {lacks}")


if __name__ == "__main__":
    sys.exit(main())
