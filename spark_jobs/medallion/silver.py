"""Orders with what their customer had ordered until then: the second level.

Each order gets its number among the orders of its customer, their total with it, and the tier that
this total makes. An order that was missed changes the rows of all later ones of its customer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pandas as pd
from pyspark.sql import functions as F

from savepoints.runtime.app import App, Output, TableInput
from spark_jobs.medallion.bronze import ORDER
from spark_jobs.order_totals import tier
from spark_jobs.orders.codec import ORDER_SCHEMA_DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

# Times as numbers: pandas has no say in zones then.
_LINE = (
    "customer_id long, order_id string, at_us long, quantity int, amount_cents long, number long, "
    "total_cents long"
)


def _advance(
    _: tuple[int], chunks: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    orders, total = state.get if state.exists else (0, 0)
    # Arrow may have cut the orders of a customer anywhere, and Spark promises no order.
    new = pd.concat(list(chunks)).sort_values(["at_us", "order_id"], ignore_index=True)
    new["number"] = orders + 1 + new.index
    new["total_cents"] = total + new["amount_cents"].cumsum()
    state.update((orders + len(new), int(new["total_cents"].iloc[-1])))
    yield new


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the query.

    Args:
        inputs: `orders`, as bronze writes them.

    Returns:
        customer_id, order_id, ordered_at, quantity, amount_cents, number, total_cents, tier; for
        append mode.
    """
    orders = inputs["orders"].select(
        "customer_id",
        "order_id",
        F.unix_micros("ordered_at").alias("at_us"),
        "quantity",
        "amount_cents",
    )
    lines = orders.groupBy("customer_id").applyInPandasWithState(
        _advance, _LINE, "orders long, total_cents long", "append", "NoTimeout"
    )
    timed = lines.withColumn("ordered_at", F.timestamp_micros("at_us"))
    return timed.select(*ORDER, "number", "total_cents", tier(F.col("total_cents")).alias("tier"))


app = App(
    name="silver",
    inputs={
        "orders": TableInput(
            columns=ORDER_SCHEMA_DDL,
            entity_key="customer_id",
            event_time="ordered_at",
            event_id=("order_id",),
        )
    },
    build=build,
    outputs={"lines": Output(mode="append")},
)
