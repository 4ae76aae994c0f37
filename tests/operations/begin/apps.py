"""Programs for each way in which state is kept, which read a table of events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from savepoints.runtime.app import App, Output, TableInput
from tests.fidelity.merge_cases import LATENESS, SHORT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = "id string, k string, v long, t timestamp"
_EVENTS = TableInput(columns=COLUMNS, entity_key="k", event_time="t")
_APPEND = Output("append")


def _app(
    name: str, build: Callable[[Mapping[str, DataFrame]], DataFrame], output: Output = _APPEND
) -> App:
    return App(name, {"in0": _EVENTS}, build, {"out": output})


def _of(name: str, output: Output = _APPEND) -> App:
    """Return a program of the oracle of merges, reading tables."""
    app = SHORT[name].app
    return App(f"{name}", dict.fromkeys(app.inputs, _EVENTS), app.build, {"out": output})


def _window_update(inputs: Mapping[str, DataFrame]) -> DataFrame:
    sums = (F.sum("v").alias("s"), F.avg("v").alias("mean"))
    timed = inputs["in0"].withWatermark("t", LATENESS)
    found = timed.groupBy(F.window("t", "10 seconds"), "k").agg(*sums)
    return found.select(F.col("window.start").alias("start"), "k", "s", "mean")


def _within(inputs: Mapping[str, DataFrame]) -> DataFrame:
    timed = inputs["in0"].withWatermark("t", LATENESS)
    return timed.dropDuplicatesWithinWatermark(["k", "v"]).select("k", "v", "t")


def _total(inputs: Mapping[str, DataFrame]) -> DataFrame:
    return inputs["in0"].agg(F.count("*").alias("n"), F.sum("v").alias("s"))


def _forget(key: Any, pdfs: Any, state: Any) -> Any:
    """Count events until none has come for a while, by event time."""
    import pandas as pd

    count = state.get[0] if state.exists else 0
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"k": [key[0]], "n": [count]})
        return
    newest = 0
    for one in pdfs:
        count += len(one)
        newest = max(newest, int(one["t"].max().timestamp() * 1000))
    state.update((count,))
    state.setTimeoutTimestamp(max(newest, state.getCurrentWatermarkMs()) + 20_000)


def _pandas_event(inputs: Mapping[str, DataFrame]) -> DataFrame:
    timed = inputs["in0"].withWatermark("t", LATENESS)
    return timed.groupBy("k").applyInPandasWithState(
        _forget, "k string, n long", "n long", "append", "EventTimeTimeout"
    )


def _expiring(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Keep a value, a list and a map of each key for some hours."""
    from tests.fidelity import processors

    return (
        inputs["in0"]
        .groupBy("k")
        .transformWithState(
            processors.ShortAndLongLived(), processors.OUTPUT, "append", "ProcessingTime"
        )
    )


def _two(*names: str) -> Callable[[Mapping[str, DataFrame]], DataFrame]:
    def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
        made = {"s": F.sum("v").alias("s"), "m": F.max("v").alias("m")}
        return inputs["in0"].groupBy("k").agg(*(made[one] for one in names))

    return build


def _limit(inputs: Mapping[str, DataFrame]) -> DataFrame:
    return inputs["in0"].select("k", "v").limit(100)


limit = _app("limit", _limit)
sum_max = _app("two", _two("s", "m"), Output("upsert", ("k",)))
max_sum = _app("two", _two("m", "s"), Output("upsert", ("k",)))
totals = _of("totals", Output("upsert", ("k",)))
total = _app("total", _total, Output("complete"))
window = _of("window")
window_update = _app("window_update", _window_update, Output("upsert", ("start", "k")))
part = _app("part", _window_update, Output("append", where="s % 2 = 0", columns=("k", "s")))
session = _of("session")
dedupe = _of("dedupe")
within = _app("within", _within)
chain = _of("chain")
join_inner = _of("join_inner")
join_left = _of("join_left")
pandas_event = _app("pandas_event", _pandas_event)
transform = _of("transform")
transform_ttl = _app("transform_ttl", _expiring)


def _streamed(name: str, output: Output | None = None) -> App:
    """Return a program of the oracle of merges, reading topics."""
    app = SHORT[name].app
    return replace(app, outputs={"out": output}) if output else app


stream_totals = _streamed("totals", Output("upsert", ("k",)))
stream_window = _streamed("window", Output("append", entity_key="k"))
stream_session = _streamed("session")
stream_dedupe = _streamed("dedupe")
stream_join_inner = _streamed("join_inner")
stream_join_left = _streamed("join_left")
stream_transform = _streamed("transform")
stream_pandas_event = replace(
    SHORT["window"].app, name="pandas_event", build=_pandas_event, outputs={"out": _APPEND}
)
stream_transform_ttl = replace(
    SHORT["window"].app, name="transform_ttl", build=_expiring, outputs={"out": _APPEND}
)
stream_within = replace(SHORT["window"].app, name="within", build=_within, outputs={"out": _APPEND})
stream_window_update = replace(
    SHORT["window"].app,
    name="window_update",
    build=_window_update,
    outputs={"out": Output("upsert", ("start", "k"))},
)
