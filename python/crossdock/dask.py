"""Scans as collections of Dask.

    import crossdock.dask

    frame = crossdock.dask.from_scan(session.scan("data/*.arrow", columns=["id", "x"]))   # a Dask DataFrame
    tables = crossdock.dask.delayed_tables(session.scan("data/*.arrow"))                  # a list of delayed tables

Tables, columns and encoded arrays need no preparation: workers exchange their buffers without copies in Python.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._fragments import Fragment
    from ._native import Scan, Table


def delayed_tables(scan: "Scan") -> "list[Any]":
    """Returns a delayed `Table` for each fragment of a scan of files, in the order of the scan."""
    import dask  # type: ignore[import-untyped,import-not-found,unused-ignore]

    read = dask.delayed(_table, pure=True)
    return [read(fragment) for fragment in scan.fragments()]


def from_scan(scan: "Scan", **arguments: "Any") -> "Any":
    """Returns a Dask DataFrame with a partition for each fragment of a scan of files.

    arguments: of `pyarrow.Table.to_pandas`.
    """
    import dask.dataframe  # type: ignore[import-untyped,import-not-found,unused-ignore]

    meta = scan.head(0).to_pyarrow().to_pandas(**arguments)
    fragments = scan.fragments()
    if not fragments:
        return dask.dataframe.from_pandas(meta, npartitions=1)
    return dask.dataframe.from_map(_frame, fragments, meta=meta, **arguments)


def register_sizes(sizeof: "Any") -> None:
    """Tells Dask how many bytes tables, columns and encoded arrays have. Dask calls this function at its start."""
    from ._native import Column, Table

    sizeof.register((Table, Column))(lambda thing: thing.nbytes)


def _table(fragment: "Fragment") -> "Table":
    return fragment.scan().to_table()


def _frame(fragment: "Fragment", **arguments: "Any") -> "Any":
    return _table(fragment).to_pyarrow().to_pandas(**arguments)
