"""State rows as text: JSON in which nothing is lost, and choosing rows by what they hold.

A row is one JSON object. Whole numbers and floating-point numbers are numbers; decimals are
strings, since many readers would round them; times are RFC 3339 in UTC with microseconds; binary
values are base64; maps whose keys are not names are lists of `key` and `value`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from savepoints.errors import IncompatibleError, TargetExistsError, UsageError
from savepoints.io import Uri
from savepoints.state import typed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def json_lines(frame: DataFrame, limit: int) -> list[str]:
    """Return the first rows of a frame as JSON objects, one a line.

    Raises:
        UsageError: If an expression in the frame fails on a row.
        IncompatibleError: If Spark cannot read the state.
    """
    from pyspark.sql import functions as F

    row = F.struct(*(F.col(f"`{name}`") for name in frame.columns))
    lines = frame.select(as_json(row, frame.schema).alias("line")).limit(limit)
    with _failures():
        return [line for (line,) in lines.collect()]


def as_json(column: Column, data_type: DataType) -> Column:
    """Return a struct as JSON text."""
    from pyspark.sql import functions as F

    return F.to_json(_rewritten(column, data_type, _is_no_json, ordered=False), _JSON_OPTIONS)


def comparable(column: Column, data_type: DataType) -> Column:
    """Return a value with its maps as sorted lists of entries, since Spark compares no maps."""
    return _rewritten(column, data_type, _is_map, ordered=True)


def write_parquet(frame: DataFrame, target: Uri) -> int:
    """Write a frame as Parquet and return the number of rows.

    Raises:
        TargetExistsError: If there is anything.
        UsageError: If an expression in the frame fails on a row.
        IncompatibleError: If Spark cannot read the state.
    """
    from pyspark.errors import AnalysisException

    with _failures():
        try:
            frame.write.mode("error").parquet(target.hadoop)
        except AnalysisException as error:
            if error.getCondition() != "PATH_ALREADY_EXISTS":
                raise
            raise taken(target) from None
        return frame.sparkSession.read.parquet(target.hadoop).count()


def taken(target: Uri) -> TargetExistsError:
    """Say that there is something already."""
    return TargetExistsError(
        f"{target} exists already",
        hint="give --to another path; nothing is ever overwritten",
        target=str(target),
    )


def columns(frame: DataFrame) -> list[str]:
    """Name the columns that rows have when their structs are spread out: `key.window.start`."""
    return [".".join(path) for path, _ in _leaves(frame.schema)]


def with_key(frame: DataFrame, wanted: Mapping[str, str]) -> DataFrame:
    """Choose the rows whose key has these values, which are read as the fields' types.

    Raises:
        UsageError: If the key has no such field, or the value cannot be of its type.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    key_type = frame.schema["key"].dataType if "key" in frame.columns else StructType()
    assert isinstance(key_type, StructType)
    fields = {".".join(path): (path, leaf_type) for path, leaf_type in _leaves(key_type)}
    for name, text in wanted.items():
        if name not in fields:
            raise UsageError(
                f"the key has no field {name!r}",
                hint=f"it has: {', '.join(fields)}" if fields else "this state has no key at all",
            )
        path, leaf_type = fields[name]
        literal = _literal(frame, name, text, leaf_type)
        column = F.col("key")
        for part in path:
            column = column[part]
        frame = frame.where(column == literal)
    return frame


def where(frame: DataFrame, expression: str) -> DataFrame:
    """Choose rows by an SQL expression over the columns.

    Raises:
        UsageError: If it is none; the message has what Spark says of it.
    """
    from pyspark.errors import PySparkException

    try:
        return frame.where(expression)
    except PySparkException as error:
        raise UsageError(
            f"--where {expression!r}: {typed.reason(error)}",
            hint=f"the columns are: {', '.join(columns(frame))}",
        ) from None


def _literal(frame: DataFrame, name: str, text: str, data_type: DataType) -> Column:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    try:
        literal = F.lit(text).try_cast(data_type)
        row = frame.sparkSession.range(1).select(literal.isNull()).first()
        readable = row is not None and not row[0]
    except PySparkException:  # such as a list, which no text can be
        readable = False
    if not readable:
        raise UsageError(
            f"--key {name}={text}: {text!r} is no {data_type.simpleString()}",
            hint="nulls and lists can be chosen with --where, such as 'key.name IS NULL'",
        )
    return literal


@contextmanager
def _failures() -> Iterator[None]:
    """Tell apart an expression that fails on a row and state that cannot be read."""
    from pyspark import errors

    try:
        with typed.refusals("the savepoint"):
            yield
    except IncompatibleError as error:
        of_expression = (
            errors.ArithmeticException,
            errors.ArrayIndexOutOfBoundsException,
            errors.DateTimeException,
            errors.NumberFormatException,
        )
        if isinstance(error.__cause__, of_expression):
            raise UsageError(
                f"--where fails on a row: {typed.reason(error.__cause__)}",
                hint="Spark has try_divide, try_cast and the like",
            ) from None
        raise


def _leaves(struct: StructType) -> list[tuple[tuple[str, ...], DataType]]:
    """Return paths and types of all fields that are no structs."""
    from pyspark.sql.types import StructType

    found: list[tuple[tuple[str, ...], DataType]] = []
    for field in struct:
        inner = _leaves(field.dataType) if isinstance(field.dataType, StructType) else []
        found += [((field.name, *path), leaf) for path, leaf in inner]
        if not isinstance(field.dataType, StructType):
            found.append(((field.name,), field.dataType))
    return found


def _is_map(data_type: DataType) -> bool:
    from pyspark.sql.types import MapType

    return isinstance(data_type, MapType)


def _is_no_json(data_type: DataType) -> bool:
    """Say whether `to_json` would lose something."""
    from pyspark.sql.types import DecimalType, MapType, StringType

    if isinstance(data_type, MapType):
        return not isinstance(data_type.keyType, StringType)
    return isinstance(data_type, DecimalType)


def _rewritten(
    column: Column, data_type: DataType, wanted: Callable[[DataType], bool], *, ordered: bool
) -> Column:
    """Write maps as lists of entries and decimals as text, wherever a type is wanted so."""
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
    return column.cast("string")


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
