"""Scans as a data source of Spark 4.

>>> import crossdock.spark
>>> spark.dataSource.register(crossdock.spark.Source)
>>> spark.read.format("crossdock").load(str(folder / "people.arrow")).where("score > 2").count()
1

Options: `path`, `format` and `device` as in `Session.scan` and `Session`, `columns` (names, separated by commas), and options
of the format. Each fragment of the scan is a partition. Spark does not tell a data source in Python which columns a query
needs: state them with `columns`, or with `schema` of the reader. With the option `pushdown` ("true"), which needs the setting
`spark.sql.python.filterPushdown.enabled` and Spark 4.1, comparisons are also evaluated by the scan, which may then skip
fragments.
"""

import math

import pyarrow as pa  # type: ignore[import-untyped,import-not-found,unused-ignore]

from ._native import UnsupportedError, UsageError
from ._session import session_on

__all__ = ["Source"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from ._native import Scan

    Source: type[Any]

_OF_SOURCE = ("path", "format", "device", "columns", "pushdown")
_COMPARISONS = {
    "EqualTo": "==",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}


def __getattr__(name: str) -> "Any":
    # These classes are defined at their first use, because their base classes are Spark's.
    if name not in ("Source", "Reader", "FilteringReader"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark.sql import datasource  # type: ignore[import-untyped,import-not-found,unused-ignore]

    methods = {"Source": _Source, "Reader": _Reader, "FilteringReader": _FilteringReader}[name]
    base = datasource.DataSource if name == "Source" else datasource.DataSourceReader
    contents = {"__module__": __name__, "__doc__": methods.__doc__}
    globals()[name] = defined = type(name, (methods, base), contents)
    return defined


class _Source:
    """The data source "crossdock", for `spark.dataSource.register`. Spark calls its methods.

    >>> spark.dataSource.register(crossdock.spark.Source)
    >>> reader = spark.read.format("crossdock").option("columns", "id, score")
    >>> reader.load(str(folder / "people.arrow")).columns
    ['id', 'score']
    """

    options: "dict[str, str]"

    @classmethod
    def name(cls) -> str:
        return "crossdock"

    def schema(self) -> "Any":
        columns = self.options.get("columns")
        names = None if columns is None else [name.strip() for name in columns.split(",")]
        return _spark_schema(_scan(self.options, names).schema.to_pyarrow())

    def reader(self, schema: "Any") -> "Any":
        # Spark rejects a reader with `pushFilters` unless its setting is enabled.
        name = "FilteringReader" if self.options.get("pushdown", "").lower() == "true" else "Reader"
        reader = globals().get(name) or __getattr__(name)
        return reader(dict(self.options), schema)


class _Reader:
    """Reads the columns of a schema of Spark."""

    def __init__(self, options: dict[str, str], schema: "Any") -> None:
        self._options = options
        self._schema = schema
        self._filter: list[tuple[list[str], str, Any]] = []

    def partitions(self) -> "list[Any]":
        from pyspark.sql.datasource import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
            InputPartition,
        )

        scan = _scan(self._options, self._schema.names, self._filter)
        return [InputPartition(fragment) for fragment in scan.fragments()]

    def read(self, partition: "Any") -> "Iterator[pa.RecordBatch]":
        # Spark passes None if there is no fragment.
        if partition.value is None:
            return
        from pyspark.sql.pandas.types import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
            to_arrow_schema,
        )

        target = to_arrow_schema(self._schema, timezone="UTC")
        for table in partition.value.scan():
            for batch in table.to_pyarrow().to_batches():
                columns = zip(batch.schema.names, batch.columns, target, strict=True)
                arrays = [_cast(name, array, field) for name, array, field in columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=target)


class _FilteringReader(_Reader):
    """Also passes comparisons to the scan."""

    def pushFilters(self, filters: "list[Any]") -> "Iterable[Any]":
        """Passes the comparisons whose result is the same in Spark. Spark evaluates all filters again."""
        self._filter = [known for known in map(self._comparison, filters) if known is not None]
        return filters

    def _comparison(self, filter: "Any") -> "tuple[list[str], str, Any] | None":
        operator = _COMPARISONS.get(type(filter).__name__)
        value = getattr(filter, "value", None)
        if operator is None or not isinstance(value, (bool, int, float, str)):
            return None
        # NaN is greater than all other numbers and equals itself in Spark.
        if isinstance(value, float) and math.isnan(value):
            return None
        if operator.startswith(">") and _has_nan(self._schema, filter.attribute):
            return None
        return list(filter.attribute), operator, value


def _scan(options: "Any", columns: "list[str] | None", filter: "list[Any] | None" = None) -> "Scan":
    path = options.get("path")
    if not path:
        raise UsageError("the data source crossdock needs a path: use load(path), or the option path")
    of_format = {name: value for name, value in options.items() if name not in _OF_SOURCE}
    paths = None if columns is None else [(name,) for name in columns]
    session = session_on(options.get("device") or "cpu")
    return session.scan(path, options.get("format"), columns=paths, filter=filter or None, **of_format)


def _has_nan(schema: "Any", path: tuple[str, ...]) -> bool:
    """Whether a column may contain NaN, or is not known."""
    kind = schema
    for name in path:
        if name not in getattr(kind, "names", ()):
            return True
        kind = kind[name].dataType
    return bool(kind.typeName() in ("float", "double"))


def _spark_schema(schema: pa.Schema) -> "Any":
    from pyspark.sql.pandas.types import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        from_arrow_type,
    )
    from pyspark.sql.types import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        StructField,
        StructType,
    )

    fields = []
    for field in schema:
        try:
            kind = from_arrow_type(_supported(field.type))
        except Exception as error:
            raise UnsupportedError(
                f"column {field.name!r} has the type {field.type}, which Spark lacks: leave it out with the option columns"
            ) from error
        fields.append(StructField(field.name, kind, field.nullable))
    return StructType(fields)


def _supported(kind: pa.DataType) -> pa.DataType:
    """The type of Arrow that Spark has for the values of a type."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _supported(kind.value_type)
    if pa.types.is_uint64(kind):
        return pa.decimal128(20)
    if pa.types.is_unsigned_integer(kind):
        return pa.int16() if kind.bit_width == 8 else pa.int32() if kind.bit_width == 16 else pa.int64()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        item = kind.item_field
        return pa.map_(_supported(kind.key_type), item.with_type(_supported(item.type)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_supported(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_supported(field.type)) for field in kind])
    return kind


def _cast(name: str, array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        # For example nanoseconds that microseconds do not represent.
        raise UnsupportedError(
            f"column {name!r} cannot be converted to {field.type}, as Spark needs: {error}"
        ) from error
