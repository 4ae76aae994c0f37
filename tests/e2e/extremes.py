"""Versions of a program: aggregates of one type that changed places, and one more of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from spark_jobs import order_totals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def _program(*names: str) -> Callable[[Mapping[str, DataFrame]], DataFrame]:
    """Build totals with the smallest and the largest order, in the order of the names."""

    def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
        from pyspark.sql import functions as F

        extremes: dict[str, Column] = {
            "smallest": F.min("amount_cents").alias("smallest"),
            "largest": F.max("amount_cents").alias("largest"),
            "orders": F.count("*").alias("orders"),
        }
        # No select behind it: Spark would put the aggregates in the order of that.
        return inputs["orders"].groupBy("customer_id").agg(*(extremes[one] for one in names))

    return build


app = dataclasses.replace(order_totals.app, build=_program("smallest", "largest"))
swapped = dataclasses.replace(order_totals.app, build=_program("largest", "smallest"))
counting = dataclasses.replace(order_totals.app, build=_program("largest", "orders", "smallest"))
