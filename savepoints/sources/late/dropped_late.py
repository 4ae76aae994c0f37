"""Events that arrived behind the watermark by which their batch dropped late rows.

Whether a row was dropped also depends on the operator: a window is dropped by its end. So these
events may have been dropped; all others were not. `savepoints.runtime.late_rows` tells which were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition
from savepoints.sources.events.events import POSITION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Beside an event: milliseconds since 1970.
LATE_MS, READ_MS = "late_ms", "read_ms"
_NUMBER = "delivery"
_RANGES = (
    f"its_topic string, its_partition int, first long, next long, {LATE_MS} long, {READ_MS} long"
)


@dataclass(frozen=True)
class Read:
    """The range that a batch of the live query read.

    Attributes:
        late_watermark_ms: The watermark of the batch before, milliseconds since 1970.
        timestamp_ms: When the batch was planned, milliseconds since 1970.
    """

    begin: KafkaOffsets
    end: KafkaOffsets
    late_watermark_ms: int
    timestamp_ms: int = 0


def behind(events: DataFrame, batches: Sequence[Read]) -> DataFrame:
    """Return the events that may have been dropped.

    Args:
        events: `topic`, `partition`, `offset` and `event_time`; late events, whose partition is
            -1, are not among those that are returned.

    Returns:
        The columns of `events`; `late_ms` bigint, the watermark that the event was not after; and
        `read_ms` bigint, when its batch was planned.
    """
    from pyspark.sql import functions as F

    ranges = [
        (
            topic,
            part,
            one.begin.get(topic, {}).get(part, 0),
            end,
            one.late_watermark_ms,
            one.timestamp_ms,
        )
        for one in batches
        for topic, part, end in by_partition(one.end)
    ]
    table = F.broadcast(events.sparkSession.createDataFrame(ranges, _RANGES))
    is_read_by = (
        (F.col("topic") == F.col("its_topic"))
        & (F.col("partition") == F.col("its_partition"))
        & (F.col("offset") >= F.col("first"))
        & (F.col("offset") < F.col("next"))
    )
    return (
        events.join(table, is_read_by)
        .where(is_late("event_time"))
        .select(*events.columns, LATE_MS, READ_MS)
    )


def is_late(column: str) -> Column:
    """Return whether a time is not after the watermark `late_ms`, as Spark compares them."""
    from pyspark.sql import functions as F

    return F.unix_micros(column) <= F.col(LATE_MS) * 1000


def count(events: DataFrame, batches: Sequence[Read]) -> int:
    """Count the events that may have been dropped; see `behind`."""
    if not any(one.late_watermark_ms > 0 for one in batches):
        return 0
    return behind(events, batches).count()


def once(events: DataFrame) -> DataFrame:
    """Return of several deliveries of an event the first; the columns of `behind`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    first = Window.partitionBy("entity", "event_id").orderBy(READ_MS, *POSITION)
    numbered = events.withColumn(_NUMBER, F.row_number().over(first))
    return numbered.where(f"{_NUMBER} = 1").drop(_NUMBER)
