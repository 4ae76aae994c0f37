"""Convert Spark columns of any type to text, and to a comparable form.

JSON loses nothing: whole numbers and floating-point numbers are numbers; decimals are strings,
because many readers would round them; times are RFC 3339 in UTC with microseconds; binary values
are base64; maps whose keys are not names are lists of `key` and `value`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def quoted(name: str) -> str:
    """Return a column's name as an expression has it."""
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    """Return a text as an expression has it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def text_sql(value: str) -> str:
    """Return SQL for a value as text, the same whether or not `spark.sql.ansi.enabled`.

    A cast writes the decimal 0.0000001 as 1E-7 without it (`ToStringBase.useDecimalPlainString`);
    `try_cast` always writes digits. Of times the text is the session's still: see `has_times`.
    """
    return f"try_cast({value} AS STRING)"


def has_times(data_type: DataType) -> bool:
    """Return True if the text of values depends on the session's time zone.

    In most of these an hour of the year is there twice, and two times have one text.
    """
    from pyspark.sql.types import TimestampType

    return _has(data_type, lambda one: isinstance(one, TimestampType))


def as_json(column: Column, data_type: DataType) -> Column:
    """Return a struct as JSON text."""
    from pyspark.sql import functions as F

    return F.to_json(_rewritten(column, data_type, _is_no_json, ordered=False), JSON_OPTIONS)


def comparable(column: Column, data_type: DataType) -> Column:
    """Return a value with what Spark cannot compare in another form.

    Maps are sorted entries. Variants are JSON and its types: in JSON a date is a text. Intervals
    of months, days and time are texts, which tell all three apart.
    """
    return _rewritten(column, data_type, _is_unordered, ordered=True)


def has_unordered(data_type: DataType) -> bool:
    """Return True if Spark can neither compare nor hash values."""
    return _has(data_type, _is_unordered)


def _is_unordered(data_type: DataType) -> bool:
    # Spark 3.5 has no variant. An interval here is one of months, days and microseconds.
    return data_type.typeName() in {"map", "variant", "interval"}


def _is_no_json(data_type: DataType) -> bool:
    """Return True if `to_json` would lose something."""
    from pyspark.sql.types import DecimalType, MapType, StringType

    if isinstance(data_type, MapType):
        return not isinstance(data_type.keyType, StringType)
    return isinstance(data_type, DecimalType)


def _rewritten(
    column: Column, data_type: DataType, wanted: Callable[[DataType], bool], *, ordered: bool
) -> Column:
    """Write maps as lists of entries, variants as JSON, others as text, wherever needed."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not _has(data_type, wanted):
        return column

    def inner(part: Column, part_type: DataType) -> Column:
        return _rewritten(part, part_type, wanted, ordered=ordered)

    if isinstance(data_type, StructType):
        fields = [inner(column[one.name], one.dataType).alias(one.name) for one in data_type]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(data_type, ArrayType):
        return F.transform(column, lambda one: inner(one, data_type.elementType))
    if isinstance(data_type, MapType):
        if not wanted(data_type):
            return F.transform_values(column, lambda _, one: inner(one, data_type.valueType))
        entries = F.transform(
            F.map_entries(column),
            lambda one: F.struct(
                inner(one["key"], data_type.keyType).alias("key"),
                inner(one["value"], data_type.valueType).alias("value"),
            ),
        )
        return F.array_sort(entries) if ordered else entries
    return _variant(column) if data_type.typeName() == "variant" else column.cast("string")


def _variant(column: Column) -> Column:
    from pyspark.sql import functions as F

    text, types = F.to_json(column, JSON_OPTIONS), F.schema_of_variant(column)
    return F.when(column.isNotNull(), F.struct(text.alias("json"), types.alias("types")))


def _has(data_type: DataType, wanted: Callable[[DataType], bool]) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    parts: Sequence[DataType] = ()
    if isinstance(data_type, StructType):
        parts = [one.dataType for one in data_type]
    elif isinstance(data_type, ArrayType):
        parts = [data_type.elementType]
    elif isinstance(data_type, MapType):
        parts = [data_type.keyType, data_type.valueType]
    return wanted(data_type) or any(_has(part, wanted) for part in parts)
