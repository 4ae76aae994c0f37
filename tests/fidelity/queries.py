"""One query for each way in which Structured Streaming keeps state, and the rows that they read."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fidelity import pandas_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "k string, v long, t timestamp"
FILES = 6
ROWS_A_FILE = 24
SECONDS_A_FILE = 20
# The seeds differ in the number of keys, too: with two keys some state partitions stay empty.
KEYS = {1: 9, 2: 2, 3: 30}
SEEDS = tuple(KEYS)
BEGINNING = dt.datetime(2026, 11, 20, 10, tzinfo=dt.UTC)

Inputs = Sequence["DataFrame"]


@dataclass(frozen=True)
class Query:
    """A stateful query.

    Attributes:
        name: Unique; the first part of the ids of its tests.
        label: What stands in the table of the documentation.
        kind: Queries of one kind share their code paths.
        build: Makes the result of the inputs.
        mode: Output mode.
        sources: How many inputs it reads.
        conf: Spark settings that are part of it.
        endless: It asks for a batch after each batch, since time goes on: it is stopped.
        clock: Names of state columns that hold the time of the machine.
    """

    name: str
    label: str
    kind: str
    build: Callable[[Inputs], DataFrame]
    mode: str = "append"
    sources: int = 1
    conf: Mapping[str, str] = field(default_factory=dict)
    endless: bool = False
    clock: tuple[str, ...] = ()


def write_inputs(directory: Path, seed: int) -> None:
    """Write the files of two inputs, `0` and `1`, one file a batch.

    One row in ten is late, one in thirty has no key. Times of modification give the order, in which
    the file source reads them.
    """
    chance = random.Random(seed)
    for source in range(2):
        (directory / str(source)).mkdir(parents=True)
        for number in range(FILES):
            path = directory / str(source) / f"{number}.json"
            path.write_text("".join(_row(chance, number, seed) + "\n" for _ in range(ROWS_A_FILE)))
            os.utime(path, (BEGINNING.timestamp() + number,) * 2)


def _row(chance: random.Random, number: int, seed: int) -> str:
    late = chance.randrange(80) if chance.random() < 0.1 else 0
    second = (number * SECONDS_A_FILE) + chance.randrange(SECONDS_A_FILE) - late
    row: dict[str, object] = {
        "v": chance.randrange(6),
        "t": (BEGINNING + dt.timedelta(seconds=second)).isoformat(),
    }
    if chance.random() > 1 / 30:
        row["k"] = f"key-{chance.randrange(KEYS[seed])}"
    return json.dumps(row)


def _timed(frame: DataFrame) -> DataFrame:
    return frame.withWatermark("t", "10 seconds")


def _aggregate(inputs: Inputs) -> DataFrame:
    from pyspark.sql import functions as F

    return inputs[0].groupBy("k").agg(F.count("*").alias("n"), F.sum("v"), F.collect_list("v"))


def _expressions(inputs: Inputs) -> DataFrame:
    """Two keys that Spark calls `_groupingexpression`; one is NaN, 0.0 and -0.0."""
    from pyspark.sql import functions as F

    number = F.expr("sqrt(v - 1D) * 0D * (2.5D - v)")
    pair = F.struct(F.upper("k").alias("a b"), (F.col("v") % 2).alias("c;d"))
    return inputs[0].groupBy(number, pair).agg(F.count("*").alias("n"))


def _global_aggregate(inputs: Inputs) -> DataFrame:
    from pyspark.sql import functions as F

    return inputs[0].groupBy().agg(F.count("*").alias("n"), F.sum("v").alias("s"))


def _window(inputs: Inputs) -> DataFrame:
    from pyspark.sql import functions as F

    window = F.window("t", "10 seconds")
    return _timed(inputs[0]).groupBy(window, "k").agg(F.sum("v").alias("s"), F.avg("v"))


def _session(inputs: Inputs) -> DataFrame:
    from pyspark.sql import functions as F

    session = F.session_window("t", "4 seconds")
    return _timed(inputs[0]).groupBy(session, "k").agg(F.sum("v").alias("s"))


def _dedupe(inputs: Inputs) -> DataFrame:
    return inputs[0].dropDuplicates(["k", "v"])


def _dedupe_watermark(inputs: Inputs) -> DataFrame:
    return _timed(inputs[0]).dropDuplicates(["k", "t"])


def _dedupe_within_watermark(inputs: Inputs) -> DataFrame:
    return _timed(inputs[0]).dropDuplicatesWithinWatermark(["k", "v"])


def _join(how: str) -> Callable[[Inputs], DataFrame]:
    def build(inputs: Inputs) -> DataFrame:
        from pyspark.sql import functions as F

        right = _timed(inputs[1].toDF("k2", "v2", "t2").withColumnRenamed("t2", "t"))
        near = F.expr("k = k2 AND v = v2 AND t2 BETWEEN t AND t + INTERVAL 15 SECONDS")
        return _timed(inputs[0]).join(right.withColumnRenamed("t", "t2"), near, how)

    return build


def _join_itself(inputs: Inputs) -> DataFrame:
    """Two sources of which the first is there twice, so Spark writes three positions."""
    from pyspark.sql import functions as F

    one, other = _timed(inputs[0]), _timed(inputs[1]).select("k", "t")
    later = one.toDF("k2", "v2", "t2")
    near = F.expr("k = k2 AND v = v2 AND t2 BETWEEN t AND t + INTERVAL 5 SECONDS")
    return one.join(later, near).select("k", "t").union(other)


def _join_format(version: int) -> dict[str, str]:
    conf = {"spark.sql.streaming.join.stateFormatVersion": str(version)}
    if version == 4:
        conf["spark.sql.streaming.join.stateFormatV4.enabled"] = "true"
    return conf


def _pandas(timeout: str) -> Callable[[Inputs], DataFrame]:
    def build(inputs: Inputs) -> DataFrame:
        events = _timed(inputs[0]) if timeout == "EventTimeTimeout" else inputs[0]
        return events.groupBy("k").applyInPandasWithState(
            pandas_state.PANDAS[timeout],
            "k string, n long, s long",
            "n long, s long",
            "append",
            timeout,
        )

    return build


def _transform(processor: str, time_mode: str) -> Callable[[Inputs], DataFrame]:
    def build(inputs: Inputs) -> DataFrame:
        from tests.fidelity import processors  # Spark 3.5 has nothing of it.

        events = _timed(inputs[0]) if time_mode == "EventTime" else inputs[0]
        return events.groupBy("k").transformWithState(
            getattr(processors, processor)(),
            processors.OUTPUT,
            "append",
            time_mode,
        )

    return build


def _transform_pandas(inputs: Inputs) -> DataFrame:
    from tests.fidelity import processors

    return (
        _timed(inputs[0])
        .groupBy("k")
        .transformWithStateInPandas(
            processors.PandasVariables(), processors.OUTPUT, "append", "EventTime"
        )
    )


def _dedupe_window(inputs: Inputs) -> DataFrame:
    from pyspark.sql import functions as F

    first = _timed(inputs[0]).dropDuplicates(["k", "v", "t"])
    return first.groupBy(F.window("t", "10 seconds"), "k").agg(F.count("*").alias("n"))


def _window_window(inputs: Inputs) -> DataFrame:
    from pyspark.sql import functions as F

    small = _timed(inputs[0]).groupBy(F.window("t", "5 seconds"), "k").agg(F.sum("v").alias("s"))
    return small.groupBy(F.window("window", "20 seconds")).agg(F.max("s").alias("m"))


def _union(inputs: Inputs) -> DataFrame:
    from pyspark.sql import functions as F

    rows = inputs[0].union(inputs[1])
    return rows.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))


def _join_window(inputs: Inputs) -> DataFrame:
    from pyspark.sql import functions as F

    pairs = _join("inner")(inputs)
    return pairs.groupBy(F.window("t", "10 seconds"), "k").agg(F.count("*").alias("n"))


def _transform_window(inputs: Inputs) -> DataFrame:
    from pyspark.sql import functions as F

    from tests.fidelity import processors

    totals = (
        _timed(inputs[0])
        .groupBy("k")
        .transformWithState(
            processors.RunningTotals(),
            "k string, at timestamp, n long",
            "append",
            "EventTime",
            eventTimeColumnName="at",
        )
    )
    return totals.groupBy(F.window("at", "10 seconds")).agg(F.sum("n").alias("s"))


def _transform_initial(inputs: Inputs) -> DataFrame:
    from tests.fidelity import processors

    rows = [(f"key-{number}", number * 100) for number in range(12)]
    first = inputs[0].sparkSession.createDataFrame(rows, "k string, s long")
    return (
        inputs[0]
        .groupBy("k")
        .transformWithState(
            processors.FromTotals(),
            processors.OUTPUT,
            "append",
            "none",
            initialState=first.groupBy("k"),
        )
    )


def _limit(inputs: Inputs) -> DataFrame:
    return inputs[0].limit(ROWS_A_FILE * FILES * 2 // 3)


def _dedupe_limit(inputs: Inputs) -> DataFrame:
    from pyspark.sql import functions as F

    # Which rows a limit takes depends on the partitions that it takes them from; their number
    # does not.
    return inputs[0].dropDuplicates(["k", "t"]).select(F.lit(1).alias("one")).limit(60)


_ALL = (
    Query("aggregate", "`groupBy().agg()`", "aggregate", _aggregate, "update"),
    Query("expressions", "`groupBy` of expressions", "aggregate", _expressions, "update"),
    Query("global_aggregate", "`agg()` without keys", "aggregate", _global_aggregate, "update"),
    Query("window_append", "`window`, append", "aggregate", _window),
    Query("window_update", "`window`, update", "aggregate", _window, "update"),
    Query("session", "`session_window`", "aggregate", _session),
    Query(
        "aggregate_offsets_2",
        "`groupBy().agg()`, offset log format 2",
        "aggregate",
        _aggregate,
        "update",
        conf={"spark.sql.streaming.offsetLog.formatVersion": "2"},
    ),
    Query("dedupe", "`dropDuplicates`", "dedupe", _dedupe),
    Query("dedupe_watermark", "`dropDuplicates`, watermark", "dedupe", _dedupe_watermark),
    Query("dedupe_within", "`dropDuplicatesWithinWatermark`", "dedupe", _dedupe_within_watermark),
    *(
        Query(
            f"join_{how.removeprefix('left')}_{version}",
            f"stream-stream join, {name}, format {version}",
            "join",
            _join(how),
            sources=2,
            conf=_join_format(version),
        )
        for version, how, name in (
            (2, "inner", "inner"),
            (2, "leftouter", "left outer"),
            (2, "leftsemi", "left semi"),
            (3, "inner", "inner"),
            (3, "leftouter", "left outer"),
            (4, "leftouter", "left outer"),
        )
    ),
    Query(
        "join_itself",
        "stream-stream join, of a stream with itself",
        "join",
        _join_itself,
        sources=2,
    ),
    Query("pandas", "`applyInPandasWithState`", "pandas", _pandas("NoTimeout")),
    Query("pandas_event", "the same, event-time timeout", "pandas", _pandas("EventTimeTimeout")),
    Query(
        "pandas_processing",
        "the same, processing-time timeout",
        "pandas",
        _pandas("ProcessingTimeTimeout"),
        endless=True,
        clock=("timeoutTimestamp",),
    ),
    Query(
        "transform",
        "`transformWithState`: value, list, map",
        "transform",
        _transform("Variables", "none"),
    ),
    Query(
        "transform_ttl",
        "the same, TTL",
        "transform",
        _transform("ShortAndLongLived", "ProcessingTime"),
        endless=True,
        clock=("ttlExpirationMs",),
    ),
    Query(
        "transform_event",
        "the same, event-time timers",
        "transform",
        _transform("EventTimers", "EventTime"),
    ),
    Query(
        "transform_processing",
        "the same, processing-time timers",
        "transform",
        _transform("ProcessingTimers", "ProcessingTime"),
        endless=True,
        clock=("expiration_timestamp_ms",),
    ),
    Query(
        "transform_pandas",
        "`transformWithStateInPandas`: value, list, map, event-time timers",
        "transform",
        _transform_pandas,
    ),
    Query("dedupe_window", "`dropDuplicates`, then `window`", "chain", _dedupe_window),
    Query("window_window", "`window`, then `window`", "chain", _window_window),
    Query(
        "union", "`union` of two streams, then `groupBy().agg()`", "aggregate", _union, "update", 2
    ),
    Query("join_window", "stream-stream join, then `window`", "chain", _join_window, sources=2),
    Query("transform_window", "`transformWithState`, then `window`", "chain", _transform_window),
    Query(
        "transform_initial",
        "`transformWithState` with initial state",
        "transform",
        _transform_initial,
    ),
    Query("limit", "`limit`", "limit", _limit),
    Query("dedupe_limit", "`dropDuplicates`, then `limit`", "limit", _dedupe_limit),
)
QUERIES = {one.name: one for one in _ALL}
