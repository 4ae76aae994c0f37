"""What only Spark's own plan of a query says, of a query that has run on nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from savepoints.io import Location
from savepoints.runtime.app import App, Input, Output
from savepoints.runtime.runner import run_on_nothing
from savepoints.state import executed_plan

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def decode(frame: DataFrame) -> DataFrame:
    """Give a key, a number and a time."""
    found = frame.selectExpr("cast(key AS string) k", "double(offset) v", "timestamp t")
    return found.withWatermark("t", "5 minutes")


def test_the_buffers_of_a_key_without_rows_and_the_delay_of_the_watermark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An average that began with NULL would stay NULL, and a count cannot be NULL."""
    app = App(
        "q",
        {"orders": Input("orders", decode, "k", "t")},
        lambda inputs: inputs["orders"].groupBy("k").agg(F.avg("v"), F.count("*"), F.max("v")),
        {"out": Output("upsert", ("k",))},
    )

    query = run_on_nothing(spark, app, Location.of(str(tmp_path)))

    (starts,) = executed_plan.initial_buffers(query).values()
    assert [(one.aggregate, one.value) for one in starts] == [(0, 0.0), (0, 0), (1, 0), (2, None)]
    assert executed_plan.watermark_delays_ms(query) == (300_000,)
    assert executed_plan.join_keys(query) == {}
