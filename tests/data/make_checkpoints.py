"""Make the checkpoints under `checkpoints/` with Spark; see README.md beside this file."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

HERE = Path(__file__).parent / "checkpoints"
STATE_STORE = "spark.sql.streaming.stateStore"
PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB = {f"{STATE_STORE}.providerClass": f"{PROVIDERS}.RocksDBStateStoreProvider"}
HDFS = {f"{STATE_STORE}.providerClass": f"{PROVIDERS}.HDFSBackedStateStoreProvider"}
CHANGELOG = {
    **ROCKSDB,
    f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{STATE_STORE}.minDeltasForSnapshot": "2",
    f"{STATE_STORE}.maintenanceInterval": "100ms",
}
FORMAT_2 = {**ROCKSDB, f"{STATE_STORE}.checkpointFormatVersion": "2"}
FORMAT_2_CHANGELOG = {**CHANGELOG, **FORMAT_2}
OFFSET_LOG_2 = {**ROCKSDB, "spark.sql.streaming.offsetLog.formatVersion": "2"}
HDFS_SNAPSHOT = {
    **HDFS,
    f"{STATE_STORE}.minDeltasForSnapshot": "2",
    f"{STATE_STORE}.maintenanceInterval": "100ms",
}
JOIN_3 = {**ROCKSDB, "spark.sql.streaming.join.stateFormatVersion": "3"}
JOIN_4 = {
    **ROCKSDB,
    "spark.sql.streaming.join.stateFormatVersion": "4",
    "spark.sql.streaming.join.stateFormatV4.enabled": "true",
}

PARTITIONS = 2
KEYS = 5
WAIT_SECONDS = 60.0

Inputs = tuple[DataFrame, DataFrame]
# Files of the first and of the second source that are there before a batch starts.
Arrivals = tuple[tuple[int, int], ...]


def totals(inputs: Inputs) -> DataFrame:
    """Sum by key: `stateStoreSave`."""
    return inputs[0].groupBy("k").agg(sql.count("*").alias("n"), sql.sum("v").alias("s"))


def grand_total(inputs: Inputs) -> DataFrame:
    """Sum without keys: one state partition, whatever the settings say."""
    return inputs[0].agg(sql.count("*").alias("n"))


def timed(frame: DataFrame) -> DataFrame:
    """Give each row a time, and a watermark on it."""
    return frame.withColumn("at", sql.timestamp_seconds("v")).withWatermark("at", "10 seconds")


def deduplicated(inputs: Inputs) -> DataFrame:
    """Drop duplicates within a watermark, whose progress makes batches without data."""
    return timed(inputs[0]).dropDuplicates(["k", "at"])


def both(inputs: Inputs) -> DataFrame:
    """Read two sources, without state."""
    return inputs[0].union(inputs[1])


def joined(inputs: Inputs) -> DataFrame:
    """Join two sources: an operator with four stores."""
    return inputs[0].join(inputs[1].select(sql.col("k"), sql.col("v").alias("w")), "k")


def joined_in_time(inputs: Inputs) -> DataFrame:
    """Join two sources by key and time, left outer: rows leave the state with the watermark."""
    left = timed(inputs[0])
    right = timed(inputs[1]).select(sql.col("k").alias("k2"), sql.col("at").alias("at2"))
    near = sql.expr("k = k2 AND at2 BETWEEN at AND at + INTERVAL 20 SECONDS")
    return left.join(right, near, "leftOuter")


def sessions(inputs: Inputs) -> DataFrame:
    """Sessions by key, whose state has several rows for one key."""
    session = sql.session_window("at", "30 seconds")
    return timed(inputs[0]).groupBy(session, "k").agg(sql.sum("v").alias("s"))


def first_few(inputs: Inputs) -> DataFrame:
    """Drop duplicates, then keep the first rows: `dedupe` and `globalLimit`."""
    return inputs[0].dropDuplicates(["k", "v"]).limit(8)


class Variables(StatefulProcessor):
    """Keeps a value, a list and a map for each key, and a timer."""

    def init(self, handle: Any) -> None:
        """Declare the state variables."""
        self.handle = handle
        self.total: Any = handle.getValueState("total", "s long")
        self.seen: Any = handle.getListState("seen", "v long")
        self.counts: Any = handle.getMapState("counts", "digit long", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Add each row to the three variables and set a timer 60 seconds after it."""
        total = self.total.get()[0] if self.total.exists() else 0
        for row in rows:
            total += row.v
            self.seen.appendValue((row.v,))
            digit = (row.v // 100 % 3,)
            count = self.counts.getValue(digit)[0] if self.counts.containsKey(digit) else 0
            self.counts.updateValue(digit, (count + 1,))
            self.handle.registerTimer(1000 * (row.v + 60))
        self.total.update((total,))
        yield Row(k=key[0], s=total)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Give the time of the timer."""
        yield Row(k=key[0], s=-expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        """Nothing is open."""


def transformed(inputs: Inputs) -> DataFrame:
    """Keep state variables of each kind with `transformWithState`."""
    return (
        timed(inputs[0])
        .groupBy("k")
        .transformWithState(Variables(), "k long, s long", "append", "EventTime")
    )


@dataclass(frozen=True)
class Sample:
    """One checkpoint and how it is made.

    Attributes:
        build: The query.
        conf: Settings of the session.
        arrivals: Per batch, how many new files each source gets.
        mode: Output mode.
        fails: The first batch fails, so nothing is ever committed.
        settled: Says of the checkpoint when it is time for the last batch.
        restarts: The query is stopped and started again before the last batch.
    """

    build: Callable[[Inputs], DataFrame]
    conf: Mapping[str, str]
    arrivals: Arrivals = ((1, 0),) * 4
    mode: str = "update"
    fails: bool = False
    settled: Callable[[Path], bool] = lambda _checkpoint: True
    restarts: bool = False


def has_snapshot(checkpoint: Path) -> bool:
    """Say whether each store has a snapshot, so that versions need snapshot and changelogs."""
    return all(
        [
            *(checkpoint / f"state/0/{partition}").glob("*.zip"),
            *(checkpoint / f"state/0/{partition}").glob("*.snapshot"),
        ]
        for partition in range(PARTITIONS)
    )


SAMPLES = {
    "rocksdb": Sample(totals, ROCKSDB),
    "changelog": Sample(totals, CHANGELOG, settled=has_snapshot),
    "hdfs": Sample(totals, HDFS),
    "watermark": Sample(deduplicated, ROCKSDB),
    "grand_total": Sample(grand_total, ROCKSDB, ((1, 0),) * 2),
    "two_sources": Sample(both, ROCKSDB, ((1, 0), (1, 1), (0, 1)), mode="append"),
    "join": Sample(joined, ROCKSDB, ((1, 1),), mode="append"),
    "uncommitted": Sample(totals, ROCKSDB, ((1, 0),), fails=True),
    "format_2": Sample(totals, FORMAT_2, ((1, 0),)),
    "offset_log_2": Sample(totals, OFFSET_LOG_2, ((1, 0),)),
    "offset_log_2_restarted": Sample(totals, OFFSET_LOG_2, ((1, 0),) * 2, restarts=True),
    "format_2_changelog": Sample(totals, FORMAT_2_CHANGELOG, settled=has_snapshot),
    "hdfs_snapshot": Sample(totals, HDFS_SNAPSHOT, settled=has_snapshot),
    "session": Sample(sessions, ROCKSDB, ((1, 0),) * 2, mode="append"),
    "limit": Sample(first_few, ROCKSDB, ((1, 0),) * 2, mode="append"),
    "join_3": Sample(joined_in_time, JOIN_3, ((1, 1),) * 2, mode="append"),
    "join_4": Sample(joined_in_time, JOIN_4, ((1, 1),) * 2, mode="append"),
    "transform_with_state": Sample(transformed, ROCKSDB, ((1, 0),) * 2, mode="append"),
}


def make(spark: SparkSession, name: str, home: Path) -> Path:
    """Run the query of a sample and zip its checkpoint."""
    sample = SAMPLES[name]
    checkpoint = home / name
    inputs = [home / f"{name}-input-{number}" for number in range(2)]
    for directory in inputs:
        directory.mkdir()
    for key, value in sample.conf.items():
        spark.conf.set(key, value)
    frames = [
        spark.readStream.schema("k long, v long").json(str(directory)) for directory in inputs
    ]
    writer = (
        sample.build((frames[0], frames[1]))
        .writeStream.outputMode(sample.mode)
        .option("checkpointLocation", str(checkpoint))
    )
    arrived = [0, 0]
    _arrive(inputs, arrived, sample.arrivals[0])
    writer = writer.foreachBatch(_fail) if sample.fails else writer.format("noop")
    query = writer.start()
    with suppress(StreamingQueryException):
        query.processAllAvailable()
        for number, arrivals in enumerate(sample.arrivals[1:], 2):
            if number == len(sample.arrivals):
                _wait(lambda: sample.settled(checkpoint))
                if sample.restarts:
                    query.stop()
                    query = writer.start()
            _arrive(inputs, arrived, arrivals)
            query.processAllAvailable()
    query.stop()
    for key in sample.conf:
        spark.conf.unset(key)
    return _zip(checkpoint, HERE / f"{name}.zip")


def _arrive(inputs: list[Path], arrived: list[int], counts: tuple[int, int]) -> None:
    """Add files to the inputs at once, so that they come in one batch."""
    for source, count in enumerate(counts):
        for _ in range(count):
            number = arrived[source]
            arrived[source] += 1
            rows = ({"k": key, "v": 100 * number + key} for key in range(KEYS))
            hidden = inputs[source] / f".{number}.json"
            hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
            hidden.rename(inputs[source] / f"{number}.json")


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.1)


def _fail(_batch: DataFrame, _batch_id: int) -> None:
    raise ZeroDivisionError


def _zip(directory: Path, target: Path) -> Path:
    """Zip the files of a checkpoint, without the checksum files of Hadoop's local file system."""
    target.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(directory.rglob("*")):
            if path.is_file() and not path.name.endswith(".crc"):
                archive.write(path, path.relative_to(directory))
    return target


def main(names: list[str]) -> None:
    """Make the samples of these names, or all."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    spark = (
        builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(PARTITIONS))
        .getOrCreate()
    )
    home = Path(tempfile.mkdtemp(prefix="checkpoints-"))
    try:
        for name in names or SAMPLES:
            made = make(spark, name, home)
            print(f"{made.name}: {made.stat().st_size} bytes")
    finally:
        spark.stop()
        shutil.rmtree(home)


if __name__ == "__main__":
    main(sys.argv[1:])
