"""State rows as JSON texts (`savepoints.spark.columns`), and choosing them by what they hold."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING

from savepoints.errors import IncompatibleError, TargetExistsError, UsageError
from savepoints.spark.columns import as_json, quoted
from savepoints.state.typed import typed
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_WHOLE_DATE = re.compile(r"[+-]?\d{4,}-\d{1,2}-\d{1,2}")
_BELOW_MICROSECONDS = re.compile(r"\.\d{7,}")


def json_lines(frame: DataFrame, limit: int) -> list[str]:
    """Return the first rows of a frame as JSON lines; UsageError if an expression fails on one."""
    from pyspark.sql import functions as F

    row = F.struct(*(F.col(quoted(name)) for name in frame.columns))
    lines = frame.select(as_json(row, frame.schema).alias("line")).limit(limit)
    with _failures():
        return [line for (line,) in lines.collect()]


def write_parquet(frame: DataFrame, target: Uri) -> int:
    """Write a frame as Parquet and return the number of rows.

    Raises:
        TargetExistsError: If there is anything.
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
        f"{target} already exists",
        hint="use --to with a path that does not exist yet",
        target=str(target),
    )


def columns(frame: DataFrame) -> list[str]:
    """Name the columns that rows have when their structs are spread out: `key.window.start`."""
    return [".".join(path) for path, _ in _leaves(frame.schema)]


def with_key(frame: DataFrame, wanted: Mapping[str, str]) -> DataFrame:
    """Choose the rows whose key has these values, which are read as the fields' types."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    key_type = frame.schema["key"].dataType if "key" in frame.columns else StructType()
    assert isinstance(key_type, StructType)
    fields = {".".join(path): (path, leaf_type) for path, leaf_type in _leaves(key_type)}
    for name, text in wanted.items():
        if name not in fields:
            raise UsageError(
                f"the key of this state has no field {name!r}",
                hint=f"use one of its fields: {', '.join(fields)}"
                if fields
                else "omit --key, because this state has no key",
            )
        path, leaf_type = fields[name]
        literal = _literal(frame, name, text, leaf_type)
        column = F.col("key")
        for part in path:
            column = column[part]
        frame = frame.where(column == literal)
    return frame


def where(frame: DataFrame, expression: str) -> DataFrame:
    """Choose rows by an SQL expression over the columns."""
    from pyspark.errors import PySparkException

    try:
        return frame.where(expression)
    except PySparkException as error:
        raise UsageError(
            f"--where {expression!r}: {typed.reason(error)}",
            hint=f"correct the condition; the columns are {', '.join(columns(frame))}",
        ) from None


def _literal(frame: DataFrame, name: str, text: str, data_type: DataType) -> Column:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    if data_type.typeName() == "binary":
        return F.lit(_binary(name, text))
    try:
        literal = F.lit(text).try_cast(data_type)
        row = frame.sparkSession.range(1).select(literal.cast("string")).first()
        value = None if row is None else row[0]
        readable = value is not None and _is_exact(text.strip(), value, data_type)
    except PySparkException:  # such as a list, which no text can be
        readable = False
    if not readable:
        raise UsageError(
            f"--key {name}={text}: {text!r} is not a valid {data_type.simpleString()}",
            hint="write a value of that type; to find nulls and lists, use --where, for "
            f"example 'key.{name} IS NULL'",
        )
    return literal


def _binary(name: str, text: str) -> bytearray:
    """Read a binary value as rows show it."""
    try:
        return bytearray(base64.b64decode(text, validate=True))
    except ValueError:
        raise UsageError(
            f"--key {name}={text}: {text!r} is not a binary value in base64",
            hint="write it as the rows show it; for the bytes of a text, use --where "
            f"\"key.{name} = binary('TEXT')\"",
        ) from None


def _is_exact(text: str, value: str, data_type: DataType) -> bool:
    """Return False if Spark has rounded a text, cut it off, or made up what it lacks.

    Args:
        value: What it was read as.
    """
    kind = data_type.typeName()
    if kind == "decimal":
        return Decimal(text) == Decimal(value)
    if kind == "date":
        return _WHOLE_DATE.fullmatch(text) is not None
    return not (kind.startswith("timestamp") and _BELOW_MICROSECONDS.search(text))


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
                hint="use functions that return null instead of failing, such as try_divide "
                "and try_cast",
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
