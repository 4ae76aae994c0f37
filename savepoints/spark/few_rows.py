"""Rows that are few enough to be taken to the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def in_plan(spark: SparkSession, frame: DataFrame, most: int) -> DataFrame | None:
    """Return a frame whose plan has the rows of another one.

    Returns:
        None if they are more, or more bytes than a driver takes. Any other error in them is None,
        too, and comes out when they are written instead.
    """
    try:
        rows = frame.limit(most + 1).toArrow()
    except Exception:  # noqa: BLE001  (py4j's errors have no common root)
        return None
    return spark.createDataFrame(rows, schema=frame.schema) if rows.num_rows <= most else None
