"""Readings of devices, put in order inside windows of event time.

Readings that come out of order wait in their window. When the watermark has passed the window's end
they are written in the order in which they happened, with their place in the window and a number
that goes on from window to window. What waits is state: a query that is killed in the middle of a
window goes on with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd
from pyspark.sql import functions as F

from savepoints.runtime.app import App, Input, Output
from spark_jobs import json_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

FIELDS = "event_id string, device_id string, reading long"
WINDOW_MS = 60_000
LATENESS = "30 seconds"

_ROW = (
    "device_id string, window_ms long, place long, number long, at_ms long, event_id string, "
    "reading long"
)


class Reading(NamedTuple):
    """A reading; readings are ordered by their time, then by their id.

    Attributes:
        at_ms: When, in milliseconds since 1970.
        event_id: Unique.
        reading: What the device read.
    """

    at_ms: int
    event_id: str
    reading: int

    @property
    def window_ms(self) -> int:
        """Begin of its window."""
        return self.at_ms - self.at_ms % WINDOW_MS


class Row(NamedTuple):
    """What is written of a reading; times are in milliseconds since 1970.

    Attributes:
        window_ms: Begin of its window.
        place: Its place in the window, from 1.
        number: Its number among all of the device, from 1.
        at_ms: When it was.
        event_id: Its id.
        reading: What the device read.
    """

    window_ms: int
    place: int
    number: int
    at_ms: int
    event_id: str
    reading: int


def settle(
    written: int, readings: Iterable[Reading], watermark_ms: int
) -> tuple[list[Row], list[Reading], int | None]:
    """Take the readings of a device out of the windows that are over, in order.

    Args:
        written: How many were written before.
        readings: Those that wait, in any order.
        watermark_ms: Nothing that happened before it will come any more.

    Returns:
        The rows to be written, the readings that wait on, in order, and the end of the first
        window in which one waits (None when none does), in milliseconds since 1970.
    """
    once = {one.event_id: one for one in sorted(readings, reverse=True)}
    rows: list[Row] = []
    waiting: list[Reading] = []
    for window_ms, inside in groupby(sorted(once.values()), key=lambda one: one.window_ms):
        if window_ms + WINDOW_MS < watermark_ms:
            for place, one in enumerate(inside, start=1):
                rows.append(Row(window_ms, place, written + len(rows) + 1, *one))
        else:
            waiting.extend(inside)
    return rows, waiting, waiting[0].window_ms + WINDOW_MS if waiting else None


def decode(records: DataFrame) -> DataFrame:
    """Read the events in Kafka records; see `json_records.decode`."""
    return json_records.decode(records, FIELDS)


def encode(events: DataFrame) -> DataFrame:
    """Write events as Kafka records; see `json_records.encode`."""
    return json_records.encode(events, FIELDS, key="device_id")


def _advance(
    key: tuple[str], chunks: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    written, kept = state.get if state.exists else (0, "[]")
    names = list(Reading._fields)
    # Arrow may have cut the readings of a device anywhere.
    new = [row for one in chunks for row in one[names].itertuples(index=False, name=None)]
    readings = [Reading(*reading) for reading in [*json.loads(kept), *new]]
    rows, waiting, end_ms = settle(written, readings, state.getCurrentWatermarkMs())
    state.update((written + len(rows), json.dumps(waiting)))
    if end_ms is not None:
        state.setTimeoutTimestamp(end_ms)
    if rows:
        frame = pd.DataFrame(rows, columns=list(Row._fields))
        frame.insert(0, "device_id", key[0])
        yield frame


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the query.

    Args:
        inputs: `readings`, decoded.

    Returns:
        device_id, window_at, place, number, at, event_id, reading; for append mode.
    """
    timed = inputs["readings"].withWatermark(json_records.AT, LATENESS)
    at_ms = F.unix_millis(json_records.AT).alias("at_ms")
    readings = timed.select("device_id", json_records.AT, at_ms, "event_id", "reading")
    found = readings.groupBy("device_id").applyInPandasWithState(
        _advance,
        _ROW,
        # As text: workers of Spark 4.2.0 cannot read that a column of state is an array.
        "written long, waiting string",
        "append",
        "EventTimeTimeout",
    )
    return found.select(
        "device_id",
        F.timestamp_millis("window_ms").alias("window_at"),
        "place",
        "number",
        F.timestamp_millis("at_ms").alias(json_records.AT),
        "event_id",
        "reading",
    )


app = App(
    name="sort_window",
    inputs={
        "readings": Input(
            topic="readings",
            decode=decode,
            entity_key="device_id",
            event_time=json_records.AT,
            event_id=("event_id",),
            encode=encode,
        )
    },
    build=build,
    outputs={"sorted": Output(mode="append")},
)
