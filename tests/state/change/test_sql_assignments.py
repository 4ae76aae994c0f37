"""Which values a field takes by SQL: text is never guessed at."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from savepoints.state.change.sql_assignments import reads_text


def pair(of: DataType) -> StructType:
    return StructType([StructField("a", LongType()), StructField("b", of)])


@pytest.mark.parametrize(
    ("given", "wanted", "is_guess"),
    [
        (StringType(), DecimalType(10, 2), True),  # Spark rounds '12.345'.
        (StringType(), TimestampType(), True),  # '… 10:00:00' gets the zone of the session.
        (StringType(), DateType(), True),  # '2026-11-20 10:00' loses its time.
        (StringType(), LongType(), True),
        (ArrayType(StringType()), ArrayType(DateType()), True),
        (pair(StringType()), pair(DateType()), True),
        (StringType(), StringType("UTF8_LCASE"), False),
        (ArrayType(StringType()), ArrayType(StringType()), False),
        (LongType(), StringType(), False),
        (DecimalType(5, 3), DecimalType(10, 2), False),  # Compared after a cast back.
        (pair(DateType()), pair(TimestampType()), False),
    ],
)
def test_text_is_no_value_of_another_type(
    given: DataType, wanted: DataType, *, is_guess: bool
) -> None:
    assert reads_text(given, wanted) == is_guess
