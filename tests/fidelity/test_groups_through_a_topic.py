"""Groups taken while one query writes a topic and another reads it; the topic itself is the truth.

What a savepoint of the reader has read are the records before its offsets; what a savepoint of the
writer has written follows from the rows that it has read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable

import savepoints
from savepoints.checkpoint.logs.kafka_position import kafka_offsets
from savepoints.local import LocalWorld
from savepoints.model import Savepoint
from tests.e2e.marks import NIGHTLY
from tests.fidelity.topic_lake import TWO_READERS, TopicLake
from tests.sources.broker import Broker
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = NIGHTLY

SHAPE = {name: TWO_READERS[name] for name in ("bronze", "silver", "gold")}
FILES = 40


@pytest.fixture
def lake(spark: SparkSession, world: LocalWorld, tmp_path: Path) -> TopicLake:
    made = TopicLake.make(spark, tmp_path / "lake", Broker.of(world), SHAPE, "silver")
    made.give(0)
    made.run()
    made.save()
    return made


@pytest.fixture
def backlog(lake: TopicLake) -> None:
    """Give silver a lot to do, a commit a batch."""
    for number in range(1, FILES):
        lake.give(2 * number, 2 * number + 1)
    lake.run("bronze")


@contextmanager
def running(lake: TopicLake) -> Iterator[dict[str, Any]]:
    """Let silver and gold work off what bronze has written, one commit after the other."""
    queries = {
        name: lake.shape[name](lake).option("checkpointLocation", lake.checkpoints[name]).start()
        for name in ("silver", "gold")
    }
    try:
        yield queries
    finally:
        for one in queries.values():
            one.stop()


def newest(lake: TopicLake, name: str) -> int:
    found = (Path(lake.checkpoints[name]) / "commits").iterdir()
    return max(int(one.name) for one in found if one.name.isdigit())


def read(lake: TopicLake, reader: Savepoint) -> set[int]:
    """Return the numbers in the records before the offsets of a savepoint of gold."""
    (position,) = reader.cut.offsets
    ends = (kafka_offsets(position) or {})[lake.topics["silver"]]
    servers = lake.broker.settings.bootstrap_servers
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "truth"})
    found = set()
    for part, end in ends.items():
        consumer.assign([TopicPartition(lake.topics["silver"], part, 0)])
        records = consumer.consume(end, 60) if end else []
        assert len(records) == end
        found |= {int(json.loads(record.value() or b"")["n"]) for record in records}
    consumer.close()
    return found


def written(lake: TopicLake, writer: Savepoint) -> set[int]:
    """Return the numbers that silver had read by a savepoint, and so had written."""
    (position,) = writer.cut.offsets
    at = json.loads(str(position))
    table = DeltaTable(lake.uri("bronze"), version=at["reservoirVersion"] - 1)
    return set(table.to_pandas()["n"])


@pytest.mark.usefixtures("backlog")
def test_groups_under_load_fit_together(lake: TopicLake) -> None:
    taken: list[savepoints.Group] = []
    with running(lake):
        while newest(lake, "silver") < FILES - 1:
            name = f"group-{len(taken)}"
            taken.append(lake.store.query("silver").create_group(name=name).execute())

    assert len(taken) > 3
    for group in taken[:2] + taken[-3:]:
        of = {one.query: one for one in group.savepoints}
        assert read(lake, of["gold"]) <= written(lake, of["silver"])
    # Asked once more when all is over.
    assert not lake.store.query("gold").group("group-0").problems


def test_trap_records_of_a_batch_that_is_not_committed(lake: TopicLake) -> None:
    """A reader has them before the writer's checkpoint knows that its batch is over."""
    lake.give(1001, 1002)
    lake.run("bronze")
    written_to_kafka, may_end = threading.Event(), threading.Event()

    def held(batch: DataFrame, _batch_id: int) -> None:
        records = batch.selectExpr("to_json(struct(n, n * 10 AS value)) AS value").write
        servers = lake.broker.settings.bootstrap_servers
        records.format("kafka").option("kafka.bootstrap.servers", servers).option(
            "topic", lake.topics["silver"]
        ).save()
        written_to_kafka.set()
        may_end.wait(120)

    writer = lake.stream("bronze").writeStream.foreachBatch(held)
    query = writer.option("checkpointLocation", lake.checkpoints["silver"]).start()
    try:
        assert written_to_kafka.wait(120)
        lake.run("gold")

        def told(line: str) -> None:
            if "waiting for silver to commit batch" in line:
                may_end.set()

        group = lake.store.query("gold").create_group(name="held").execute(progress=told)
    finally:
        may_end.set()
        query.processAllAvailable()
        query.stop()
    of = {one.query: one for one in group.savepoints}
    assert {1001, 1002} <= read(lake, of["gold"])
    assert read(lake, of["gold"]) <= written(lake, of["silver"])


@pytest.mark.usefixtures("backlog")
def test_savepoints_in_the_wrong_order_do_not_fit_and_are_recognised(lake: TopicLake) -> None:
    """The same without the order in which a group is taken; else the test above shows nothing."""
    with running(lake):
        before = lake.save("silver", "bronze")["silver"]
        wait_until(lambda: newest(lake, "silver") > before.cut.batch_id + 3, "silver has gone on")
        there = newest(lake, "gold")
        wait_until(lambda: newest(lake, "gold") > there + 3, "gold has gone on")
        after = lake.save("gold")["gold"]
    for one in (before, after):
        lake.store.savepoint(one.id).tag(add=["wrong"]).execute()

    assert not read(lake, after) <= written(lake, before)
    (problem,) = [one for one in lake.store.query("gold").group("wrong").problems if "topic" in one]
    assert "gold is ahead of silver" in problem or "another batch was running" in problem


def test_a_driver_that_names_its_topic_and_stops_knows_exactly_where_it_ends(
    lake: TopicLake,
) -> None:
    """With `attach`, as users have it."""
    writer = lake.shape["silver"](lake).option("checkpointLocation", lake.checkpoints["silver"])
    query = writer.start()
    attached = savepoints.attach(
        lake.spark, query, every="1h", store=lake.store, name="silver",
        output_topics=[lake.topics["silver"]], forms=("native",),
    )  # fmt: skip
    lake.give(1001, 1002)
    lake.run("bronze")
    query.processAllAvailable()

    taken = attached.stop()

    assert taken is not None
    (topic,) = taken.output_topics
    assert topic.is_exact
    assert sum(topic.ends or ()) == 1 + 2
    assert [one.reader for one in lake.store.query("silver").pipeline().topic_edges] == ["gold"]
