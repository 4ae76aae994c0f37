"""Small applications that late events are merged into; a record is JSON of `FIELDS` and `at_ms`.

Spark's interface of stateful processors fixes the names of methods and arguments.
"""
# ruff: noqa: N802, N803

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyarrow import compute
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from savepoints.runtime.app import (
    App,
    CombineFunction,
    Input,
    MergeFunctions,
    Output,
    RowCombination,
)
from spark_jobs import json_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

FIELDS = "id string, k string, n long"
WINDOW_S, LATENESS_S = 10, 5
# How long a session goes on after an event, a question waits for answers, a visit is remembered.
SESSION_S, ANSWER_S, VISIT_S = 4.5, 20, 7.5


def decode(records: DataFrame) -> DataFrame:
    """Read the events in Kafka records."""
    return json_records.decode(records, FIELDS)


def read(topic: str = "events") -> Input:
    """Read a topic of such records."""
    return Input(topic, decode, entity_key="k", event_time=json_records.AT, event_id=("id",))


def tick(
    key: tuple[Any, ...], chunks: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Count what comes in batches that follow each other, and say so in the first without any."""
    count = int(state.get[0]) if state.exists else 0
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"k": [key[0]], "count": [count]})
        return
    state.update((count + sum(map(len, chunks)),))
    # Over when the next batch begins.
    state.setTimeoutDuration(1)


def ticks(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Count by key, with timers that go by the processing time of the batches."""
    return (
        inputs["events"]
        .groupBy("k")
        .applyInPandasWithState(
            tick,
            "k string, count long",
            "count long",
            "append",
            GroupStateTimeout.ProcessingTimeTimeout,
        )
    )


def windows(inputs: Mapping[str, DataFrame], seconds: int = WINDOW_S) -> DataFrame:
    """Sum up in windows that are written when they are over."""
    timed = inputs["events"].withWatermark(json_records.AT, f"{LATENESS_S} seconds")
    window = F.window(json_records.AT, f"{seconds} seconds")
    sums = timed.groupBy(window, "k").agg(F.sum("n").alias("total"))
    return sums.select(F.unix_millis("window.start").alias("start_ms"), "k", "total")


def sessions(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Sum up in sessions that are written when they are over."""
    timed = inputs["events"].withWatermark(json_records.AT, f"{LATENESS_S} seconds")
    session = F.session_window(json_records.AT, f"{SESSION_S} seconds")
    sums = timed.groupBy(session, "k").agg(F.sum("n").alias("total"))
    start, end = (F.unix_millis(f"session_window.{one}") for one in ("start", "end"))
    return sums.select(start.alias("start_ms"), end.alias("end_ms"), "k", "total")


def answers(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Give each even number with the odd ones that follow in a while, or with none."""
    timed = inputs["events"].withWatermark(json_records.AT, f"{LATENESS_S} seconds")
    return _answered(timed.where("n % 2 = 0"), timed.where("n % 2 = 1"))


def answers_apart(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Give the same where questions and answers have a topic and a watermark each."""
    lateness = f"{LATENESS_S} seconds"
    asked, answered = (
        inputs[one].withWatermark(json_records.AT, lateness) for one in ("asked", "answered")
    )
    return _answered(asked, answered)


def _answered(asked: DataFrame, answered: DataFrame) -> DataFrame:
    asked = asked.select("k", "id", json_records.AT)
    answered = answered.selectExpr("k AS of", "id AS answer", f"{json_records.AT} AS then")
    now, until = json_records.AT, f"{json_records.AT} + INTERVAL {ANSWER_S} SECONDS"
    near = F.expr(f"k = of AND then BETWEEN {now} AND {until}")
    return asked.join(answered, near, "leftouter").select("k", "id", "answer")


class Visit(StatefulProcessor):
    """Keeps a number that all events and their order go into, and what came in a while."""

    def init(self, handle: Any) -> None:
        """Declare the state variables."""
        self.handle = handle
        self.chain: Any = handle.getValueState("chain", "value long")
        self.recent: Any = handle.getListState("recent", "n long, at_ms long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        """Go on with the number, and set a timer for each event."""
        value = self.chain.get()[0] if self.chain.exists() else 0
        for row in sorted(rows, key=lambda row: (row.at_ms, row.id)):
            value = chained(value, row.n)
            self.recent.appendValue((row.n, row.at_ms))
            self.handle.registerTimer(row.at_ms + int(VISIT_S * 1000))
            yield Row(k=key[0], what="chain", at_ms=row.at_ms, n=value)
        self.chain.update((value,))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        """Forget what was for so long."""
        fired = expiredTimerInfo.getExpiryTimeInMs()
        until = fired - int(VISIT_S * 1000)
        recent = list(self.recent.get())
        self.recent.clear()
        for one in recent:
            if one[1] > until:
                self.recent.appendValue(one)
        total = sum(one[0] for one in recent if one[1] <= until)
        yield Row(k=key[0], what="gone", at_ms=fired, n=total)

    def close(self) -> None:
        """Nothing is open."""


def chained(value: int, n: int) -> int:
    """Return a number that says what came before, and in which order."""
    return (value * 31 + n + 1) % 1_000_003


def visits(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Keep state by key, with timers that go by the time of the events."""
    timed = inputs["events"].withWatermark(json_records.AT, f"{LATENESS_S} seconds")
    timed = timed.withColumn("at_ms", F.unix_millis(json_records.AT))
    given = "k string, what string, at_ms long, n long"
    return timed.groupBy("k").transformWithState(Visit(), given, "append", "EventTime")


def overall(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Sum up in windows, of all keys together."""
    timed = inputs["events"].withWatermark(json_records.AT, f"{LATENESS_S} seconds")
    window = F.window(json_records.AT, f"{WINDOW_S} seconds")
    sums = timed.groupBy(window).agg(F.sum("n").alias("total"))
    return sums.select(F.unix_millis("window.start").alias("start_ms"), "total")


def totals(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Count and sum up by key, with the newest time in seconds."""
    return (
        inputs["events"]
        .groupBy("k")
        .agg(
            F.count("*").alias("count"),
            F.sum("n").alias("total"),
            F.max(F.unix_millis(json_records.AT) / 1000).alias("newest"),
        )
    )


running = App("running", {"events": read()}, totals, {"out": Output("upsert", ("k",))})
in_sessions = App("in_sessions", {"events": read()}, sessions, {"out": Output("append")})
answering = App("answering", {"events": read()}, answers, {"out": Output("append")})
answering_apart = App(
    "answering_apart",
    {"asked": read("asked"), "answered": read("answered")},
    answers_apart,
    {"out": Output("append")},
)
visiting = App("visiting", {"events": read()}, visits, {"out": Output("append")})
ticking = App("ticking", {"events": read()}, ticks, {"out": Output("append")})


def added(live: pa.RecordBatch, late: pa.RecordBatch) -> pa.RecordBatch:
    """Add up the values of two rows of state."""
    names = [name for name in live.schema.names if name.startswith("value.")]
    return pa.RecordBatch.from_pydict(
        {one.removeprefix("value."): compute.add(live.column(one), late.column(one))
         for one in names}
    )  # fmt: skip


def added_totals(live: pa.RecordBatch, late: pa.RecordBatch) -> pa.RecordBatch:
    """Add up the totals of two rows of a window."""
    total = compute.add(live.column("total"), late.column("total"))
    columns = {"start_ms": live.column("start_ms"), "k": live.column("k"), "total": total}
    return pa.RecordBatch.from_pydict(columns)


def functions(
    states: Mapping[str, CombineFunction] | None = None, rows: CombineFunction = added_totals
) -> MergeFunctions:
    """Return functions for sums in windows."""
    states = {"stateStoreSave": added} if states is None else states
    return MergeFunctions(states, {"out": RowCombination(("k", "start_ms"), rows)})


windowed = App(
    "windowed", {"events": read()}, windows, {"out": Output("append")}, merge=functions()
)
# Another version of it, by which an event is late only when its minute is over.
windowed_by_minute = dataclasses.replace(windowed, build=partial(windows, seconds=60))
nobodys = App("nobodys", {"events": read()}, overall, {"out": Output("append")})
