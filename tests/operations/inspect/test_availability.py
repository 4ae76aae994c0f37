"""Whether a savepoint is restorable and until when, against what a real broker was made to keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, kafka_position
from savepoints.config.settings import KafkaSettings
from savepoints.errors import SourceDataGoneError
from savepoints.model import Savepoint
from savepoints.moments import utc_now
from savepoints.operations.inspect import availability
from savepoints.sources.combined.availability import require_available
from savepoints.sources.kafka import topics
from tests.samples import savepoint
from tests.sources.broker import HOUR, MINUTE, WEEK, WEEK_MS, Broker

NOBODY = KafkaSettings(bootstrap_servers="localhost:1")


def at(offsets: KafkaOffsets, number: int = 1, ids: Mapping[str, str] | None = None) -> Savepoint:
    """Describe a savepoint that goes on with these offsets."""
    one = savepoint(number, offsets=(kafka_position(offsets),))
    return dataclasses.replace(one, topics=dict(ids or {}))


@pytest.mark.kafka
def test_it_is_restorable_until_the_record_at_its_position_is_as_old_as_retention_allows(
    broker: Broker,
) -> None:
    topic = broker.make(config=WEEK_MS)
    broker.put(topic, 0, 3 * HOUR, 2 * HOUR, HOUR)
    broker.put(topic, 1, 5 * HOUR)
    ids = topics.ids([topic], broker.settings)

    found = availability.check_savepoint(at({topic: {0: 1, 1: 1}}, ids=ids), broker.settings)

    assert (found.restorable, found.findings) == ("yes", ())
    assert found.until == broker.now - 2 * HOUR + WEEK
    assert f"{topic} partition 0: retention.ms 604800000" in found.basis
    assert "CreateTime" in found.basis
    first, second = found.partitions
    assert (first.wanted, first.earliest, first.end, first.until) == (1, 0, 3, found.until)
    # Nothing waits there, so that what comes later is kept longer.
    assert second.until is not None
    assert broker.now + WEEK <= second.until <= utc_now() + WEEK


@pytest.mark.kafka
def test_without_a_limit_it_is_restorable_for_ever(broker: Broker) -> None:
    topic = broker.make()
    broker.put(topic, 0, HOUR)

    found = availability.check_savepoint(at({topic: {0: 0, 1: 0}}), broker.settings)

    assert (found.restorable, found.until, found.basis) == ("yes", None, "kept forever")
    assert "the id of topic" in found.findings[0]


@pytest.mark.kafka
def test_retention_by_size_is_estimated_from_rate_and_size_of_records(broker: Broker) -> None:
    topic = broker.make(partitions=1, config={"retention.bytes": "10000"})
    broker.put(topic, 0, 2 * HOUR, *[30 * MINUTE] * 60)

    found = availability.check_savepoint(at({topic: {0: 1}}), broker.settings)

    # A record has 14 bytes and 80 of Kafka's at most; 60 wait, and 60 come in an hour.
    left = (10_000 - 60 * 94) / (60 * 94)
    assert found.until is not None
    assert abs(found.until - (broker.now + left * HOUR)) < 10 * MINUTE
    assert "estimated from 94 bytes per record" in found.basis
    assert "records in the last 1h" in found.basis


@pytest.mark.kafka
def test_what_kafka_no_longer_has_is_not_restorable(broker: Broker) -> None:
    topic = broker.make(partitions=1)
    broker.put(topic, 0, *[HOUR] * 9)
    broker.forget(topic, 0, 4)
    gone, kept, beyond = (at({topic: {0: offset}}) for offset in (3, 4, 10))

    assert availability.check_savepoint(kept, broker.settings).restorable == "yes"
    for one, wanted in ((gone, 3), (beyond, 10)):
        found = availability.check_savepoint(one, broker.settings)
        assert found.restorable == "no"
        assert f"{topic} partition 0: wanted offset {wanted}, available 4 to 9" in found.reason
        assert found.until is None
    nowhere = availability.check_savepoint(at({"no-such-topic": {0: 0}}), broker.settings)
    assert (nowhere.restorable, nowhere.reason) == ("no", "Kafka has no topic no-such-topic")


@pytest.mark.kafka
def test_a_topic_that_was_deleted_and_recreated_makes_its_savepoints_unrestorable(
    broker: Broker,
) -> None:
    topic = broker.make(partitions=1)
    broker.put(topic, 0, *[HOUR] * 5)
    before = at({topic: {0: 5}}, ids=topics.ids([topic], broker.settings))

    broker.remove(topic)
    broker.make(partitions=1, name=topic)
    broker.put(topic, 0, *[HOUR] * 5)

    found = availability.check_savepoint(before, broker.settings)
    assert (found.restorable, found.reason) == (
        "no",
        f"topic {topic} has since been deleted and recreated",
    )
    assert [one.available for one in found.partitions] == ["no"]


@pytest.mark.kafka
def test_trap_partitions_that_the_query_does_not_name_do_not_count(broker: Broker) -> None:
    """A topic with a retention has lost the first records of each."""
    topic = broker.make(partitions=2)
    for part in (0, 1):
        broker.put(topic, part, *[HOUR] * 5)
    broker.forget(topic, 0, 3)

    found = availability.check_savepoint(at({topic: {1: 5}}), broker.settings)

    assert found.restorable == "yes"
    assert [one.partition for one in found.partitions] == [1]


@pytest.mark.kafka
def test_a_compacted_topic_keeps_offsets_and_loses_records_and_that_is_said(
    broker: Broker,
) -> None:
    topic = broker.make(partitions=1, config={"cleanup.policy": "compact"})
    broker.put(topic, 0, *[HOUR] * 5)

    within, at_end = (
        availability.check_savepoint(at({topic: {0: offset}}), broker.settings) for offset in (2, 5)
    )

    assert within.restorable == "unknown"
    assert "compacted" in within.reason
    # What comes after the end is not there yet, so nothing of it can be missing.
    assert at_end.restorable == "yes"
    for found in (within, at_end):
        assert any("is compacted: a record vanishes once a newer" in one for one in found.findings)
        assert found.until is None


@pytest.mark.kafka
def test_newly_discovered_kafka_partitions_start_at_earliest_after_a_restore_and_show_says_it(
    broker: Broker,
) -> None:
    topic = broker.make(partitions=1)
    broker.put(topic, 0, HOUR)
    taken = at({topic: {0: 1}}, ids=topics.ids([topic], broker.settings))
    broker.grow(topic, 3)
    broker.put(topic, 1, *[HOUR] * 7)
    broker.put(topic, 2, *[HOUR] * 7)
    broker.forget(topic, 2, 5)

    found = availability.check_savepoint(taken, broker.settings)

    said = "is newer than the savepoint: it will be read from the beginning"
    assert found.findings == tuple(f"{topic} partition {one} {said}" for one in (1, 2))
    # What it would have read first there is gone.
    assert found.restorable == "no"
    assert found.reason == f"{topic} partition 2: wanted offset 0, available 5 to 7"
    with pytest.raises(SourceDataGoneError, match="partition 2: wanted offset 0, available 5 to 7"):
        require_available((kafka_position({topic: {0: 1}}),), broker.settings)
    assert [(one.wanted, one.earliest, one.end) for one in found.partitions] == [
        (1, 0, 1),
        (None, 0, 7),
        (None, 5, 7),
    ]


@pytest.mark.kafka
def test_trap_a_partition_that_was_added_since_ends_it_too(broker: Broker) -> None:
    """Its records are read from the first one on; nothing waits in the others."""
    topic = broker.make(partitions=1, config=WEEK_MS)
    broker.put(topic, 0, HOUR)
    taken = at({topic: {0: 1}}, ids=topics.ids([topic], broker.settings))
    broker.grow(topic, 2)
    broker.put(topic, 1, 3 * HOUR, 2 * HOUR)

    found = availability.check_savepoint(taken, broker.settings)

    assert (found.restorable, found.until) == ("yes", broker.now - 3 * HOUR + WEEK)
    assert found.partitions[1].until == found.until


@pytest.mark.kafka
def test_kafka_is_asked_once_for_all_savepoints(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = broker.make(partitions=1), broker.make(partitions=1)
    broker.put(topic, 0, *[HOUR] * 30)
    broker.forget(topic, 0, 10)
    savepoints = [at({topic: {0: n}, other: {0: 0}}, n) for n in range(23)]
    asked = []
    look = topics.describe

    def counting(names: set[str], settings: KafkaSettings, timeout: float) -> object:
        asked.append(set(names))
        return look(names, settings, timeout)

    monkeypatch.setattr(topics, "describe", counting)
    found = availability.check_savepoints(savepoints, broker.settings)

    assert asked == [{topic, other}]
    assert list(found) == [one.id for one in savepoints]
    assert [found[one.id].restorable for one in savepoints] == ["no"] * 10 + ["yes"] * 13


def test_a_broker_that_does_not_answer_makes_it_unknown_and_never_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics, "LOOK_SECONDS", 0.5)
    one, other = at({"t": {0: 1}}), savepoint(2, offsets=(None,))

    found = availability.check_savepoint(one, NOBODY)
    both = availability.check_savepoints([one, other], NOBODY)

    assert found.restorable == "unknown"
    assert "a request to Kafka at localhost:1 failed" in found.reason
    assert "a request to Kafka at localhost:1 failed" in both[one.id].reason
    assert both[other.id].reason.startswith("the savepoint has no Kafka offsets, and other")
    unset = availability.check_savepoint(one, KafkaSettings())
    assert (unset.restorable, "no broker is configured" in unset.reason) == ("unknown", True)


def test_a_broken_savepoint_is_not_restorable_whatever_kafka_has() -> None:
    broken = dataclasses.replace(
        savepoint(1, offsets=(None, '{"logOffset":3}'), state="broken"), state_reason="1.sst lost"
    )

    found = availability.check_savepoint(broken, NOBODY)

    assert (found.restorable, found.reason) == ("no", "the savepoint is broken: 1.sst lost")
