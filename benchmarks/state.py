"""The state that is measured: a streaming query of real Spark counts, sums and compares by key."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from savepoints.checkpoint.state.operators import ROCKSDB_PROVIDER
from savepoints.config.settings import Settings, SparkSettings
from savepoints.local.jars import resolve_jars
from savepoints.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = 4
DRIVER_MEMORY = "4g"
# One key in so many changes from one savepoint to the next.
CHANGED_OF = 100

_LOG = logging.getLogger(__name__)


def settings() -> Settings:
    """Return settings for a local session on two cores."""
    conf = {
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.sql.session.timeZone": "UTC",
    }
    return Settings(
        jars=resolve_jars().spark_directory,
        spark=SparkSettings(master="local[2]", conf=conf),
    )


def write(known: Settings, file: Path) -> None:
    """Write settings for a process of its own."""
    given = known.model_dump(mode="json", exclude_defaults=True)
    file.write_text("".join(f"{line}\n" for line in _toml(given)))


def _toml(given: Mapping[str, Any], *above: str) -> Iterator[str]:
    """Return lines of TOML with dotted keys; its strings, numbers and lists are those of JSON."""
    for name, value in given.items():
        if isinstance(value, dict):
            yield from _toml(value, *above, name)
        else:
            yield f"{'.'.join(map(json.dumps, (*above, name)))} = {json.dumps(value)}"


def start() -> SparkSession:
    """Return the session of this process."""
    return session(settings(), "savepoints benchmarks")


def built(
    directory: Path, keys: int, *, provider: str = ROCKSDB_PROVIDER, changelog: bool = False
) -> Path:
    """Return the checkpoint of a query that has seen each key once, in one batch.

    It is built when it is not there yet.

    Args:
        directory: Below it, the query gets a directory for its input and its checkpoint.
        keys: Rows of state: a key of 16 letters with count, sum and maximum.
        provider: State store provider.
        changelog: Write changelogs in place of snapshots.
    """
    home = directory / f"{provider.rpartition('.')[2]}-{changelog}-{keys}"
    checkpoint = home / "checkpoint"
    if not checkpoint.exists():
        _LOG.info("building a state of %d keys", keys)
        spark = start()
        _write(spark.range(keys), home / "input")
        run(checkpoint, provider=provider, changelog=changelog)
    return checkpoint


def change(checkpoint: Path, keys: int, nth: int) -> None:
    """Give the query's input one record for every hundredth key, each time of others."""
    write_change(checkpoint.parent / "input", keys, nth)


def write_change(source: Path, keys: int, nth: int) -> None:
    """Write one record for every hundredth key, each time of others."""
    from pyspark.sql import functions as F

    every = start().range(keys).where(F.col("id") % CHANGED_OF == nth % CHANGED_OF)
    _write(every.coalesce(1), source)


def run(
    checkpoint: Path,
    *,
    source: Path | None = None,
    provider: str = ROCKSDB_PROVIDER,
    changelog: bool = False,
) -> int:
    """Let the query read in one batch what its input has, and end.

    Args:
        checkpoint: Of the query; an empty or missing directory for a new one.
        source: Directory of its input; the one beside the checkpoint when not given.
        provider: State store provider.
        changelog: Write changelogs in place of snapshots.

    Returns:
        How many records it has read.
    """
    query = start_query(
        checkpoint, source or checkpoint.parent / "input", provider=provider, changelog=changelog
    )
    query.awaitTermination()
    return sum(int(one["numInputRows"]) for one in query.recentProgress)


def start_query(
    checkpoint: Path,
    source: Path,
    *,
    provider: str = ROCKSDB_PROVIDER,
    changelog: bool = False,
    files_per_batch: int | None = None,
) -> StreamingQuery:
    """Start the query.

    Args:
        files_per_batch: How many files a batch reads, for a query that goes on until it is stopped;
            without, it reads what there is in one batch, and ends.
    """
    from pyspark.sql import functions as F

    own = start().newSession()
    own.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    own.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    own.conf.set(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", str(changelog)
    )
    reader = own.readStream.schema("customer string, amount long")
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    orders = reader.parquet(str(source))
    totals = orders.groupBy("customer").agg(
        F.count("*").alias("orders"), F.sum("amount").alias("total"), F.max("amount").alias("most")
    )
    writer = (
        totals.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
    )
    return (writer.trigger(availableNow=True) if files_per_batch is None else writer).start()


def _write(ids: DataFrame, target: Path) -> None:
    from pyspark.sql import functions as F

    # Hashed, so that neighbours in the input are none in the state.
    customer = F.lpad(F.hex(F.xxhash64("id")), 16, "0").alias("customer")
    amount = (F.col("id") * 7919 % 10007).alias("amount")
    ids.select(customer, amount).write.mode("append").parquet(str(target))
