"""Offsets committed for a consumer group, as Kafka's own client sees them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.config.settings import KafkaSettings, QuerySettings, Settings
from savepoints.errors import UsageError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import SavepointKind
from savepoints.operations.run import periodic
from savepoints.operations.savepoint import create, group_commit
from savepoints.operations.savepoint.create import Saved
from savepoints.sources.kafka import group_offsets
from savepoints.store.tables.events import Event
from tests.samples import unpack
from tests.sources.broker import HOUR, Broker
from tests.sources.reading import checkpoint_at


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex}"


@pytest.fixture
def topic(broker: Broker) -> str:
    name = broker.make(partitions=2)
    broker.put(name, 0, *[HOUR] * 9)
    broker.put(name, 1, *[HOUR] * 4)
    return name


@pytest.fixture
def query(broker: Broker, topic: str, group: str, local_store: Store, on_local: Location) -> Store:
    """Give the store of a query `q` that has read 6 of 9 and 3 of 4 records, bound to the group."""
    checkpoint = checkpoint_at({topic: {0: 6, 1: 3}}, on_local / "checkpoint")
    local_store.generations.begin("q", 1, checkpoint, by="run")
    bound = QuerySettings(app="a:b", checkpoints=str(on_local / "next"), commit_group=group)
    settings = Settings(kafka=broker.settings, queries={"q": bound})
    return local_store.with_settings(settings)


@pytest.fixture
def member(broker: Broker, group: str, topic: str) -> Iterator[Consumer]:
    """Give an active member of the group that has committed for itself."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.settings.bootstrap_servers,
            "group.id": group,
            "client.id": "billing",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    assert consumer.consume(1, timeout=60)
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    yield consumer
    consumer.close()


def committed(broker: Broker, group: str) -> KafkaOffsets:
    asked = broker.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found: KafkaOffsets = {}
    for one in asked[group].result().topic_partitions:
        found.setdefault(one.topic, {})[one.partition] = one.offset
    return found


def commits(store: Store) -> list[Event]:
    return [one for one in store.events.all() if one.verb == group_commit.VERB]


@pytest.mark.parametrize(
    ("given", "kind", "batch_id", "wanted"),
    [
        (None, "periodic", None, "set"),
        (None, "final", None, "set"),
        (None, "manual", 3, None),
        ("mine", "manual", 3, "mine"),
        (None, "safety", None, None),
        (None, "merge", None, None),
    ],
)
def test_the_settings_mean_where_the_query_is_now(
    given: str | None, kind: SavepointKind, batch_id: int | None, wanted: str | None
) -> None:
    assert group_commit.group_of(given, "set", kind, batch_id) == wanted


def test_a_query_that_reads_files_has_no_offsets_for_a_group(
    local_store: Store, on_local: Location
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")

    with pytest.raises(UsageError, match="does not read from Kafka"):
        create.plan(local_store, checkpoint=str(checkpoint), commit_group="g")


@pytest.mark.kafka
def test_what_watches_groups_sees_the_offsets_of_each_savepoint(
    broker: Broker, query: Store, topic: str, group: str, on_local: Location
) -> None:
    attempt = periodic.take(query, Saved(query="q", forms=("native",)))

    assert attempt.savepoint is not None
    assert committed(broker, group) == {topic: {0: 6, 1: 3}}
    (event,) = commits(query)
    assert (event.result, event.savepoint) == ("done", attempt.savepoint.id)
    assert event.parameters == {"group": group}

    # The settings' group is where the query is now; a flag names another, for any batch.
    other = f"{group}-other"
    plan = create.plan(query, query="q", forms=("native",), batch_id=3, commit_group=other)
    assert plan.steps[-1].what == f"commit the offsets for the consumer group {other}"
    assert committed(broker, other) == {}
    create.execute(plan, query)
    assert committed(broker, other) == {topic: {0: 6, 1: 3}}


@pytest.mark.kafka
@pytest.mark.nightly
def test_trap_offsets_of_consumers_that_use_the_group_are_never_overwritten(
    broker: Broker, query: Store, topic: str, group: str, member: Consumer
) -> None:
    with pytest.raises(UsageError, match=rf"{group}, because it has active members: billing"):
        create.plan(query, query="q", forms=("native",), commit_group=group)
    assert query.catalog.all() == []

    attempt = periodic.take(query, Saved(query="q", forms=("native",)))

    assert attempt.result == "done"
    assert query.catalog.all() == [attempt.savepoint]
    assert committed(broker, group) == {topic: {0: 1}}
    (event,) = commits(query)
    assert (event.result, event.error) == ("failed", "UsageError")
    assert "billing" in event.message


@pytest.mark.kafka
@pytest.mark.nightly
def test_trap_a_consumer_that_joins_after_the_look_keeps_its_offsets(
    broker: Broker, topic: str, group: str, member: Consumer
) -> None:
    """The broker itself refuses, which is what holds when nothing was seen beforehand."""
    with pytest.raises(UsageError, match=f"{group}, because it has active members"):
        group_offsets.commit(group, {topic: {0: 5, 1: 5}}, broker.settings)
    assert committed(broker, group) == {topic: {0: 1}}


@pytest.mark.nightly
def test_trap_a_broker_that_does_not_answer_costs_no_savepoint(
    local_store: Store, on_local: Location
) -> None:
    checkpoint = checkpoint_at({"a": {0: 6}}, on_local / "checkpoint")
    local_store.generations.begin("q", 1, checkpoint, by="run")
    bound = QuerySettings(app="a:b", checkpoints=str(on_local / "next"), commit_group="g")
    nowhere = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    store = local_store.with_settings(Settings(kafka=nowhere, queries={"q": bound}))
    told: list[str] = []

    attempt = periodic.take(store, Saved(query="q", forms=("native",)), progress=told.append)

    assert attempt.result == "done"
    assert store.catalog.all() == [attempt.savepoint]
    (event,) = commits(store)
    assert (event.result, event.error) == ("failed", "EnvironmentUnfitError")
    assert any("could not commit the offsets for the consumer group g" in line for line in told)
