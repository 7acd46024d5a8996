"""Scans for Polars.

>>> import crossdock.polars
>>> import polars
>>> frame = crossdock.polars.scan(folder / "people.arrow")
>>> frame.filter(polars.col("score") > 2).select("name").collect().item()
'cy'

Polars passes the columns, the rows and the predicate of a query to the scan, so that only these are read.
"""

import json
from datetime import date, datetime, timedelta, UTC

import polars
from polars.io.plugins import register_io_source

from ._session import default_session

__all__ = ["scan"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ._native import Session

_OPERATORS = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_MIRRORED = {"Eq": "Eq", "NotEq": "NotEq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_MICROSECONDS = {"Milliseconds": 1000, "Microseconds": 1}
_EPOCH = datetime(1970, 1, 1)


def scan(source: "Any", format: str | None = None, *, session: "Session | None" = None, **arguments: "Any") -> "Any":
    """Returns a LazyFrame that reads from `Session.scan`.

    Comparisons of the predicate that give the same result in Crossdock are passed to the scan; Polars evaluates the
    whole predicate on the rows that the scan returns. Batches on a GPU are copied to the host.

    source, format, arguments: as in `Session.scan`.
    session: None: the default session.

    >>> crossdock.polars.scan(folder / "people.arrow", columns=["id", "score"]).collect_schema().names()
    ['id', 'score']
    """
    opened = session if session is not None else default_session()
    whole = opened.scan(source, format, **arguments)
    schema = polars.DataFrame(whole.head(0)).schema
    # A tuple of one name is a column, also if the name contains dots.
    paths = dict(zip(schema, arguments.get("columns") or [(name,) for name in schema], strict=True))

    def read(
        with_columns: list[str] | None, predicate: "Any", n_rows: int | None, batch_size: int | None
    ) -> "Iterator[Any]":
        request = dict(arguments)
        if with_columns is not None:
            of_predicate = [] if predicate is None else predicate.meta.root_names()
            needed = dict.fromkeys([*with_columns, *of_predicate])
            request["columns"] = [paths[name] for name in needed]
        # A limit counts rows that fulfil the scan's own filter. Another filter would change them.
        if predicate is not None and n_rows is None and request.get("limit") is None:
            more = [(paths[name], operator, value) for name, operator, value in comparisons(predicate, schema)]
            request["filter"] = [*(request.get("filter") or []), *more] or None
        if batch_size is not None:
            request.setdefault("batch_rows", max(batch_size, 1))
        left = n_rows
        if left is not None and predicate is None:
            limit = request.get("limit")
            request["limit"] = left if limit is None else min(left, limit)
        for table in opened.scan(source, format, **request):
            frame = polars.DataFrame(table)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame if with_columns is None else frame.select(with_columns)
            if left == 0:
                return

    return register_io_source(read, schema=schema, explain_name="CROSSDOCK")


def comparisons(predicate: "Any", schema: "Any") -> "list[tuple[str, str, Any]]":
    """Returns comparisons that all rows fulfil for which the predicate is true.

    Other parts of the predicate are left out, and so are comparisons whose result differs in Polars: of floating-point
    numbers of 4 bytes, which Polars compares with a rounded value, and those that NaN fulfils in Polars.
    """
    return list(_conjunction(json.loads(predicate.meta.serialize(format="json")), schema))


def _conjunction(node: "Any", schema: "Any") -> "Iterator[tuple[str, str, Any]]":
    match node:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            yield from _conjunction(left, schema)
            yield from _conjunction(right, schema)
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": str(operator), "right": {"Literal": literal}}}:
            yield from _comparison(name, operator, literal, schema)
        case {"BinaryExpr": {"left": {"Literal": literal}, "op": str(operator), "right": {"Column": str(name)}}}:
            yield from _comparison(name, _MIRRORED.get(operator, ""), literal, schema)


def _comparison(name: str, operator: str, literal: "Any", schema: "Any") -> "Iterator[tuple[str, str, Any]]":
    dtype = schema.get(name)
    if dtype is None or operator not in _OPERATORS:
        return
    value: Any = None
    match literal:
        case {"Dyn": {"Int": int(number)}} if dtype.is_integer():
            value = number
        case {"Scalar": dict(scalar)} if dtype.is_integer():
            numbers = [number for kind, number in scalar.items() if kind.startswith(("Int", "UInt"))]
            value = numbers[0] if len(numbers) == 1 and isinstance(numbers[0], int) else None
        case {"Dyn": {"Float": float(number)}} | {"Scalar": {"Float64": float(number)}} if dtype == polars.Float64:
            # In Polars, NaN is equal to NaN, and greater than all other numbers.
            if operator in ("Eq", "Lt", "LtEq") and number == number:
                value = number
        case {"Scalar": {"String": str(text)}} if dtype == polars.String:
            value = text
        case {"Scalar": {"Boolean": bool(truth)}} if dtype == polars.Boolean and operator in ("Eq", "NotEq"):
            value = truth
        case {"Scalar": {"Date": int(days)}} if dtype == polars.Date:
            value = _EPOCH.date() + timedelta(days=days) if _fits(days * 86_400_000_000) else None
        case {"Scalar": {"Datetime": [int(time), str(unit), zone]}} if isinstance(dtype, polars.Datetime):
            value = _time(time, unit, zone) if (zone is None) == (dtype.time_zone is None) else None
    if value is not None:
        yield name, _OPERATORS[operator], value


def _time(time: int, unit: str, zone: "Any") -> "datetime | None":
    micros = time * _MICROSECONDS[unit] if unit in _MICROSECONDS else time // 1000 if time % 1000 == 0 else None
    if micros is None or not _fits(micros):
        return None
    moment = _EPOCH + timedelta(microseconds=micros)
    return moment if zone is None else moment.replace(tzinfo=UTC)


def _fits(micros: int) -> bool:
    """Whether a time is in the range of datetime, without a day at both ends."""
    return (date.min.toordinal() + 1) <= date(1970, 1, 1).toordinal() + micros // 86_400_000_000 < date.max.toordinal()
