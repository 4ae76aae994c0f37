"""Rollback on real parts: exact against pandas, also when it is killed at every step."""

from __future__ import annotations

import json
import signal
from datetime import date, timedelta
from typing import TYPE_CHECKING

import pytest

from savepoints.errors import UnfinishedOperationError
from savepoints.outputs.delta.batch_version import open_table
from savepoints.uri import Uri
from tests import draw
from tests.e2e.shop import BUGGY, QUERY, Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka]

DAY = timedelta(days=1)
BEGIN = date(1997, 1, 1)
# On real parts each costs a minute; tests/faults kills it at these and all others without a JVM.
CRASH_POINTS = ("rollback.output_totals_rewound",)


def restores(shop: Shop) -> int:
    """Count the rollback commits in the output's history."""
    return sum(one.get("operation") == "RESTORE" for one in open_table(shop.table).history())


@draw.taking_turns("killed rollback", "killed merge")
@pytest.mark.timeout(900)
def test_killed_and_run_again_the_result_is_exact(spark: SparkSession, shop: Shop) -> None:
    """After each kill: refused to run, finished by the same command, rerun right for everybody."""
    until = BEGIN + 8 * DAY
    shop.sell(BEGIN, until)
    shop.run()
    assert shop.compare(until).exact

    for number, point in enumerate(CRASH_POINTS, 1):
        good, until = until, until + 2 * DAY
        savepoint = shop.store.catalog.find("latest").id
        shop.sell(good, until)
        shop.run(BUGGY, save=False)
        assert shop.compare(until).wrong > 0, "the bug must spoil something"

        killed = shop.command("rollback", savepoint, "--yes", crash_at=point)
        assert killed.returncode == -signal.SIGKILL, f"{point}: {killed.stderr}"
        with pytest.raises(UnfinishedOperationError) as refused:
            shop.run()
        assert f"savepoints rollback {savepoint}" in refused.value.hint

        shop.json("rollback", savepoint, "--yes")
        assert shop.compare(good).exact, f"{point}: not as it was before the bug"
        assert restores(shop) == number, f"{point}: each rollback is one commit"
        safety = [one for one in shop.store.catalog.all() if savepoint in one.description]
        assert len(safety) == 1, f"{point}: one safety savepoint"

        ran = shop.run()
        assert ran.generation == number + 1
        assert shop.compare(until).exact, f"{point}: lost or doubled after the rerun"


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_back_and_forth_between_savepoints_of_two_generations(
    spark: SparkSession, local_shop: Shop
) -> None:
    """A savepoint of a generation that was rolled away is still exact, with both forms."""
    shop = local_shop
    days = [BEGIN + n * 4 * DAY for n in range(4)]
    shop.sell(days[0], days[1])
    shop.run(forms=("native", "canonical"))
    first = shop.store.catalog.find("latest").id
    shop.sell(days[1], days[2])
    shop.run(forms=("native", "canonical"))
    second = shop.store.catalog.find("latest").id

    shop.json("rollback", first, "--yes", "--format", "canonical")
    assert shop.compare(days[1]).exact
    shop.json("rollback", second, "--yes", "--format", "canonical")
    assert shop.compare(days[2]).exact
    shop.sell(days[2], days[3])
    shop.run()
    assert shop.compare(days[3]).exact
    generations = shop.store.generations.all(QUERY)
    assert [(one.generation, one.begun_from, one.status) for one in generations] == [
        (3, second, "current"),
        (2, first, "ended"),
        (1, None, "ended"),
    ]


@pytest.mark.timeout(900)
def test_trap_without_rewound_transaction_ids_the_rerun_is_silently_dropped(
    spark: SparkSession, shop: Shop
) -> None:
    """The negative control: Delta's own RESTORE under the same application id loses the rerun."""
    from savepoints.outputs.delta.write import app_id, write_batch

    uri, rows = Uri.parse(f"s3://{shop.bucket}/control"), spark.range(10).toDF("k")
    app = app_id("control", "out", 1)
    for batch in (0, 1):
        write_batch(rows, uri, mode="append", key=(), app=app, batch_id=batch)
    open_table(str(uri)).restore(0)
    write_batch(rows, uri, mode="append", key=(), app=app, batch_id=1)
    assert open_table(str(uri)).to_pyarrow_table().num_rows == 10, (
        "the rerun of batch 1 was dropped"
    )


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_offsets_that_kafka_no_longer_has_are_refused(spark: SparkSession, shop: Shop) -> None:
    """Records deleted with the admin API: exit 14, with topic, partition, wanted and available."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    shop.sell(BEGIN, BEGIN + 5 * DAY)
    shop.run()
    wanted = json.loads(shop.store.catalog.find("latest").cut.offsets[0] or "")[shop.topic]["2"]
    shop.sell(BEGIN + 5 * DAY, BEGIN + 10 * DAY)
    available = wanted + 7
    admin = AdminClient({"bootstrap.servers": shop.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(shop.topic, 2, available)]).values():
        future.result()

    before = [info.path for info in shop.store.root.list()]
    code, _, said = shop.call("rollback", "latest", "--yes", "-o", "json")
    assert code == 14
    error = json.loads(said.splitlines()[-1])
    assert error["partitions"] == [
        {
            "topic": shop.topic,
            "partition": 2,
            "wanted": wanted,
            "earliest": available,
            "end": error["partitions"][0]["end"],
        }
    ]
    for value in (shop.topic, "partition 2", str(wanted), str(available)):
        assert value in error["message"]
    assert [info.path for info in shop.store.root.list()] == before, "nothing was written"


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_an_output_that_others_wrote_to_is_refused_before_anything_is_touched(
    spark: SparkSession, shop: Shop
) -> None:
    """Their rows would be lost; with --outputs none only state and offsets go back."""
    shop.sell(BEGIN, BEGIN + 3 * DAY)
    shop.run()
    foreign = spark.read.format("delta").load(f"s3a://{shop.bucket}/totals").limit(1)
    foreign.write.format("delta").mode("append").save(f"s3a://{shop.bucket}/totals")
    before = [info.path for info in shop.store.root.list()]
    code, _, said = shop.call("rollback", "latest", "--yes")
    assert code == 13
    assert "other writers" in said
    assert "--outputs none" in said
    assert [info.path for info in shop.store.root.list()] == before
    rows = open_table(shop.table).to_pyarrow_table().num_rows
    shop.json("rollback", "latest", "--outputs", "none", "--yes")
    assert open_table(shop.table).to_pyarrow_table().num_rows == rows


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_query_that_the_user_starts_and_writes_is_rolled_back_too(
    spark: SparkSession, shop: Shop
) -> None:
    """Delta's own sink, whose transaction id is the query's: from the checkpoint path alone."""
    from pyspark.sql import functions as F

    table, at = f"s3a://{shop.bucket}/own", f"s3a://{shop.bucket}/own-checkpoint"

    def run(checkpoint: str, factor: int) -> None:
        events = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", shop.bootstrap_servers)
            .option("subscribe", shop.topic)
            .option("startingOffsets", "earliest")
            .load()
            .select(F.col("partition"), (F.col("offset") * factor).alias("n"))
        )
        writer = events.dropDuplicates(["partition", "n"]).writeStream.format("delta")
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writer.start(table).awaitTermination()

    def rows() -> list[tuple[int, int]]:
        found = spark.read.format("delta").load(table).collect()
        return sorted((row["partition"], row["n"]) for row in found)

    shop.sell(BEGIN, BEGIN + 2 * DAY)
    run(at, 1)
    good = rows()
    named = ("--name", "own", "--table", f"own={table}", "--format", "native")
    saved = shop.json("create", "--checkpoint", at, *named)["savepoint"]
    shop.sell(BEGIN + 2 * DAY, BEGIN + 4 * DAY)
    run(at, -1)
    spoiled = rows()
    assert spoiled != good

    shop.json("rollback", saved["id"], "--to", f"{at}-2", "--yes")
    assert rows() == good
    run(f"{at}-2", 1)
    later = rows()
    assert len(later) == len(set(later)) > len(good)
    assert set(good) < set(later)
    expected = [(p, n) for p, end in ends(shop).items() for n in range(end)]
    assert later == sorted(expected), "every record once"


def ends(shop: Shop) -> dict[int, int]:
    """Return the end offset of each partition of the topic, from Kafka."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": shop.bootstrap_servers, "group.id": "ends"})
    try:
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(shop.topic, partition))[1]
            for partition in range(4)
        }
    finally:
        consumer.close()
