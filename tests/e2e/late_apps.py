"""Small applications that late events are merged into; a record is JSON of `FIELDS` and `at_ms`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyarrow import compute
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

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


def decode(records: DataFrame) -> DataFrame:
    """Read the events in Kafka records."""
    return json_records.decode(records, FIELDS)


def read() -> Input:
    """Read a topic of such records."""
    return Input("events", decode, entity_key="k", event_time=json_records.AT, event_id=("id",))


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


def windows(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Sum up in windows that are written when they are over."""
    timed = inputs["events"].withWatermark(json_records.AT, f"{LATENESS_S} seconds")
    window = F.window(json_records.AT, f"{WINDOW_S} seconds")
    sums = timed.groupBy(window, "k").agg(F.sum("n").alias("total"))
    return sums.select(F.unix_millis("window.start").alias("start_ms"), "k", "total")


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
nobodys = App("nobodys", {"events": read()}, overall, {"out": Output("append")})
