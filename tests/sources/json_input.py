"""An application over JSON, records for it, and what its archive must have of them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.runtime.app import App, Input, Output
from savepoints.sources.archive import archive
from savepoints.sources.events.events import Decoding
from tests.sources.broker import Broker

BEGINNING = datetime(2026, 11, 20, tzinfo=UTC)
CUSTOMERS = 7


def decode(records: DataFrame) -> DataFrame:
    """Read the orders; what is no order is left out."""
    order = F.from_json(
        F.col("value").cast("string"), "id string, customer string, at timestamp"
    ).alias("order")
    decoded = records.select(order, "topic", "partition", "offset")
    return decoded.where("order.customer is not null").select(
        "order.*", "topic", "partition", "offset"
    )


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Count the orders of each customer."""
    return inputs["orders"].groupBy("customer").count()


DECODING = Decoding(decode, "customer", "at", ("id",))
app = App(
    name="counts",
    inputs={"orders": Input("orders", decode, "customer", "at", event_id=("id",))},
    build=build,
    outputs={"counts": Output(mode="upsert", key=("customer",))},
)


@dataclass(frozen=True, order=True)
class Seen:
    """A record with what the archive says of it; times in milliseconds."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...]
    entity: str | None
    event_ms: int | None
    event_id: str | None


def order(number: int, customer: int, minute: int) -> bytes:
    """Return the value of an order."""
    at = BEGINNING + timedelta(minutes=minute)
    data = {"id": f"o-{number}", "customer": f"c{customer}", "at": at.isoformat()}
    return json.dumps(data).encode()


def produce(broker: Broker, topic: str, partitions: int, count: int, seed: int) -> None:
    """Send orders in random order of time, some records that are none, some without a key."""
    chance = random.Random(seed)
    producer = Producer({"bootstrap.servers": broker.settings.bootstrap_servers})
    some: list[tuple[str, str | bytes | None]] = [("h", b"\x00\x01")]
    for number in range(count):
        value: bytes | None = order(
            1000 * seed + number, chance.randrange(CUSTOMERS), chance.randrange(1000)
        )
        if chance.random() < 0.1:
            value = chance.choice([None, b"no order"])
        producer.produce(
            topic,
            value,
            chance.choice([None, b"k"]),
            chance.randrange(partitions),
            headers=chance.choice([[], some]),
        )
    assert producer.flush(30) == 0


def consume(broker: Broker, begin: KafkaOffsets, end: KafkaOffsets) -> list[Seen]:
    """Read records with Kafka's own consumer, and take the orders apart with Python's JSON."""
    consumer = Consumer(
        {"bootstrap.servers": broker.settings.bootstrap_servers, "group.id": "truth"}
    )
    found = []
    for topic, parts in end.items():
        for part, stop in parts.items():
            start = begin.get(topic, {}).get(part, 0)
            consumer.assign([TopicPartition(topic, part, start)])
            for _ in range(stop - start):
                message = consumer.poll(30)
                assert message is not None
                assert message.error() is None
                found.append(_seen(message))
    consumer.close()
    return sorted(found)


def archived(rows: Sequence[Any]) -> list[Seen]:
    """Return rows of the archive in the same form."""
    return sorted(
        Seen(
            row["partition"],
            row["offset"],
            row["key"] and bytes(row["key"]),
            None if row["value"] is None else bytes(row["value"]),
            _ms(row["timestamp"]) or 0,
            tuple((one["key"], bytes(one["value"])) for one in row["headers"] or ()),
            row["entity"],
            _ms(row["event_time"]),
            row["event_id"],
        )
        for row in rows
    )


def add_late(spark: SparkSession, uri: str, events: DataFrame, merge_id: str) -> int:
    """Add the events of a merge to an archive, and return how many rows were added."""
    written = archive.write_late(uri, events, merge_id)
    if written is None:
        return 0
    archive.append_late(spark, uri, written, merge_id)
    return sum(one.rows for one in written.files)


def _seen(message: Any) -> Seen:
    value = message.value()
    said = json.loads(value) if value is not None and value.startswith(b"{") else {}
    at = datetime.fromisoformat(said["at"]) if said else None
    return Seen(
        message.partition(),
        message.offset(),
        message.key(),
        value,
        message.timestamp()[1],
        tuple(message.headers() or ()),
        said.get("customer"),
        _ms(at),
        said.get("id"),
    )


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)
