"""A real broker, and what tests do to its topics."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from savepoints.config.settings import KafkaSettings
from savepoints.local import LocalWorld
from savepoints.moments import utc_now
from savepoints.sources.combined import availability
from savepoints.sources.kafka import topics

HOUR, MINUTE, WEEK = timedelta(hours=1), timedelta(minutes=1), timedelta(days=7)
# Settings of a topic that keeps records for a week.
WEEK_MS = {"retention.ms": str(WEEK // timedelta(milliseconds=1))}


@dataclass(frozen=True)
class Broker:
    """The broker, with what tests do to it.

    Attributes:
        settings: Where it is.
        admin: A client for its topics.
        now: The ages of records are counted from here: when the test began.
    """

    settings: KafkaSettings
    admin: AdminClient
    now: datetime = field(default_factory=utc_now)

    @classmethod
    def of(cls, world: LocalWorld) -> Broker:
        """Return the broker of the local world."""
        return cls(
            KafkaSettings(bootstrap_servers=world.bootstrap_servers),
            AdminClient({"bootstrap.servers": world.bootstrap_servers}),
        )

    def make(
        self,
        *,
        partitions: int = 2,
        name: str | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Make a topic; returns its name."""
        name = name or f"topic-{uuid.uuid4().hex}"
        new = NewTopic(name, partitions, 1, config=dict(config or {}))
        self.admin.create_topics([new])[name].result()
        return name

    def put(self, topic: str, partition: int, *ages: timedelta, value: bytes = b"v" * 10) -> None:
        """Produce a record for each age, with that timestamp."""
        producer = Producer({"bootstrap.servers": self.settings.bootstrap_servers})
        for age in ages:
            moment = round((self.now - age).timestamp() * 1000)
            producer.produce(topic, value, b"k", partition, timestamp=moment, headers={"h": b"12"})
        assert producer.flush(30) == 0

    def remove(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""
        self.admin.delete_topics([topic])[topic].result()
        _until(lambda: not topics.ids([topic], self.settings))

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions and wait until they are there."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        _until(lambda: len(availability.ranges([topic], self.settings)[topic]) == partitions)

    def forget(self, topic: str, partition: int, before: int) -> None:
        """Remove the records before an offset, as retention does."""
        asked = [TopicPartition(topic, partition, before)]
        for future in self.admin.delete_records(asked).values():
            future.result()


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
