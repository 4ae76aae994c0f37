"""What Kafka says of its topics, asked of a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, kafka_position
from savepoints.config.secrets import ClientOptions
from savepoints.errors import SourceDataGoneError
from savepoints.sources.combined import availability
from savepoints.sources.kafka import arrival_rates, probe_records, record_retention, topics
from tests.sources.broker import HOUR, WEEK_MS, Broker

pytestmark = pytest.mark.kafka


def available(
    broker: Broker, offsets: KafkaOffsets, ids: Mapping[str, str] | None = None
) -> object:
    return availability.require_available((kafka_position(offsets),), broker.settings, topics=ids)


def test_ranges_are_from_the_first_record_to_the_next(broker: Broker) -> None:
    topic = broker.make()
    broker.put(topic, 1, *[timedelta()] * 3)

    found = availability.ranges([topic], broker.settings)

    assert {part: (one.earliest, one.end) for part, one in found[topic].items()} == {
        0: (0, 0),
        1: (0, 3),
    }
    with pytest.raises(SourceDataGoneError, match="has no topic no-such-topic"):
        availability.ranges([topic, "no-such-topic"], broker.settings)
    assert availability.ranges([], broker.settings) == {}


def test_partitions_that_were_made_this_moment_are_waited_for(broker: Broker) -> None:
    for _ in range(3):
        topic = broker.make(partitions=20)
        broker.grow(topic, 40)

        assert len(availability.ranges([topic], broker.settings)[topic]) == 40


def test_a_topic_says_how_long_it_keeps_records(broker: Broker) -> None:
    forever = broker.make(partitions=1)
    week = broker.make(
        partitions=1,
        config={
            "retention.ms": "604800000",
            "retention.bytes": "1000000",
            "cleanup.policy": "compact,delete",
            "message.timestamp.type": "LogAppendTime",
        },
    )

    found = topics.describe([forever, week, "no-such-topic"], broker.settings)

    assert found.keys() == {forever, week}
    assert found[forever].policy == topics.TopicRetention(
        frozenset({"delete"}), None, None, "CreateTime"
    )
    assert found[week].policy == topics.TopicRetention(
        frozenset({"compact", "delete"}), 604_800_000, 1_000_000, "LogAppendTime"
    )
    assert found[week].id not in {None, found[forever].id}


def test_a_topic_that_was_deleted_and_recreated_is_noticed(broker: Broker) -> None:
    topic = broker.make(partitions=1)
    broker.put(topic, 0, *[timedelta()] * 5)
    ids = topics.ids([topic], broker.settings)
    available(broker, {topic: {0: 5}}, ids)

    broker.remove(topic)
    broker.make(partitions=1, name=topic)
    broker.put(topic, 0, *[timedelta()] * 9)

    # Its offsets alone look as good as before.
    available(broker, {topic: {0: 5}})
    with pytest.raises(
        SourceDataGoneError, match=f"{topic} has been deleted and recreated"
    ) as refused:
        available(broker, {topic: {0: 5}}, ids)
    assert refused.value.exit_code == 14
    assert refused.value.details["topics"] == [
        {
            "topic": topic,
            "wanted_id": ids[topic],
            "found_id": topics.ids([topic], broker.settings)[topic],
        }
    ]


def test_what_is_gone_is_named_and_never_clamped(broker: Broker) -> None:
    topic = broker.make(partitions=1)
    broker.put(topic, 0, *[timedelta()] * 5)

    with pytest.raises(SourceDataGoneError) as refused:
        available(broker, {topic: {0: 6, 7: 0}, "no-such-topic": {0: 1}})

    assert f"{topic} partition 0: wanted offset 6, available 0 to 5" in refused.value.message
    assert f"{topic} partition 7: wanted offset 0, available nothing" in refused.value.message
    assert "no-such-topic partition 0: wanted offset 1, available nothing" in refused.value.message


def test_trap_partitions_of_others_have_lost_their_first_records(broker: Broker) -> None:
    """Of a query that names its partitions; what was added since has a higher number."""
    topic = broker.make(partitions=3)
    for part in range(3):
        broker.put(topic, part, *[HOUR] * 5)
    broker.forget(topic, 0, 3)

    assert available(broker, {topic: {1: 2, 2: 2}})
    broker.forget(topic, 2, 3)
    with pytest.raises(SourceDataGoneError, match="partition 2: wanted offset 0"):
        available(broker, {topic: {1: 2}})


def test_where_a_topic_was_at_a_time(broker: Broker) -> None:
    topic = broker.make()
    broker.put(topic, 0, timedelta(hours=3), timedelta(hours=2), timedelta(hours=1))

    def at(age: timedelta) -> object:
        return availability.at_time([topic], broker.now - age, broker.settings)[topic]

    assert at(timedelta(hours=4)) == {0: 0, 1: 0}
    assert at(timedelta(hours=2)) == {0: 1, 1: 0}
    assert at(timedelta(minutes=90)) == {0: 2, 1: 0}
    assert at(timedelta()) == {0: 3, 1: 0}


def test_trap_a_time_between_two_milliseconds_is_after_the_first_of_them(broker: Broker) -> None:
    """A record that had arrived before it was taken for one of those after it."""
    topic = broker.make(partitions=1)
    broker.put(topic, 0, timedelta(hours=2), timedelta(hours=1))
    at = broker.now - timedelta(hours=2) + timedelta(microseconds=1)

    assert availability.at_time([topic], at, broker.settings)[topic] == {0: 1}


@pytest.mark.parametrize("before", [1, 2, 3, 2_208_988_800_000])
def test_trap_a_time_before_1970_is_no_special_offset(broker: Broker, before: int) -> None:
    """To Kafka -1 is the end, where a reset to a time before all records went."""
    topic = broker.make(partitions=1)
    broker.put(topic, 0, timedelta(hours=1))
    at = datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=before)

    assert availability.at_time([topic], at, broker.settings)[topic] == {0: 0}


@contextmanager
def open_transaction(broker: Broker, topic: str, records: int) -> Iterator[None]:
    """Keep a transaction open that has written records."""
    producer = Producer(
        {"bootstrap.servers": broker.settings.bootstrap_servers, "transactional.id": topic}
    )
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, b"v", partition=0)
    producer.flush(30)
    try:
        yield
    finally:
        producer.abort_transaction()


def test_records_of_an_open_transaction_are_there_as_they_are_for_spark(broker: Broker) -> None:
    topic = broker.make(partitions=1)
    with open_transaction(broker, topic, 3):
        available(broker, {topic: {0: 3}})
        assert availability.at_time([topic], broker.now - HOUR, broker.settings) == {topic: {0: 0}}
        assert availability.at_time([topic], broker.now + HOUR, broker.settings) == {topic: {0: 3}}
        assert [
            one.offset for one in probe_records.first({(topic, 0): 1}, broker.settings)[topic, 0]
        ] == [1]


def test_a_topic_read_committed_ends_before_the_open_transaction(broker: Broker) -> None:
    topic = broker.make(partitions=1)
    broker.put(topic, 0, timedelta(hours=2), timedelta(hours=1))
    options = ClientOptions({"isolation.level": "read_committed"})
    committed = broker.settings.model_copy(update={"options": options})

    with open_transaction(broker, topic, 3):
        # Asked for more, Spark waits until the transaction ends, for two minutes at most.
        assert availability.ranges([topic], committed)[topic][0].end == 2
        assert availability.at_time([topic], broker.now, committed) == {topic: {0: 2}}
        assert topics.ends([topic], committed)[topic].ends == (2,)
    # The broker says that it has aborted before the partition has the mark of it.
    patience = time.monotonic() + 60
    while (end := availability.ranges([topic], committed)[topic][0].end) == 2:
        assert time.monotonic() < patience
    # The aborted records and the mark of the abort are passed over, as the source passes them over.
    assert end == 6


def test_single_records_are_read_at_their_offsets(broker: Broker) -> None:
    topic = broker.make(partitions=3)
    ages = [timedelta(hours=hours) for hours in range(30, 0, -1)]
    broker.put(topic, 0, *ages)
    broker.put(topic, 1, timedelta(hours=5), value=b"v" * 100)

    found = probe_records.first(
        {(topic, 0): 4, (topic, 1): 0, (topic, 2): 0}, broker.settings, most=3
    )

    assert [one.offset for one in found[topic, 0]] == [4, 5, 6]
    assert [one.timestamp for one in found[topic, 0]] == [broker.now - age for age in ages[4:7]]
    # The value, a key of one byte, a header's name of one and value of two.
    assert {one.size for one in found[topic, 0]} == {14}
    assert [one.size for one in found[topic, 1]] == [104]
    assert found[topic, 2] == []


def test_trap_a_producer_that_counts_microseconds(broker: Broker) -> None:
    """Python has no such times: what asked how long a record is kept was an unexpected error."""
    config = {**WEEK_MS, "message.timestamp.after.max.ms": str(2**63 - 1)}
    topic = broker.make(partitions=1, config=config)
    producer = Producer({"bootstrap.servers": broker.settings.bootstrap_servers})
    producer.produce(topic, b"v", timestamp=1_792_891_800_000_000)
    assert producer.flush(30) == 0

    known = topics.describe([topic], broker.settings)
    found = record_retention.until({topic: {0: 0}}, known, broker.settings, broker.now)

    assert found[topic, 0].until is None
    assert "offset 0 arrived after the year 9999 (CreateTime)" in found[topic, 0].basis


def test_arrivals_are_counted_over_an_hour_and_over_minutes(broker: Broker) -> None:
    topic = broker.make()
    broker.put(topic, 0, timedelta(hours=2), *[timedelta(minutes=30)] * 50)
    broker.put(topic, 1, *[timedelta(minutes=5)] * 10)

    hour, minutes = arrival_rates.arrivals(
        topics.describe([topic], broker.settings), broker.settings, broker.now
    )

    assert (hour.window, minutes.window) == arrival_rates.WINDOWS
    assert hour.counts == {(topic, 0): 50, (topic, 1): 10}
    assert minutes.counts == {(topic, 0): 0, (topic, 1): 10}
    assert hour.per_second == pytest.approx(60 / 3600)
    assert minutes.partition_per_second(topic, 1) == pytest.approx(10 / 600)


def test_a_young_topic_is_counted_since_its_first_record(broker: Broker) -> None:
    topic = broker.make()
    broker.put(topic, 0, timedelta(minutes=3), timedelta(minutes=1))

    (found,) = arrival_rates.arrivals(
        topics.describe([topic], broker.settings), broker.settings, broker.now
    )

    assert found.window == timedelta(minutes=3)
    assert found.per_second == pytest.approx(2 / 180)
    assert "since" in found.basis


def test_a_topic_without_records_has_no_rate(broker: Broker) -> None:
    found = topics.describe([broker.make()], broker.settings)

    assert arrival_rates.arrivals(found, broker.settings, broker.now) == []
    assert arrival_rates.record_bytes({}, broker.settings) is None
