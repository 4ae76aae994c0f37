"""Changes of state rows that a test makes up."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from savepoints.checkpoint.state.schema import StateField
from savepoints.errors import IncompatibleError
from savepoints.state.change.edit import Edited, Family, StateEdit, edited

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def of_rows(spark: SparkSession, *assignments: str) -> Edited:
    """Two rows with the numbers 1 and 2, the second of which is changed."""
    rows = [(struct.pack("<qq", 0, key), struct.pack("<qqq", 0, key, 7)) for key in (1, 2)]
    whole = spark.newSession().createDataFrame(rows, "key_bytes binary, value_bytes binary")
    state = whole.selectExpr(
        "0 AS operator_id", "'default' AS store_name", "'last' AS column_family", "*", "0L AS ord"
    )
    key, value = (StateField("map_key", "long"),), (
        StateField("position", "long"), StateField("expires_at_ms", "long")
    )  # fmt: skip
    family = Family(0, "default", "last", "value", False, key, value)
    return edited(state, family, StateEdit("key.map_key = 2", assignments))


@pytest.mark.spark
def test_trap_a_value_is_set_to_null_without_a_cast(spark: SparkSession) -> None:
    """Null is of a type of its own, to which nothing can be cast back."""
    made = of_rows(spark, "position = null")

    (row,) = made.sample(9)
    assert row.after == {"value": {"position": None, "expires_at_ms": 7}}
    assert made.frame.where("__chosen").select("__bytes").first() == (
        struct.pack("<qqq", 0b01, 0, 7),
    )


@pytest.mark.spark
def test_trap_rows_that_cannot_be_edited_are_saved_in_their_native_form_already(
    spark: SparkSession,
) -> None:
    """The way out was an option of `create`, which `edit` does not have."""
    whole = spark.newSession().createDataFrame(
        [], "operator_id int, store_name string, column_family string, key_bytes binary, "
        "value_bytes binary, ord long"
    )  # fmt: skip
    value = (StateField("sum", "interval day to second"), StateField("count", "long"))
    family = Family(0, "default", "default", "rows", False, (StateField("k", "long"),), value)

    with pytest.raises(IncompatibleError, match="interval day to second") as refused:
        edited(whole, family, StateEdit("k = 1", ("count = 0",)))

    assert "savepoints rollback NAME" in refused.value.hint
    assert "--format" not in refused.value.hint


def of_sum(spark: SparkSession, total: Decimal, assignment: str) -> Edited:
    """A row with a sum of 28 digits and 10 behind the point, which is changed."""
    digits = int(total.scaleb(10)).to_bytes(16, "big").lstrip(b"\0")
    row = (struct.pack("<qq", 0, 1), struct.pack("<qq16s", 0, 16 << 32 | len(digits), digits))
    whole = spark.newSession().createDataFrame([row], "key_bytes binary, value_bytes binary")
    state = whole.selectExpr(
        "0 AS operator_id", "'default' AS store_name", "'default' AS column_family", "*",
        "0L AS ord",
    )  # fmt: skip
    key, value = (StateField("k", "long"),), (StateField("sum", "decimal(38,10)"),)
    family = Family(0, "default", "default", "rows", False, key, value)
    return edited(state, family, StateEdit("k = 1", (assignment,)))


@pytest.mark.spark
def test_trap_the_last_digit_of_a_sum_was_rounded_away(spark: SparkSession) -> None:
    """Spark keeps digits before the point rather than behind it, where there may be 39."""
    (row,) = of_sum(spark, Decimal("1.1234567891"), "sum = sum + 0.1").sample(9)

    assert row.before == {"value": {"sum": "1.1234567891"}}
    assert row.after == {"value": {"sum": "1.2234567891"}}
    largest = Decimal("9" * 28 + ".9999999999")
    for assignment in ("sum = sum + 0.1", "sum = sum / 3 + 0.00000000001BD"):
        with pytest.raises(IncompatibleError, match="cannot be changed this way"):
            of_sum(spark, largest, assignment).count()


@pytest.mark.spark
def test_trap_a_field_that_is_called_as_what_identifies_other_rows(spark: SparkSession) -> None:
    """A value's own `position` can be set; only that of an element of a list cannot."""
    made = of_rows(spark, "position = value.position + 1", "expires_at_ms = 0")

    (row,) = made.sample(9)
    assert row.row == {"key": {"map_key": 2}}
    assert row.before == {"value": {"position": 2, "expires_at_ms": 7}}
    assert row.after == {"value": {"position": 3, "expires_at_ms": 0}}
