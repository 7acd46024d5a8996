"""Parts of a scan that can be read independently."""

import io

from ._session import session_on, session_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ._native import Scan, Session, Table

# A property of the class has the name of the built-in type.
_Bytes = bytes


class Fragment:
    """A part of a scan that can be read independently of the others, also in another process.

    `Scan.fragments` lists fragments. A fragment can be pickled if its scan can be, or if the source of the scan can
    be. Reading raises an exception if the file has changed since then, or if another version of the plugin reads it.

    >>> (fragment,) = session.scan(folder / "people.arrow").fragments()
    >>> fragment.scan().to_table().num_rows
    3
    """

    __slots__ = ("_arguments", "_bytes", "_num_rows", "_session", "_settings", "_source", "_statistics")

    def __init__(
        self,
        session: "Session | None",
        settings: "tuple[Any, ...]",
        source: "Any",
        arguments: "Mapping[str, Any]",
        num_rows: int | None,
        size: int,
        statistics: "Table | _Bytes | None",
    ) -> None:
        """Fragments are created by `Scan.fragments`."""
        self._session = session
        self._settings = settings
        self._source = source
        self._arguments = dict(arguments)
        self._num_rows = num_rows
        self._bytes = size
        self._statistics = statistics

    @property
    def num_rows(self) -> int | None:
        """Number of rows, or None if it is not known before the fragment is read.

        >>> [part.num_rows for part in session.scan(folder / "people.arrow").fragments()]
        [3]
        """
        return self._num_rows

    @property
    def bytes(self) -> int:
        """Number of bytes to read for all columns; 0 if unknown. If the scan has rows, the number is that of the piece
        of the input in which the fragment's rows are.

        >>> sum(part.bytes for part in session.scan(folder / "people.arrow").fragments()) > 0
        True
        """
        return self._bytes

    @property
    def statistics(self) -> "Table | None":
        """Statistics in Arrow's statistics schema, on the cpu, or None. They describe all rows of the piece of the
        input in which the fragment's rows are.

        >>> [part.statistics for part in session.scan(folder / "people.arrow").fragments()]
        [None]
        """
        if isinstance(self._statistics, _Bytes):
            self._statistics = session_on("cpu").read_ipc(self._statistics)
        return self._statistics

    @property
    def token(self) -> _Bytes:
        """Names the rows of the fragment, for `Session.scan(file, fragment=token)`.

        >>> (fragment,) = session.scan(folder / "people.arrow").fragments()
        >>> session.scan(fragment.source, fragment=fragment.token).num_rows
        3
        """
        token: _Bytes = self._arguments["fragment"]
        return token

    @property
    def source(self) -> "Any":
        """The path of the file, or the source of the scan.

        >>> (fragment,) = session.scan(folder / "people.arrow").fragments()
        >>> fragment.source == str(folder / "people.arrow")
        True
        """
        return self._source

    def scan(self, session: "Session | None" = None) -> "Scan":
        """Describes the fragment's table, with the columns and the schema of the scan.

        session: None: the session of the scan; in another process, a session with the same settings.

        >>> (fragment,) = session.scan(folder / "people.arrow", columns=["id"]).fragments()
        >>> fragment.scan().schema.names
        ['id']
        """
        return self._opened(session).scan(self._source, **self._arguments)

    def _scan_part(self, columns: "Mapping[str, int]", rows: tuple[int, int] | None) -> "Scan":
        """Describes some columns, by their names and positions in the fragment, and some rows of the fragment."""
        arguments = {**self._arguments, "rows": rows}
        if arguments["columns"] is not None:
            arguments["columns"] = [arguments["columns"][position] for position in columns.values()]
        elif arguments["schema"] is None:
            arguments["columns"] = [(name,) for name in columns]
        # A schema has all columns, so the others are read too.
        return self._opened(None).scan(self._source, **arguments)

    def _opened(self, session: "Session | None") -> "Session":
        return session or self._session or session_with(*self._settings)

    def __reduce__(self) -> "tuple[Any, ...]":
        statistics = self._statistics
        if statistics is not None and not isinstance(statistics, _Bytes):
            buffer = io.BytesIO()
            statistics.write_ipc(buffer, form="stream")
            statistics = buffer.getvalue()
        state = (None, self._settings, self._source, self._arguments, self._num_rows, self._bytes, statistics)
        return (Fragment, state)

    def __repr__(self) -> str:
        rows = "unknown" if self._num_rows is None else self._num_rows
        return f"crossdock.Fragment({self._source!r}, rows: {rows}, bytes: {self._bytes})"
