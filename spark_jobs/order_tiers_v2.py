"""A second version of `order_totals`, for an A/B test: who orders often rises faster.

Its state is that of `order_totals`, only the rule on top of it is another; so it can go on from the
same savepoint, and be compared with the first version over the same orders.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from savepoints.runtime.app import App
from spark_jobs import order_totals

SILVER_FROM_CENTS, SILVER_FROM_ORDERS = 100_00, 3
GOLD_FROM_CENTS, GOLD_FROM_ORDERS = 300_00, 6


def tier(amount_cents: Column, orders: Column) -> Column:
    """Return the customer's tier for the total and the number of their orders.

    Args:
        amount_cents: The total in US cents.
        orders: Number of orders.

    Returns:
        `bronze`, `silver` or `gold`.
    """
    return (
        F.when((amount_cents >= GOLD_FROM_CENTS) | (orders >= GOLD_FROM_ORDERS), "gold")
        .when((amount_cents >= SILVER_FROM_CENTS) | (orders >= SILVER_FROM_ORDERS), "silver")
        .otherwise("bronze")
    )


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the query.

    Args:
        inputs: `orders`, decoded.

    Returns:
        The columns of `order_totals.build`, with another tier.
    """
    totals = order_totals.build(inputs)
    return totals.withColumn("tier", tier(F.col("amount_cents"), F.col("orders")))


app = App(
    name="order_tiers_v2",
    inputs=order_totals.app.inputs,
    build=build,
    outputs=order_totals.app.outputs,
)
