"""Functions that build tables in a session."""

from ._native import Column, Session, Table, UsageError, concatenate, table_of_columns
from ._session import default_session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def table(data: "Any", *, session: "Session | None" = None) -> Table:
    """Builds a table.

    data: a dict from names to columns: columns of this package, Arrow arrays, tensors, or sequences of Python objects
    (need pyarrow). Or an object that Session.from_arrow imports as a table, such as a DataFrame of polars.
    session: the session of the table; None: the default session.

    >>> cd.table({"x": [1, None], "y": np.zeros(2)}).column_names
    ['x', 'y']
    """
    session = session or default_session()
    if hasattr(data, "keys") and not hasattr(data, "__arrow_c_stream__"):
        names = [*data.keys()]
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"table: expected a str as the name of a column, got {name!r}")
        return table_of_columns([(name, _column(session, name, data[name])) for name in names])
    if any(hasattr(data, f"__arrow_c_{kind}__") for kind in ("stream", "array", "device_stream", "device_array")):
        built: Table = session.from_arrow(data, as_column=False)
        return built
    raise TypeError(f"table: expected a dict of columns or an Arrow table, got {type(data).__name__}")


def _column(session: Session, name: str, values: "Any") -> Column:
    if isinstance(values, Column):
        return values
    if any(hasattr(values, f"__arrow_c_{kind}__") for kind in ("stream", "array", "device_stream", "device_array")):
        return session.from_arrow(values, as_column=True)
    if hasattr(values, "__dlpack__") or hasattr(values, "__cuda_array_interface__"):
        return session.from_dlpack(values)
    try:
        import pyarrow as pa  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        raise UsageError(
            f"column {name!r}: a {type(values).__name__} needs pyarrow: install it, or pass an array or a tensor"
        ) from error
    try:
        array = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise UsageError(f"column {name!r}: {error}") from error
    return session.from_arrow(array, as_column=True)


def read(source: "Any", format: "str | None" = None, *, session: "Session | None" = None, **options: "Any") -> Table:
    """Reads a table with the default session, or with another one. The other arguments are those of Session.read.

    >>> cd.read(folder / "people.arrow", columns=["id"]).num_rows
    3
    """
    return (session or default_session()).read(source, format, **options)


def concat(tables: "Sequence[Table]") -> Table:
    """Concatenates the rows of tables that have the same schema. Zero-copy.

    >>> cd.concat([table, table]).num_rows
    6
    """
    return concatenate(list(tables))
