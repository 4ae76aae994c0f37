"""Assign events to the slices of a replay, and compute the clock at a position.

An event that arrived belongs to the batch that read it. A late one belongs to the first batch whose
clock reaches it: it would have been read there had it been on time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition
from savepoints.moments import EPOCH, moment_or_last

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NUMBER = "replay_slice"
# The clock before the first event, to which no late event belongs.
NEVER = datetime.min.replace(tzinfo=UTC)
_RANGES = f"__place string, __begin long, __next long, {NUMBER} int"
# Where late events are; those that arrived are at `topic/partition`.
_LATE = ""
_FIRST, _LAST = -(1 << 63), (1 << 63) - 1
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class End:
    """Where a slice ends.

    Attributes:
        clock: Late events up to this time belong to it or to an earlier slice; None for all.
    """

    offsets: KafkaOffsets
    clock: datetime | None


def numbered(events: DataFrame, ends: Sequence[End], *, first: int = 1) -> DataFrame:
    """Number events by their slice.

    Args:
        events: `topic`, `partition`, `offset`, `event_time` and `merge_id`, which is null for what
            arrived.
        ends: Of the slices, in order; what arrived after the last one is left out.

    Returns:
        The columns of `events` and `replay_slice` (int).
    """
    from pyspark.sql import functions as F

    arrived = F.col("merge_id").isNull()
    place = F.when(arrived, F.concat_ws("/", "topic", "partition")).otherwise(F.lit(_LATE))
    at = F.when(arrived, F.col("offset")).otherwise(F.unix_micros("event_time"))
    # Hundreds of slices need a lookup table: Spark cannot handle them as one expression.
    ranges = F.broadcast(events.sparkSession.createDataFrame(_ranges(ends, first), _RANGES))
    belongs = (place == F.col("__place")) & (at >= F.col("__begin")) & (at < F.col("__next"))
    return events.join(ranges, belongs).select(*events.columns, NUMBER)


def clocks(events: DataFrame, ends: Sequence[KafkaOffsets], begin: datetime) -> list[datetime]:
    """Return the time of the newest event before each of some positions; it is exact.

    Args:
        events: What arrived from the first position on: columns of `archive.SCHEMA`.
        begin: The time of the newest event before `events`.
    """
    from pyspark.sql import functions as F

    slices = numbered(events, [End(one, None) for one in ends])
    newest = F.max(F.unix_micros("event_time")).alias("newest")
    rows = slices.groupBy(NUMBER).agg(newest).collect()
    known = {int(row[NUMBER]): row["newest"] for row in rows if row["newest"] is not None}
    times = [
        moment_or_last(known[one]) if one in known else begin for one in range(1, len(ends) + 1)
    ]
    return list(accumulate(times, max))


def before(offsets: KafkaOffsets) -> Column:
    """Return whether a record is before some offsets; none of a partition not in them is."""
    return between({}, offsets)


def between(since: KafkaOffsets, until: KafkaOffsets) -> Column:
    """Return whether a record is between two positions; a partition not in `since` starts at 0."""
    from pyspark.sql import functions as F

    # As text, which takes one call of the JVM. Names of topics have no quotes.
    parts = [
        f"(topic = '{topic}' AND partition = {part} AND offset < {offset} "
        f"AND offset >= {since.get(topic, {}).get(part, 0)})"
        for topic, part, offset in by_partition(until)
    ]
    return F.expr(" OR ".join(parts) or "false")


def without(
    events: DataFrame, skips: Mapping[tuple[str, int], Sequence[tuple[int, int]]]
) -> DataFrame:
    """Leave out what arrived at some offsets, by topic and partition, each from one to another.

    Args:
        events: `topic`, `partition`, `offset` and `merge_id`, which is null for what arrived.
    """
    if not skips:
        return events
    parts = [
        f"(topic = '{topic}' AND partition = {part} AND offset >= {begin} AND offset < {end})"
        for (topic, part), ranges in sorted(skips.items())
        for begin, end in ranges
    ]
    return events.where(f"merge_id IS NOT NULL OR NOT ({' OR '.join(parts)})")


def newest(events: Iterable[DataFrame]) -> datetime | None:
    """Return the newest event time, None without events."""
    from pyspark.sql import functions as F

    found: list[int] = []
    for frame in events:
        row = frame.agg(F.max(F.unix_micros("event_time")).alias("newest")).first()
        if row is not None and row["newest"] is not None:
            found.append(int(row["newest"]))
    return moment_or_last(max(found)) if found else None


def _ranges(ends: Sequence[End], first: int) -> list[tuple[str, int, int, int]]:
    """Return the offset range and late-event times of each slice."""
    found = []
    begins: dict[str, int] = {_LATE: _FIRST}
    for number, one in enumerate(ends, first):
        stops = {f"{topic}/{part}": offset for topic, part, offset in by_partition(one.offsets)}
        clock = one.clock
        stops[_LATE] = _LAST if clock is None else (clock - EPOCH) // _MICROSECOND + 1
        for place, stop in stops.items():
            if stop > (begin := begins.get(place, 0)):
                found.append((place, begin, stop, number))
                begins[place] = stop
    return found
