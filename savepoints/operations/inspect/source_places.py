"""Where a query stands in its sources, and what Kafka has around that position.

Kafka is asked once for all topics, and only looked at. What cannot be found out is unknown with the
reason, never an error and never a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from savepoints.checkpoint.logs import source_kind, table_position
from savepoints.checkpoint.logs.kafka_position import by_partition, kafka_offsets, lowest_offsets
from savepoints.checkpoint.logs.source_kind import SourceKind
from savepoints.config.settings import KafkaSettings
from savepoints.errors import SavepointsError
from savepoints.sources.combined import available_ranges
from savepoints.sources.kafka import topics as kafka_topics
from savepoints.sources.kafka.offsets import Range, Ranges


@dataclass(frozen=True)
class PartitionPlace:
    """A query's position in a Kafka partition; null where Kafka did not answer.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition.
        position: Next offset to read; null for a partition that is newer than the batch and will be
            read from its beginning.
        earliest: First offset that Kafka has, or an archive before it.
        end: Offset that the next record will get.
        lag: Offsets from the position up to the end.
        kept: Offsets before the position that are still there: how far back a query can go.
        lost: Offsets from the position on that are no longer there.
        problem: Why `lag`, `kept` and `lost` are not known although Kafka answered; empty when they
            are.
    """

    topic: str
    partition: int
    position: int | None
    earliest: int | None = None
    end: int | None = None
    lag: int | None = None
    kept: int | None = None
    lost: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class SourcePlace:
    """A query's position in one of its sources.

    Attributes:
        number: Its number, in the order of the offset log.
        kind: By the form of its position, because the log does not name it.
        position: Next to read, as Spark's JSON text; null before it has begun.
        table_id: Of a Delta source, Delta's own id of the table that it reads.
        partitions: Of a Kafka source, each partition.
        lag: For a Kafka source, the lag of all partitions; null if that of any is unknown.
        problem: Why Kafka's side is unknown; empty if Kafka answered, and for other sources.
    """

    number: int
    kind: SourceKind
    position: str | None
    table_id: str | None = None
    partitions: tuple[PartitionPlace, ...] = ()
    lag: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class _Kafka:
    """What Kafka has of topics, and those that are others than were read; or why it is unknown."""

    ranges: Ranges
    renewed: Collection[str] = ()
    problem: str = ""

    @classmethod
    def ask(
        cls,
        topics: Collection[str],
        settings: KafkaSettings,
        archives: Collection[str],
        known: Mapping[str, str],
    ) -> _Kafka:
        """Ask it for the topics, and the ids of those whose ids are known."""
        seconds = kafka_topics.LOOK_SECONDS
        try:
            ranges = available_ranges.ranges(topics, settings, archives, seconds)
            now = kafka_topics.ids(ranges.keys() & known.keys(), settings, seconds)
        except SavepointsError as error:
            return cls({}, problem=error.message)
        return cls(ranges, [name for name, one in now.items() if one != known[name]])


def of_positions(
    positions: Sequence[str | None],
    settings: KafkaSettings,
    archives: Collection[str],
    topics: Mapping[str, str],
) -> tuple[SourcePlace, ...]:
    """Describe the sources of a query.

    Args:
        positions: For each source, in order, its next-to-read position as Spark's JSON.
        topics: The ids of the topics that these are of, as far as they are known.
    """
    kafka = _Kafka.ask(lowest_offsets(positions).keys(), settings, archives, topics)
    return tuple(_source(number, position, kafka) for number, position in enumerate(positions))


def _source(number: int, position: str | None, kafka: _Kafka) -> SourcePlace:
    kind = source_kind.kind_of(position)
    offsets = kafka_offsets(position)
    if offsets is None:
        table = table_position.parse(position)
        return SourcePlace(number, kind, position, table.table_id if table else None)
    if kafka.problem:
        partitions = [
            PartitionPlace(topic, part, offset) for topic, part, offset in by_partition(offsets)
        ]
    else:
        partitions = [
            _partition(topic, part, parts.get(part), kafka)
            for topic, parts in offsets.items()
            for part in parts.keys() | kafka.ranges.get(topic, {}).keys()
        ]
    lags = [one.lag for one in partitions if one.lag is not None]
    return SourcePlace(
        number,
        kind,
        position,
        partitions=tuple(sorted(partitions, key=lambda one: (one.topic, one.partition))),
        lag=sum(lags) if len(lags) == len(partitions) else None,
        problem=kafka.problem,
    )


def _partition(topic: str, part: int, offset: int | None, kafka: _Kafka) -> PartitionPlace:
    found = kafka.ranges.get(topic, {}).get(part)
    if found is None:
        of_topic = f"partition {part} of " if topic in kafka.ranges else ""
        return PartitionPlace(topic, part, offset, problem=f"Kafka has no {of_topic}topic {topic}")
    if topic in kafka.renewed:
        problem = "the topic was deleted and recreated after the query read it"
        return PartitionPlace(topic, part, offset, found.earliest, found.end, problem=problem)
    begin = found.earliest if offset is None else offset
    if begin > found.end:
        problem = "the position is beyond Kafka's end: the topic may have been recreated"
        return PartitionPlace(topic, part, offset, found.earliest, found.end, problem=problem)
    return _within(found, offset, begin)


def _within(found: Range, offset: int | None, begin: int) -> PartitionPlace:
    return PartitionPlace(
        found.topic,
        found.partition,
        offset,
        found.earliest,
        found.end,
        lag=found.end - begin,
        kept=max(0, begin - found.earliest),
        lost=max(0, found.earliest - begin),
    )
