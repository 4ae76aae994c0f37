"""Count events that arrived below the live query's watermark.

Whether a row was dropped also depends on the operator: a window is dropped by its end. So these
rows may have been dropped; all others were not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.model import KafkaOffsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RANGES = "its_topic string, its_partition int, first long, next long, late_ms long"


@dataclass(frozen=True)
class Read:
    """The range that a batch of the live query read.

    Attributes:
        late_watermark_ms: The watermark of the batch before, milliseconds since 1970.
    """

    begin: KafkaOffsets
    end: KafkaOffsets
    late_watermark_ms: int


def count(events: DataFrame, batches: Sequence[Read]) -> int:
    """Count the events that may have been dropped.

    Args:
        events: `topic`, `partition`, `offset` and `event_time`; late events, whose partition is
            -1, are not counted.
    """
    from pyspark.sql import functions as F

    ranges = [
        (topic, part, one.begin.get(topic, {}).get(part, 0), end, one.late_watermark_ms)
        for one in batches
        for topic, parts in one.end.items()
        for part, end in parts.items()
        if one.late_watermark_ms > 0
    ]
    if not ranges:
        return 0
    table = F.broadcast(events.sparkSession.createDataFrame(ranges, _RANGES))
    is_read_by = (
        (F.col("topic") == F.col("its_topic"))
        & (F.col("partition") == F.col("its_partition"))
        & (F.col("offset") >= F.col("first"))
        & (F.col("offset") < F.col("next"))
    )
    late = F.unix_millis("event_time") < F.col("late_ms")
    return events.join(table, is_read_by).where(late).count()
