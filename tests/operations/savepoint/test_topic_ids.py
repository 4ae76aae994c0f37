"""The ids of Kafka's topics are recorded when a savepoint is taken, and never keep it from that."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import TopicCollection

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.config.settings import KafkaSettings, Settings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.model import Savepoint
from savepoints.operations.savepoint import topic_ids
from tests.sources.broker import HOUR, Broker
from tests.sources.reading import checkpoint_at


def taken(
    store: Store, place: Location, offsets: KafkaOffsets, servers: str, told: list[str]
) -> Savepoint:
    """Take a savepoint of a query that reads from Kafka."""
    return (
        store.with_settings(Settings(kafka=KafkaSettings(bootstrap_servers=servers)))
        .create(
            query="orders",
            checkpoint=str(checkpoint_at(offsets, place / "checkpoint")),
            forms=("native",),
        )
        .execute(progress=told.append)
    )


@pytest.mark.kafka
def test_they_are_in_manifest_and_catalog_and_a_rebuilt_catalog_has_them_too(
    world: LocalWorld, on_local: Location, local_store: Store
) -> None:
    broker = Broker.of(world)
    topic = broker.make(partitions=1)
    broker.put(topic, 0, HOUR)
    known = broker.admin.describe_topics(TopicCollection([topic]))[topic].result().topic_id

    told: list[str] = []
    one = taken(local_store, on_local, {topic: {0: 1}}, world.bootstrap_servers, told)

    assert one.topics == {topic: str(known)}
    assert local_store.manifest(one.id).savepoint == one
    assert local_store.catalog.all() == [one]
    local_store.catalog.remove([one.id])
    local_store.rebuild_catalog().execute()
    assert local_store.catalog.all() == [one]
    assert not any("the ids of topics" in line for line in told)


@pytest.mark.kafka
def test_a_topic_that_kafka_lacks_has_none(
    world: LocalWorld, on_local: Location, local_store: Store
) -> None:
    told: list[str] = []
    one = taken(local_store, on_local, {"no-such": {0: 1}}, world.bootstrap_servers, told)

    assert one.topics == {}
    assert any("could not find out the ids of topics no-such: Kafka has no such" in t for t in told)


def test_a_broker_that_does_not_answer_costs_a_moment_and_not_the_savepoint(
    on_local: Location, local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_ids, "_TIMEOUT_SECONDS", 0.5)
    begun = time.monotonic()

    told: list[str] = []
    one = taken(local_store, on_local, {"t": {0: 1}}, "localhost:1", told)

    assert time.monotonic() - begun < 10
    assert local_store.catalog.all() == [one]
    assert one.topics == {}
    assert any(
        "could not find out the ids of topics t: a request to Kafka at localhost:1" in t
        for t in told
    )


def test_without_a_broker_nobody_is_asked_and_nobody_is_bothered(
    on_local: Location, local_store: Store
) -> None:
    told: list[str] = []
    one = taken(local_store, on_local, {"t": {0: 1}}, "", told)

    assert one.topics == {}
    assert not any("the ids of topics" in line for line in told)
