"""Types of columns: whether values of two types can be compared, and how large a change is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from savepoints.spark.columns import text_sql

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, DecimalType

Unit = Literal["number", "seconds"]

_SECONDS_A_DAY = 86_400
# The most digits of a Spark decimal.
_DIGITS = 38
_DIGITS_OF_LONG = 20
# Decimals of so many digits are each next to a double of their own.
_DIGITS_OF_DOUBLE = 15
# Spark casts it to 2^63 - 1, the largest long, which as a double is it.
_NO_LONG = "9223372036854775808D"


def alike(first: DataType, second: DataType) -> bool:
    """Return True if two types are equal apart from nullability."""
    return first.simpleString() == second.simpleString()


def common_number(first: DataType, second: DataType) -> DataType | None:
    """Return the type in which numbers of two types can be compared, None when there is none."""
    from pyspark.sql.types import DecimalType, DoubleType, FractionalType, IntegralType

    types = (first, second)
    if any(not isinstance(one, (FractionalType, IntegralType, DecimalType)) for one in types):
        return None
    if any(isinstance(one, FractionalType) and not isinstance(one, DecimalType) for one in types):
        return DoubleType()
    decimals = [
        (one.precision, one.scale) if isinstance(one, DecimalType) else (_DIGITS_OF_LONG, 0)
        for one in types
    ]
    scale = max(scale for _, scale in decimals)
    digits = max(precision - scale for precision, scale in decimals) + scale
    return DecimalType(digits, scale) if digits <= _DIGITS else None


def as_number(column: str, data_type: DataType, other: DataType) -> Column | None:
    """Return a number in a form in which it equals the same number of another type, and no other.

    A double is the next one to several whole numbers from 2^53 on, and to several decimals of more
    than 15 digits: there numbers are texts, which `size` takes too.

    Args:
        column: A quoted name.
        data_type: The type of the column.
        other: The one that it is compared with.

    Returns:
        None where either is no number, or they have no common type.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import DoubleType, LongType

    common = common_number(data_type, other)
    exact = next(filter(_exceeds_double, (data_type, other)), None)
    if exact is None or not isinstance(common, DoubleType):
        return None if common is None else F.col(column).cast(common)
    double = f"CAST({column} AS DOUBLE)"
    # Of both zeros the text is one.
    text = text_sql(f"{double} + 0D")
    if data_type != exact:
        return F.expr(text)
    is_double = f"try_cast({double} AS {exact.simpleString()}) = {column}"
    if isinstance(exact, LongType):
        is_double += f" AND {double} < {_NO_LONG}"
    return F.expr(f"CASE WHEN {is_double} THEN {text} ELSE {text_sql(column)} END")


def _exceeds_double(data_type: DataType) -> bool:
    """Return True if some values of a type are no doubles."""
    from pyspark.sql.types import DecimalType, LongType

    is_decimal = isinstance(data_type, DecimalType) and data_type.precision > _DIGITS_OF_DOUBLE
    return is_decimal or isinstance(data_type, LongType)


def unit(data_type: DataType) -> Unit | None:
    """Return in what changes of a type are measured, None when they have no size."""
    from pyspark.sql.types import DateType, NumericType, TimestampNTZType, TimestampType

    if isinstance(data_type, NumericType):
        return "number"
    times = (DateType, TimestampType, TimestampNTZType)
    return "seconds" if isinstance(data_type, times) else None


def size(before: Column, after: Column, data_type: DataType) -> Column | None:
    """Return the size of a change as a double, None for types whose changes have none."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import DateType, DecimalType, FractionalType

    measured_in = unit(data_type)
    if measured_in is None:
        return None
    if isinstance(data_type, FractionalType) and not isinstance(data_type, DecimalType):
        return F.abs(after.cast("double") - before.cast("double"))
    if isinstance(data_type, DateType):
        return F.abs(F.datediff(after, before)).cast("double") * _SECONDS_A_DAY
    exact = "decimal(20,0)"  # The difference of two longs is none.
    if measured_in == "seconds":
        micros = [F.unix_micros(one.cast("timestamp_ltz")).cast(exact) for one in (before, after)]
        return F.abs(micros[1] - micros[0]).cast("double") / 1e6
    if isinstance(data_type, DecimalType):
        apart = F.try_subtract(_unscaled(after, data_type), _unscaled(before, data_type))
        # Further apart than a decimal can say, they are so as doubles, too.
        as_doubles = after.cast("double") - before.cast("double")
        return F.abs(F.coalesce(apart.cast("double") / 10.0**data_type.scale, as_doubles))
    return F.abs(after.cast(exact) - before.cast(exact)).cast("double")


def _unscaled(column: Column, data_type: DecimalType) -> Column:
    """Return a decimal as the whole number of its last digit.

    The difference of two that have all digits has one more, for which Spark rounds the last one.
    """
    from pyspark.sql import functions as F

    whole = "0" * (data_type.precision - data_type.scale)
    digits = F.to_char(column, F.lit(f"S{whole}.{'0' * data_type.scale}"))
    return F.replace(digits, F.lit("."), F.lit("")).cast(f"decimal({_DIGITS},0)")
