"""Which slice an event belongs to, and what removals take away: against plain Python."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import pytest

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.sources.archive import archive
from savepoints.sources.archive.files import SCHEMA
from savepoints.sources.events import offset_ranges
from savepoints.sources.events.offset_ranges import End

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class Event(NamedTuple):
    event_id: str
    event_time: datetime
    topic: str
    partition: int
    offset: int
    merge_id: str | None


COLUMNS = (
    "event_id string, event_time timestamp, topic string, partition int, offset long, "
    "merge_id string"
)


def at(hour: int) -> datetime:
    return BEGINNING + timedelta(hours=hour)


def test_what_arrived_goes_by_offsets_and_what_is_late_by_the_clock(spark: SparkSession) -> None:
    chance = random.Random(5)
    ends = [End({"orders": {0: 10, 1: 5}}, at(10)), End({"orders": {0: 20, 1: 25}}, None)]
    arrived = [
        Event(f"a{part}-{n}", at(chance.randrange(20)), "orders", part, n, None)
        for part in range(2)
        for n in range(30)
    ]
    late = [Event(f"l{n}", at(n), "orders", -1, n, "m1") for n in range(20)]

    found = offset_ranges.numbered(spark.createDataFrame([*arrived, *late], COLUMNS), ends, first=4)

    def slice_of(one: Event) -> int | None:
        if one.merge_id is not None:
            return 4 if one.event_time <= at(10) else 5
        if one.offset < (10, 5)[one.partition]:
            return 4
        return 5 if one.offset < (20, 25)[one.partition] else None

    numbered = {row["event_id"]: row[offset_ranges.NUMBER] for row in found.collect()}
    expected = {one.event_id: slice_of(one) for one in (*arrived, *late)}
    assert numbered == {name: number for name, number in expected.items() if number is not None}
    assert offset_ranges.newest([found]) == max(
        one.event_time for one in (*arrived, *late) if expected[one.event_id]
    )


def test_trap_hundreds_of_slices_are_more_than_one_expression_can_hold(
    spark: SparkSession,
) -> None:
    """Slices without anything in them, too, and clocks that stand still in them."""
    chance = random.Random(7)
    length, events = 600, 2_000
    stops = [*sorted(chance.sample(range(1, events), length - 1)), events]
    times = [at(0) + timedelta(microseconds=chance.randrange(10**6)) for _ in range(events)]
    arrived = [Event(f"a{n}", times[n], "orders", 0, n, None) for n in range(events)]
    positions = [{"orders": {0: stop}} for stop in stops for _ in range(2)]
    clock = [max([at(-1), *times[:stop]]) for stop in stops for _ in range(2)]
    frame = spark.createDataFrame(arrived, COLUMNS)

    assert offset_ranges.clocks(frame, positions, at(-1)) == clock

    late = [Event(f"l{n}", chance.choice(clock), "orders", -1, n, "m1") for n in range(99)]
    ends = [End(*end) for end in zip(positions, clock, strict=True)]
    both = frame.unionByName(spark.createDataFrame(late, COLUMNS))
    found = {
        row["event_id"]: row[offset_ranges.NUMBER]
        for row in offset_ranges.numbered(both, ends).collect()
    }

    assert found == {
        **{one.event_id: 1 + next(n for n, end in enumerate(ends)
                                  if one.offset < end.offsets["orders"][0]) for one in arrived},
        **{one.event_id: 1 + clock.index(one.event_time) for one in late},
    }  # fmt: skip


def test_trap_an_event_after_the_year_9999_was_an_unexpected_error(spark: SparkSession) -> None:
    """Milliseconds taken for seconds. Whatever comes after it, by a late event's time or not."""
    seconds = spark.range(2).selectExpr(
        "concat('e', id) event_id", "timestamp_seconds(if(id = 0, 0, 1792891800000)) event_time",
        "'orders' topic", "0 partition", "id offset", "null merge_id",
    )  # fmt: skip
    ends: list[KafkaOffsets] = [{"orders": {0: 1}}, {"orders": {0: 2}}]

    first, last = offset_ranges.clocks(seconds, ends, offset_ranges.NEVER)

    assert first == datetime(1970, 1, 1, tzinfo=UTC)
    assert last == offset_ranges.newest([seconds]) == datetime.max.replace(tzinfo=UTC)


def test_before_the_first_event_nothing_is_late(spark: SparkSession) -> None:
    late = [Event("l", at(0), "orders", -1, 0, "m1")]
    ends = [End({"orders": {0: 0}}, offset_ranges.NEVER), End({"orders": {0: 1}}, None)]

    (row,) = offset_ranges.numbered(spark.createDataFrame(late, COLUMNS), ends).collect()

    assert row[offset_ranges.NUMBER] == 2


def test_a_removal_takes_away_what_was_there_of_its_entity_and_nothing_that_came_later(
    spark: SparkSession,
) -> None:
    def row(
        name: str, entity: str, offset: int, merge: str | None, op: str | None
    ) -> tuple[object, ...]:
        part = 0 if merge is None else -1
        return (None, b"", "orders", part, offset, at(0), 0, None, entity, at(0), name, merge, op)

    rows = [
        row("wrong", "anna", 3, None, None),  # Taken away by m1.
        row("wrong", "anna", 30, None, None),  # Sent again afterwards.
        row("wrong", "bob", 4, None, None),  # Somebody else's.
        row("wrong", "anna", 0, "m1", "remove"),
        row("late", "anna", 1, "m1", "insert"),  # Taken away by m2.
        row("late", "anna", 0, "m2", "remove"),
        row("late", "anna", 1, "m2", "insert"),  # Put there instead.
    ]
    reached = {"m1": {"orders": {0: 10}}}

    kept = archive.applied(spark.createDataFrame(rows, SCHEMA), ["m1", "m2"], reached).collect()

    assert sorted((one["event_id"], one["entity"], one["offset"], one["merge_id"] or "")
                  for one in kept) == [
        ("late", "anna", 1, "m2"),
        ("wrong", "anna", 30, ""),
        ("wrong", "bob", 4, ""),
    ]  # fmt: skip
