"""Programs that drop late rows: one for each way in which Spark does.

They wait ten seconds. What comes a batch later is late for some of them and not for others, and
what comes three batches later is for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from savepoints.runtime.app import Output
from spark_jobs import order_sessions
from tests.fidelity import merge_cases
from tests.fidelity.merge_cases import GIVEN, Inputs, Recent
from tests.fidelity.merge_query import Case

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCALE = 300


@dataclass(frozen=True)
class Dropping:
    """A program, and when it drops an event.

    Attributes:
        case: The program.
        drops: Of the time of an event and of the watermark, both in seconds since the beginning:
            whether it drops it, or one of its rows.
    """

    case: Case
    drops: Callable[[float, float], bool]


def _timed(frame: DataFrame) -> DataFrame:
    return frame.withWatermark("t", "10 seconds")


def _window(inputs: Inputs) -> DataFrame:
    return _timed(inputs[0]).groupBy(F.window("t", "10 seconds"), "k").agg(F.sum("v").alias("s"))


def _sliding(inputs: Inputs) -> DataFrame:
    """Neither the position of a record nor the window gets through."""
    few = _timed(inputs[0].select("k", "v", "t"))
    windows = few.groupBy(F.window("t", "20 seconds", "10 seconds").alias("w"), "k")
    return windows.agg(F.count("*").alias("n")).select("k", F.unix_millis("w.end").alias("e"), "n")


def _session(inputs: Inputs) -> DataFrame:
    session = F.session_window("t", "6 seconds")
    return _timed(inputs[0]).groupBy(session, "k").agg(F.count("*").alias("n"))


def _dedupe(inputs: Inputs) -> DataFrame:
    return _timed(inputs[0]).dropDuplicates(["k", "v", "t"]).select("k", "v", "t")


def _within(inputs: Inputs) -> DataFrame:
    return _timed(inputs[0]).dropDuplicatesWithinWatermark(["k", "v"]).select("k", "v")


def _chain(inputs: Inputs) -> DataFrame:
    first = _timed(inputs[0]).dropDuplicates(["k", "v", "t"])
    return first.groupBy(F.window("t", "10 seconds"), "k").agg(F.count("*").alias("n"))


def _join(how: str) -> Callable[[Inputs], DataFrame]:
    def build(inputs: Inputs) -> DataFrame:
        left = _timed(inputs[0].select("k", "v", "t"))
        right = inputs[1].selectExpr("k AS k2", "v AS v2", "t AS t2")
        right = right.withWatermark("t2", "10 seconds")
        # Wide enough that dropped events have partners.
        near = F.expr("k = k2 AND t2 BETWEEN t - INTERVAL 15 SECONDS AND t + INTERVAL 15 SECONDS")
        return left.join(right, near, how)

    return build


def _transform(inputs: Inputs) -> DataFrame:
    return _timed(inputs[0]).groupBy("k").transformWithState(Recent(), GIVEN, "append", "EventTime")


def _by_time(t: float, watermark: float) -> bool:
    return t <= watermark


def _by_window(t: float, watermark: float) -> bool:
    """The first of the windows that an event is in ends so."""
    return t // 10 * 10 + 10 <= watermark


def _by_session(t: float, watermark: float) -> bool:
    return t + 6 <= watermark


def _case(
    name: str,
    build: Callable[[Inputs], DataFrame],
    drops: Callable[[float, float], bool],
    output: Output | None = None,
    sources: int = 1,
) -> Dropping:
    app = merge_cases.app(name, build, output, sources)
    return Dropping(Case(name, app, disorder=True), drops)


_UPDATED = Output(mode="upsert", key=("window", "k"), entity_key="k")
_ALL = (
    _case("window", _window, _by_window),
    _case("window_update", _window, _by_window, _UPDATED),
    _case("sliding", _sliding, _by_window),
    _case("session", _session, _by_session),
    _case("dedupe", _dedupe, _by_time),
    _case("within", _within, _by_time),
    _case("chain", _chain, _by_time),
    _case("join_inner", _join("inner"), _by_time, sources=2),
    _case("join_left", _join("leftouter"), _by_time, sources=2),
    _case("transform", _transform, _by_time),
    Dropping(Case("order_sessions", replace(order_sessions.app), _SCALE, disorder=True), _by_time),
)
DROPPING = {one.case.name: one for one in _ALL}
