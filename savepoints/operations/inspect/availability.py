"""Is a savepoint restorable, and until when: are the records that come after it still there?

In Kafka, that is, or in an archive that goes on up to what Kafka has.

Kafka is asked once for all savepoints, and only looked at. What cannot be found out is `unknown`
with the reason, never an error and never a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeAlias

from savepoints.checkpoint.logs.kafka_position import (
    KafkaOffsets,
    by_partition,
    is_added,
    kafka_offsets,
    lowest_offsets,
    with_added,
)
from savepoints.config.settings import KafkaSettings
from savepoints.errors import SavepointsError
from savepoints.model import Savepoint
from savepoints.moments import utc_now
from savepoints.sources.combined import available_ranges
from savepoints.sources.kafka import record_retention
from savepoints.sources.kafka import topics as kafka_topics
from savepoints.sources.kafka.offsets import Range
from savepoints.sources.kafka.record_retention import RecordRetention
from savepoints.sources.kafka.topics import Topic

Restorable: TypeAlias = Literal["yes", "no", "unknown"]

# Partitions that a reason names; all are listed anyway.
_GONE_SHOWN = 3


@dataclass(frozen=True)
class PartitionAvailability:
    """What Kafka has of a partition that a savepoint continues from.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition.
        wanted: Offset to continue from; None for a partition that is newer than the savepoint.
        earliest: First offset that Kafka has, or an archive before it; None when Kafka does not
            have the partition.
        end: Offset that the next record will get; None likewise.
        available: Whether all records from `wanted` on are there.
        until: They are there at least until then; None if there is no limit or it is unknown.
        basis: Where `until` comes from, or why there is none; empty when it was not determined.
        archived: Offsets from `wanted` on that Kafka no longer has, and an archive has.
    """

    topic: str
    partition: int
    wanted: int | None
    earliest: int | None
    end: int | None
    available: Restorable
    until: datetime | None = None
    basis: str = ""
    archived: int = 0


@dataclass(frozen=True)
class Availability:
    """Whether a savepoint is restorable.

    Attributes:
        savepoint_id: The savepoint.
        checked_at: When Kafka was asked.
        restorable: Whether Kafka, or an archive before it, has the records that come next.
        reason: Why, in words.
        until: It is restorable at least until then; None if there is no limit or it is unknown.
        basis: Where `until` comes from, or why there is none; empty when it was not determined.
        findings: Further remarks for people.
        partitions: Each partition.
    """

    savepoint_id: str
    checked_at: datetime
    restorable: Restorable
    reason: str
    until: datetime | None = None
    basis: str = ""
    findings: tuple[str, ...] = ()
    partitions: tuple[PartitionAvailability, ...] = ()


def check_savepoint(
    savepoint: Savepoint, settings: KafkaSettings, archives: Collection[str] = ()
) -> Availability:
    """Find out whether a savepoint is restorable, and until when."""
    now = utc_now()
    try:
        has = kafka_topics.describe(_names([savepoint]), settings, kafka_topics.LOOK_SECONDS)
        topics = _with_archives(has, archives)
        found = _judged(savepoint, topics, now)
        if found.restorable == "no" or not found.partitions:
            return found
        ranges = {name: one.ranges for name, one in topics.items()}
        position = with_added(lowest_offsets(savepoint.cut.offsets), ranges)
        left = record_retention.left_to_kafka(position, ranges)
        kept = record_retention.until(left, topics, settings, now)
    except SavepointsError as error:
        return Availability(savepoint.id, now, "unknown", error.message)
    return _with_until(found, kept, now)


def check_savepoints(
    savepoints: Sequence[Savepoint],
    settings: KafkaSettings,
    archives: Mapping[str, Collection[str]] | None = None,
) -> dict[str, Availability]:
    """Find out which savepoints are restorable now, by id; Kafka is asked once for all.

    Until when is not looked for: that needs a record of each partition of each savepoint.
    """
    now = utc_now()
    asked = {one.query: (archives or {}).get(one.query, ()) for one in savepoints}
    topics: dict[str, dict[str, Topic]] = {}
    problems: dict[str, str] = {}
    try:
        has = kafka_topics.describe(_names(savepoints), settings, kafka_topics.LOOK_SECONDS)
    except SavepointsError as error:
        has, problems = {}, dict.fromkeys(asked, error.message)
    for query in asked.keys() - problems.keys():
        try:
            topics[query] = _with_archives(has, asked[query])
        except SavepointsError as error:
            problems[query] = error.message
    return {
        one.id: Availability(one.id, now, "unknown", problems[one.query])
        if one.query in problems and _names([one])
        else _judged(one, topics.get(one.query, {}), now)
        for one in savepoints
    }


def _with_archives(topics: Mapping[str, Topic], archives: Collection[str]) -> dict[str, Topic]:
    """Return topics with what archives have before what Kafka has of them."""
    known = available_ranges.of_topics(archives, topics)
    for one in known:
        one.require_same({name: topic.id for name, topic in topics.items() if topic.id})
    ranges = available_ranges.extended({name: one.ranges for name, one in topics.items()}, known)
    return {name: replace(one, ranges=ranges[name]) for name, one in topics.items()}


def _names(savepoints: Iterable[Savepoint]) -> set[str]:
    return {topic for one in savepoints for topic in lowest_offsets(one.cut.offsets)}


def _judged(savepoint: Savepoint, topics: Mapping[str, Topic], now: datetime) -> Availability:
    """Judge by what is there now."""
    position = lowest_offsets(savepoint.cut.offsets)
    partitions = tuple(
        _partition(savepoint, topic, part, offset, topics)
        for topic, part, offset in by_partition(position)
    )
    newer = tuple(
        PartitionAvailability(
            topic, part, None, one.earliest, one.end, "no" if one.earliest else "yes"
        )
        for topic in sorted(position.keys() & topics.keys())
        for part, one in sorted(topics[topic].ranges.items())
        if is_added(position[topic], part)
    )
    # What was added since is read from its beginning.
    begun = (replace(one, wanted=0) for one in newer)
    restorable, reason = _verdict(savepoint, position, (*partitions, *begun), topics)
    return Availability(
        savepoint.id,
        now,
        restorable,
        reason,
        findings=(*_findings(savepoint, position, topics), *map(_newer, newer)),
        partitions=partitions + newer,
    )


def _partition(
    savepoint: Savepoint, topic: str, part: int, offset: int, topics: Mapping[str, Topic]
) -> PartitionAvailability:
    found = topics[topic].ranges.get(part) if topic in topics else None
    if found is None:
        return PartitionAvailability(topic, part, offset, None, None, "no")
    there = found.earliest <= offset <= found.end and not _is_renewed(savepoint, topic, topics)
    answer: Restorable = "yes" if there else "no"
    if there and topics[topic].compacts and offset < found.end:
        answer = "unknown"
    archived = found.from_archive(offset) if there else 0
    return PartitionAvailability(
        topic, part, offset, found.earliest, found.end, answer, archived=archived
    )


def _verdict(
    savepoint: Savepoint,
    position: KafkaOffsets,
    partitions: tuple[PartitionAvailability, ...],
    topics: Mapping[str, Topic],
) -> tuple[Restorable, str]:
    problems = []
    if savepoint.state != "complete":
        why = f": {savepoint.state_reason}" if savepoint.state_reason else ""
        problems.append(f"the savepoint is {savepoint.state}{why}")
    problems += [f"Kafka has no topic {name}" for name in sorted(position.keys() - topics.keys())]
    renewed = [name for name in sorted(position) if _is_renewed(savepoint, name, topics)]
    problems += [f"topic {name} has since been deleted and recreated" for name in renewed]
    gone = [
        (one, topics[one.topic].ranges.get(one.partition))
        for one in partitions
        if one.available == "no" and one.topic in topics and one.topic not in renewed
    ]
    problems += [_gone(one, found) for one, found in gone[:_GONE_SHOWN]]
    if len(gone) > _GONE_SHOWN:
        problems.append(f"and {len(gone) - _GONE_SHOWN} more")
    if problems:
        return "no", "; ".join(problems)
    if not position:
        return "unknown", "the savepoint has no Kafka offsets, and other sources are not checked"
    if any(one.available == "unknown" for one in partitions):
        return "unknown", (
            "the offsets exist, but records after them may be gone: the topic is compacted"
        )
    if archived := sum(one.archived for one in partitions):
        return "yes", (
            "Kafka and the archive together have every record after the savepoint; only in the "
            f"archive: {archived}"
        )
    return "yes", "Kafka has every record after the savepoint"


def _is_renewed(savepoint: Savepoint, name: str, topics: Mapping[str, Topic]) -> bool:
    return name in topics and topics[name].is_another(savepoint.topics.get(name))


def _gone(one: PartitionAvailability, found: Range | None) -> str:
    available = "nothing" if found is None else found.text
    return (
        f"{one.topic} partition {one.partition}: wanted offset {one.wanted}, available {available}"
    )


def _findings(
    savepoint: Savepoint, position: KafkaOffsets, topics: Mapping[str, Topic]
) -> list[str]:
    found = []
    for name in sorted(position.keys() & topics.keys()):
        topic = topics[name]
        if topic.compaction:
            found.append(topic.compaction)
        if name not in savepoint.topics:
            found.append(
                f"the id of topic {name} was not recorded, so it is not possible to tell whether "
                "the topic was deleted and recreated"
            )
    sources = savepoint.cut.offsets
    found += [
        f"source {number} is not Kafka and was not checked"
        for number, one in enumerate(sources)
        if position and one is not None and kafka_offsets(one) is None
    ]
    return found


def _newer(one: PartitionAvailability) -> str:
    return (
        f"{one.topic} partition {one.partition} is newer than the savepoint: it will be read from "
        "the beginning"
    )


def _with_until(
    found: Availability, kept: Mapping[tuple[str, int], RecordRetention], now: datetime
) -> Availability:
    partitions = tuple(
        one
        if (at := kept.get((one.topic, one.partition))) is None
        else replace(one, until=at.until, basis=at.basis)
        for one in found.partitions
    )
    until, basis, findings = record_retention.soonest(kept, now)
    return replace(
        found,
        until=until,
        basis=basis,
        findings=(*found.findings, *findings),
        partitions=partitions,
    )
