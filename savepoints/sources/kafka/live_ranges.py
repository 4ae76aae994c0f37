"""What Kafka itself has of topics, and their offsets at a time, without archives."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.config.settings import KafkaSettings
from savepoints.errors import EnvironmentUnfitError, SourceDataGoneError
from savepoints.moments import first_ms_from, rfc3339
from savepoints.sources.kafka import client
from savepoints.sources.kafka import topics as kafka_topics
from savepoints.sources.kafka.offsets import Range, Ranges


def ranges(topics: Sequence[str], settings: KafkaSettings) -> dict[str, dict[int, Range]]:
    """Return what Kafka has of every partition of some topics."""
    found = kafka_topics.ranges(topics, settings)
    require_topics(topics, found, settings)
    return {topic: found[topic] for topic in topics}


def require_topics(topics: Sequence[str], found: Collection[str], settings: KafkaSettings) -> None:
    """Check that every topic was found."""
    for topic in topics:
        if topic not in found:
            raise SourceDataGoneError(
                f"Kafka at {settings.bootstrap_servers} has no topic {topic}",
                hint="correct the topic's name in [queries.NAME.topics]",
                topic=topic,
            )


def at_time(ends: Ranges, moment: datetime, settings: KafkaSettings) -> KafkaOffsets:
    """Return for each partition the offset of the first record that arrived at or after a time.

    By record timestamp, as Kafka's `offsetsForTimes`, which sees records of open transactions.
    Where there is no such record before the end, the end is returned, so read the ends first.
    """
    from confluent_kafka import KafkaException, TopicPartition

    # Of numbers below 0, Kafka takes -1 for the end of a partition, and -2 for its beginning.
    asked = [
        TopicPartition(topic, partition, first_ms_from(moment))
        for topic, parts in ends.items()
        for partition in parts
    ]
    with client.consumer(settings) as consumer:
        try:
            answers = consumer.offsets_for_times(asked, timeout=client.TIMEOUT_SECONDS)
        except KafkaException as error:
            raise client.silent(settings, error) from None
    found: KafkaOffsets = {topic: {} for topic in ends}
    for one in answers:
        if one.error is not None:
            raise EnvironmentUnfitError(
                f"Kafka did not return the offset of topic {one.topic} partition {one.partition} "
                f"at {rfc3339(moment)}: {one.error.str()}",
                hint="run the command again",
            )
        end = ends[one.topic][one.partition].end
        found[one.topic][one.partition] = min(one.offset, end) if one.offset >= 0 else end
    return found
