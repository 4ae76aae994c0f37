"""The application of the chain test: counts and sums by customer, of records like `7,25`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from savepoints import App, Input, Output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def decode(raw: DataFrame) -> DataFrame:
    """Read customer and amount."""
    return raw.selectExpr(
        "cast(split(cast(value as string), ',')[0] as long) as customer",
        "cast(split(cast(value as string), ',')[1] as long) as amount",
    )


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Keep totals."""
    from pyspark.sql import functions as F

    totals = inputs["sales"].groupBy("customer")
    return totals.agg(F.count("*").alias("sales"), F.sum("amount").alias("amount"))


app = App(
    name="chain",
    inputs={"sales": Input("sales", decode, entity_key="customer", event_time="timestamp")},
    build=build,
    outputs={"totals": Output(mode="upsert", key=("customer",))},
)
