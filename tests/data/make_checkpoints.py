"""Make the checkpoints under `checkpoints/` with Spark; see README.md beside this file."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

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
OFFSET_LOG_2 = {**ROCKSDB, "spark.sql.streaming.offsetLog.formatVersion": "2"}

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


def deduplicated(inputs: Inputs) -> DataFrame:
    """Drop duplicates within a watermark, whose progress makes batches without data."""
    events = (
        inputs[0].withColumn("at", sql.timestamp_seconds("v")).withWatermark("at", "10 seconds")
    )
    return events.dropDuplicates(["k", "at"])


def both(inputs: Inputs) -> DataFrame:
    """Read two sources, without state."""
    return inputs[0].union(inputs[1])


def joined(inputs: Inputs) -> DataFrame:
    """Join two sources: an operator with four stores."""
    return inputs[0].join(inputs[1].select(sql.col("k"), sql.col("v").alias("w")), "k")


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
    """

    build: Callable[[Inputs], DataFrame]
    conf: Mapping[str, str]
    arrivals: Arrivals = ((1, 0),) * 4
    mode: str = "update"
    fails: bool = False
    settled: Callable[[Path], bool] = lambda _checkpoint: True


def has_snapshot_and_changelog(checkpoint: Path) -> bool:
    """Say whether each store has a snapshot, so that versions need snapshot and changelogs."""
    return all(
        list((checkpoint / f"state/0/{partition}").glob("*.zip")) for partition in range(PARTITIONS)
    )


SAMPLES = {
    "rocksdb": Sample(totals, ROCKSDB),
    "changelog": Sample(totals, CHANGELOG, settled=has_snapshot_and_changelog),
    "hdfs": Sample(totals, HDFS),
    "watermark": Sample(deduplicated, ROCKSDB),
    "grand_total": Sample(grand_total, ROCKSDB, ((1, 0),) * 2),
    "two_sources": Sample(both, ROCKSDB, ((1, 0), (1, 1), (0, 1)), mode="append"),
    "join": Sample(joined, ROCKSDB, ((1, 1),), mode="append"),
    "uncommitted": Sample(totals, ROCKSDB, ((1, 0),), fails=True),
    "format_2": Sample(totals, FORMAT_2, ((1, 0),)),
    "offset_log_2": Sample(totals, OFFSET_LOG_2, ((1, 0),)),
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
    query = (writer.foreachBatch(_fail) if sample.fails else writer.format("noop")).start()
    with suppress(StreamingQueryException):
        query.processAllAvailable()
        for number, arrivals in enumerate(sample.arrivals[1:], 2):
            if number == len(sample.arrivals):
                _wait(lambda: sample.settled(checkpoint))
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
