"""Savepoints in a row, of a query that throws its files away almost as fast as it writes them."""

from __future__ import annotations

from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.handle import Store
from tests import draw
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

STATE_STORE = "spark.sql.streaming.stateStore"
ROWS_A_BATCH = 300
KEYS = 40


@draw.taking_turns("savepoints in a row", "applications")
@pytest.mark.parametrize(
    ("count", "changelog"),
    [
        (5, True),
        pytest.param(100, True, marks=pytest.mark.nightly),
        pytest.param(100, False, marks=pytest.mark.nightly),
    ],
)
def test_savepoints_in_a_row_are_each_exact_and_none_is_partial(
    spark: SparkSession, tmp_path: Path, count: int, changelog: bool
) -> None:
    """Two batches are retained, maintenance runs ten times a second, batches follow each other.

    Batch N has the numbers from N * 300 on, so what the state must be follows from N alone.
    """
    session = spark.newSession()
    for key, value in {
        "spark.sql.streaming.minBatchesToRetain": "2",
        f"{STATE_STORE}.maintenanceInterval": "100ms",
        f"{STATE_STORE}.minDeltasForSnapshot": "3",
        f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": str(changelog).lower(),
    }.items():
        session.conf.set(key, value)
    checkpoint = tmp_path / "checkpoint"
    (tmp_path / "store").mkdir()
    store = Store.at(str(tmp_path / "store")).make()
    query = totals(session).writeStream.outputMode("update").format("noop")
    running = query.option("checkpointLocation", str(checkpoint)).start()
    try:
        wait_until((checkpoint / "commits" / "4").exists, "some batches are committed")
        plan = partial(store.create, checkpoint=str(checkpoint), query="q", forms=("native",))
        taken = [plan().execute() for _ in range(count - 1)]
        # A few savepoints may take less than one batch.
        wait_until(
            lambda: newest(checkpoint) > taken[0].cut.batch_id, "the query goes on meanwhile"
        )
        taken.append(plan().execute())
        assert running.isActive
    finally:
        running.stop()
    assert len(store.catalog.all()) == count
    batches = [one.cut.batch_id for one in taken]
    assert batches == sorted(batches)
    assert len(set(batches)) > 1
    retried = sum(one.cost.attempts > 1 for one in taken)
    print(f"{count} savepoints of batches {batches[0]} to {batches[-1]}, {retried} retried")

    found = {}
    for start in range(0, count, 25):
        frames = []
        for number, one in enumerate(taken[start : start + 25], start):
            target = tmp_path / f"restored-{number}"
            store.savepoint(one.id).restore(str(target)).execute()
            frames.append(state_of(session, target, one.cut.batch_id))
        for row in reduce(lambda a, b: a.union(b), frames).collect():
            found[row["batch"]] = (row["keys"], row["n"], row["s"])
    assert found == {batch: truth(batch) for batch in batches}


def newest(checkpoint: Path) -> int:
    """Return the newest batch that was committed."""
    names = (one.name for one in (checkpoint / "commits").iterdir())
    return max(int(name) for name in names if name.isdigit())


def totals(session: SparkSession) -> DataFrame:
    """Count and sum numbers by key."""
    from pyspark.sql import functions as F

    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_A_BATCH)
    numbers = source.option("numPartitions", 1).load()
    keyed = numbers.withColumn("k", F.col("value") % KEYS)
    return keyed.groupBy("k").agg(F.count("*").alias("n"), F.sum("value").alias("s"))


def state_of(session: SparkSession, checkpoint: Path, batch: int) -> DataFrame:
    """Read the state of a checkpoint with Spark's own reader, and add it up."""
    from pyspark.sql import functions as F

    rows = session.read.format("statestore").option("batchId", batch).load(str(checkpoint))
    fields = [F.col("value").getField(name) for name in ("count", "sum")]
    return rows.select(
        F.lit(batch).alias("batch"), F.col("key.k").alias("k"), fields[0].alias("n"),
        fields[1].alias("s"),
    ).groupBy("batch").agg(
        F.count_distinct("k").alias("keys"), F.sum("n").alias("n"), F.sum("s").alias("s")
    )  # fmt: skip


def truth(batch: int) -> tuple[int, int, int]:
    """Keys, count and sum of all numbers up to a batch."""
    numbers = (batch + 1) * ROWS_A_BATCH
    return KEYS, numbers, numbers * (numbers - 1) // 2
