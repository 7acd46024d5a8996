"""The values of columns as Python objects and as NumPy arrays."""

from itertools import chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import numpy as np

    from ._native import Column

_UNITS = {"s": "s", "ms": "ms", "us": "us", "ns": "ns"}


def values(column: "Column") -> "Iterator[Any]":
    """Returns the values, one chunk at a time."""
    chunks = (column.chunk(i) for i in range(column.num_chunks))
    return chain.from_iterable(chunk.to_pylist() for chunk in chunks)


def to_numpy(column: "Column") -> "np.ndarray[Any, Any]":
    """Implements Column.to_numpy."""
    import numpy as np

    kind, _, rest = column.type.partition("[")
    dtype = None
    if kind in ("timestamp", "duration"):
        unit = rest.rstrip("]").partition(",")[0]
        dtype = f"{'M' if kind == 'timestamp' else 'm'}8[{_UNITS[unit]}]"
    elif kind == "date32":
        dtype = "M8[D]"
    elif kind == "date64":
        dtype = "M8[ms]"
    if dtype is not None:
        numbers, mask = column.to("cpu").to_tensor(nulls="mask")
        array = np.asarray(numbers).astype("int64", copy=False).view(dtype)
        nulls = np.asarray(mask)
        if nulls.any():
            array = array.copy()
            array[nulls] = np.array("NaT", dtype)
        return array
    if kind in _NUMBERS and column.null_count == 0:
        return np.asarray(column.to("cpu"))
    return column.to_pyarrow().to_numpy()


_NUMBERS = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "halffloat", "float", "double")
)
