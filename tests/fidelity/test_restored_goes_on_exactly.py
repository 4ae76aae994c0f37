"""A savepoint of a query that runs on Kafka; what is restored goes on batch by batch as it did.

Every operator, state store and format: see `test_matrix.py`.
"""

from __future__ import annotations

import dataclasses
import json
import random
import statistics
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.handle import Store
from savepoints.local import LocalWorld
from savepoints.model import FORMS, Savepoint
from tests.spark_session import PARTITIONS, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

ROWS = 720
ROWS_A_BATCH = 60
# The savepoint is asked for once this batch is committed, while the query runs on.
BATCH_BEFORE_SAVEPOINT = 4
BASE_MS = 1_700_000_000_000


def aggregate(events: DataFrame) -> DataFrame:
    """Totals by key."""
    from pyspark.sql import functions as F

    return events.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))


def window(events: DataFrame) -> DataFrame:
    """Closed windows by key; late rows are dropped by the watermark."""
    from pyspark.sql import functions as F

    late = events.withWatermark("t", "20 seconds")
    return late.groupBy(F.window("t", "10 seconds"), "k").agg(F.sum("v").alias("s"))


def dedupe(events: DataFrame) -> DataFrame:
    """The first row of each value."""
    return events.dropDuplicates(["k", "v"])


def everything(events: DataFrame) -> DataFrame:
    """One total without a grouping key: a single state partition."""
    from pyspark.sql import functions as F

    return events.groupBy().agg(F.count("*").alias("n"), F.sum("v").alias("s"))


def chain(events: DataFrame) -> DataFrame:
    """Two stateful operators, one behind the other."""
    from pyspark.sql import functions as F

    first = events.withWatermark("t", "20 seconds").dropDuplicates(["k", "v", "t"])
    return first.groupBy(F.window("t", "10 seconds"), "k").agg(F.count("*").alias("n"))


QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "aggregate": (aggregate, "update"),
    "window": (window, "append"),
    "dedupe": (dedupe, "append"),
    "everything": (everything, "update"),
    "chain": (chain, "append"),
}


@dataclasses.dataclass(frozen=True)
class Job:
    """One query over one topic."""

    spark: SparkSession
    bootstrap_servers: str
    topic: str
    name: str

    def start(self, checkpoint: Path, out: Path) -> StreamingQuery:
        """Start the query in small batches, each written with its batch id."""
        from pyspark.sql import functions as F

        build, mode = QUERIES[self.name]
        events = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", ROWS_A_BATCH)
            .load()
            .select(F.from_json(F.col("value").cast("string"), "k int, v long, t long").alias("e"))
            .select("e.k", "e.v", F.timestamp_millis("e.t").alias("t"))
        )

        def write(batch: DataFrame, batch_id: int) -> None:
            rows = batch.withColumn("batch_id", F.lit(batch_id)).coalesce(1)
            rows.write.mode("append").parquet(str(out))

        return (
            build(events)
            .writeStream.outputMode(mode)
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(write)
            .start()
        )

    def finish(self, query: StreamingQuery) -> float:
        """Let the query process everything there is, stop it, return the median batch in ms."""
        query.processAllAvailable()
        durations = [one["durationMs"]["triggerExecution"] for one in query.recentProgress]
        query.stop()
        return float(statistics.median(durations))


def produce(bootstrap_servers: str, topic: str, seed: int) -> None:
    """Write random events, one in ten of them late, to a topic with two partitions."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])[topic].result()
    producer, chance = Producer({"bootstrap.servers": bootstrap_servers}), random.Random(seed)
    for position in range(ROWS):
        late = chance.random() < 0.1
        event = {
            "k": chance.randrange(40),
            "v": chance.randrange(100),
            "t": BASE_MS + position * 200 - (chance.randrange(60_000) if late else 0),
        }
        producer.produce(topic, json.dumps(event).encode(), partition=position % 2)
    assert producer.flush(30) == 0


def later_batches(spark: SparkSession, out: Path, after: int) -> DataFrame:
    """Read what was written after a batch."""
    return spark.read.parquet(str(out)).where(f"batch_id > {after}")


@pytest.mark.nightly  # By day the same is shown on files, by cells of the matrix.
@pytest.mark.parametrize(
    ("name", "changelog", "seed"),
    [
        ("aggregate", False, 1),
        ("aggregate", True, 2),
        ("window", False, 3),
        ("window", True, 4),
        ("dedupe", True, 5),
        ("everything", False, 6),
        ("chain", True, 7),
    ],
)
def test_every_later_batch_equals_the_uninterrupted_run(
    spark: SparkSession,
    world: LocalWorld,
    tmp_path: Path,
    name: str,
    changelog: bool,
    seed: int,
) -> None:
    """Savepoint of a running query with small batches, restored from both forms."""
    spark.conf.set(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", changelog
    )
    topic = f"fidelity-{name}-{uuid.uuid4().hex[:8]}"
    produce(world.bootstrap_servers, topic, seed)
    job = Job(spark, world.bootstrap_servers, topic, name)
    (tmp_path / "store").mkdir()
    store = Store.at(str(tmp_path / "store")).make()

    running = job.start(tmp_path / "ck", tmp_path / "out")
    committed = tmp_path / "ck" / "commits" / str(BATCH_BEFORE_SAVEPOINT)
    wait_until(committed.exists, f"batch {BATCH_BEFORE_SAVEPOINT} is committed")
    saved = store.create(checkpoint=str(tmp_path / "ck"), query=name).execute()
    assert running.isActive, "the query must still be running, or nothing was shown"
    # Not asserted, since a busy machine is slower; `pytest -rP` shows it.
    print(f"{name}: median batch {job.finish(running):.0f} ms")
    last = ROWS // ROWS_A_BATCH - 1
    assert BATCH_BEFORE_SAVEPOINT <= saved.cut.batch_id < last, "there must be later batches"

    expected = later_batches(spark, tmp_path / "out", saved.cut.batch_id)
    final = hashes(store.create(checkpoint=str(tmp_path / "ck"), query=name).execute())
    for form in FORMS:
        target = tmp_path / f"restored-{form}"
        store.savepoint(saved.id).restore(str(target), form=form).execute()
        again = store.create(checkpoint=str(target), query=f"{name}-{form}").execute()
        assert hashes(again) == hashes(saved), "a restored savepoint saves the same contents"

        out = tmp_path / f"out-{form}"
        job.finish(job.start(target, out))
        found = later_batches(spark, out, -1)
        assert found.count() == expected.count() > 0
        assert found.exceptAll(expected).count() == 0
        assert expected.exceptAll(found).count() == 0
        ended = store.create(checkpoint=str(target), query=f"{name}-{form}").execute()
        assert hashes(ended) == final, "the state at the end is the same"
        assert ended.cut.watermark_ms == latest(store, name).cut.watermark_ms


def hashes(savepoint: Savepoint) -> list[tuple[int, int | None, str | None]]:
    """What identifies the contents of all operators."""
    return [(one.operator_id, one.rows, one.content_hash) for one in savepoint.operators]


def latest(store: Store, query: str) -> Savepoint:
    """The newest savepoint of a query."""
    return store.catalog.find("latest", query=query)


def test_trap_partitions_written_are_those_of_the_offset_log(
    spark: SparkSession, world: LocalWorld, tmp_path: Path
) -> None:
    """The session's own number of shuffle partitions must not decide (silently wrong results)."""
    topic = f"fidelity-partitions-{uuid.uuid4().hex[:8]}"
    produce(world.bootstrap_servers, topic, 8)
    job = Job(spark, world.bootstrap_servers, topic, "aggregate")
    (tmp_path / "store").mkdir()
    store = Store.at(str(tmp_path / "store")).make()
    job.finish(job.start(tmp_path / "ck", tmp_path / "out"))
    store.create(checkpoint=str(tmp_path / "ck"), query="q").execute()
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    try:
        store.savepoint("latest").restore(str(tmp_path / "to"), form="canonical").execute()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    written = {path.name for path in (tmp_path / "to" / "state" / "0").iterdir()}
    assert {name for name in written if name.isdigit()} == {str(p) for p in range(PARTITIONS)}
