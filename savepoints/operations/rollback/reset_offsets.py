"""Where a reset leads in the Kafka topics that a query reads, and which partitions it has then."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

from savepoints.checkpoint.logs.kafka_position import (
    KafkaOffsets,
    by_partition,
    kafka_offsets,
    kafka_position,
)
from savepoints.errors import IncompatibleError, SourceDataGoneError
from savepoints.moments import refuse_future
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.runtime.archive_of import archives_of
from savepoints.sources.combined import availability, available_ranges
from savepoints.sources.kafka import offsets as topic_offsets
from savepoints.sources.kafka import reset_targets
from savepoints.sources.kafka import topics as kafka_topics
from savepoints.sources.kafka.reset_targets import Move, Target, TargetScope

_TOGETHER = (
    "let all sources begin at one place, with empty state: savepoints reset QUERY --to-earliest; "
    "or roll back to a savepoint: savepoints list"
)


def resolve(
    target: Target | datetime,
    positions: Sequence[KafkaOffsets],
    context: QueryContext,
    scope: TargetScope | None,
    skipped: Sequence[str],
    *,
    allow_data_loss: bool,
) -> tuple[Move, ...]:
    """Find where each partition goes that the query reads.

    Args:
        positions: Where each source is now.

    Raises:
        UsageError: If an offset is out of range, or a topic or partition unknown.
        SourceDataGoneError: If records from the target on are gone from Kafka and in no archive,
            or compacted, or if topics or partitions were deleted.
    """
    kafka = context.settings.kafka
    archives = archives_of(context.settings, context.query)
    found = kafka_topics.describe({topic for one in positions for topic in one}, kafka)
    _require_topics(context.query, positions, found, allow_data_loss=allow_data_loss)
    topics = list(found)
    if isinstance(target, datetime):
        refuse_future(target, hint="use --to-latest, or an earlier time")
        target = Target("time", offsets=availability.at_time(topics, target, kafka, archives))
    ids = {name: one.id for name, one in found.items() if one.id is not None}
    known = available_ranges.of_topics(archives, topics)
    for one in known:
        one.require_same(ids)
    current = topic_offsets.merge(positions, instead=_TOGETHER)
    ranges = available_ranges.extended({name: one.ranges for name, one in found.items()}, known)
    moves = reset_targets.resolve(
        target,
        current,
        reset_targets.read_of(current, ranges),
        scope=scope,
        skipped=skipped,
        allow_data_loss=allow_data_loss,
    )
    again = {one.topic for one in moves if one.records > 0}
    compacted = [name for name in again if found[name].compacts]
    if compacted and not allow_data_loss:
        raise SourceDataGoneError(
            f"topic {compacted[0]} is compacted: records that were read before may have been "
            "removed since, so reading the topic again can give a different result",
            hint="accept a different result with --allow-data-loss",
            topics=compacted,
        )
    return moves


def leveled(
    positions: Sequence[KafkaOffsets], target: Target | datetime, *, is_whole: bool
) -> tuple[KafkaOffsets, ...]:
    """Return where sources are that all go to one place: of one topic, where the one behind is.

    Sources ask Kafka each by itself how far a topic goes, so they are often apart.

    Args:
        is_whole: Whether all partitions move, and no state stays that one of them is ahead of.
    """
    goes_anywhere = isinstance(target, Target) and target.kind in {"current", "shift"}
    if goes_anywhere or not is_whole:
        return tuple(positions)
    lowest: KafkaOffsets = {}
    for topic, part, offset in (place for one in positions for place in by_partition(one)):
        parts = lowest.setdefault(topic, {})
        parts[part] = min(offset, parts.get(part, offset))
    return tuple(
        {topic: {part: lowest[topic][part] for part in parts} for topic, parts in one.items()}
        for one in positions
    )


def offsets(moves: Sequence[Move]) -> KafkaOffsets:
    """Return where the partitions go."""
    found: KafkaOffsets = {}
    for one in moves:
        found.setdefault(one.topic, {})[one.partition] = one.to
    return found


def begin_at(positions: Sequence[KafkaOffsets], moves: Sequence[Move]) -> tuple[str, ...]:
    """Return where each source goes on, as Spark's JSON.

    Spark fails on a partition that its source is not told to read, so one that the query has not
    read has a position only if Spark would not begin it there by itself.
    """
    read = topic_offsets.merge(positions)
    added = offsets(_added(read, moves))
    goes_to = offsets(moves)

    def of_topic(topic: str, own: Collection[int]) -> dict[int, int]:
        to = goes_to.get(topic, {})
        mine = {part: to[part] for part in own or to if part in to}
        return {**mine, **added.get(topic, {})}

    places = ({topic: of_topic(topic, own) for topic, own in one.items()} for one in positions)
    return tuple(
        kafka_position({topic: parts for topic, parts in one.items() if parts}) for one in places
    )


def by_directory(
    names: Sequence[str], begin_at: Sequence[str], initial: Mapping[int, str]
) -> tuple[tuple[str, str], ...]:
    """Return the directories below `sources/`, each with where its source begins.

    The offset log has a position for each place where the plan reads a source, and a source that it
    reads twice has one directory (`MicroBatchExecution.uniqueSources`).

    Args:
        names: The directories, if each source is read once.
        begin_at: As of `begin_at`.
        initial: By number of the directory, where the sources began in the present checkpoint.

    Raises:
        IncompatibleError: If the places of one source differ.
    """
    if not 0 < len(initial) < len(begin_at):
        return tuple(zip(names, begin_at, strict=True))
    return tuple((names[number], _only_one(begin_at, initial[number])) for number in initial)


def _only_one(begin_at: Sequence[str], source: str) -> str:
    found = {one for one in begin_at if _partitions(one) & _partitions(source)}
    if len(found) != 1:
        raise IncompatibleError(
            f"the program reads {source} in several places, which would begin at different "
            f"offsets: {', '.join(sorted(found))}",
            hint="move all partitions (omit --topic), or keep the state with --state keep",
        )
    return found.pop()


def _partitions(position: str) -> set[tuple[str, int]]:
    return {(topic, part) for topic, part, _ in by_partition(kafka_offsets(position) or {})}


def note_of_level(
    positions: Sequence[KafkaOffsets], level: Sequence[KafkaOffsets]
) -> Iterator[str]:
    """Say that records are counted from one of several sources, if `leveled` has changed any."""
    topics = {
        topic
        for one, other in zip(positions, level, strict=True)
        for topic in one
        if one[topic] != other[topic]
    }
    for topic in sorted(topics):
        yield (
            f"sources of topic {topic} are at different offsets; all will begin at one place, and "
            "records are counted from the source that is behind"
        )


def notes(positions: Sequence[KafkaOffsets], moves: Sequence[Move]) -> Iterator[str]:
    """Say which partitions do not exist any more, and which the query has not read so far."""
    read = topic_offsets.merge(positions)
    there = {(one.topic, one.partition) for one in moves}
    gone = ((topic, part) for topic, part, _ in by_partition(read) if (topic, part) not in there)
    if listed := ", ".join(f"{topic} partition {part}" for topic, part in gone):
        yield f"left out, because Kafka does not have them any more: {listed}"
    for one in _added(read, moves):
        if own := ",".join(map(str, sorted(read[one.topic]))):
            yield (
                f"{one.topic} partition {one.partition}, which the query has not read so far, will "
                f"start at offset {one.to}: if the query is not to read it, because it names its "
                f"partitions (Spark's option assign), add --topic {one.topic}:{own}"
            )


def _require_topics(
    query: str, positions: Sequence[KafkaOffsets], found: Collection[str], *, allow_data_loss: bool
) -> None:
    """Refuse to leave out a topic that was deleted, unless its source has others and it may."""
    missing = sorted({topic for one in positions for topic in one} - {*found})
    if not missing or (allow_data_loss and all(set(one) & set(found) for one in positions)):
        return
    raise SourceDataGoneError(
        f"Kafka has no topic {missing[0]}, which {query} reads; nothing was reset",
        hint=f"correct the topic's name in [queries.{query}.topics]; or, if it was deleted and its "
        "source reads other topics as well, go on without it: --allow-data-loss",
        topics=missing,
    )


def _added(read: KafkaOffsets, moves: Sequence[Move]) -> list[Move]:
    """Return the partitions that begin where Spark would not begin what was added to a topic."""
    return [one for one in moves if one.is_placed and one.partition not in read[one.topic]]
