"""Applications that read a table: hourly counts that wait for the watermark, and running totals."""

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
