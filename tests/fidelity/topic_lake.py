"""Pipelines of which some queries write a Kafka topic, which the next one reads."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from savepoints.config.settings import Settings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations.savepoint import create
from tests.fidelity.lake import Build, Lake, bronze
from tests.sources.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass
class TopicLake(Lake):
    """A lake with a broker; a query either writes a table of its name, or the topic given here.

    Attributes:
        broker: The broker.
        topics: By query, the topic that it writes; of two partitions.
    """

    broker: Broker = field(kw_only=True)
    topics: Mapping[str, str] = field(kw_only=True)

    @property
    def ahead(self) -> list[str]:
        """Those that write the first table and a topic."""
        return ["bronze", "silver"]

    @classmethod
    def make(
        cls,
        spark: SparkSession,
        place: Path,
        broker: Broker,
        shape: Mapping[str, Build],
        *names: str,
    ) -> TopicLake:
        """Make a lake in which these queries write topics."""
        there = Location.of(str(place))
        return cls(
            spark,
            there,
            Store.at(str(there / "store"), settings=Settings(kafka=broker.settings)).make(),
            shape,
            broker=broker,
            topics={name: broker.make(name=f"{name}-{uuid.uuid4().hex}") for name in names},
        )

    def save(self, *names: str) -> dict[str, Savepoint]:
        saved = {}
        for name in names or self.shape:
            plan = create.plan(
                self.store,
                query=name,
                checkpoint=self.checkpoints[name],
                forms=("native",),
                outputs={} if name in self.topics else {name: self.uri(name)},
                output_topics=[self.topics[name]] if name in self.topics else [],
            )
            saved[name] = create.execute(plan, self.store)
        return saved

    def tables(self) -> dict[str, Counter[tuple[Any, ...]]]:
        return {name: self.rows(name) for name in self.shape if name not in self.topics}

    def produce(self, rows: DataFrame, query: str) -> DataStreamWriter:
        records = rows.selectExpr("CAST(n AS STRING) AS key", "to_json(struct(*)) AS value")
        return (
            records.writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self.broker.settings.bootstrap_servers)
            .option("topic", self.topics[query])
        )

    def consume(self, query: str) -> DataFrame:
        """Read what a query has produced, a few records a batch."""
        reader = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.broker.settings.bootstrap_servers)
            .option("subscribe", self.topics[query])
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 3)
            .option("kafka.fetch.max.wait.ms", "10")
        )
        records = reader.load().selectExpr(
            "from_json(CAST(value AS STRING), 'n LONG, value LONG') AS it"
        )
        return records.select("it.*")


def silver(lake: Lake) -> DataStreamWriter:
    """Numbers and what they are worth, into a topic; wrong with the bug."""
    assert isinstance(lake, TopicLake)
    wrong = 1000 if lake.has_bug else 1
    return lake.produce(
        lake.stream("bronze").selectExpr("n", f"n * 10 * {wrong} AS value"), "silver"
    )


def middle(lake: Lake) -> DataStreamWriter:
    """From one topic into another."""
    assert isinstance(lake, TopicLake)
    return lake.produce(lake.consume("silver").selectExpr("n", "value + 1 AS value"), "middle")


def gold(lake: Lake) -> DataStreamWriter:
    """Record by record what came through the last topic."""
    assert isinstance(lake, TopicLake)
    return lake.append(lake.consume("middle" if "middle" in lake.topics else "silver"), "gold")


def total(lake: Lake) -> DataStreamWriter:
    """Sums by the last digit, behind the table of gold."""
    rows = lake.stream("gold").selectExpr("n % 10 AS k", "value")
    return lake.append(rows.groupBy("k").sum("value").toDF("k", "total"), "total", "complete")


def sums(lake: Lake) -> DataStreamWriter:
    """Sums by the last digit, kept as state, straight from the topic."""
    assert isinstance(lake, TopicLake)
    rows = lake.consume("silver").selectExpr("n % 10 AS k", "value")
    return lake.append(rows.groupBy("k").sum("value").toDF("k", "total"), "sums", "complete")


ONE: Mapping[str, Build] = {"bronze": bronze, "silver": silver, "gold": gold, "total": total}
TWO_READERS: Mapping[str, Build] = {
    "bronze": bronze, "silver": silver, "gold": gold, "sums": sums
}  # fmt: skip
TWO_TOPICS: Mapping[str, Build] = {
    "bronze": bronze, "silver": silver, "middle": middle, "gold": gold
}  # fmt: skip
SHAPES: Mapping[str, tuple[Mapping[str, Build], tuple[str, ...]]] = {
    "one": (ONE, ("silver",)),
    "two_readers": (TWO_READERS, ("silver",)),
    "two_topics": (TWO_TOPICS, ("silver", "middle")),
}
