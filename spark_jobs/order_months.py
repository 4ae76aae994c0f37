"""Total of each customer in windows of 30 days, written once when the window is over.

Windows and not calendar months: in append mode Spark closes windows of one length by the watermark,
and would close groups by a date only when the next month's first order comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from savepoints.runtime.app import App, Output
from spark_jobs import order_totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOW = "30 days"
LATENESS = "3 days"


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the query.

    Args:
        inputs: `orders`, decoded as for `order_totals`.

    Returns:
        customer_id, window_at (windows are counted from 1970), orders, amount_cents,
        last_ordered_at; for append mode.
    """
    timed = inputs["orders"].withWatermark("ordered_at", LATENESS)
    totals = timed.groupBy("customer_id", F.window("ordered_at", WINDOW)).agg(
        F.count("*").alias("orders"),
        F.sum("amount_cents").alias("amount_cents"),
        F.max("ordered_at").alias("last_ordered_at"),
    )
    return totals.select(
        "customer_id",
        F.col("window.start").alias("window_at"),
        "orders",
        "amount_cents",
        "last_ordered_at",
    )


app = App(
    name="order_months",
    inputs=order_totals.app.inputs,
    build=build,
    outputs={"months": Output(mode="append")},
)
