"""The helpers of XLOG's Python module, with its names, arguments and results.

    from crossdock.compat import xlog

    capsule = xlog.dlpack_roundtrip(tensor)
    capsule = xlog.export_arrow_device([ids, prices], names=["id", "price"], symbols=["id"])
    tensors, names, rows = xlog.import_arrow_device(capsule)

**One capsule.** XLOG gave and took a table as one capsule named `arrow_device_array`. So do these, and what is in it is Arrow's
own `ArrowDeviceArray`, with its event. Arrow's protocol is a pair: the schema goes beside the array. The capsule carries its
schema where only `import_arrow_device` looks for it; for everybody else there is `table(...)`, which speaks all of Arrow's
protocols itself, and `import_arrow_device` takes a pair, or any object that speaks them, as well.

**Tensors** are given as XLOG's were: capsules `dltensor`, which torch, cupy and others take and may write. Tables do not change,
so these are copies; `max_version=(1, 0)` gives versioned capsules, which are lent to be read only, without a copy.

`device` is N of "cuda:N", or None (or "cpu") for the cpu. The session of a device and a budget (`memory_mb`, in MiB) is kept, and is the
same for all calls.
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

    def disjoint_base(of: type) -> type:
        return of


__all__ = ["SYMBOL", "Imported", "dlpack_roundtrip", "export_arrow_device", "import_arrow_device", "session", "table"]

SYMBOL = {"xlog.symbol": "true", "xlog.symbol_encoding": "u32"}
"""The metadata of a field whose values are symbols: UInt32, numbers in a table of XLOG's."""

MEMORY_MB = 32768


@disjoint_base
class Imported(tuple[list[object], list[str], int]):
    """`(dlpack_tensors, names, num_rows)`, and what these do not tell."""

    table: Table
    """What the tensors were made of."""

    @property
    def symbols(self) -> list[str]:
        """Names of the columns whose values are symbols."""
        return _symbols_of(self.table)


def dlpack_roundtrip(
    obj: Any, device: _Device = 0, memory_mb: int = MEMORY_MB, *, max_version: _Version = None
) -> object:
    """A tensor through a column and back: a DLPack capsule that equals `obj`, a capsule or a tensor of any library."""
    kept = session(device, memory_mb)
    return _capsule_of(kept.from_dlpack(_tensor(kept, obj)), max_version)


def export_arrow_device(
    columns: Sequence[Any] | Mapping[str, Any],
    device: _Device = 0,
    memory_mb: int = MEMORY_MB,
    *,
    names: Sequence[str] | None = None,
    symbols: Iterable[str] = (),
) -> object:
    """Tensors of one length as one capsule `arrow_device_array`, in place where they lie on the device: see `table`."""
    return _native.xlog_capsule(table(columns, device, memory_mb, names=names, symbols=symbols))


def table(
    columns: Sequence[Any] | Mapping[str, Any],
    device: _Device = 0,
    memory_mb: int = MEMORY_MB,
    *,
    names: Sequence[str] | None = None,
    symbols: Iterable[str] = (),
) -> Table:
    """A table of tensors, whose names are a dict's keys or `names` (`col_0`, ... without any). Those of `symbols` are symbols:
    UInt32, with metadata that says so. Booleans become Arrow's, of one bit each."""
    tensors = list(columns.values()) if hasattr(columns, "values") else list(columns)
    if not tensors:
        raise UsageError("columns: there are none, and without one nobody knows how many rows there are")
    if names is None:
        names = list(columns) if hasattr(columns, "keys") else [f"col_{i}" for i in range(len(tensors))]
    elif len(names) != len(tensors):
        raise UsageError(f"names: {len(names)} for {len(tensors)} columns, expected one each")
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise UsageError(f"names: {twice[0]!r} is there twice")
    kept = session(device, memory_mb)
    made = kept.from_dlpack({name: _tensor(kept, tensor) for name, tensor in zip(names, tensors)}, bools="bits")
    symbols = list(symbols)
    for name in symbols:
        kind = made[name].type
        if kind != "UInt32":
            raise UsageError(f"symbols: {name!r} is a column of {kind}, and symbols are UInt32")
    return _native.xlog_with_metadata(made, {name: SYMBOL for name in symbols}) if symbols else made


def import_arrow_device(
    device_array: Any, device: _Device = 0, memory_mb: int = MEMORY_MB, *, max_version: _Version = None
) -> Imported:
    """`(dlpack_tensors, names, num_rows)` of what `export_arrow_device` gave, of a pair of capsules (schema, array), or of any
    object that speaks an Arrow protocol. Its `symbols` are the names of those columns whose fields say that they are. A column
    with nulls is a BufferError: a tensor has none."""
    found = _table(session(device, memory_mb), device_array)
    tensors = [_capsule_of(column, max_version) for column in found.columns]
    imported = Imported((tensors, found.column_names, found.num_rows))
    imported.table = found
    return imported


def _table(session: Session, given: Any) -> Table:
    schema = _native.xlog_schema(given)
    found: Table
    if schema is not None:
        found = session.from_capsules(schema, given, as_column=False)
    elif isinstance(given, tuple) and len(given) == 2:
        found = session.from_capsules(*given, as_column=False)
    elif type(given).__name__ == "PyCapsule":
        raise TypeError(
            "device_array: a capsule that tells no schema: give (schema_capsule, array_capsule), or the object whose "
            "__arrow_c_device_array__ gave them"
        )
    else:
        found = session.from_arrow(given, as_column=False)
    return found


def _tensor(session: Session, obj: Any) -> Any:
    """What of an object speaks DLPack; a capsule is one."""
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
    """The session behind these functions, of a device and a budget."""
    if memory_mb <= 0:
        raise UsageError(f"memory_mb={memory_mb}: expected MiB above 0")
    name = "cpu" if device is None else f"cuda:{device}" if isinstance(device, int) else device
    with _lock:
        kept = _sessions.get((name, memory_mb))
        if kept is None:
            kept = _sessions[name, memory_mb] = Session(name, memory=memory_mb << 20)
        return kept


def _forget_after_fork() -> None:
    # A driver's state does not survive a fork: the child opens its own.
    global _lock, _sessions
    _lock, _sessions = threading.Lock(), {}


os.register_at_fork(after_in_child=_forget_after_fork)
