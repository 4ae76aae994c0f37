"""Read an input's events from its archive, and from Kafka exactly where the archive ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition
from savepoints.config.settings import KafkaSettings
from savepoints.errors import SourceDataGoneError
from savepoints.sources.archive import archive as archives
from savepoints.sources.archive import progress
from savepoints.sources.archive.progress import ArchiveProgress
from savepoints.sources.events.entity_filter import among, entities_of
from savepoints.sources.events.events import RAW, Decoding, EventsOf, events
from savepoints.sources.kafka import read_range, topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Seam:
    """Which records come from the archive, and which from Kafka; offsets are next-to-read."""

    archive_from: KafkaOffsets
    archive_to: KafkaOffsets
    kafka_from: KafkaOffsets
    kafka_to: KafkaOffsets


def seam(since: KafkaOffsets | None, until: KafkaOffsets, known: ArchiveProgress | None) -> Seam:
    """Split a range between the archive and Kafka.

    Args:
        since: From these offsets on; a partition not in it from 0.
        until: Up to these; partitions not in it are not read.

    Raises:
        SourceDataGoneError: If the archive begins after the first of them.
        NotAlignedError: If it has a gap between them, or has archived records twice.
    """
    found = Seam({}, {}, {}, {})
    late = []
    for topic, part, stop in by_partition(until):
        start = (since or {}).get(topic, {}).get(part, 0)
        begin = known.begin.get(topic, {}).get(part) if known else None
        end = known.end.get(topic, {}).get(part, 0) if known else 0
        if start >= stop:
            continue
        middle = min(max(start, end), stop)
        if begin is not None and start < begin:
            late.append(f"{topic} partition {part}: wanted {start}, archived from {begin}")
        if middle > start:
            found.archive_from.setdefault(topic, {})[part] = start
            found.archive_to.setdefault(topic, {})[part] = middle
        if stop > middle:
            found.kafka_from.setdefault(topic, {})[part] = middle
            found.kafka_to.setdefault(topic, {})[part] = stop
    if late and known is not None:
        raise SourceDataGoneError(
            f"the archive {known.uri} begins after the first events that are needed: "
            f"{'; '.join(late)}",
            hint="choose a savepoint that was taken after the archive began: savepoints list",
            uri=known.uri,
        )
    if known is not None:
        known.require(found.archive_to, found.archive_from)
    return found


def records(
    spark: SparkSession,
    archive: str | None,
    kafka: KafkaSettings,
    since: KafkaOffsets,
    until: KafkaOffsets,
) -> DataFrame:
    """Read the records of a topic between two positions, each once.

    Returns:
        Columns `RAW_SCHEMA`.
    """
    known = progress.load(archive) if archive else None
    parts = seam(since, until, known)
    found = None
    if archive and parts.archive_to:
        found = archives.read(
            spark,
            archive,
            entities=None,
            since=parts.archive_from,
            until=parts.archive_to,
            merges=(),
        ).select(*RAW)
    if parts.kafka_to or found is None:
        fresh = _of_kafka(spark, kafka, parts, known)
        found = fresh if found is None else found.unionByName(fresh)
    return found


def _of_kafka(
    spark: SparkSession, kafka: KafkaSettings, parts: Seam, known: ArchiveProgress | None
) -> DataFrame:
    read_range.require(kafka, parts.kafka_from, parts.kafka_to)
    if known:
        known.require_same(topics.ids(parts.kafka_to, kafka))
    return read_range.read_records(spark, kafka, parts.kafka_from, parts.kafka_to)


def rows(
    spark: SparkSession,
    decoding: Decoding,
    *,
    topic: str,
    archive: str | None,
    kafka: KafkaSettings,
    since: KafkaOffsets | None,
    until: KafkaOffsets,
    entities: DataFrame | Sequence[str] | None,
    merges: Sequence[str],
    of: EventsOf = events,
) -> DataFrame:
    """Read the events of a topic between two positions, each once, and those of merges.

    Events that merges remove are still there; see `archive.applied`.

    Args:
        since: From these offsets on; None for the very first.
        entities: Only these; a DataFrame has them in its first column. None for all.
        merges: Ids of the merges in effect, whose events are also read, at any position.
        of: What to return of each event: `events`, or `without_records`, which reads Kafka once
            instead of twice.

    Returns:
        Columns of `archive.SCHEMA`, as far as `of` returns them.
    """
    mine = {topic: until.get(topic, {})}
    known = progress.load(archive) if archive else None
    parts = seam(since, mine, known)
    found = None
    # Merges into another input leave one without an archive until something of it is archived.
    if archive and known and (parts.archive_to or (merges and archives.exists(archive))):
        found = archives.read(
            spark,
            archive,
            entities=entities,
            since=parts.archive_from,
            until=parts.archive_to,
            merges=merges,
        )
    if parts.kafka_to or found is None:
        fresh = of(_of_kafka(spark, kafka, parts, known), decoding)
        fresh = fresh if entities is None else among(fresh, entities_of(spark, entities))
        fresh = fresh.selectExpr("*", "cast(null as string) merge_id", "cast(null as string) op")
        found = fresh if found is None else found.select(*fresh.columns).unionByName(fresh)
    return found
