"""SQL over the columns of state rows: conditions, and the values to set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from savepoints.errors import UsageError
from savepoints.state.typed import to_json, typed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_RANDOM = "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION"
# Columns that identify a row.
IDENTITY = ("key", "map_key", "position", "expires_at_ms")


def shown(frame: DataFrame) -> list[str]:
    """Return the names of the visible columns."""
    return [name for name in (*IDENTITY, "value") if name in frame.columns]


def condition(frame: DataFrame, where: str) -> Column:
    """Return an SQL condition over the columns of a frame."""
    from pyspark.sql import functions as F

    _require_sql(frame, where, f"--where {where!r}")
    data_type = frame.select(F.expr(where).alias("x")).schema["x"].dataType
    if data_type.simpleString() != "boolean":
        raise UsageError(
            f"--where {where!r} returns {data_type.simpleString()}, but a condition must "
            "return true or false",
            hint="write, for example, --where \"key.customer_id = '17'\"",
        )
    return F.expr(where)


def _require_sql(frame: DataFrame, expression: str, what: str) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    try:
        _ = frame.select(F.expr(expression)).schema
    except PySparkException as error:
        raise UsageError(
            f"{what}: {typed.reason(error)}",
            hint=f"correct the expression; the columns are {_column_names(frame)}",
        ) from None
    # It is evaluated more than once, so it must be deterministic, as inside an aggregate.
    try:
        _ = frame.agg(F.count(F.expr(expression))).schema
    except PySparkException as error:
        if error.getCondition() == _RANDOM:
            raise UsageError(
                f"{what} is not deterministic",
                hint="remove rand(), uuid(), shuffle() and the like from the expression",
            ) from None


def _column_names(frame: DataFrame) -> str:
    return ", ".join(to_json.columns(frame.select(*shown(frame))))


def assigned(frame: DataFrame, assignments: Sequence[str], frozen: frozenset[str]) -> Column:
    """Return the value with fields set, each to the result of its SQL on the old row."""
    from pyspark.sql import functions as F

    value_type = frame.schema["value"].dataType
    new: dict[tuple[str, ...], Column] = {}
    for text in assignments:
        path, expression = _assignment(frame, text, frozen)
        if path in new:
            raise UsageError(
                f"{'.'.join(path)} is set by two --set options", hint="omit one of them"
            )
        new[path] = _stored(frame, expression, path)
    after = F.col("value")
    for path, column in new.items():
        after = after.withField(".".join(f"`{part}`" for part in path), column)
    checked = after
    for path, column in new.items():
        # A field of a null struct cannot be set: it would silently stay null.
        lost = F.raise_error(
            F.lit(f"{'.'.join(path)} cannot be set where the struct around it is null")
        )
        is_set = _inside(after, path).eqNullSafe(column)
        checked = F.when(is_set, checked).otherwise(lost.cast(value_type))
    return checked


def _inside(column: Column, path: tuple[str, ...]) -> Column:
    for part in path:
        column = column[part]
    return column


def _assignment(frame: DataFrame, text: str, frozen: frozenset[str]) -> tuple[tuple[str, ...], str]:
    """Parse `field = SQL`, and find the field in the value."""
    name, separator, expression = text.partition("=")
    parts = tuple(part.strip("` ") for part in name.strip().split("."))
    if not separator or not expression.strip() or not all(parts):
        raise UsageError(
            f"--set {text!r} is not in the form FIELD=SQL",
            hint="write, for example, --set 'count = count + 1'",
        )
    if parts[0].lower() in IDENTITY and parts[0] in frame.columns:
        raise _key_stays(".".join(parts), parts[0])
    if parts[0].lower() == "value" and len(parts) > 1:
        parts = parts[1:]
    data_type: DataType = frame.schema["value"].dataType
    path = []
    for part in parts:
        names = {one.lower(): one for one in getattr(data_type, "names", ())}
        if part.lower() not in names:
            if "key" in frame.columns and part in frame.select("key.*").columns:
                raise _key_stays(".".join(parts), "key")
            raise UsageError(
                f"--set {text!r}: the state has no column {'.'.join(parts)!r}",
                hint=f"correct the name; the columns are {_column_names(frame)}",
            )
        path.append(names[part.lower()])
        data_type = data_type[path[-1]].dataType  # type: ignore[index]
    if path[0] in frozen:
        raise _key_stays(".".join(path), "key")
    _require_sql(frame, expression, f"--set {text!r}")
    return tuple(path), expression


def _key_stays(name: str, what: str) -> UsageError:
    if what == "expires_at_ms":
        return UsageError(
            "expires_at_ms cannot be set, because Spark also keeps expiry times in a second "
            "place, which would no longer match",
            hint="set only the value, which keeps its expiry time",
        )
    return UsageError(
        f"{name} identifies the row, so it cannot be set",
        hint="set fields of the value only, or remove the rows with --delete",
    )


def reads_text(given: DataType, wanted: DataType) -> bool:
    """Return True if a cast would change text, including inside arrays and structs."""
    from pyspark.sql.types import ArrayType, StringType, StructType

    if isinstance(given, StringType):
        return not isinstance(wanted, StringType)
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return reads_text(given.elementType, wanted.elementType)
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        pairs = zip(given.fields, wanted.fields, strict=False)  # Spark rejects other lengths.
        return any(reads_text(one.dataType, other.dataType) for one, other in pairs)
    return False


def _stored(frame: DataFrame, expression: str, path: tuple[str, ...]) -> Column:
    """Cast an expression to the field's type; it fails where that is not exact."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F
    from pyspark.sql.types import NullType

    wanted = frame.select(_inside(F.col("value"), path).alias("x")).schema["x"].dataType
    given = frame.select(F.expr(expression).alias("x")).schema["x"].dataType
    column = F.expr(expression)
    if given == wanted:
        return column
    if isinstance(given, NullType):  # Nothing that a cast could change; and none leads back.
        return column.cast(wanted)
    name = ".".join(path)
    if reads_text(given, wanted):
        # Spark's casts of text round decimals, cut times off and guess the zone, ANSI or not.
        raise UsageError(
            f"--set {name}: {expression} is text, but the field is of type {wanted.simpleString()}",
            hint="write a value of that type, for example 12.34, date '2026-11-20' or "
            "timestamp '2026-11-20 10:00:00Z'",
        )
    cast = column.cast(wanted)
    try:
        _ = frame.select(cast).schema
        back = cast.cast(given)
        _ = frame.select(back).schema
    except PySparkException as error:
        raise UsageError(
            f"--set {name}: {typed.reason(error)}",
            hint=f"write an expression of type {wanted.simpleString()}",
        ) from None
    text = f"{name} is of type {wanted.simpleString()}, which cannot hold "
    lost = F.raise_error(F.concat(F.lit(text), column.cast("string")))
    return F.when(column.isNull() | back.eqNullSafe(column), cast).otherwise(lost.cast(wanted))
