"""Bounded runs on real parts: exactly up to given ends, and on from there with the next record."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from savepoints import attach
from savepoints.checkpoint import position as checkpoint_position
from savepoints.checkpoint.logs import planned_batch
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, kafka_position
from savepoints.errors import NotAlignedError, UsageError
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.moments import utc_now
from savepoints.runtime import app as apps
from savepoints.runtime.app import App
from savepoints.runtime.inputs import Inputs
from savepoints.runtime.runner import Ran, Runner
from savepoints.sources.combined import availability
from savepoints.sources.kafka import offsets as kafka_offsets
from savepoints.sources.kafka.reset_targets import Target
from savepoints.spark.versions import SparkVersion
from spark_jobs.orders.cdnow import orders_between, read_orders
from spark_jobs.orders.codec import decode_order
from spark_jobs.orders.producer import produce
from tests import draw
from tests.e2e.desk import Desk, records_before

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

BEGIN = date(1997, 1, 1)


def totals(desk: Desk, offsets: KafkaOffsets) -> list[tuple[int, int, int]]:
    """Compute orders and cents of each customer from the records before these offsets."""
    servers = desk.settings.kafka.bootstrap_servers
    orders = [decode_order(one.value()) for one in records_before(servers, offsets)]
    frame = pd.DataFrame(
        [(one.customer_id, one.amount_cents) for one in orders], columns=["c", "a"]
    )
    summed = frame.groupby("c")["a"].agg(["size", "sum"])
    return sorted((int(c), int(n), int(a)) for c, n, a in summed.itertuples())


def written(desk: Desk) -> list[tuple[int, int, int]]:
    rows = desk.rows("totals")
    return sorted((row["customer_id"], row["orders"], row["amount_cents"]) for row in rows)


def state(spark: SparkSession, desk: Desk) -> list[tuple[int, int, int]]:
    """Read the state of the newest batch through Spark's own typed reader."""
    rows = spark.read.format("statestore").load(str(desk.checkpoint)).select("key.*", "value.*")
    return sorted((row[0], row[1], row[2]) for row in rows.collect())


def somewhere(rng: random.Random, begin: KafkaOffsets, end: KafkaOffsets) -> KafkaOffsets:
    return {
        topic: {part: rng.randint(begin[topic][part], stop) for part, stop in parts.items()}
        for topic, parts in end.items()
    }


def ends_at_random(spark: SparkSession, desk: Desk, rng: random.Random, legs: list[str]) -> None:
    """Run leg by leg to random ends of some kinds, comparing with pandas after each."""
    topic, servers = desk.topics["orders"], desk.settings.kafka.bootstrap_servers
    orders = orders_between(read_orders(), from_date=BEGIN, until_date=BEGIN + timedelta(days=6))
    produce(orders, bootstrap_servers=servers, topic=topic)
    newest = kafka_offsets.ends(availability.ranges([topic], desk.settings.kafka))
    here: KafkaOffsets = {topic: dict.fromkeys(newest[topic], 0)}
    batch = -1
    for leg in legs:
        if leg == "offsets":
            wanted = somewhere(rng, here, newest)
            path = desk.directory / "offsets.json"
            path.write_text(kafka_position(wanted))
            ran, saved = desk.run(until=str(path))
        elif leg == "time":
            # A moment within what has not been read in any partition.
            read = records_before(servers, here)
            after = max(
                (one.timestamp()[1] for one in read),
                default=orders[0].ordered_at.timestamp() * 1000,
            )
            last = orders[-1].ordered_at.timestamp() * 1000
            moment = datetime.fromtimestamp(rng.uniform(after, last) // 1000 + 1, UTC)
            every = records_before(servers, newest)
            wanted = {topic: dict.fromkeys(newest[topic], 0)}
            for one in every:
                wanted[topic][one.partition()] += one.timestamp()[1] < moment.timestamp() * 1000
            ran, saved = desk.run(until=moment.isoformat())
        elif leg == "max_records":
            most = rng.randint(1, 200)
            ran, saved = desk.run(max_records=most)
            wanted = ran.offsets
            left = sum(newest[topic].values()) - sum(here[topic].values())
            assert ran.input_rows == min(most, left)
            assert ran.ended == ("max_records" if most < left else "caught_up")
        else:
            wanted = newest
            ran, saved = desk.run(until="latest")
        assert ran.offsets == wanted, leg
        count = sum(wanted[topic].values()) - sum(here[topic].values())
        assert ran.input_rows == count, f"{leg}: it goes on with the next record"
        assert ran.batches == -(
            -count // (desk.settings.queries[desk.query].max_offsets_per_trigger or count)
        )
        if count:
            assert ran.first_batch == batch + 1
            batch = ran.last_batch or 0
        assert written(desk) == totals(desk, wanted), leg
        if SparkVersion.of(spark.version).number >= (4, 0):  # It has a reader of state since then.
            assert state(spark, desk) == totals(desk, wanted), leg
        assert saved is not None
        assert saved.cut.offsets == (kafka_position(wanted),)
        here = wanted


@pytest.mark.nightly
def test_runs_to_random_ends_are_exact_and_the_next_goes_on_with_the_next_record(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    """Seeded; a second run to the same end has nothing to do and takes no other savepoint."""
    desk = Desk.open(world, tmp_path, "spark_jobs.order_totals:app", most=500)
    ends_at_random(spark, desk, random.Random(6), ["offsets", "max_records", "time", "latest"])

    ran, saved = desk.run(until="latest")

    assert (ran.batches, ran.ended, ran.caught_up) == (0, "caught_up", True)
    assert saved == desk.store.catalog.all()[0]
    assert len(desk.store.catalog.all()) == 4


@pytest.mark.nightly
def test_trap_the_watermark_stood_still_after_batches_without_events_of_an_input(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    """Each planned batch is another query to Spark, and knows only what it has read itself."""
    desk = Desk.open(world, tmp_path, "tests.e2e.bounded_apps:followed", most=2)
    lefts = [("a", 10), ("b", 11), ("c", 20), ("d", 21), ("e", 30), ("f", 31)]
    desk.send("left", lefts)
    desk.send("right", [("y", 100), ("z", 100)])

    ran, saved = desk.run(until="latest")

    assert ran.batches == 4, "three with events, and one that writes what is over"
    assert saved is not None
    assert saved.cut.watermark_ms == 30_000, "of the input that is behind, less a second"
    over = [{"k": k, "n": n, "answer": None} for k, n in lefts if n + 5 < 30]
    assert desk.rows() == over


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(10))
def test_many_runs_to_random_ends_are_exact(
    spark: SparkSession,
    world: LocalWorld,
    world_environment: dict[str, str],
    tmp_path: Path,
    number: int,
) -> None:
    rng = draw.chance("runs to random ends", number)
    desk = Desk.open(
        world, tmp_path, "spark_jobs.order_totals:app", most=rng.choice([150, 1000, None])
    )
    legs = rng.choices(["offsets", "max_records", "time"], k=4)
    ends_at_random(spark, desk, rng, [*legs, "latest"])


@pytest.mark.nightly
def test_trap_failed_uncommitted_batch_on_top_of_last_commit_skip_duplicates_refuse_is_stuck(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    """Two sources, which Spark counts in another order than the application names them.

    A batch that was begun is run again as it is when it lies within the end; it is planned anew
    when it goes beyond and no output has it; it is refused when an output has it, and finished by a
    run that allows it.
    """
    desk = Desk.open(world, tmp_path, "tests.e2e.bounded_apps:two_topics", most=6)
    left, right = desk.topics["left"], desk.topics["right"]
    sent = {
        "left": [(f"k{n % 3}", n) for n in range(20)],
        "right": [(f"k{n % 4}", 100 * n) for n in range(10)],
    }

    def run_to(lefts: int, rights: int) -> Ran:
        wanted = {left: {0: lefts, 1: lefts}, right: {0: rights, 1: rights}}
        path = tmp_path / "to.json"
        path.write_text(kafka_position(wanted))
        ran, _ = desk.run(until=str(path))
        assert ran.offsets == wanted
        assert_exact(lefts, rights)
        return ran

    def assert_exact(lefts: int, rights: int) -> None:
        read = [*sent["left"][: 2 * lefts], *sent["right"][: 2 * rights]]
        many = Counter(k for k, _ in read)
        summed = {k: sum(n for other, n in read if other == k) for k in many}
        assert desk.rows() == sorted(
            ({"k": k, "many": many[k], "total": summed[k]} for k in many), key=str
        )

    def begin(lefts: int, rights: int) -> int:
        """Write what a query writes before it runs a batch, and return the batch."""
        checkpoint, now = desk.checkpoint, checkpoint_position.read(desk.checkpoint)
        positions = [
            kafka_position({left: {0: lefts, 1: lefts}}),
            kafka_position({right: {0: rights, 1: rights}}),
        ]
        assert now.committed is not None
        data = planned_batch.next_batch(
            checkpoint.get(f"offsets/{now.committed}"),
            now.committed,
            positions,
            now.next_watermark_ms,
            utc_now(),
        )
        checkpoint.put(f"offsets/{now.next_batch}", data)
        return now.next_batch

    desk.send("left", sent["left"])
    assert run_to(1, 0).batches == 1, "the other topic is empty"
    desk.send("right", sent["right"])
    assert run_to(5, 1).batches == 2, "at most 6 records of a source in a batch"
    assert list(kafka_of(desk.checkpoint)) == [left, right]

    batch = begin(6, 2)  # Within the end: run again as it is, then on.
    assert run_to(7, 2).first_batch == batch
    assert checkpoint_position.read(desk.checkpoint).committed == batch + 1

    batch = begin(9, 5)  # Beyond the end, and nowhere: planned anew.
    # Maintenance had saved what the other attempt made; Spark would not write it again.
    stale = f"state/0/0/{batch + 1}.snapshot"
    desk.checkpoint.put(stale, b"of another attempt")
    assert run_to(8, 3).last_batch == batch
    assert not desk.checkpoint.exists(stale)

    batch = begin(9, 5)  # Beyond the end, and in the output: killed before the commit.
    runner(spark, desk).run_planned()
    desk.checkpoint.delete([f"commits/{batch}", f"commits/.{batch}.crc"])
    with pytest.raises(
        NotAlignedError, match=f"batch {batch} of two_topics was started"
    ) as refused:
        run_to(8, 4)
    assert refused.value.details["batch_id"] == batch
    assert run_to(10, 5).first_batch == batch, "finished, and each row once"

    begin(10, 5)
    desk.checkpoint.copy_from(desk.checkpoint, f"offsets/{batch + 2}", f"offsets/{batch + 3}")
    with pytest.raises(NotAlignedError, match="lose the rows"):
        desk.run(until="latest")


def kafka_of(checkpoint: Location) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for position in checkpoint_position.read(checkpoint).positions:
        found.update(json.loads(position or "{}"))
    return found


def runner(spark: SparkSession, desk: Desk) -> Runner:
    bound = desk.settings.queries[desk.query]
    return Runner(
        spark,
        Inputs(apps.load(bound.app), bound, desk.settings.kafka),
        generation=1,
        checkpoint=desk.checkpoint,
    )


@draw.taking_turns("bounded run", "killed run")
def test_the_end_state_is_that_of_spark_s_own_run_to_the_same_end(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    """With a watermark: what is over by the last batch is written and evicted."""
    desk = Desk.open(world, tmp_path, "tests.e2e.bounded_apps:windowed")
    desk.send("events", [(f"k{n % 2}", n) for n in range(60)])
    ran, _ = desk.run(until="latest")
    own = desk.rows()
    mine = spark.read.format("statestore").load(str(desk.checkpoint)).select("key.*", "value.*")
    peer, table = run_by_spark(spark, desk, tmp_path)

    assert own, "some windows are over"
    assert own == sorted(spark.read.format("delta").load(table).toArrow().to_pylist(), key=str), (
        "the same rows"
    )
    theirs = spark.read.format("statestore").load(peer).select("key.*", "value.*")
    assert sorted(mine.collect()) == sorted(theirs.collect()), "the same state"
    assert checkpoint_position.read(Location.of(peer)).committed == ran.last_batch == 1, (
        "as many batches"
    )
    assert desk.run(until="latest")[0].batches == 0


@pytest.mark.nightly
def test_trap_no_empty_batch_is_planned_where_they_are_switched_off(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    """Spark itself leaves to the next batch with input what the watermark allows."""
    desk = Desk.open(world, tmp_path, "tests.e2e.bounded_apps:windowed")
    desk.send("events", [(f"k{n % 2}", n) for n in range(60)])
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    try:
        ran, _ = desk.run(until="latest")
        peer, _ = run_by_spark(spark, desk, tmp_path)
        assert checkpoint_position.read(Location.of(peer)).committed == ran.last_batch == 0
        again, _ = desk.run(until="latest")
    finally:
        spark.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")

    assert (again.batches, again.ended) == (0, "caught_up")


def built(app: App, spark: SparkSession, desk: Desk) -> DataFrame:
    """Return what a program gives that reads the topic by Spark's own source."""
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", desk.settings.kafka.bootstrap_servers)
        .option("subscribe", desk.topics["events"])
        .option("startingOffsets", "earliest")
        .load()
    )
    return app.build({"events": app.inputs["events"].decode(source)})


def run_by_spark(spark: SparkSession, desk: Desk, place: Path) -> tuple[str, str]:
    """Run the program of `windowed` by Spark alone; return its checkpoint and its table."""
    from tests.e2e.bounded_apps import windowed

    result = built(windowed, spark, desk)
    peer, table = str(place / "peer"), str(place / "peer-rows")
    writer = result.writeStream.format("delta").option("checkpointLocation", peer)
    writer.outputMode("append").trigger(availableNow=True).start(table).awaitTermination()
    return peer, table


@pytest.mark.nightly
def test_trap_a_program_that_reads_an_input_twice(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    """Its first run with an end was refused: Spark has fewer sources than positions."""
    desk = Desk.open(world, tmp_path, "tests.e2e.bounded_apps:one_twice")
    desk.send("left", [("a", 1), ("b", 2), ("a", 4)])
    desk.send("right", [("a", 10), ("c", 20)])
    expected = [
        {"k": "a", "many": 5, "total": 20},
        {"k": "b", "many": 2, "total": 4},
        {"k": "c", "many": 1, "total": 20},
    ]

    desk.run(max_records=3)
    desk.run(until="latest")
    assert desk.rows() == expected
    desk.store.query(desk.query).reset(Target("earliest"), outputs="truncate").execute()
    desk.run(until="latest")
    assert desk.rows() == expected, "after a reset"
    desk.store.query(desk.query).reset(Target("shift", -1), state="keep").execute()
    desk.run(until="latest")
    assert sum(row["many"] for row in desk.rows()) == 8 + 2 * 2 + 2, "the last of each partition"


@pytest.mark.nightly
@pytest.mark.parametrize("options", [{"until": "latest"}, {"max_duration": timedelta(seconds=20)}])
def test_trap_a_batch_that_a_driver_has_written_before_it_died(
    spark: SparkSession,
    world: LocalWorld,
    world_environment: dict[str, str],
    tmp_path: Path,
    options: dict[str, Any],
) -> None:
    """Its rows were doubled: they were looked for under the id of `run` alone, not of Spark."""
    from tests.e2e.bounded_apps import once

    desk = Desk.open(world, tmp_path, "tests.e2e.bounded_apps:once")
    checkpoint = tmp_path / "checkpoints" / "once" / "1"
    desk.send("events", [("a", 1), ("b", 2)])
    writer = built(once, spark, desk).writeStream.queryName("once").format("delta")
    query = writer.option("checkpointLocation", str(checkpoint)).start(str(tmp_path / "out"))
    attached = attach(spark, query, every="1h", store=desk.store)
    query.processAllAvailable()
    attached.create(forms=("native",))
    desk.send("events", [("c", 3), ("d", 4)])
    query.processAllAvailable()
    query.stop()
    attached.stop()
    last = checkpoint_position.read(Location.of(str(checkpoint))).committed
    # Killed after Delta's commit, and before Spark's.
    Location.of(str(checkpoint)).delete([f"commits/{last}", f"commits/.{last}.crc"])

    desk.run(**options)
    desk.send("events", [("a", 1), ("e", 5)])
    desk.run(until="latest")

    assert desk.rows() == [{"k": k, "n": n} for n, k in enumerate("abcde", 1)]


@pytest.mark.nightly
def test_a_query_with_timers_in_processing_time_ends(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    """Under availableNow it would run empty batches for ever. What cannot be reached is refused."""
    desk = Desk.open(world, tmp_path, "tests.e2e.bounded_apps:timed")
    desk.send("events", [("a", 1), ("b", 2), ("a", 3), ("b", 4)])
    topic = desk.topics["events"]
    path = tmp_path / "to.json"

    ran, _ = desk.run(until="latest")
    assert (ran.batches, ran.ended, ran.offsets) == (1, "caught_up", {topic: {0: 2, 1: 2}})
    desk.send("events", [("a", 5), ("c", 6)])
    ran, _ = desk.run(max_records=1)
    assert (ran.batches, ran.ended, ran.remaining_records) == (1, "max_records", 1)
    ran, _ = desk.run(until="latest", max_duration=timedelta(milliseconds=1))
    assert (ran.batches, ran.ended, ran.caught_up) == (0, "max_duration", False)
    assert ran.remaining_records == 1
    ran, saved = desk.run(until="latest")
    assert desk.rows() == [{"k": k, "total": n} for k, n in {"a": 9, "b": 6, "c": 6}.items()]

    for offsets, reason in (
        ({topic: {0: 2, 1: 2}}, "before the start at 3"),
        ({topic: {0: 9, 1: 9}}, "available 0 to 3"),
        ({topic: {0: 3}}, "partition 1"),
    ):
        path.write_text(kafka_position(offsets))
        with pytest.raises(UsageError, match=reason):
            desk.run(until=str(path))
    assert saved is not None
    assert desk.run(until=saved.id)[0].caught_up, "a savepoint names where it was"
