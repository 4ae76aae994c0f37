"""Frames whose rows a function makes batch by batch, in Arrow's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def mapped(
    frame: DataFrame, change: Callable[[pa.RecordBatch], pa.RecordBatch], schema: StructType | str
) -> DataFrame:
    """Return what a function makes of the rows of a frame; it is given no empty batch."""

    def changed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (change(batch) for batch in batches if batch.num_rows)

    return frame.mapInArrow(changed, schema)
