"""Figures of what was dropped as late: how much, by which operator, how late, of which hours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from savepoints.moments import moment_of
from savepoints.sources.events.events import POSITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHARES = (0.5, 0.9, 0.99, 1.0)
_NEWEST = 10


@dataclass(frozen=True)
class LateEvent:
    """A late event.

    Attributes:
        event_id: What identifies it, as text.
        entity: What it is of.
        event_time: Its time.
        topic: Where its record is.
        partition: Partition of the topic.
        offset: Offset in the partition.
    """

    event_id: str
    entity: str
    event_time: datetime
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class LateHour:
    """The late events of one hour.

    Attributes:
        hour: Its beginning, by the time of the events.
        events: The events.
        entities: Entities that they are of.
    """

    hour: datetime
    events: int
    entities: int


@dataclass(frozen=True)
class LateOperator:
    """What one operator dropped.

    Attributes:
        name: The operator, in words.
        events: Events that rows were dropped of.
        rows: The rows: an event is in several sliding windows, and may be exploded.
        results: Results that miss them: windows, sessions or times, of each entity.
    """

    name: str
    events: int
    rows: int
    results: int


@dataclass(frozen=True, kw_only=True)
class LateFigures:
    """What was dropped, in figures.

    Attributes:
        events: The events.
        entities: Entities that they are of.
        operators: What each operator dropped.
        missed_seconds: How far behind the watermark the events were, or the ends of their windows:
            the middle, 90 %, 99 % and the most. The watermark would have to wait that much longer.
        hours: Counts by the hour of the events.
        newest: Some of the events, the newest ones by their time, at most ten.
    """

    events: int
    entities: int
    operators: tuple[LateOperator, ...]
    missed_seconds: tuple[float, ...]
    hours: tuple[LateHour, ...]
    newest: tuple[LateEvent, ...]


def of(events: DataFrame, rows: DataFrame) -> LateFigures:
    """Count events that were dropped.

    Args:
        events: They, each once: at least `topic`, `partition`, `offset`, `entity`, `event_time`,
            `event_id`.
        rows: What was dropped of them and of others; columns of
            `savepoints.runtime.late_rows.dropped`.
    """
    from pyspark.sql import functions as F

    lost = rows.join(events.select(*POSITION, "entity"), list(POSITION))
    counts = events.agg(F.count("*").alias("n"), F.count_distinct("entity").alias("k")).collect()[0]
    return LateFigures(
        events=int(counts["n"]),
        entities=int(counts["k"]),
        operators=_operators(lost),
        missed_seconds=_missed(lost),
        hours=_hours(events),
        newest=_newest(events),
    )


def _operators(lost: DataFrame) -> tuple[LateOperator, ...]:
    from pyspark.sql import functions as F

    rows = lost.groupBy("operator").agg(
        F.count_distinct(*POSITION).alias("events"),
        F.count("*").alias("n"),
        F.count_distinct("entity", "compared").alias("results"),
    )
    return tuple(
        LateOperator(one["operator"], int(one["events"]), int(one["n"]), int(one["results"]))
        for one in rows.orderBy("operator").collect()
    )


def _missed(lost: DataFrame) -> tuple[float, ...]:
    """Return how far behind the watermark events were, in seconds, at `_SHARES` of them."""
    from pyspark.sql import functions as F

    behind = F.col("late_ms") - F.unix_micros("compared") / 1000
    each = lost.groupBy(*POSITION).agg(F.max(behind).alias("missed"))
    (row,) = each.agg(F.percentile("missed", list(_SHARES)).alias("shares")).collect()
    return tuple(round(one / 1000, 3) for one in row["shares"] or ())


def _hours(events: DataFrame) -> tuple[LateHour, ...]:
    from pyspark.sql import functions as F

    micros = 3_600_000_000
    hour = F.floor(F.unix_micros("event_time") / micros) * 3600
    rows = events.groupBy(hour.alias("begin")).agg(
        F.count("*").alias("n"), F.count_distinct("entity").alias("entities")
    )
    return tuple(
        LateHour(moment_of(int(one["begin"]) * 1000), int(one["n"]), int(one["entities"]))
        for one in rows.orderBy("begin").collect()
    )


def _newest(events: DataFrame) -> tuple[LateEvent, ...]:
    from pyspark.sql import functions as F

    micros = F.unix_micros("event_time")
    found = events.select("event_id", "entity", micros.alias("micros"), *POSITION)
    latest = found.orderBy(F.col("micros").desc(), *POSITION).limit(_NEWEST)
    return tuple(
        LateEvent(name, entity, moment_of(micros // 1000), *place)
        for name, entity, micros, *place in latest.collect()
    )
