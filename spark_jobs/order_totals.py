"""Total, number and time of the last order of each customer, with a tier by the total."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from savepoints.app import App, Input, Output
from spark_jobs.orders.codec import (
    ORDER_EVENT_DDL,
    ORDER_RECORD_DDL,
    decode_order_events,
    encode_orders,
)

SILVER_FROM_CENTS = 100_00
GOLD_FROM_CENTS = 500_00


def decode(records: DataFrame) -> DataFrame:
    """Read the orders in Kafka records.

    Args:
        records: Kafka's raw columns.

    Returns:
        The columns of `ORDER_EVENT_DDL`.
    """
    # Only what decoding needs crosses to the Python workers.
    needed = records.select("value", "topic", "partition", "offset")
    return needed.mapInArrow(decode_order_events, ORDER_EVENT_DDL)


def encode(orders: DataFrame) -> DataFrame:
    """Write orders as Kafka records.

    Args:
        orders: customer_id, order_id, ordered_at, quantity, amount_cents, as `decode` gives them.

    Returns:
        key and value, as the shop's producer writes them.
    """
    needed = orders.select("customer_id", "order_id", "ordered_at", "quantity", "amount_cents")
    return needed.mapInArrow(encode_orders, ORDER_RECORD_DDL)


def tier(amount_cents: Column) -> Column:
    """Return the customer's tier for the total of their orders.

    Args:
        amount_cents: The total in US cents.

    Returns:
        `bronze`, `silver` or `gold`.
    """
    return (
        F.when(amount_cents < SILVER_FROM_CENTS, "bronze")
        .when(amount_cents < GOLD_FROM_CENTS, "silver")
        .otherwise("gold")
    )


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the query.

    Args:
        inputs: `orders`, decoded.

    Returns:
        customer_id, orders, amount_cents, last_ordered_at, tier; for update mode.
    """
    totals = (
        inputs["orders"]
        .groupBy("customer_id")
        .agg(
            F.count("*").alias("orders"),
            F.sum("amount_cents").alias("amount_cents"),
            F.max("ordered_at").alias("last_ordered_at"),
        )
    )
    return totals.withColumn("tier", tier(F.col("amount_cents")))


app = App(
    name="order_totals",
    inputs={
        "orders": Input(
            topic="orders",
            decode=decode,
            entity_key="customer_id",
            event_time="ordered_at",
            event_id=("order_id",),
            encode=encode,
        )
    },
    build=build,
    outputs={"totals": Output(mode="upsert", key=("customer_id",))},
)
