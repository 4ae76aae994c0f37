"""Which slice of a replay an event belongs to, and up to what time everything had been seen.

An event that arrived belongs to the batch that read it. A late one belongs to the first batch whose
clock reaches it: there it would have been read, had it come in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from savepoints.model import KafkaOffsets
from savepoints.sources.entities import any_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NUMBER = "replay_slice"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class End:
    """Where a slice ends.

    Attributes:
        offsets: Next-to-read offset by topic and partition.
        clock: Late events up to this time belong to it, unless to an earlier one; None for all.
    """

    offsets: KafkaOffsets
    clock: datetime | None


def numbered(events: DataFrame, ends: Sequence[End], *, first: int = 1) -> DataFrame:
    """Number events by the slice that they belong to.

    Args:
        events: `topic`, `partition`, `offset`, `event_time` and `merge_id`, which is null for what
            arrived.
        ends: Of the slices, in order; what arrived after the last one is left out.
        first: Number of the first slice.

    Returns:
        The columns of `events` and `replay_slice` (int).
    """
    from pyspark.sql import functions as F

    number = F.lit(None).cast("int")
    for at in range(len(ends) - 1, -1, -1):
        one = ends[at]
        late = F.expr("true") if one.clock is None else F.col("event_time") <= F.lit(one.clock)
        belongs = F.when(F.col("merge_id").isNull(), before(one.offsets)).otherwise(late)
        number = F.when(belongs, F.lit(first + at)).otherwise(number)
    return events.withColumn(NUMBER, number).where(F.col(NUMBER).isNotNull())


def before(offsets: KafkaOffsets) -> Column:
    """Return whether a record lies before some offsets; of partitions not in them none does."""
    return between({}, offsets)


def between(since: KafkaOffsets, until: KafkaOffsets) -> Column:
    """Return whether a record lies between two positions; a partition not in `since` is from 0."""
    from pyspark.sql import functions as F

    parts = [
        (F.col("topic") == topic)
        & (F.col("partition") == part)
        & (F.col("offset") >= since.get(topic, {}).get(part, 0))
        & (F.col("offset") < offset)
        for topic, known in sorted(until.items())
        for part, offset in sorted(known.items())
    ]
    return any_of(parts)


def newest(events: Iterable[DataFrame]) -> datetime | None:
    """Return the time of the newest of some events, None without any."""
    from pyspark.sql import functions as F

    found: list[int] = []
    for frame in events:
        row = frame.agg(F.max(F.unix_micros("event_time")).alias("newest")).first()
        if row is not None and row["newest"] is not None:
            found.append(int(row["newest"]))
    return _EPOCH + timedelta(microseconds=max(found)) if found else None
