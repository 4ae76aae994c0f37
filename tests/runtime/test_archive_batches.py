"""Archive, Kafka and merged events as the input of one query, against pandas over all events."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from savepoints.checkpoint import position
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.config.settings import KafkaSettings, QuerySettings
from savepoints.errors import NotFoundError, SourceDataGoneError
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.outputs.delta.batch_version import open_table
from savepoints.runtime.app import App, Input, Output
from savepoints.runtime.archive_batches import ArchivedInputs
from savepoints.runtime.bounded.bounded_run import KafkaEnd, Limits
from savepoints.runtime.inputs import Inputs
from savepoints.runtime.runner import Ran, Runner
from savepoints.sources.archive import archive
from savepoints.sources.combined import archiving_query, availability
from savepoints.sources.combined.archiving_query import Archiving
from savepoints.sources.events.events import RAW_SCHEMA, events
from savepoints.sources.kafka.offsets import Range
from savepoints.store.tables.merge_ledger import Merge
from tests import samples
from tests.sources import json_input
from tests.sources.broker import Broker
from tests.sources.json_input import BEGINNING, CUSTOMERS, DECODING, add_late, order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELAY = timedelta(minutes=10)
MINUTES = 5


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Count the orders of a customer in each hour, and say from where they came, in what order."""
    orders = inputs["orders"].withWatermark("at", "10 minutes")
    hours = orders.groupBy(F.window("at", "1 hour"), "customer", "partition")
    found = hours.agg(F.count("*").alias("orders"), F.collect_list("offset").alias("offsets"))
    return found.select("window.end", "customer", "partition", "orders", "offsets")


app = App(
    name="hours",
    inputs={
        "orders": Input("orders", json_input.decode, "customer", "at", event_id=("id",)),
    },
    build=build,
    outputs={"hours": Output(mode="append")},
)


@dataclass(frozen=True)
class Event:
    """An order, and where it lies."""

    number: int
    customer: int
    minute: int
    partition: int
    offset: int


@dataclass
class World:
    """A topic, its archive, and a query over both."""

    spark: SparkSession
    broker: Broker
    place: Location
    topic: str
    events: list[Event]

    @property
    def uri(self) -> str:
        return str(self.place / "archive")

    @property
    def table(self) -> str:
        return str(self.place / "hours")

    def produce(self, count: int) -> None:
        """Send orders in the order of their time, in turn to both partitions."""
        producer = Producer({"bootstrap.servers": self.broker.settings.bootstrap_servers})
        for number in range(len(self.events), len(self.events) + count):
            one = Event(number, number % CUSTOMERS, MINUTES * number, number % 2, number // 2)
            producer.produce(self.topic, order(number, one.customer, one.minute), b"k", number % 2)
            self.events.append(one)
        assert producer.flush(30) == 0

    def archive(self) -> KafkaOffsets:
        what = Archiving(self.uri, self.topic, DECODING, self.broker.settings)
        query = archiving_query.start(self.spark, what)
        query.awaitTermination()
        assert query.exception() is None
        return archive.end(self.uri)

    def merge(self, late: Sequence[Event], removed: Sequence[Event]) -> Merge:
        """Put late events into the archive, and take others away, as a merge does."""
        rows = [
            (b"k", order(one.number, one.customer, one.minute), self.topic, -1, at, BEGINNING, 0)
            for at, one in enumerate([*late, *removed])
        ]
        records = self.spark.createDataFrame([(*row, None) for row in rows], RAW_SCHEMA)
        op = F.when(F.col("offset") >= len(late), "remove")
        add_late(self.spark, self.uri, events(records, DECODING).withColumn("op", op), "op-merge")
        return merged_at(archive.end(self.uri))

    def runner(self, archived: ArchivedInputs | None) -> Runner:
        return Runner(
            self.spark,
            Inputs(app, self.bound, self.broker.settings),
            generation=1,
            checkpoint=self.place / "checkpoint",
            archived=archived,
        )

    @property
    def bound(self) -> QuerySettings:
        return QuerySettings(
            app="tests.runtime.test_archive_batches:app",
            checkpoints=str(self.place),
            outputs={"hours": self.table},
            topics={"orders": self.topic},
            archives={"orders": self.uri},
            max_offsets_per_trigger=45,
        )

    def archived(self, *merges: Merge) -> ArchivedInputs:
        return ArchivedInputs(Inputs(app, self.bound, self.broker.settings), merges)

    def run(self, archived: ArchivedInputs, most: int | None = None) -> Ran:
        """Run to what Kafka has now."""
        has = availability.ranges([self.topic], self.broker.settings, [self.uri])
        ends = {self.topic: {part: one.end for part, one in has[self.topic].items()}}
        scratch = self.place / f"scratch-{most}"
        return KafkaEnd(ends, has).run(
            self.runner(archived), scratch=scratch, limits=Limits(max_records=most)
        )


def merged_at(offsets: KafkaOffsets, merge_id: str = "op-merge") -> Merge:
    return samples.merge("hours", offsets, BEGINNING, merge_id)


def truth(events: Sequence[Event]) -> list[tuple[Any, ...]]:
    """Return the hours that are over, by pandas."""
    frame = pd.DataFrame([vars(one) for one in events])
    at = pd.Timestamp(BEGINNING) + pd.to_timedelta(frame["minute"], unit="min")
    frame["end"] = at.dt.floor("h") + pd.Timedelta(hours=1)
    over = frame[frame["end"] <= at.max() - DELAY]
    hours = over.sort_values("offset").groupby(["end", "customer", "partition"])
    found = hours["offset"].agg(list).reset_index()
    return sorted(
        (row.end.to_pydatetime(), f"c{row.customer}", row.partition, row.offset)
        for row in found.itertuples()
    )


def written(table: str) -> list[tuple[Any, ...]]:
    rows = open_table(table).to_pyarrow_table().to_pylist()
    return sorted((row["end"], row["customer"], row["partition"], row["offsets"]) for row in rows)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.kafka
def test_each_late_event_is_read_where_it_belongs_and_removed_ones_nowhere(
    spark: SparkSession, world: LocalWorld, tmp_path: Path
) -> None:
    """Windows are closed for good soon after: one batch later, and a late event would be lost."""
    broker = Broker.of(world)
    shop = World(spark, broker, Location.of(str(tmp_path)), broker.make(partitions=2), [])
    shop.produce(180)
    shop.archive()
    late = [Event(1000 + n, n % CUSTOMERS, 3 + 31 * n, -1, n) for n in range(28)]
    removed = [one for one in shop.events if one.number % 40 == 3]
    merge = shop.merge(late, removed)
    for part in (0, 1):
        broker.forget(shop.topic, part, 80)
    shop.produce(60)  # Of these Kafka alone knows.

    first = shop.run(shop.archived(merge), most=90)

    # Killed after its last batch was written, and before it was committed; the archive grows.
    assert first.last_batch == 1
    checkpoint = shop.place / "checkpoint"
    checkpoint.delete(["commits/1", "commits/.1.crc"])
    assert position.read(checkpoint).begun == 1
    shop.archive()
    ran = shop.run(shop.archived(merge))

    assert ran.caught_up
    everything = [one for one in (*shop.events, *late) if one not in removed]
    expected = truth(everything)
    found = written(shop.table)
    assert len(expected) > 100
    assert found == expected
    assert first.input_rows + ran.input_rows > len(everything), "one batch was run twice"
    assert truth(shop.events) != expected, "without the merge it would be something else"


NOW = KafkaSettings(bootstrap_servers="unused")


def test_a_merge_lies_ahead_until_the_query_has_come_to_its_offsets(tmp_path: Path) -> None:
    bound = QuerySettings(app="unused:app", checkpoints="unused", topics={"orders": "t"})
    merge = merged_at({"t": {0: 10, 1: 20}, "other": {0: 99}})
    archived = ArchivedInputs(Inputs(app, bound, NOW), (merge,))
    for first, second in itertools.product((0, 9, 10, 11), (0, 19, 20, 30)):
        is_ahead = first < 10 or second < 20
        assert bool(archived.pending({"t": {0: first, 1: second}})) == is_ahead
    assert archived.pending({"t": {0: 10}}), "a partition that it has not seen"
    with pytest.raises(NotFoundError, match=r"op-merge.* not in the archive of orders"):
        archived.require_replayable({"t": {0: 0, 1: 0}})
    assert archived.require_replayable({"t": {0: 10, 1: 20}}) == ()


@pytest.mark.parametrize(
    ("position", "said"),
    [
        ({"old": {0: 3}}, "offset 3 of topic old partition 0, which it does not read any more"),
        ({"t": {0: 1, 7: 3}}, "offset 3 of topic t partition 7, which Kafka does not have"),
    ],
)
def test_trap_a_position_in_what_the_query_does_not_read_any_more(
    position: KafkaOffsets, said: str
) -> None:
    bound = QuerySettings(app="unused:app", checkpoints="unused", topics={"orders": "t"})
    archived = ArchivedInputs(Inputs(app, bound, NOW), ())

    with pytest.raises(SourceDataGoneError, match=said) as refused:
        archived.until(position, {"t": {0: Range("t", 0, 0, 10)}})
    # Without it, a reset refuses a partition that was deleted.
    assert f"savepoints reset {app.name} --to-earliest --allow-data-loss" in refused.value.hint
