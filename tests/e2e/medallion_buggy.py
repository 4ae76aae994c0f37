"""Silver with a bug: it writes amounts a thousand times too high."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from spark_jobs.medallion import silver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the query."""
    return silver.build(inputs).withColumn("amount_cents", F.col("amount_cents") * 1000)


app = replace(silver.app, build=build)
