"""A topic's id, offset ranges and retention, as Kafka reports them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.config.settings import KafkaSettings
from savepoints.errors import EnvironmentUnfitError
from savepoints.sources.kafka import client
from savepoints.sources.kafka.offsets import Range

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._listoffsets import OffsetSpec as Spec
    from confluent_kafka.admin._topic import TopicDescription

# The id that brokers older than Kafka 2.8 return for every topic.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
# A look does not wait as long for a broker as a verb that depends on it.
LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class TopicRetention:
    """How long Kafka keeps the records of a topic.

    Attributes:
        retention_ms: `retention.ms`; None for no limit.
        retention_bytes: `retention.bytes`, of each partition; None for no limit.
        times: `message.timestamp.type`: `CreateTime` is set by producers, `LogAppendTime` by Kafka.
    """

    cleanup: frozenset[str]
    retention_ms: int | None
    retention_bytes: int | None
    times: str

    @property
    def compacts(self) -> bool:
        """Whether records with a newer one of the same key are removed."""
        return "compact" in self.cleanup


@dataclass(frozen=True)
class Topic:
    """A topic as it is now.

    Attributes:
        id: Kafka's own id; a recreated topic has another. None with brokers too old to report it.
    """

    name: str
    id: str | None
    ranges: Mapping[int, Range]
    policy: TopicRetention | None
    policy_problem: str = ""

    def is_another(self, recorded: str | None) -> bool:
        """Return True if it is not the topic that had an id, as far as both ids are known."""
        return None not in {self.id, recorded} and self.id != recorded

    @property
    def compacts(self) -> bool:
        """Whether records with a newer one of the same key are removed, as far as is known."""
        return self.policy is not None and self.policy.compacts

    @property
    def compaction(self) -> str:
        """What is not the same any more when its records are read again; empty for nothing."""
        if not self.compacts:
            return ""
        return (
            f"topic {self.name} is compacted: a record vanishes once a newer one with its key "
            "arrives, so a restored query may read fewer records than the original did"
        )


@dataclass(frozen=True)
class TopicEnds:
    """Where a topic ends: its id, as in `Topic`, and the next offset of each partition."""

    id: str | None
    ends: tuple[int, ...]


def ids(
    names: Collection[str], settings: KafkaSettings, timeout: float | None = None
) -> dict[str, str]:
    """Return Kafka's id of each topic that has one; a broker may take `timeout` seconds."""
    if not names:
        return {}
    described = _described(client.admin(settings), names, settings, timeout)
    found = {name: _id(one) for name, one in described.items()}
    return {name: known for name, known in found.items() if known is not None}


def ends(
    names: Collection[str], settings: KafkaSettings, timeout: float | None = None
) -> dict[str, TopicEnds]:
    """Return where each topic ends now; topics that do not exist are left out."""
    if not names:
        return {}
    opened = client.admin(settings)
    described = _described(opened, names, settings, timeout)
    found = _ranges(opened, described, settings, timeout)
    return {
        name: TopicEnds(_id(one), tuple(found[name][part].end for part in sorted(found[name])))
        for name, one in described.items()
    }


def describe(
    names: Collection[str], settings: KafkaSettings, timeout: float | None = None
) -> dict[str, Topic]:
    """Ask for everything about some topics, left out if missing; `timeout` seconds an answer."""
    if not names:
        return {}
    opened = client.admin(settings)
    described = _described(opened, names, settings, timeout)
    ranges = _ranges(opened, described, settings, timeout)
    policies = _policies(opened, described, settings, timeout)
    return {
        name: Topic(name, _id(one), ranges[name], *policies[name])
        for name, one in described.items()
    }


def ranges(
    names: Collection[str], settings: KafkaSettings, timeout: float | None = None
) -> dict[str, dict[int, Range]]:
    """Return Kafka's range of every partition; topics that do not exist are left out.

    With `isolation.level` read_committed a range ends at the last stable offset (KIP-98): Spark
    waits for records beyond it until their transactions end.
    """
    if not names:
        return {}
    opened = client.admin(settings)
    return _ranges(opened, _described(opened, names, settings, timeout), settings, timeout)


def _described(
    opened: AdminClient, names: Collection[str], settings: KafkaSettings, timeout: float | None
) -> dict[str, TopicDescription]:
    from confluent_kafka import KafkaError, TopicCollection

    futures = opened.describe_topics(
        TopicCollection(sorted(names)), request_timeout=timeout or client.TIMEOUT_SECONDS
    )
    missing = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION})
    return client.answers(futures, settings, missing)


def _ranges(
    opened: AdminClient,
    described: Mapping[str, TopicDescription],
    settings: KafkaSettings,
    timeout: float | None,
) -> dict[str, dict[int, Range]]:
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    places = [(name, one.id) for name, topic in described.items() for one in topic.partitions]

    # The end is Spark's: without open transactions only if its source was told to leave them out.
    level = (
        IsolationLevel.READ_COMMITTED
        if settings.reads_committed
        else IsolationLevel.READ_UNCOMMITTED
    )

    def offsets(spec: Spec) -> dict[tuple[str, int], int]:
        asked = {TopicPartition(name, part): spec for name, part in places}
        if not asked:
            return {}
        seconds = timeout or client.TIMEOUT_SECONDS
        found = client.settled_answers(
            lambda: opened.list_offsets(asked, isolation_level=level, request_timeout=seconds),
            settings,
            seconds,
            _electing(),
        )
        return {(at.topic, at.partition): result.offset for at, result in found.items()}

    # The earliest first: retention may advance them, but never beyond an end read later.
    earliest = offsets(OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    ends = offsets(OffsetSpec.latest())  # type: ignore[no-untyped-call]
    found: dict[str, dict[int, Range]] = {name: {} for name in described}
    for name, part in sorted(places):
        found[name][part] = Range(name, part, earliest[name, part], ends[name, part])
    return found


def _policies(
    opened: AdminClient, names: Collection[str], settings: KafkaSettings, timeout: float | None
) -> dict[str, tuple[TopicRetention | None, str]]:
    """Return the policy of each topic, or why it cannot be read."""
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    if not names:
        return {}
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    futures = opened.describe_configs(asked, request_timeout=timeout or client.TIMEOUT_SECONDS)
    found: dict[str, tuple[TopicRetention | None, str]] = {}
    for resource, future in futures.items():
        try:
            (entries,) = client.answers({resource: future}, settings).values()
        except EnvironmentUnfitError as error:
            # Reading records and reading settings are different permissions.
            found[resource.name] = None, error.message
        else:
            values = {key: str(entry.value) for key, entry in entries.items()}
            found[resource.name] = _policy(values), ""
    return found


def _policy(values: Mapping[str, str]) -> TopicRetention:
    def limit(key: str) -> int | None:
        number = int(values[key])
        return number if number >= 0 else None

    return TopicRetention(
        frozenset(part.strip() for part in values["cleanup.policy"].split(",")),
        limit("retention.ms"),
        limit("retention.bytes"),
        values["message.timestamp.type"],
    )


def _id(described: TopicDescription) -> str | None:
    found = str(described.topic_id)
    return None if found == _NO_ID else found


def _electing() -> frozenset[int]:
    """Errors while a partition has no leader, or not all brokers know it yet."""
    from confluent_kafka import KafkaError

    return frozenset(
        {
            KafkaError.NOT_LEADER_FOR_PARTITION,
            KafkaError.LEADER_NOT_AVAILABLE,
            KafkaError.UNKNOWN_LEADER_EPOCH,
            KafkaError.FENCED_LEADER_EPOCH,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
        }
    )
