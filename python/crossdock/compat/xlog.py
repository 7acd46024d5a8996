"""The helpers of XLOG's Python module, with the same names, arguments and results.

>>> from crossdock.compat import xlog
>>> ids, prices = np.arange(3, dtype="uint32"), np.zeros(3)
>>> capsule = xlog.export_arrow_device([ids, prices], "cpu", names=["id", "price"], symbols=["id"])
>>> tensors, names, rows = xlog.import_arrow_device(capsule, "cpu")
>>> names, rows
(['id', 'price'], 3)

**One capsule.** Like XLOG, these functions exchange a table as one capsule `arrow_device_array`. The capsule
contains Arrow's `ArrowDeviceArray` with its event. Arrow's protocol passes the schema in a second capsule.
Here, the capsule also contains the schema, but only `import_arrow_device` reads it. For other libraries, use
`table(...)`, which implements all of Arrow's protocols. `import_arrow_device` also accepts a pair of capsules,
or an object that implements one of the protocols.

**Tensors** are capsules `dltensor`, as in XLOG. torch, CuPy and other libraries import them, and may write to
them. Tables are immutable, so the tensors are copies. With `max_version=(1, 0)` the capsules are versioned,
read-only and zero-copy.

`device` is N of "cuda:N", or None (or "cpu") for the cpu. The functions use one session for each device and
budget (`memory_mb`, in MiB).
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from .. import _native
from .._native import Column, Session, Table, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import disjoint_base

    _Device = int | str | None
    _Version = tuple[int, int] | None
else:

    def disjoint_base(cls: type) -> type:
        return cls


__all__ = ["SYMBOL", "Imported", "dlpack_roundtrip", "export_arrow_device", "import_arrow_device", "session", "table"]

SYMBOL = {"xlog.symbol": "true", "xlog.symbol_encoding": "u32"}
"""Metadata of a uint32 field whose values are symbols: indices into a table of XLOG."""

MEMORY_MB = 32768


@disjoint_base
class Imported(tuple[list[object], list[str], int]):
    """The tuple `(dlpack_tensors, names, num_rows)`, which also has the imported table as an attribute.

    >>> from crossdock.compat import xlog
    >>> xlog.import_arrow_device(table.select(["id"]), "cpu").table.column_names
    ['id']
    """

    table: Table
    """The table that was imported."""

    @property
    def symbols(self) -> list[str]:
        """Names of the columns whose values are symbols.

        >>> from crossdock.compat import xlog
        >>> table = xlog.table({"id": np.arange(3, dtype="uint32")}, "cpu", symbols=["id"])
        >>> xlog.import_arrow_device(table, "cpu").symbols
        ['id']
        """
        return _symbols_of(self.table)


def dlpack_roundtrip(
    obj: Any, device: _Device = 0, memory_mb: int = MEMORY_MB, *, max_version: _Version = None
) -> object:
    """Imports a tensor, or a DLPack capsule, as a column, and exports it as a DLPack capsule.

    >>> from crossdock.compat import xlog
    >>> session.from_dlpack(xlog.dlpack_roundtrip(np.arange(3), "cpu")).to_pylist()
    [0, 1, 2]
    """
    opened = session(device, memory_mb)
    return _capsule_of(opened.from_dlpack(_tensor(opened, obj)), max_version)


def export_arrow_device(
    columns: Sequence[Any] | Mapping[str, Any],
    device: _Device = 0,
    memory_mb: int = MEMORY_MB,
    *,
    names: Sequence[str] | None = None,
    symbols: Iterable[str] = (),
    num_rows: Any = None,
) -> object:
    """Exports tensors of equal length as one capsule `arrow_device_array`. Accepts the arguments of
    `table`. Arrow's struct has no counter, so the call waits for `num_rows`.

    >>> from crossdock.compat import xlog
    >>> capsule = xlog.export_arrow_device({"id": np.arange(3)}, "cpu")
    """
    opened = table(columns, device, memory_mb, names=names, symbols=symbols, num_rows=num_rows)
    return _native.xlog_capsule(opened)


def table(
    columns: Sequence[Any] | Mapping[str, Any],
    device: _Device = 0,
    memory_mb: int = MEMORY_MB,
    *,
    names: Sequence[str] | None = None,
    symbols: Iterable[str] = (),
    num_rows: Any = None,
) -> Table:
    """Imports tensors of equal length as a table, zero-copy if they are on the device. Booleans are converted
    to Arrow booleans, which have one bit each.

    columns: a list of tensors, or a dict of them by name.
    names: the names of the columns of a list; None: col_0, col_1, ...
    symbols: names of columns of symbols. They must be uint32, and get the metadata SYMBOL.
    num_rows: the number of rows on the device, a tensor of one integer, such as XLOG's row count; None: the
    length of the tensors. The number is read when the length of the table is first needed.

    >>> from crossdock.compat import xlog
    >>> xlog.table([np.arange(3), np.zeros(3)], "cpu").column_names
    ['col_0', 'col_1']
    """
    tensors = list(columns.values()) if hasattr(columns, "values") else list(columns)
    if not tensors:
        raise UsageError("columns: expected at least one, which determines the number of rows")
    if names is None:
        names = list(columns) if hasattr(columns, "keys") else [f"col_{i}" for i in range(len(tensors))]
    elif len(names) != len(tensors):
        raise UsageError(f"names: expected {len(tensors)}, one for each column, got {len(names)}")
    repeated = [name for i, name in enumerate(names) if name in names[:i]]
    if repeated:
        raise UsageError(f"names: {repeated[0]!r} is repeated")
    opened = session(device, memory_mb)
    imported = opened.from_dlpack(
        {name: _tensor(opened, tensor) for name, tensor in zip(names, tensors)},
        bools="bits",
        num_rows=None if num_rows is None else _tensor(opened, num_rows),
    )
    symbols = list(symbols)
    for name in symbols:
        kind = imported.schema[name].type
        if kind != "uint32":
            raise UsageError(f"symbols: column {name!r}: expected uint32, got {kind}")
    return _native.xlog_with_metadata(imported, {name: SYMBOL for name in symbols}) if symbols else imported


def import_arrow_device(
    device_array: Any, device: _Device = 0, memory_mb: int = MEMORY_MB, *, max_version: _Version = None
) -> Imported:
    """Imports a table, and returns `(dlpack_tensors, names, num_rows)`. Raises BufferError for a column with
    nulls, because tensors cannot represent nulls.

    device_array: a capsule of `export_arrow_device`, a pair of capsules (schema, array), or an object that
    implements an Arrow protocol.

    >>> from crossdock.compat import xlog
    >>> tensors, names, rows = xlog.import_arrow_device(table.select(["id"]), "cpu")
    >>> names, rows
    (['id'], 3)
    """
    table = _table(session(device, memory_mb), device_array)
    tensors = [_capsule_of(column, max_version) for column in table.columns]
    imported = Imported((tensors, table.column_names, table.num_rows))
    imported.table = table
    return imported


def _table(session: Session, source: Any) -> Table:
    schema = _native.xlog_schema(source)
    table: Table
    if schema is not None:
        table = session.from_capsules(schema, source, as_column=False)
    elif isinstance(source, tuple) and len(source) == 2:
        table = session.from_capsules(*source, as_column=False)
    elif type(source).__name__ == "PyCapsule":
        raise TypeError(
            "device_array: the capsule has no schema: pass (schema_capsule, array_capsule), or the object with "
            "__arrow_c_device_array__"
        )
    else:
        table = session.from_arrow(source, as_column=False)
    return table


def _tensor(session: Session, obj: Any) -> Any:
    """Returns an object that from_dlpack accepts: a tensor, a capsule or a column."""
    if hasattr(obj, "__dlpack__"):
        return obj
    if hasattr(obj, "to_dlpack"):
        return obj.to_dlpack()
    return session.from_cuda_array_interface(obj) if hasattr(obj, "__cuda_array_interface__") else obj


def _capsule_of(column: Column, max_version: _Version) -> object:
    if column.num_chunks > 1:
        column = column.combine_chunks()
    return column.__dlpack__(max_version=max_version)


def _symbols_of(table: Table) -> list[str]:
    fields = [table.schema[i] for i in range(table.num_columns)]
    return [field.name for field in fields if field.metadata.get("xlog.symbol") == "true"]


_lock = threading.Lock()
_sessions: dict[tuple[str, int], Session] = {}


def session(device: _Device = 0, memory_mb: int = MEMORY_MB) -> Session:
    """Returns the session that these functions use for a device and a budget.

    >>> from crossdock.compat import xlog
    >>> xlog.session("cpu").device
    'cpu'
    """
    if memory_mb <= 0:
        raise UsageError(f"memory_mb={memory_mb}: expected a number of MiB above 0")
    name = "cpu" if device is None else f"cuda:{device}" if isinstance(device, int) else device
    with _lock:
        opened = _sessions.get((name, memory_mb))
        if opened is None:
            opened = _sessions[name, memory_mb] = Session(name, memory=memory_mb << 20)
        return opened


def _forget_after_fork() -> None:
    # The driver's state is invalid after a fork, so the child opens new sessions.
    global _lock, _sessions
    _lock, _sessions = threading.Lock(), {}


os.register_at_fork(after_in_child=_forget_after_fork)
