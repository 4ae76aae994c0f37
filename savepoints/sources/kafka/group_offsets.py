"""Offsets that a consumer group has committed, written for those who watch the lag of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition
from savepoints.config.settings import KafkaSettings
from savepoints.errors import SourceDataGoneError, UsageError
from savepoints.sources.kafka import client

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin._group import ConsumerGroupDescription


def require_unused(group: str, settings: KafkaSettings, timeout: float | None = None) -> None:
    """Check that no consumer is a member of a group; one that does not exist has none.

    Args:
        timeout: Seconds that the broker may take.

    Raises:
        UsageError: If the group has members: they commit for themselves.
        EnvironmentUnfitError: If no broker is configured or reachable.
    """
    from confluent_kafka import KafkaError

    # Kept until it has answered: without its client a future never ends.
    opened = client.admin(settings)
    seconds = timeout or client.TIMEOUT_SECONDS
    found: dict[str, ConsumerGroupDescription] = client.settled_answers(
        lambda: opened.describe_consumer_groups([group], request_timeout=seconds),
        settings,
        seconds,
        _electing(),
        frozenset({KafkaError.GROUP_ID_NOT_FOUND}),
    )
    if group in found and found[group].members:
        raise _in_use(group, sorted({one.client_id for one in found[group].members}))


def commit(
    group: str, offsets: KafkaOffsets, settings: KafkaSettings, timeout: float | None = None
) -> None:
    """Commit next-to-read offsets for a group that has no members; all partitions at once.

    The broker refuses it for a group with members (`GroupMetadataManager.validateOffsetCommit`), so
    one that joins meanwhile keeps its own offsets.

    Args:
        timeout: Seconds that the broker may take.

    Raises:
        UsageError: If the group has members.
        SourceDataGoneError: If Kafka refuses the offset of a partition, which it may not have.
        EnvironmentUnfitError: If no broker is configured or reachable.
    """
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition

    places = [TopicPartition(topic, part, offset) for topic, part, offset in by_partition(offsets)]
    opened = client.admin(settings)
    seconds = timeout or client.TIMEOUT_SECONDS
    refusals = frozenset({KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP})
    answered = client.settled_answers(
        lambda: opened.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, places)], request_timeout=seconds
        ),
        settings,
        seconds,
        _electing(),
        refusals,
    )
    if not answered:
        raise _in_use(group, [])
    for done in answered.values():
        _require_committed(group, done.topic_partitions or [], refusals)


def _require_committed(group: str, places: list[TopicPartition], refusals: frozenset[int]) -> None:
    for one in places:
        if one.error is None:
            continue
        if one.error.code() in refusals:
            raise _in_use(group, [])
        raise SourceDataGoneError(
            f"Kafka refused to commit offset {one.offset} of topic {one.topic} partition "
            f"{one.partition} for the group {group}: {one.error.str()}",
            hint="check that the topic still exists, and that you have READ on the topic and the "
            "group",
            group=group,
            topic=one.topic,
            partition=one.partition,
        )


def _electing() -> frozenset[int]:
    """Errors while a group has no coordinator yet, such as at its first use of a new cluster."""
    from confluent_kafka import KafkaError

    return frozenset(
        {
            KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            KafkaError.COORDINATOR_NOT_AVAILABLE,
            KafkaError.NOT_COORDINATOR,
        }
    )


def _in_use(group: str, clients: list[str]) -> UsageError:
    who = f": {', '.join(clients)}" if clients else ""
    return UsageError(
        f"offsets cannot be committed for the consumer group {group}, because it has active "
        f"members{who}",
        hint="name a group that is used only to monitor the lag of the query, for example "
        "savepoints-NAME",
        group=group,
    )
