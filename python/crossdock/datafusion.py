"""Scans as tables of DataFusion.

    import crossdock.datafusion, datafusion

    context = datafusion.SessionContext()
    context.register_table("flights", crossdock.datafusion.table(session.scan("flights.vortex")))
    context.sql("SELECT carrier, count(*) FROM flights WHERE distance > 500 GROUP BY carrier")

Needs the module `crossdock_datafusion`, which is compiled for one major version of DataFusion. Only the columns that a
query needs are read and, if the format allows it, only the rows that may fulfil its WHERE.
"""

from ._native import UsageError
from ._plugins import folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._native import Scan

# Arguments of `Session.scan` that apply to a table, and those without an effect on its rows.
_OF_TABLE = ("format", "storage_options")
_IGNORED = ("prefetch", "map")
_OF_QUERY = ("columns", "rows", "filter", "limit", "schema", "batch_rows", "fragment")


def table(scan: "Scan") -> "Any":
    """Returns an object for `datafusion.SessionContext.register_table`.

    scan: a scan of files, without arguments that select columns or rows. The files are read in a session of
    `crossdock_datafusion` with the settings of the scan's session.
    """
    import crossdock_datafusion  # type: ignore[import-untyped,import-not-found,unused-ignore]

    _, (settings, files, arguments) = scan.__reduce__()  # type: ignore[misc,unused-ignore]
    device, memory, plugins, _, threads = settings
    if given := [name for name in _OF_QUERY if arguments.get(name) is not None]:
        raise UsageError(f"a table for DataFusion has no {', '.join(given)}: state them in the query")
    known = (*_OF_TABLE, *_IGNORED, *_OF_QUERY)
    options = {name: value for name, value in arguments.items() if name not in known}
    return crossdock_datafusion.Table(
        files,
        plugins=[*(plugins or ()), *folders()],
        format=arguments.get("format"),
        device=device,
        memory=memory,
        threads=threads,
        options=_texts(options),
        storage_options=_texts(arguments.get("storage_options") or {}),
    )


def _texts(options: "dict[str, Any]") -> list[tuple[str, str]]:
    return [(name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in options.items()]
