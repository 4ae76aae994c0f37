"""Records that are in Kafka, but not in the state: a reset with kept state has skipped them.

So has a rollback whose sources go on elsewhere, or one together with the query that writes the
topic: they were taken back there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition, lowest_offsets
from savepoints.checkpoint.logs.source_positions import going_on
from savepoints.errors import NotAlignedError
from savepoints.json_values import from_json
from savepoints.model import Generation, Place, Savepoint
from savepoints.moments import rfc3339
from savepoints.operations.rollback import moves
from savepoints.operations.rollback.moves import Moved
from savepoints.sources.kafka import reset_targets
from savepoints.sources.kafka.reset_targets import Move, Passed, Skips
from savepoints.store.lineage import RESET, ROLLBACK, TOGETHER, GenerationHistory, goes_elsewhere
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import Ancestry

# What began generations, by query and number.
_Begun = Mapping[Place, Operation]


def refuse_read(store: Store, savepoint: Savepoint, there: KafkaOffsets, moment: datetime) -> None:
    """Refuse to run a query from a savepoint on to a time over what it has since skipped.

    What somebody chose to pass over, or to read again, is so from then on. What was taken back in a
    topic is no record any more, of whatever time.

    Args:
        there: The position of that time.

    Raises:
        NotAlignedError: If the query was moved in between, or records on the way were taken back.
    """
    moved = moves.since(store, savepoint)
    for one in moved:
        if one.generation.begun_by == TOGETHER:
            _refuse_taken_back(savepoint, one, moved, there, rfc3339(moment))
        elif one.generation.begun_at <= moment:
            query = savepoint.query
            raise NotAlignedError(
                f"no savepoint of {query} lies between {rfc3339(moment)} and {one} at "
                f"{rfc3339(one.generation.begun_at)}, which moved the query in its sources",
                hint="use the commit times of batches, if one was committed since then: "
                f"savepoints rollback --at {rfc3339(moment)} --exact --at-by commit --query "
                f"{query}; or choose a savepoint: savepoints list --query {query}",
                query=query,
                savepoint=savepoint.id,
            )


def _refuse_taken_back(
    savepoint: Savepoint, by: Moved, moved: Sequence[Moved], there: KafkaOffsets, when: str
) -> None:
    query, read = savepoint.query, lowest_offsets(savepoint.cut.offsets)
    skips = reset_targets.skipped(_behind_topics(_known(by.generation, by.by), query))
    for (topic, part), ranges in skips.items():
        for begin, end in ranges:
            if read.get(topic, {}).get(part, 0) < end and begin < there.get(topic, {}).get(part, 0):
                raise NotAlignedError(
                    f"{query} cannot be run to {when}: from {savepoint.id}, its newest savepoint "
                    f"before that, it would read offsets {begin} to {end - 1} of topic {topic} "
                    f"partition {part}, which {by} has passed over",
                    hint="use the commit times of batches, if one was committed since then: "
                    f"savepoints rollback --at {when} --exact --at-by commit --query {query}; or "
                    f"go to that savepoint: {moves.way_back(savepoint, moved)}",
                    query=query,
                    savepoint=savepoint.id,
                    topic=topic,
                )


def find(store: Store, history: GenerationHistory, ancestry: Ancestry) -> Skips:
    """Return the offsets that nothing on the way to a generation has read.

    Raises:
        NotAlignedError: If that cannot be said, because the journal of what has skipped some is
            gone, or the savepoint from which a later generation began.
    """
    # One with empty state reads everything from where it begins.
    anew = [
        one.begun_at
        for one in history.generations
        if one.is_empty_reset and one.place in ancestry.generations
    ]
    may_skip = [
        one
        for one in history.generations
        if one.begun_by in (RESET, ROLLBACK, TOGETHER)
        and one.begun_from is not None
        and all(one.begun_at > other for other in anew)
    ]
    begun = journal.by_generation(store.root) if may_skip else {}
    skipping = [one for one in may_skip if goes_elsewhere(one, begun.get(one.place))]
    skips = _skips(history, begun, [one for one in skipping if one.place in ancestry.generations])
    if ancestry.lost is not None:
        lost, gone = ancestry.lost
        earlier = [
            one
            for one in skipping
            if one.place not in ancestry.generations
            and one.query == lost.query
            and one.generation < lost.generation
        ]
        if _skips(history, begun, earlier):
            raise NotAlignedError(
                f"it is unknown whether generation {lost.generation} of {lost.query} has read the "
                f"records that the {earlier[-1].begun_by} to generation {earlier[-1].generation} "
                f"skipped, because the savepoint {gone}, from which it began, was deleted",
                hint="copy that savepoint back from another store, if there is a copy: "
                f"savepoints copy {gone} DEST --store OTHER",
                savepoint=gone,
            )
    return skips


def read_again(store: Store, query: str, to: KafkaOffsets) -> Iterator[str]:
    """Say which records a query reads from a position on that were rolled back with their writer.

    Args:
        to: The position.
    """
    begun = journal.by_generation(store.root)
    generation = store.generations.current(query).generation
    passed: list[Passed] = []
    for place in sorted(GenerationHistory.of(store).ancestry(query, generation).generations):
        by = begun.get(place)
        if by is not None and by.members.get(place[0], {}).get("topic_reads"):
            passed += _behind_topics(by, place[0])
    for (topic, part), ranges in sorted(reset_targets.skipped(passed).items()):
        for begin, end in ranges:
            if to.get(topic, {}).get(part, end) < end:
                yield (
                    f"offsets {begin} to {end - 1} of topic {topic} partition {part} were rolled "
                    "back by a pipeline rollback, and will be read as well"
                )


def _skips(history: GenerationHistory, begun: _Begun, skipping: Sequence[Generation]) -> Skips:
    passed: list[Passed] = []
    for one in sorted(skipping, key=lambda one: one.begun_at):
        found = _known(one, begun.get(one.place))
        if one.begun_by == ROLLBACK:
            passed += _elsewhere(history, found)
        elif one.begun_by == RESET:
            passed += [from_json(Move, move).passed for move in found.plan["moves"]]
        else:
            passed += _behind_topics(found, one.query)
    return reset_targets.skipped(passed)


def _known(one: Generation, by: Operation | None) -> Operation:
    """Return what began a generation, which says what it skipped."""
    if by is None:
        raise NotAlignedError(
            f"generation {one.generation} of {one.query} was begun by a {one.begun_by} whose "
            "journal is missing, so it is unknown which records were skipped",
            hint="restore the file of this operation in operations/ of the store from an older "
            f"version, or roll back to before it: savepoints list --query {one.query}",
            query=one.query,
            generation=one.generation,
        )
    return by


def _elsewhere(history: GenerationHistory, done: Operation) -> Iterator[Passed]:
    """Give from where to where a rollback has set the query in the topics of the savepoint."""
    for savepoint in history.savepoints:
        if savepoint.id == done.plan["savepoint_id"]:
            offsets = savepoint.cut.offsets
            read, to = lowest_offsets(offsets), lowest_offsets(going_on(done.starts, offsets))
            for topic, partition, offset in by_partition(to):
                if topic in read:
                    yield Passed(topic, partition, read[topic].get(partition, 0), offset)


def _behind_topics(done: Operation, query: str) -> Iterator[Passed]:
    """Give what a reader of topics was set behind when their writers were rolled back with it."""
    for read in done.members[query]["topic_reads"]:
        topic = read["topic"]
        ended = done.step_of(read["writer"], "topics_ended")["ends"][topic]
        kept = dict(enumerate(read["ends"]))
        for partition, end in enumerate(ended):
            # Partitions that were added since have nothing but what was taken back.
            yield Passed(topic, partition, kept.get(partition, 0), end)
