"""Small applications for bounded runs; a record is `key,number`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from savepoints.runtime.app import App, Input, Output

if TYPE_CHECKING:
    from pyspark.sql.streaming.state import GroupState


def decode(records: DataFrame) -> DataFrame:
    """Read `key,number`."""
    parts = F.split(F.col("value").cast("string"), ",")
    return records.select(
        parts[0].alias("k"),
        parts[1].cast("int").alias("n"),
        parts[1].cast("int").cast("timestamp").alias("at"),
    )


def read(topic: str) -> Input:
    """Read a topic of such records."""
    return Input(topic=topic, decode=decode, entity_key="k", event_time="at")


def totals_of_both(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Count and sum both topics; Spark counts the sources in this order, not in the inputs'."""
    both = inputs["left"].unionByName(inputs["right"])
    return both.groupBy("k").agg(F.count("*").alias("many"), F.sum("n").alias("total"))


def totals_of_one_twice(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Count the left topic twice, for which Spark makes one source with two positions."""
    doubled = {**inputs, "left": inputs["left"].unionByName(inputs["left"])}
    return totals_of_both(doubled)


def with_what_follows(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Give each event on the left with those that follow it on the right, or with none."""
    left = inputs["left"].withWatermark("at", "1 second").select("k", "n", "at")
    right = inputs["right"].withWatermark("at", "1 second")
    right = right.selectExpr("k AS of", "n AS answer", "at AS then")
    near = F.expr("k = of AND then BETWEEN at AND at + INTERVAL 5 SECONDS")
    return left.join(right, near, "leftouter").select("k", "n", "answer")


def distinct(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Give each event once."""
    return inputs["events"].dropDuplicates(["k", "n"]).select("k", "n")


def windows(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Count in windows that are written when they are over."""
    timed = inputs["events"].withWatermark("at", "10 seconds")
    counted = timed.groupBy(F.window("at", "10 seconds"), "k").count()
    return counted.select(F.col("window.start").alias("start"), "k", "count")


def sum_up(
    key: tuple[Any, ...], chunks: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Sum up, with a timer that is far away: there is always another batch to wait for."""
    so_far = state.get[0] if state.exists else 0
    so_far += int(sum(chunk["n"].sum() for chunk in chunks))
    state.update((so_far,))
    state.setTimeoutDuration(3_600_000)
    yield pd.DataFrame({"k": [key[0]], "total": [so_far]})


def with_timers(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Sum up by key, with timers in processing time."""
    grouped = inputs["events"].groupBy("k")
    return grouped.applyInPandasWithState(
        sum_up,
        "k string, total long",
        "total long",
        "update",
        GroupStateTimeout.ProcessingTimeTimeout,
    )


two_topics = App(
    name="two_topics",
    inputs={"right": read("right"), "left": read("left")},
    build=totals_of_both,
    outputs={"out": Output(mode="upsert", key=("k",))},
)
followed = App(
    name="followed",
    inputs={"left": read("left"), "right": read("right")},
    build=with_what_follows,
    outputs={"out": Output(mode="append")},
)
one_twice = App(
    name="one_twice",
    inputs={"right": read("right"), "left": read("left")},
    build=totals_of_one_twice,
    outputs={"out": Output(mode="upsert", key=("k",))},
)
once = App(
    name="once",
    inputs={"events": read("events")},
    build=distinct,
    outputs={"out": Output(mode="append")},
)
windowed = App(
    name="windowed",
    inputs={"events": read("events")},
    build=windows,
    outputs={"out": Output(mode="append")},
)
timed = App(
    name="timed",
    inputs={"events": read("events")},
    build=with_timers,
    outputs={"out": Output(mode="upsert", key=("k",))},
)
