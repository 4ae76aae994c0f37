"""Programs that late events are merged into: one for each way of keeping state by an entity.

What they give does not depend on how events are cut into batches, as an exact merge wants it:
functions whose result depends on order sort their rows, and timers go by event time. Spark's
interfaces fix the names of methods and arguments, and have no types for rows.
"""
# ruff: noqa: N802, N803

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from savepoints.runtime.app import App, Input, Output
from spark_jobs import order_sessions
from tests.fidelity.merge_query import Case

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Inputs = Sequence["DataFrame"]
GIVEN = "k string, what string, at timestamp, n long"
# So long that what is late can lie on both sides of the watermark, also after a batch more.
LATENESS = "30 seconds"
# How long after an event its timer fires.
WAIT_MS = 15_000
# How long a count goes on by the clock.
TICK_MS = 45_000
_MODULUS = 1_000_003


def _timed(frame: DataFrame, lateness: str = LATENESS) -> DataFrame:
    return frame.withWatermark("t", lateness)


def _totals(inputs: Inputs) -> DataFrame:
    totals = (F.count("*").alias("n"), F.sum("v").alias("s"), F.max("t").alias("last"))
    return inputs[0].groupBy("k").agg(*totals)


def _window(inputs: Inputs, lateness: str = LATENESS) -> DataFrame:
    sums = (F.sum("v").alias("s"), F.count("*").alias("n"))
    return _timed(inputs[0], lateness).groupBy(F.window("t", "10 seconds"), "k").agg(*sums)


def _dropping(inputs: Inputs) -> DataFrame:
    """Wait so little that what comes three batches later is dropped."""
    return _window(inputs, "10 seconds")


def _session(inputs: Inputs) -> DataFrame:
    session = F.session_window("t", "6 seconds")
    return _timed(inputs[0]).groupBy(session, "k").agg(F.count("*").alias("n"))


def _dedupe(inputs: Inputs) -> DataFrame:
    return _timed(inputs[0]).dropDuplicates(["k", "v", "t"]).select("k", "v", "t")


def _chain(inputs: Inputs) -> DataFrame:
    first = _timed(inputs[0]).dropDuplicates(["k", "v", "t"])
    return first.groupBy(F.window("t", "10 seconds"), "k").agg(F.count("*").alias("n"))


def _join(how: str) -> Callable[[Inputs], DataFrame]:
    def build(inputs: Inputs) -> DataFrame:
        left = _timed(inputs[0].select("k", "v", "t"))
        right = inputs[1].selectExpr("k AS k2", "v AS v2", "t AS t2")
        right = right.withWatermark("t2", LATENESS)
        near = F.expr("k = k2 AND v = v2 AND t2 BETWEEN t AND t + INTERVAL 15 SECONDS")
        return left.join(right, near, how)

    return build


def _in_order(pdfs: Iterator[pd.DataFrame]) -> pd.DataFrame:
    found = list(pdfs)
    return pd.concat(found).sort_values(["t", "id"]) if found else pd.DataFrame({"t": [], "v": []})


def _chained(value: int, v: int) -> int:
    return (value * 31 + v + 1) % _MODULUS


def _history(key: Any, pdfs: Iterator[Any], state: Any) -> Iterator[Any]:
    """Give a number for each event, which all events before it and their order go into."""
    (value,) = state.get if state.exists else (0,)
    rows = []
    for v, t in _in_order(pdfs)[["v", "t"]].itertuples(index=False):
        value = _chained(value, int(v))
        rows.append((key[0], "history", t, value))
    state.update((value,))
    yield pd.DataFrame(rows, columns=["k", "what", "at", "n"])


def _pandas(inputs: Inputs) -> DataFrame:
    return (
        inputs[0]
        .groupBy("k")
        .applyInPandasWithState(_history, GIVEN, "value long", "append", "NoTimeout")
    )


class Recent(StatefulProcessor):
    """Keeps a value, a list and a map, and a timer for each event, after which it is forgotten."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value: Any = handle.getValueState("value", "n long")
        self.recent: Any = handle.getListState("recent", "v long, at timestamp")
        self.counts: Any = handle.getMapState("counts", "v long", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        value = self.value.get()[0] if self.value.exists() else 0
        for row in sorted(rows, key=lambda row: (row.t, row.id)):
            value = _chained(value, row.v)
            self.recent.appendValue((row.v, row.t))
            count = self.counts.getValue((row.v,))[0] if self.counts.containsKey((row.v,)) else 0
            self.counts.updateValue((row.v,), (count + 1,))
            self.handle.registerTimer(self.fires_at(row.t))
            yield Row(k=key[0], what="value", at=row.t, n=value)
            yield Row(k=key[0], what=f"count {row.v}", at=row.t, n=count + 1)
        self.value.update((value,))

    def fires_at(self, t: Any) -> int:
        return int(t.timestamp() * 1000) + WAIT_MS

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        fired = expiredTimerInfo.getExpiryTimeInMs()
        recent = list(self.recent.get())
        gone = [one for one in recent if self.fires_at(one[1]) <= fired]
        self.recent.clear()
        for one in recent:
            if one not in gone:
                self.recent.appendValue(one)
        at = pd.Timestamp(fired, unit="ms").to_pydatetime()
        yield Row(k=key[0], what="forgotten", at=at, n=sum(one[0] for one in gone))

    def close(self) -> None:
        """Nothing is open."""


def _transform(inputs: Inputs) -> DataFrame:
    return _timed(inputs[0]).groupBy("k").transformWithState(Recent(), GIVEN, "append", "EventTime")


class Rearming(Recent):
    """Its timer goes off again and again, and each time it counts."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        found = list(rows)
        if not self.value.exists():
            self.handle.registerTimer(min(self.fires_at(row.t) for row in found))
        count = self.value.get()[0] if self.value.exists() else 0
        self.value.update((count + len(found),))
        yield from ()

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        fired = expiredTimerInfo.getExpiryTimeInMs()
        self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + WAIT_MS)
        at = pd.Timestamp(fired, unit="ms").to_pydatetime()
        yield Row(k=key[0], what="rung", at=at, n=self.value.get()[0])


def _tick(key: Any, pdfs: Iterator[Any], state: Any) -> Iterator[Any]:
    """Count what came until the clock has gone on for a while."""
    count, until = state.get if state.exists else (0, state.getCurrentProcessingTimeMs() + TICK_MS)
    if state.hasTimedOut:
        state.remove()
        at = pd.Timestamp(until, unit="ms")
        yield pd.DataFrame({"k": [key[0]], "what": ["ticked"], "at": [at], "n": [count]})
        return
    state.update((count + sum(map(len, pdfs)), until))
    state.setTimeoutDuration(max(1, until - state.getCurrentProcessingTimeMs()))


def _rearming(inputs: Inputs) -> DataFrame:
    return (
        _timed(inputs[0]).groupBy("k").transformWithState(Rearming(), GIVEN, "append", "EventTime")
    )


def _ticking(inputs: Inputs) -> DataFrame:
    return (
        inputs[0]
        .groupBy("k")
        .applyInPandasWithState(
            _tick, GIVEN, "n long, until long", "append", "ProcessingTimeTimeout"
        )
    )


def decode(records: DataFrame) -> DataFrame:
    """Read the events that `merge_events` writes."""
    value = F.from_json(F.col("value").cast("string"), "id string, k string, v long, t timestamp")
    parsed = records.select(value.alias("e"), "topic", "partition", "offset")
    return parsed.select("e.*", "topic", "partition", "offset")


def app(
    name: str,
    build: Callable[[Inputs], DataFrame],
    output: Output | None = None,
    sources: int = 1,
) -> App:
    """Return a program over inputs that `decode` reads."""

    def by_name(inputs: Mapping[str, DataFrame]) -> DataFrame:
        return build([inputs[f"in{number}"] for number in range(sources)])

    one = Input(topic="in", decode=decode, entity_key="k", event_time="t", event_id=("id",))
    return App(
        name=name,
        inputs={f"in{number}": replace(one, topic=f"in{number}") for number in range(sources)},
        build=by_name,
        outputs={"out": output or Output(mode="append", entity_key="k")},
    )


# A second is five minutes: then gaps are what they are for the others, and batches too.
_SCALE = 300
_ALL = (
    Case("totals", app("totals", _totals, Output(mode="upsert", key=("k",)))),
    Case("window", app("window", _window)),
    Case("session", app("session", _session)),
    Case("pandas", app("pandas", _pandas)),
    Case("transform", app("transform", _transform)),
    Case("order_sessions", order_sessions.app, _SCALE),
    Case("order_sessions_transform", order_sessions.app_transform, _SCALE),
    Case("dedupe", app("dedupe", _dedupe)),
    Case("chain", app("chain", _chain)),
    Case("join_inner", app("join_inner", _join("inner"), sources=2)),
    Case("join_left", app("join_left", _join("leftouter"), sources=2)),
)
# The short way is exact for them.
SHORT = {one.name: one for one in _ALL}
# Only the faithful way is.
FAITHFUL = {
    one.name: one
    for one in (
        Case("window_disorder", app("window_disorder", _dropping), disorder=True),
        Case("ticking", app("ticking", _ticking), clocked=True),
        Case("rearming", app("rearming", _rearming)),
    )
}
# For the settings of a query.
join = SHORT["join_inner"].app
