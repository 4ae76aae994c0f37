"""Kafka: whether the records that a savepoint continues with are still there.

Offsets in a savepoint are next-to-read positions. Kafka's retention may have removed the record at
such a position; then a restored query would lose what lies between, so it is refused, never
clamped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from savepoints.config import KafkaSettings
from savepoints.errors import EnvironmentUnfitError, MissingExtraError, SourceDataGoneError
from savepoints.model import KafkaOffsets, kafka_offsets, rfc3339

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_LOG = logging.getLogger(__name__)

# How long a broker may take to answer before the check gives up.
TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True)
class Range:
    """What Kafka has of a partition: offsets from `earliest` up to, not including, `end`."""

    topic: str
    partition: int
    earliest: int
    end: int


def require_available(positions: Sequence[str | None], settings: KafkaSettings) -> list[Range]:
    """Check that Kafka has every record from the given positions on.

    Args:
        positions: A savepoint's source positions; those of other sources than Kafka are left out.
        settings: Where Kafka is.

    Returns:
        What Kafka has of each partition; empty without Kafka sources.

    Raises:
        SourceDataGoneError: If records are gone, or a topic or partition is; names topic,
            partition, wanted and available offset of each.
        EnvironmentUnfitError: If no broker is configured or reachable.
        MissingExtraError: If Kafka's client is not installed.
    """
    wanted = [
        (topic, partition, offset)
        for position in positions
        for topic, parts in (kafka_offsets(position) or {}).items()
        for partition, offset in sorted(parts.items())
    ]
    if not wanted:
        return []
    with _consumer(settings) as consumer:
        ranges = [_range(consumer, topic, partition, settings) for topic, partition, _ in wanted]
    gone = [
        {
            "topic": topic,
            "partition": partition,
            "wanted": offset,
            "earliest": found.earliest,
            "end": found.end,
        }
        for (topic, partition, offset), found in zip(wanted, ranges, strict=True)
        if not found.earliest <= offset <= found.end
    ]
    if gone:
        listed = "; ".join(
            f"{one['topic']} partition {one['partition']}: wanted offset {one['wanted']}, "
            f"available {one['earliest']} to {one['end']}"
            for one in gone
        )
        raise SourceDataGoneError(
            f"Kafka no longer has what the savepoint continues with: {listed}",
            hint="choose a newer savepoint: savepoints list",
            partitions=gone,
        )
    return ranges


def ranges(topics: Sequence[str], settings: KafkaSettings) -> dict[str, dict[int, Range]]:
    """Return what Kafka has of every partition of some topics.

    Raises:
        SourceDataGoneError: If a topic does not exist.
        EnvironmentUnfitError: If no broker is configured or reachable.
        MissingExtraError: If Kafka's client is not installed.
    """
    with _consumer(settings) as consumer:
        return {topic: _ranges(consumer, topic, settings) for topic in topics}


def at_time(topics: Sequence[str], moment: datetime, settings: KafkaSettings) -> KafkaOffsets:
    """Return for each partition the offset of the first record that arrived at or after a time.

    That is Kafka's `offsetsForTimes`: by the timestamps of the records. Where there is no such
    record, it is the offset that the next one will get.

    Raises:
        SourceDataGoneError: If a topic does not exist.
        EnvironmentUnfitError: If no broker is configured or reachable.
        MissingExtraError: If Kafka's client is not installed.
    """
    from confluent_kafka import KafkaException, TopicPartition

    found: KafkaOffsets = {}
    with _consumer(settings) as consumer:
        for topic in topics:
            # The ends first: what arrives after this line is later than any record that is looked
            # for below, so that it is never taken for one from before the moment.
            ends = {one.partition: one.end for one in _ranges(consumer, topic, settings).values()}
            asked = [
                TopicPartition(topic, partition, int(moment.timestamp() * 1000))
                for partition in ends
            ]
            try:
                answers = consumer.offsets_for_times(asked, timeout=TIMEOUT_SECONDS)
            except KafkaException as error:
                raise _silent(settings, error) from None
            for one in answers:
                if one.error is not None:
                    raise EnvironmentUnfitError(
                        f"Kafka did not say where {topic} partition {one.partition} was at "
                        f"{rfc3339(moment)}: {one.error.str()}",
                        hint="try again",
                    )
            found[topic] = {
                one.partition: one.offset if one.offset >= 0 else ends[one.partition]
                for one in answers
            }
    return found


@contextmanager
def _consumer(settings: KafkaSettings) -> Iterator[Consumer]:
    if not settings.bootstrap_servers:
        raise EnvironmentUnfitError(
            "the query reads from Kafka, but no broker is configured to ask for its offsets",
            hint="set SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS, or pass --no-source-check",
        )
    try:
        from confluent_kafka import Consumer
    except ImportError:
        raise MissingExtraError(
            "the query reads from Kafka, and Kafka's client is not installed",
            hint="pip install 'savepoints[kafka]', or pass --no-source-check",
        ) from None
    consumer = Consumer(
        {
            "bootstrap.servers": settings.bootstrap_servers,
            "group.id": "savepoints-offset-check",
            "enable.auto.commit": False,
            **settings.options,
        },
        # Otherwise it writes to stderr by itself, with the servers and whatever stands in them.
        logger=_LOG,
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _ranges(consumer: Consumer, topic: str, settings: KafkaSettings) -> dict[int, Range]:
    from confluent_kafka import KafkaException

    try:
        metadata = consumer.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic]
    except KafkaException as error:
        raise _silent(settings, error) from None
    if metadata.error is not None:
        raise SourceDataGoneError(
            f"Kafka at {settings.bootstrap_servers} has no topic {topic}: {metadata.error.str()}",
            hint="check the topic's name in [queries.NAME.topics]",
            topic=topic,
        )
    return {
        partition: _range(consumer, topic, partition, settings)
        for partition in sorted(metadata.partitions)
    }


def _range(consumer: Consumer, topic: str, partition: int, settings: KafkaSettings) -> Range:
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    try:
        low, high = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=TIMEOUT_SECONDS
        )
    except KafkaException as error:
        unknown = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION,
                   KafkaError._UNKNOWN_TOPIC}  # fmt: skip
        if error.args[0].code() in unknown:
            return Range(topic, partition, 0, -1)
        raise _silent(settings, error) from None
    return Range(topic, partition, low, high)


def _silent(settings: KafkaSettings, error: Exception) -> EnvironmentUnfitError:
    return EnvironmentUnfitError(
        f"Kafka at {settings.bootstrap_servers} does not answer: {error.args[0].str()}",
        hint="check SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS, or pass --no-source-check",
    )
