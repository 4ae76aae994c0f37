"""`late`: a watermark of ten minutes with a merge of what it drops, beside one of seven days.

Orders of eight days arrive in batches of twelve hours; three in a hundred are late, by ten minutes
to six days. Both sides are the same program (`hourly_totals`, append mode) in Spark, over the same
files. What `late` finds to be dropped must be just what the short side lacks.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import state
from benchmarks.result import Result, Sample
from savepoints.checkpoint.logs import offset_log
from savepoints.io import Location
from savepoints.moments import moment_of
from savepoints.runtime import late_rows
from savepoints.sources.events.events import RAW_SCHEMA, Decoding, events
from savepoints.sources.late import dropped_late
from savepoints.sources.late.dropped_late import Read
from savepoints.spark.session import session
from spark_jobs.hourly_totals import app, build

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHORT, LONG = "10 minutes", "7 days"
_BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
_DAYS, _HOURS_A_BATCH = 8, 12
_BATCHES = _DAYS * 24 // _HOURS_A_BATCH
_LATE_SHARE, _ORDERS_A_CUSTOMER = 0.03, 50
_TOPIC = "orders"


@dataclass(frozen=True)
class Side:
    """What came of one watermark.

    Attributes:
        sample: Seconds of a batch, bytes and rows of the state after the last one.
        counted: Orders in the results.
        watermark: Of the last batch.
        reads: Which offsets each batch read, and by which watermark it dropped rows.
    """

    sample: Sample
    counted: int
    watermark: datetime
    reads: tuple[Read, ...]


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Run both sides over the same orders.

    Args:
        directory: Where everything lies.
        keys: Orders.
        rounds: Without effect: the state and what is dropped are the same each time.
    """
    del rounds
    spark = session(state.settings(), "savepoints benchmark late")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    times = _arrive(directory / "in", keys)
    short = _run(spark, directory, SHORT)
    long = _run(spark, directory, LONG)
    over = int((times < _hour(short.watermark).timestamp() * 1000).sum())
    found = _found(spark, directory, short)
    if found != over - short.counted:
        raise AssertionError(f"late found {found} of {over - short.counted} orders")
    written = 100 * short.counted / over
    notes = (
        f"orders of hours that are over: {over} of {keys}",
        f"{SHORT}: {short.counted} in the results ({written:.2f} %), 10 minutes after the hour",
        f"late finds the other {found}, and merge --dropped adds them: 100 %",
        f"{LONG}: {long.counted} in the results, 7 days later; none dropped",
    )
    samples = {f"watermark {SHORT}": [short.sample], f"watermark {LONG}": [long.sample]}
    ratios = {
        "state rows": long.sample.objects / short.sample.objects,
        "state bytes": long.sample.bytes / short.sample.bytes,
    }
    return Result(samples, ratios, notes)


def _arrive(place: Path, orders: int) -> np.ndarray:
    """Write the orders, a file a batch; return when they happened, milliseconds since 1970."""
    random = np.random.default_rng(7)
    place.mkdir()
    arrived = np.sort(random.uniform(0, _DAYS * 86_400, orders))
    is_late = random.random(orders) < _LATE_SHARE
    late = np.exp(random.uniform(np.log(600), np.log(6 * 86_400), orders))
    times = np.maximum(arrived - np.where(is_late, late, random.uniform(0, 300, orders)), 0)
    at_ms = int(_BEGIN.timestamp() * 1000) + (times * 1000).astype(np.int64)
    customers = random.integers(0, orders // _ORDERS_A_CUSTOMER, orders)
    batch = (arrived // (_HOURS_A_BATCH * 3600)).astype(int)
    for number in range(_BATCHES):
        rows = [
            {"order_id": f"o{at}", "customer_id": f"c{customers[at]}", "cents": 100,
             "at_ms": int(at_ms[at])}
            for at in np.flatnonzero(batch == number)
        ]  # fmt: skip
        first = int(np.flatnonzero(batch == number)[0])
        table = pa.table(
            {
                "value": [json.dumps(one).encode() for one in rows],
                "topic": [_TOPIC] * len(rows),
                "partition": pa.array([0] * len(rows), pa.int32()),
                "offset": pa.array(range(first, first + len(rows)), pa.int64()),
            }
        )
        pq.write_table(table, place / f"{number:03}.parquet")
        time.sleep(0.01)  # Spark reads files in the order of their times.
    return at_ms


def _run(spark: SparkSession, directory: Path, watermark: str) -> Side:
    place = directory / watermark.replace(" ", "-")
    counted: list[int] = []

    def write(batch: DataFrame, _number: int) -> None:
        found = batch.agg({"orders": "sum"}).collect()[0][0]
        counted.append(int(found or 0))

    files = spark.readStream.schema(RAW_SCHEMA).option("maxFilesPerTrigger", 1)
    records = files.parquet(str(directory / "in"))
    result = build({"orders": app.kafka_input("orders").decode(records)}, watermark)
    writer = result.writeStream.outputMode("append").foreachBatch(write)
    query = writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    (operator,) = query.recentProgress[-1]["stateOperators"]
    took = [one["durationMs"]["addBatch"] / 1000 for one in progress]
    sample = Sample(
        sorted(took)[len(took) // 2], operator["memoryUsedBytes"], operator["numRowsTotal"]
    )
    reads = _reads(place, directory / "in")
    last = offset_log.parse(
        (place / "offsets" / str(_newest(place))).read_bytes(), "offsets"
    ).watermark_ms
    return Side(sample, sum(counted), moment_of(last), reads)


def _newest(checkpoint: Path) -> int:
    return max(int(one.name) for one in (checkpoint / "commits").iterdir() if one.name.isdigit())


def _reads(checkpoint: Path, files: Path) -> tuple[Read, ...]:
    rows = [pq.read_metadata(one).num_rows for one in sorted(files.iterdir())]
    entries = [
        offset_log.parse((checkpoint / "offsets" / str(one)).read_bytes(), str(one))
        for one in range(_newest(checkpoint) + 1)
    ]

    def end(position: str | None) -> dict[str, dict[int, int]]:
        count = json.loads(position)["logOffset"] + 1 if position else 0
        return {_TOPIC: {0: sum(rows[:count])}}

    return tuple(
        Read(end(before.sources[0]), end(one.sources[0]), before.watermark_ms)
        for before, one in pairwise(entries)
    )


def _found(spark: SparkSession, directory: Path, side: Side) -> int:
    """Count what was dropped as `late` does."""
    one = app.kafka_input("orders")
    decoding = Decoding(one.decode, one.entity_key, one.event_time, one.event_id)
    records = spark.read.schema(RAW_SCHEMA).parquet(str(directory / "in"))
    behind = dropped_late.behind(events(records, decoding), side.reads)
    place = Location.of(str(directory / "late"))
    return late_rows.dropped(spark, app, {"orders": behind}, place).count()


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)
