"""Programs for a cluster: their functions come to the executors by `--py-files`, as users' do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from savepoints.runtime.app import App, Input, Output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

RECORD = "id string, customer string, cents long, at_ms long"


def decode(records: DataFrame) -> DataFrame:
    """Read orders: JSON of `RECORD`."""
    fields = F.from_json(F.col("value").cast("string"), RECORD).alias("order")
    orders = records.select(fields, "topic", "partition", "offset")
    at = F.timestamp_millis("order.at_ms").alias("at")
    return orders.select(
        "order.id", "order.customer", "order.cents", at, "topic", "partition", "offset"
    )


def totals(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Count and sum up the orders of each customer."""
    orders = inputs["orders"].groupBy("customer")
    return orders.agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))


def add(
    key: tuple[Any, ...], chunks: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Add a customer's orders to their totals."""
    count, cents = state.get if state.exists else (0, 0)
    for chunk in chunks:
        count, cents = count + len(chunk), cents + int(chunk["cents"].sum())
    state.update((count, cents))
    yield pd.DataFrame({"customer": [key[0]], "orders": [count], "cents": [cents]})


def by_function(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Compute the same in a function of pandas."""
    return (
        inputs["orders"]
        .groupBy("customer")
        .applyInPandasWithState(
            add,
            "customer string, orders long, cents long",
            "orders long, cents long",
            "update",
            GroupStateTimeout.NoTimeout,
        )
    )


Build: TypeAlias = "Callable[[Mapping[str, DataFrame]], DataFrame]"


def doubling(build: Build) -> Build:
    """Return the program with a bug: every amount counts twice."""

    def doubled(inputs: Mapping[str, DataFrame]) -> DataFrame:
        return build({"orders": inputs["orders"].withColumn("cents", F.col("cents") * 2)})

    return doubled


def _app(build: Build) -> App:
    read = Input("orders", decode, entity_key="customer", event_time="at", event_id=("id",))
    return App(
        "totals", {"orders": read}, build, {"totals": Output(mode="upsert", key=("customer",))}
    )


in_sql, in_sql_buggy = _app(totals), _app(doubling(totals))
in_pandas, in_pandas_buggy = _app(by_function), _app(doubling(by_function))
