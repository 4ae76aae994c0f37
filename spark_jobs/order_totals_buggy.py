"""`order_totals` with a bug that gets deployed: the amount is taken for a price per item.

`amount_cents` is already the value of the whole order, so `amount_cents * quantity`
counts an order of three items three times. The types, and with them the layout of the
state, stay as they are: Spark starts this version from the right one's checkpoint
without a word, and spoils state and output from there.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from savepoints.runtime.app import App
from spark_jobs import order_totals


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the query with the bug in it.

    Args:
        inputs: `orders`, decoded.

    Returns:
        The same columns as `order_totals.build`, with amounts that are too high.
    """
    totals = (
        inputs["orders"]
        .groupBy("customer_id")
        .agg(
            F.count("*").alias("orders"),
            F.sum(F.col("amount_cents") * F.col("quantity")).alias("amount_cents"),
            F.max("ordered_at").alias("last_ordered_at"),
        )
    )
    return totals.withColumn("tier", order_totals.tier(F.col("amount_cents")))


app = App(
    name=order_totals.app.name,
    inputs=order_totals.app.inputs,
    build=build,
    outputs=order_totals.app.outputs,
)
