"""Columns of the windows of a loader."""

from ._native import ExportError, UsageError, table_of_columns, tensors_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ._fragments import Fragment
    from ._native import Column, Scan, Table


class Columns:
    """The columns that a loader reads, and what becomes of their nulls."""

    def __init__(self, scan: "Scan", names: "Sequence[str] | None", nulls: "Any") -> None:
        known = scan.schema.names
        self._names = _names(known, names)
        self._positions = {name: known.index(name) for name in self._names}
        self._nulls = _nulls(self._names, nulls)
        masks = [f"{name}_mask" for name in self._names if _is_mask(self._nulls[name])]
        if clash := [mask for mask in masks if mask in self._names]:
            raise UsageError(f"column {clash[0]!r} has the name of a mask: leave it out, or pass other nulls")
        self._types = [scan.schema[name].type for name in self._names]
        self._shapes: dict[str, str] = {}
        # The types are checked before anything is read.
        empty = scan.head(0)
        for name in self._names:
            ((tensor, _),) = tensors_of([empty], [(name, self._nulls[name])])
            try:
                tensor.__dlpack__()
            except ExportError as error:
                raise UsageError(f"column {name!r} of type {scan.schema[name].type} is no tensor: {error}") from error
        encoded = [name for name, kind in zip(self._names, self._types) if _is_dictionary(scan, name, kind)]
        # Those of the first row, so that they are the same for all ranks.
        first = scan.head(1) if encoded else empty
        self._dictionaries = {name: _first_dictionary(first, name) for name in encoded}

    def described(self) -> list[list[str]]:
        """The names, types and treatment of nulls."""
        return [[name, kind, repr(self._nulls[name])] for name, kind in zip(self._names, self._types)]

    def scan(self, fragment: "Fragment", rows: tuple[int, int] | None) -> "Scan":
        return fragment._scan_part(self._positions, rows)

    def count_rows(self, fragment: "Fragment") -> int:
        name = self._names[0]
        return sum(table.num_rows for table in fragment._scan_part({name: self._positions[name]}, None))

    def check_dictionaries(self, table: "Table", fragment: "Fragment") -> None:
        """Rejects keys that do not mean the same value as the same keys in other rows of the scan."""
        if table.num_rows == 0:
            return
        for name, expected in self._dictionaries.items():
            for found in _dictionaries(table, name):
                if expected is None or not found.equals(expected[: len(found)]):
                    raise UsageError(
                        f"column {name!r}: {fragment!r} has another dictionary than the first row of the scan, so that "
                        "equal keys would be different values: write the files with one dictionary, or leave the column out"
                    )

    def of_window(self, tables: "list[Table]", taken: "Any", where: str) -> "dict[str, Column]":
        """The columns of a window as tensors: the rows `taken`, or all rows if it is None."""
        try:
            tensors = tensors_of(tables, [(name, self._nulls[name]) for name in self._names])
        except UsageError as error:
            raise UsageError(f"{error} (row 0 is {where})") from error
        columns: dict[str, Column] = {}
        for name, (tensor, mask) in zip(self._names, tensors):
            self._check_shape(name, tensor, where)
            columns[name] = tensor
            if mask is not None:
                columns[f"{name}_mask"] = mask
        if taken is None:
            return columns
        rows = table_of_columns(list(columns.items())).take(taken)
        return dict(zip(columns, rows.columns))

    def _check_shape(self, name: str, tensor: "Column", where: str) -> None:
        """Rejects lists whose length differs from that of earlier windows."""
        shape = self._shapes.setdefault(name, tensor.type)
        if tensor.type != shape:
            raise UsageError(
                f"column {name!r}: the rows of a tensor have one length: from {where} on, they are {tensor.type}, and "
                f"before {shape}; pad the rows, or export the elements and the lengths separately"
            )


def _is_mask(nulls: "Any") -> bool:
    return isinstance(nulls, str) and nulls == "mask"


def _names(known: list[str], names: "Sequence[str] | None") -> list[str]:
    if isinstance(names, str):
        raise UsageError(f"columns={names!r}: expected a list of names")
    chosen = known if names is None else list(names)
    for name in chosen:
        if name not in known:
            raise UsageError(f"columns: the scan has no column {name!r}; it has {', '.join(map(repr, known))}")
        if known.count(name) > 1 or chosen.count(name) > 1:
            raise UsageError(f"columns: {name!r} occurs more than once, and a batch has one tensor of a name")
    if not chosen:
        raise UsageError("columns: expected at least one column")
    return chosen


def _nulls(names: list[str], nulls: "Any") -> "dict[str, Any]":
    if not isinstance(nulls, dict):
        return dict.fromkeys(names, nulls)
    if others := [name for name in nulls if name not in names]:
        raise UsageError(f"nulls: {others[0]!r} is not among the columns {', '.join(map(repr, names))}")
    return {name: nulls.get(name, "error") for name in names}


def _is_dictionary(scan: "Scan", name: str, printed: str) -> bool:
    # The printed type decides whether pyarrow is needed, and pyarrow's type the rest.
    if "dictionary" not in printed.lower():
        return False
    kind = _pyarrow(name).types
    found = scan.schema[name].to_pyarrow().type
    if kind.is_run_end_encoded(found):
        raise UsageError(
            f"column {name!r} of type {printed}: a dictionary within runs is not supported: leave it out, or expand it"
        )
    return bool(kind.is_dictionary(getattr(found, "storage_type", found)))


def _pyarrow(name: str) -> "Any":
    try:
        import pyarrow as pa  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        raise UsageError(
            f"column {name!r}: a column with a dictionary needs pyarrow: install it, or leave the column out"
        ) from error
    return pa


def _dictionaries(table: "Table", name: str) -> "list[Any]":
    """The dictionaries of the batches of a table, as arrays of pyarrow."""
    # The dictionary of a slice is complete. On a GPU, only it and a key are copied.
    slices = [batch[name].slice(0, 1).to_pyarrow() for batch in table.batches()]
    return [getattr(chunk, "storage", chunk).dictionary for part in slices for chunk in part.chunks]


def _first_dictionary(table: "Table", name: str) -> "Any":
    """The dictionary of the first row, as a copy that does not keep the rows; None if there is no row."""
    # The last one, because batches without rows may precede it.
    dictionaries = _dictionaries(table, name)[-1:]
    return _pyarrow(name).concat_arrays([*dictionaries, dictionaries[0][:0]]) if dictionaries else None
