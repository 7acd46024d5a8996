"""Scans as datasets of pyarrow, which DuckDB queries by name.

>>> import crossdock.dataset
>>> import duckdb
>>> people = crossdock.dataset.Dataset(folder / "people.arrow")
>>> duckdb.sql("SELECT name FROM people WHERE score > 2").fetchall()
[('cy',)]

Only the columns that the query needs are read and, if the format allows it, only the rows that may fulfil its WHERE.
"""

import operator
import re

import pyarrow as pa  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pyarrow.dataset as ds  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pyarrow.fs  # type: ignore[import-untyped,import-not-found,unused-ignore]

from ._native import UsageError
from ._session import default_session

__all__ = ["Dataset"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from ._native import Session

_NOT_A_FILE = "/crossdock.dataset.Dataset is read only by its method scanner()"
# A comparison as pyarrow prints it. Other names and constants are not recognised.
_COMPARISON = re.compile(r'\((\w+) (==|!=|<=|>=|<|>) (-?[\d.]+|true|false|"[^"\\]*"|[\d-]+(?: [\d:.]+Z?)?)\)')
_COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Dataset(ds.FileSystemDataset):  # type: ignore[misc,unused-ignore]
    """A dataset of pyarrow that reads from `Session.scan`: only the columns that a query needs and, if the filter is
    a conjunction of comparisons with constants, only the rows that may fulfil it. pyarrow evaluates the whole filter.
    Batches on a GPU are copied to the host.

    Libraries that read datasets by `scanner()` can use it, such as DuckDB and Polars' `scan_pyarrow_dataset`.

    >>> dataset = crossdock.dataset.Dataset(folder / "people.arrow")
    >>> dataset.to_table(columns=["name"], filter=pa.compute.field("id") > 2).to_pylist()
    [{'name': 'cy'}]
    """

    def __init__(
        self, source: "Any", format: str | None = None, *, session: "Session | None" = None, **arguments: "Any"
    ) -> None:
        """source, format, arguments: as in `Session.scan`.

        session: None: the default session.
        """
        opened = session if session is not None else default_session()
        schema = opened.scan(source, format, **arguments).schema.to_pyarrow()
        # A library that reads in another way than by `scanner` gets an error with this text.
        form = ds.IpcFileFormat()
        fragment = form.make_fragment(_NOT_A_FILE, pa.fs.LocalFileSystem())
        super().__init__([fragment], schema, form, pa.fs.LocalFileSystem())
        self._scan = lambda **request: opened.scan(source, format, **{**arguments, **request})
        columns = arguments.get("columns") or [(name,) for name in schema.names]
        self._paths = dict(zip(schema.names, columns, strict=True))
        self._filter = list(arguments.get("filter") or [])
        self._has_limit = arguments.get("limit") is not None

    def scanner(self, columns: "Any" = None, filter: "Any" = None, **arguments: "Any") -> ds.Scanner:
        """As `pyarrow.dataset.Dataset.scanner`. `columns` is a list of names, a dict of expressions, or None.

        >>> crossdock.dataset.Dataset(folder / "people.arrow").scanner(["id"]).to_table().num_rows
        3
        """
        known = comparisons(filter, self.schema) if filter is not None else []
        needed = self._needed(columns, filter, known)
        request: dict[str, Any] = {}
        if needed is not None:
            request["columns"] = [self._paths[name] for name in needed]
        # A limit counts rows that fulfil the scan's own filter. Another filter would change them.
        if known and not self._has_limit:
            request["filter"] = [*self._filter, *((self._paths[name], *rest) for name, *rest in known)]
        if arguments.get("batch_size"):
            request["batch_rows"] = arguments["batch_size"]
        reader = pa.RecordBatchReader.from_stream(self._scan(**request))
        return ds.Scanner.from_batches(reader, columns=columns, filter=filter, **arguments)

    def _needed(self, columns: "Any", filter: "Any", known: "list[Any]") -> "list[str] | None":
        """The columns to read; None: all columns."""
        if columns is None or isinstance(columns, dict):
            return None
        needed = dict.fromkeys(columns)
        if filter is not None:
            names = [name for name, *_ in known] if known else _names_in(filter, self.schema)
            needed.update(dict.fromkeys(names))
        return [name for name in self.schema.names if name in needed]

    def _unsupported(self, *_: object, **__: object) -> "NoReturn":
        raise UsageError("crossdock.dataset.Dataset supports only reads: use scanner(), to_table() or to_batches()")

    get_fragments = replace_schema = filter = sort_by = join = join_asof = _unsupported


def comparisons(filter: "Any", schema: pa.Schema) -> "list[tuple[str, str, Any]]":
    """Returns the comparisons of a filter that is a conjunction of comparisons with constants; else []."""
    found: list[tuple[str, str, Any]] = []
    text = str(filter)
    expression, end = _parse(text, 0, schema, found)
    # The text is ambiguous, so the expression that was parsed is compared.
    return found if expression is not None and end == len(text) and expression.equals(filter) else []


def _parse(text: str, at: int, schema: pa.Schema, found: "list[tuple[str, str, Any]]") -> "tuple[Any, int]":
    """Parses an expression at a position, and returns it with the position of its end; None if it has another form."""
    if match := _COMPARISON.match(text, at):
        name, operator_, constant = match.groups()
        if schema.names.count(name) != 1:
            return None, at
        try:
            scalar = _constant(constant, schema.field(name).type)
            found.append((name, operator_, scalar.as_py()))
        except (pa.ArrowException, ValueError, OverflowError):
            return None, at
        return _COMPARE[operator_](pc.field(name), scalar), match.end()
    if not text.startswith("(", at):
        return None, at
    left, end = _parse(text, at + 1, schema, found)
    if left is None or not text.startswith(" and ", end):
        return None, at
    right, end = _parse(text, end + 5, schema, found)
    if right is None or not text.startswith(")", end):
        return None, at
    return left & right, end + 1


def _constant(text: str, data_type: pa.DataType) -> pa.Scalar:
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    return pa.scalar(text[1:-1] if text.startswith('"') else text).cast(data_type)


def _names_in(filter: "Any", schema: pa.Schema) -> list[str]:
    """The columns that a filter needs: those without which it cannot be evaluated."""

    def is_needed(i: int) -> bool:
        others = schema.remove(i)
        try:
            ds.Scanner.from_batches([], schema=others, filter=filter)
        except (pa.ArrowException, KeyError):
            return True
        return False

    return [name for i, name in enumerate(schema.names) if is_needed(i)]
