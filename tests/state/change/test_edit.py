"""Changes of state rows that a test makes up."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from savepoints.checkpoint.state.schema import StateField
from savepoints.state.change.edit import Family, StateEdit, edited

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_trap_a_field_that_is_called_as_what_identifies_other_rows(spark: SparkSession) -> None:
    """A value's own `position` can be set; only that of an element of a list cannot."""
    rows = [(struct.pack("<qq", 0, key), struct.pack("<qqq", 0, key, 7)) for key in (1, 2)]
    whole = spark.newSession().createDataFrame(rows, "key_bytes binary, value_bytes binary")
    state = whole.selectExpr(
        "0 AS operator_id", "'default' AS store_name", "'last' AS column_family", "*", "0L AS ord"
    )
    key, value = (StateField("map_key", "long"),), (
        StateField("position", "long"), StateField("expires_at_ms", "long")
    )  # fmt: skip
    family = Family(0, "default", "last", "value", False, key, value)
    change = StateEdit("key.map_key = 2", ("position = value.position + 1", "expires_at_ms = 0"))

    made = edited(state, family, change)

    (row,) = made.sample(9)
    assert row.row == {"key": {"map_key": 2}}
    assert row.before == {"value": {"position": 2, "expires_at_ms": 7}}
    assert row.after == {"value": {"position": 3, "expires_at_ms": 0}}
