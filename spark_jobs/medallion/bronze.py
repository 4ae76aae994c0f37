"""Orders as they come from Kafka, each once: the first level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from savepoints.runtime.app import App, Input, Output
from spark_jobs.order_totals import decode, encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = ("customer_id", "order_id", "ordered_at", "quantity", "amount_cents")


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the query.

    Args:
        inputs: `orders`, decoded.

    Returns:
        customer_id, order_id, ordered_at, quantity, amount_cents; for append mode.
    """
    # By customer, too: so the state is kept by entity.
    return inputs["orders"].dropDuplicates(["customer_id", "order_id"]).select(*ORDER)


app = App(
    name="bronze",
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
    outputs={"orders": Output(mode="append")},
)
