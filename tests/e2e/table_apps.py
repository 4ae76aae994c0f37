"""Applications that read a table: hourly counts that wait for the watermark, and running totals.

`per_key` reads the table of windows that `late_apps` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from savepoints.runtime.app import App, Output, TableInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENTS = TableInput(columns="k string, n long, at timestamp", entity_key="k", event_time="at")


def _hours(inputs: Mapping[str, DataFrame]) -> DataFrame:
    from pyspark.sql import functions as F

    events = inputs["events"].withWatermark("at", "1 hour")
    counted = events.groupBy(F.window("at", "1 hour").alias("hour")).agg(F.sum("n").alias("n"))
    return counted.select(F.col("hour.start").alias("hour"), "n")


def _totals(inputs: Mapping[str, DataFrame]) -> DataFrame:
    from pyspark.sql import functions as F

    return inputs["events"].groupBy("k").agg(F.sum("n").alias("n"))


hours = App("hours", {"events": EVENTS}, _hours, {"hours": Output("append")})
totals = App("totals", {"events": EVENTS}, _totals, {"totals": Output("upsert", ("k",))})


def _begun(windows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return windows.withColumn("at", F.timestamp_millis("start_ms"))


def _per_key(inputs: Mapping[str, DataFrame]) -> DataFrame:
    from pyspark.sql import functions as F

    windows = inputs["windows"].groupBy("k")
    return windows.agg(F.count("*").alias("windows"), F.sum("total").alias("total"))


WINDOWS = TableInput(
    columns="start_ms long, k string, total long",
    decode=_begun,
    entity_key="k",
    event_time="at",
    event_id=("start_ms",),
)
per_key = App("per_key", {"windows": WINDOWS}, _per_key, {"sums": Output("upsert", ("k",))})
