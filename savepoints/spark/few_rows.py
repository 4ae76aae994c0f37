"""Rows that are few enough to be taken to the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def collect(frame: DataFrame, most: int) -> pa.Table | None:
    """Return the rows of a frame; None if they are more, or more bytes than a driver takes.

    Any other error in them is None, too, and comes out when they are written instead.
    """
    try:
        rows = frame.limit(most + 1).toArrow()
    except Exception:  # noqa: BLE001  (py4j's errors have no common root)
        return None
    return rows if rows.num_rows <= most else None


def in_plan(spark: SparkSession, frame: DataFrame, most: int) -> DataFrame | None:
    """Return a frame whose plan has the rows of another one; None where `collect` gives None."""
    rows = collect(frame, most)
    return None if rows is None else spark.createDataFrame(rows, schema=frame.schema)
