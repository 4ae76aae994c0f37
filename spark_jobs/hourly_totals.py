"""Orders and turnover of each customer by the hour, with a watermark of ten minutes.

An hour is written when it is over, so the state has two hours or so. What comes later than that is
dropped by Spark, and worked in by `savepoints merge --dropped`; see docs/how-to/late-rows.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from savepoints.runtime.app import App, Input, Output
from spark_jobs import json_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIELDS = "order_id string, customer_id string, cents long"
WATERMARK = "10 minutes"


def decode(records: DataFrame) -> DataFrame:
    """Read the orders in Kafka records: order_id, customer_id, cents, at."""
    return json_records.decode(records, FIELDS)


def build(inputs: Mapping[str, DataFrame], watermark: str = WATERMARK) -> DataFrame:
    """Build the query: customer_id, hour, orders, cents; for append mode."""
    orders = inputs["orders"].withWatermark(json_records.AT, watermark)
    hours = orders.groupBy("customer_id", F.window(json_records.AT, "1 hour").alias("hour"))
    totals = hours.agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
    return totals.withColumn("hour", F.col("hour.start"))


app = App(
    name="hourly_totals",
    inputs={
        "orders": Input(
            topic="orders",
            decode=decode,
            entity_key="customer_id",
            event_time=json_records.AT,
            event_id=("order_id",),
        )
    },
    build=build,
    outputs={"totals": Output(mode="append")},
)
