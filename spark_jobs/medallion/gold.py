"""Orders and their value by day and tier: the third level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from savepoints.runtime.app import App, Output, TableInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A day is closed, and leaves the state, when orders are this much newer.
CLOSES_AFTER = "30 days"
_DAY_US = 86_400_000_000


def decode(lines: DataFrame) -> DataFrame:
    """Add the day of an order, in UTC whatever the zone of the session is."""
    at_us = F.unix_micros("ordered_at")
    return lines.withColumn("day", F.timestamp_micros(at_us - F.pmod(at_us, F.lit(_DAY_US))))


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the query.

    Args:
        inputs: `lines`, as silver writes them, with their day.

    Returns:
        day, tier, orders, amount_cents; for update mode.
    """
    days = inputs["lines"].withWatermark("day", CLOSES_AFTER).groupBy("day", "tier")
    return days.agg(F.count("*").alias("orders"), F.sum("amount_cents").alias("amount_cents"))


app = App(
    name="gold",
    inputs={
        "lines": TableInput(
            columns="order_id string, ordered_at timestamp, amount_cents long, tier string",
            decode=decode,
            entity_key="day",
            event_time="ordered_at",
            event_id=("order_id",),
        )
    },
    build=build,
    outputs={"days": Output(mode="upsert", key=("day", "tier"))},
)
