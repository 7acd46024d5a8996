"""Scans as tables of DataFusion.

>>> import crossdock.datafusion
>>> import datafusion
>>> context = datafusion.SessionContext()
>>> context.register_table("people", crossdock.datafusion.table(session.scan(folder / "people.arrow")))
>>> context.sql("SELECT name FROM people WHERE score > 2").to_pylist()
[{'name': 'cy'}]

Needs the module `crossdock_datafusion`, which is compiled for one major version of DataFusion. Only the columns that a
query needs are read and, if the format allows it, only the rows that may fulfil its WHERE.
"""

import os

from ._native import UsageError
from ._plugins import folders

__all__ = ["table"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._native import Scan

_OF_TABLE = ("format", "storage_options")
# Arguments of `Session.scan` that a table does not have, with their defaults.
_OTHERS = {
    **dict.fromkeys(("columns", "rows", "filter", "limit", "schema", "batch_rows", "fragment")),
    "prefetch": 2,
    "map": True,
}


def table(scan: "Scan") -> "Any":
    """Returns an object for `datafusion.SessionContext.register_table`.

    scan: a scan of files, without other arguments than the format, its options and `storage_options`. The files are read
    in a session of `crossdock_datafusion` with the device, memory, plugins and threads of the scan's session.

    >>> context = datafusion.SessionContext()
    >>> context.register_table("people", crossdock.datafusion.table(session.scan(folder / "people.arrow")))
    >>> context.table("people").count()
    3
    """
    _, (settings, files, arguments) = scan.__reduce__()  # type: ignore[misc,unused-ignore]
    device, memory, plugins, validate, threads = settings
    given = [name for name, default in _OTHERS.items() if arguments.get(name, default) != default]
    if given:
        raise UsageError(f"a table for DataFusion has no {', '.join(given)}: select columns and rows in the query")
    if validate is not None:
        raise UsageError(f"a table for DataFusion has no validate={validate!r}: scan in a session without it")
    import crossdock_datafusion  # type: ignore[import-untyped,import-not-found,unused-ignore]

    known = (*_OF_TABLE, *_OTHERS)
    options = {name: value for name, value in arguments.items() if name not in known}
    return crossdock_datafusion.Table(
        files,
        # A package may name a folder that does not exist.
        plugins=[*(plugins or ()), *filter(os.path.isdir, folders())],
        format=arguments.get("format"),
        device=device,
        memory=memory,
        threads=threads,
        options=_texts(options),
        storage_options=_texts(arguments.get("storage_options") or {}),
    )


def _texts(options: "dict[str, Any]") -> list[tuple[str, str]]:
    return [(name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in options.items()]
