"""Which events came below the watermark of the live query, counted by hand."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from savepoints.sources.late import dropped_late
from savepoints.sources.late.dropped_late import Read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BATCHES = (
    Read({}, {"a": {0: 2}, "b": {0: 2}}, 0),
    Read({"a": {0: 2}, "b": {0: 2}}, {"a": {0: 4}, "b": {0: 3}}, 50_000),
)


def test_events_behind_the_watermark_of_their_batch_are_counted_trap_at_the_watermark(
    spark: SparkSession,
) -> None:
    """Not those of the first batch, of late events, after the watermark, or beyond the end.

    A trap: Spark drops what is at the watermark itself, too.
    """
    events = [
        ("a", 0, 0, 10),
        ("a", 0, 2, 49),  # Dropped.
        ("a", 0, 3, 50),  # Dropped.
        ("a", 0, 4, 10),
        ("b", 0, 2, 10),  # Dropped.
        ("a", -1, 2, 10),
    ]
    rows = [(*one[:3], dt.datetime.fromtimestamp(one[3], dt.UTC)) for one in events]
    frame = spark.createDataFrame(
        rows, "topic string, partition int, offset long, event_time timestamp"
    )
    assert dropped_late.count(frame, BATCHES) == 3
    assert dropped_late.count(frame, BATCHES[:1]) == 0


def test_trap_a_watermark_of_zero_drops_what_is_as_old_as_a_default_value(
    spark: SparkSession,
) -> None:
    """Spark's first watermark is 1970, and an event without a time often says that it is as old."""
    frame = spark.createDataFrame(
        [("a", 0, 0, dt.datetime.fromtimestamp(0, dt.UTC))],
        "topic string, partition int, offset long, event_time timestamp",
    )
    assert dropped_late.count(frame, BATCHES) == 1
