"""`estimate` against a broker and a store of which everything is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, kafka_position
from savepoints.config.settings import Settings
from savepoints.errors import (
    EnvironmentUnfitError,
    NoCommittedBatchError,
    SourceDataGoneError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.inspect import estimate
from savepoints.operations.inspect.estimate import Estimate
from savepoints.sources.kafka import topics
from savepoints.store.tables.events import Event
from tests.samples import savepoint, unpack
from tests.sources.broker import HOUR, MINUTE, WEEK, WEEK_MS, Broker
from tests.sources.reading import BATCH, checkpoint_at

# The place of a savepoint, or None for the query's own.
Estimating = Callable[..., Estimate]


@pytest.fixture
def estimating(broker: Broker, on_local: Location, local_store: Store) -> Estimating:
    """Give a function that estimates a query at some offsets whose runs were so fast."""

    def estimating(
        offsets: KafkaOffsets, *speeds: int, from_savepoint: str | None = None
    ) -> Estimate:
        checkpoint = checkpoint_at(offsets, on_local / "checkpoint")
        local_store.generations.begin("q", 1, checkpoint, by="run")
        for number, per_second in enumerate(speeds):
            message = f"caught_up after 1 batches, {per_second * 10} rows"
            event = Event(f"op-{number}", broker.now, "run", "me", "done", "q", message=message)
            local_store.events.append(
                dataclasses.replace(event, rows=per_second * 10, seconds=10.0)
            )
        settings = Settings(kafka=broker.settings)
        return estimate.estimate(
            local_store.with_settings(settings), "q", from_savepoint=from_savepoint
        )

    return estimating


@pytest.mark.kafka
def test_every_figure_is_what_it_was_made_to_be(broker: Broker, estimating: Estimating) -> None:
    topic = broker.make(config=WEEK_MS)
    broker.put(topic, 0, 3 * HOUR, 2 * HOUR, *[30 * MINUTE] * 100)
    broker.put(topic, 1, 2 * HOUR, *[5 * MINUTE] * 20)

    found = estimating({topic: {0: 1, 1: 1}}, 40, 20)

    assert (found.batch_id, found.savepoint_id, found.topics) == (BATCH, None, (topic,))
    assert (found.backlog_records, found.record_bytes) == (121, 14)
    assert found.backlog_bytes == 121 * 14
    assert found.records_sampled == 40
    assert found.throughput is not None
    assert found.input is not None
    speed, arriving = found.throughput, found.input
    assert (speed.runs, speed.lowest_records_per_second, speed.highest_records_per_second) == (
        2,
        20,
        40,
    )
    hour, minutes = 120 / 3600, 20 / 600
    assert (
        arriving.lowest_records_per_second,
        arriving.highest_records_per_second,
    ) == pytest.approx((min(hour, minutes), max(hour, minutes)))
    assert arriving.basis == "records in the last 1h; records in the last 10m"
    assert found.catches_up == "yes"
    assert found.shortest_seconds == pytest.approx(121 / (40 - min(hour, minutes)))
    assert found.longest_seconds == pytest.approx(121 / (20 - max(hour, minutes)))
    assert found.start_until == broker.now - 2 * HOUR + WEEK
    assert found.retention_ends_first is False


@pytest.mark.kafka
def test_an_input_that_outruns_the_query_is_never_caught_up_with(
    broker: Broker, estimating: Estimating
) -> None:
    topic = broker.make(partitions=1, config=WEEK_MS)
    broker.put(topic, 0, 2 * HOUR, *[MINUTE] * 7_000)

    found = estimating({topic: {0: 1}}, 1)

    assert found.input is not None
    assert found.input.lowest_records_per_second == pytest.approx(7_000 / 3_600)
    assert (found.catches_up, found.shortest_seconds, found.longest_seconds) == (
        "never",
        None,
        None,
    )
    assert found.retention_ends_first is True


@pytest.mark.kafka
def test_nothing_measured_is_unknown_and_nothing_left_is_now(
    broker: Broker, estimating: Estimating
) -> None:
    topic, idle = broker.make(partitions=1), broker.make(partitions=1)
    broker.put(topic, 0, HOUR)

    unmeasured = estimating({topic: {0: 0}})
    assert (unmeasured.catches_up, unmeasured.throughput) == ("unknown", None)
    assert "nothing measured yet" in unmeasured.reason

    done = estimating({idle: {0: 0}}, 5)
    assert (done.catches_up, done.backlog_records, done.longest_seconds) == ("now", 0, 0)
    assert (done.input, done.record_bytes, done.backlog_bytes) == (None, None, None)


@pytest.mark.kafka
def test_from_a_savepoint_and_into_new_partitions(
    broker: Broker, estimating: Estimating, local_store: Store
) -> None:
    topic = broker.make(partitions=1)
    broker.put(topic, 0, *[HOUR] * 9)
    one = savepoint(1, query="q", offsets=(kafka_position({topic: {0: 2}}),))
    local_store.catalog.add(one)
    broker.grow(topic, 2)
    broker.put(topic, 1, *[HOUR] * 5)

    now = estimating({topic: {0: 9}}, 5)
    before = estimating({topic: {0: 9}}, from_savepoint="latest")

    assert (now.backlog_records, now.savepoint_id) == (5, None)
    assert (before.backlog_records, before.savepoint_id, before.batch_id) == (12, one.id, 1)
    for found in (now, before):
        assert f"new partitions of {topic} are read from their beginning: 1" in found.findings


@pytest.mark.kafka
def test_what_kafka_no_longer_has_is_refused(broker: Broker, estimating: Estimating) -> None:
    topic = broker.make(partitions=1)
    broker.put(topic, 0, *[HOUR] * 9)
    broker.forget(topic, 0, 5)

    with pytest.raises(SourceDataGoneError, match="wanted offset 4, available 5 to 9"):
        estimating({topic: {0: 4}}, 5)


@pytest.mark.kafka
def test_trap_the_records_of_a_recreated_topic_are_not_what_is_left_to_read(
    broker: Broker, estimating: Estimating, local_store: Store
) -> None:
    """They were counted from where the query stood in the deleted one."""
    topic = broker.make(partitions=1)
    ids = topics.ids([topic], broker.settings)
    one = savepoint(1, query="q", offsets=(kafka_position({topic: {0: 2}}),))
    local_store.catalog.add(dataclasses.replace(one, topics=ids))
    broker.remove(topic)
    broker.make(partitions=1, name=topic)
    broker.put(topic, 0, *[HOUR] * 9)

    for place in (None, "latest"):
        with pytest.raises(SourceDataGoneError, match=f"topic {topic} has been deleted"):
            estimating({topic: {0: 4}}, 5, from_savepoint=place)


def test_what_cannot_be_estimated_is_refused(on_local: Location, local_store: Store) -> None:
    def refused(query: str, checkpoint: Location) -> Callable[[], Estimate]:
        local_store.generations.begin(query, 1, checkpoint, by="run")
        return lambda: estimate.estimate(local_store.with_settings(Settings()), query)

    with pytest.raises(NoCommittedBatchError, match="has not finished a batch"):
        refused("new", on_local / "none")()
    with pytest.raises(UsageError, match="does not read from Kafka"):
        refused("files", unpack("hdfs", on_local / "files"))()
    with pytest.raises(EnvironmentUnfitError, match="no broker is configured"):
        refused("orders", checkpoint_at({"t": {0: 1}}, on_local / "orders"))()
