"""Converts the values of filters and of fill_null to literals."""

import datetime
import decimal
from typing import Any

from ._native import UsageError

_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_NUMPY_NS = _NS | {"D": 86_400 * 10**9, "W": 7 * 86_400 * 10**9, "h": 3_600 * 10**9, "m": 60 * 10**9}
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def literal(value: Any, argument: str) -> tuple[str, Any]:
    """Returns the kind of a literal and its value. The name of the argument appears in errors."""
    try:
        return _literal(value)
    except _WrongValue as error:
        raise UsageError(f"{argument}: {error}") from None


class _WrongValue(Exception):
    pass


def _literal(value: Any) -> tuple[str, Any]:
    module = type(value).__module__.partition(".")[0]
    if module == "numpy" and hasattr(value, "dtype"):
        return _numpy(value)
    if module == "pyarrow" and hasattr(value, "as_py"):
        return _pyarrow(value)
    match value:
        case bool():
            return "bool", value
        case int():
            return "decimal", str(value)
        case float():
            return "float", value
        case decimal.Decimal():
            return ("decimal", str(value)) if value.is_finite() else ("float", float(value))
        case str():
            return "text", str(value)
        case bytes() | bytearray() | memoryview():
            return "bytes", bytes(value)
        case datetime.datetime():
            return _timestamp(value)
        case datetime.date():
            return "date", value.toordinal() - _EPOCH
        case datetime.time() if value.tzinfo is None:
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return "time", seconds * 10**9 + value.microsecond * 1000
        case datetime.timedelta():
            return "duration", _ns(value)
    raise _wrong(value)


def _wrong(value: Any) -> _WrongValue:
    if value is None:
        return _WrongValue("None is no value of a comparison or of fill_null")
    return _WrongValue(
        "expected a bool, a number, a string, bytes, or a date or time without a time zone, or a datetime,"
        f" got {value!r} of type {type(value).__name__}"
    )


def _ns(delta: datetime.timedelta) -> int:
    # pandas.Timedelta has nanoseconds too.
    rest = getattr(delta, "nanoseconds", 0)
    return (delta.days * 86_400 + delta.seconds) * 10**9 + delta.microseconds * 1000 + rest


def _timestamp(value: datetime.datetime) -> tuple[str, Any]:
    has_zone = value.utcoffset() is not None
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC if has_zone else None)
    # pandas.Timestamp has nanoseconds too.
    rest = getattr(value, "nanosecond", 0)
    plain = datetime.datetime(
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, value.tzinfo,
        fold=value.fold,
    )  # fmt: skip
    return "timestamp", (_ns(plain - epoch) + rest, has_zone)


def _numpy(value: Any) -> tuple[str, Any]:
    if value.ndim != 0 or value.dtype.kind not in "Mm":
        item = value.item() if value.ndim == 0 else value
        if type(item).__module__.partition(".")[0] == "numpy":
            raise _wrong(value)
        return _literal(item)
    import numpy as np

    unit, count = np.datetime_data(value.dtype)
    if np.isnat(value):
        raise _wrong(None)
    if unit not in _NUMPY_NS:
        if value.dtype.kind == "M" and unit in ("Y", "M"):
            return _numpy(value.astype("datetime64[D]"))
        raise _wrong(value)
    ticks = int(value.astype(np.int64)) * count
    if value.dtype.kind == "m":
        return "duration", ticks * _NUMPY_NS[unit]
    return ("date", ticks) if unit == "D" else ("timestamp", (ticks * _NUMPY_NS[unit], False))


def _pyarrow(value: Any) -> tuple[str, Any]:
    kind = value.type
    if not value.is_valid:
        raise _wrong(None)
    # The values of these types may have more digits than Python's.
    match str(kind).partition("[")[0]:
        case "timestamp":
            return "timestamp", (value.value * _NS[kind.unit], kind.tz is not None)
        case "duration":
            return "duration", value.value * _NS[kind.unit]
        case "time32" | "time64":
            return "time", value.value * _NS[kind.unit]
    return _literal(value.as_py())
