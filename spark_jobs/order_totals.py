"""Total, number and time of the last order of each customer, with a tier by the total."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import compute
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from savepoints.runtime.app import (
    App,
    Input,
    MergeFunctions,
    Output,
    RowCombination,
)
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


def add_state(live: pa.RecordBatch, late: pa.RecordBatch) -> pa.RecordBatch:
    """Return the totals of customers who have some of both, for `merge --policy merge-function`.

    Args:
        live: State that the query has: `value.count`, `value.sum`, `value.max`.
        late: State of the late orders alone, row for row.
    """
    parts = {
        "count": _sum("value.count", live, late),
        "sum": _sum("value.sum", live, late),
        "max": _newest("value.max", live, late),
    }
    return pa.RecordBatch.from_pydict(parts)


def add_rows(live: pa.RecordBatch, late: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of such customers, in the columns of `build`."""
    amount = _sum("amount_cents", live, late)
    tiers = {"gold": GOLD_FROM_CENTS, "silver": SILVER_FROM_CENTS}
    reached = [compute.greater_equal(amount, pa.scalar(cents)) for cents in tiers.values()]
    parts = {
        "customer_id": live.column("customer_id"),
        "orders": _sum("orders", live, late),
        "amount_cents": amount,
        "last_ordered_at": _newest("last_ordered_at", live, late),
        "tier": compute.case_when(compute.make_struct(*reached), *tiers, "bronze"),
    }
    return pa.RecordBatch.from_pydict(parts)


def _sum(name: str, one: pa.RecordBatch, other: pa.RecordBatch) -> pa.Array[Any]:
    total: pa.Array[Any] = compute.add_checked(one.column(name), other.column(name))
    return total


def _newest(name: str, one: pa.RecordBatch, other: pa.RecordBatch) -> pa.Array[Any]:
    # Of times with a zone Arrow does not compute it.
    times = (each.column(name).cast(pa.int64()) for each in (one, other))
    newest: Any = compute.max_element_wise(*times)
    found: pa.Array[Any] = newest.cast(one.column(name).type)
    return found


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
    merge=MergeFunctions(
        states={"stateStoreSave": add_state},
        rows={"totals": RowCombination(("customer_id",), add_rows)},
    ),
)
