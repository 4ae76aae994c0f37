"""Records that are in Kafka, but not in the state: a reset with kept state has skipped them.

So has a rollback whose sources go on elsewhere, or one together with the query that writes the
topic: they were taken back there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from savepoints.checkpoint.logs.kafka_position import by_partition, lowest_offsets
from savepoints.checkpoint.logs.source_positions import going_on
from savepoints.errors import NotAlignedError
from savepoints.model import Generation
from savepoints.operations.rollback.reset import VERB, ResetPlan
from savepoints.sources.kafka import reset_targets
from savepoints.sources.kafka.reset_targets import Passed, Skips
from savepoints.store.lineage import ROLLBACK, TOGETHER, GenerationHistory
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import Ancestry

# What began generations, by query and number.
_Begun = Mapping[tuple[str, int], Operation]


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
        if one.begun_by == VERB and one.begun_from is None and _number(one) in ancestry.generations
    ]
    may_skip = [
        one
        for one in history.generations
        if one.begun_by in (VERB, ROLLBACK, TOGETHER)
        and one.begun_from is not None
        and all(one.begun_at > other for other in anew)
    ]
    begun = journal.by_generation(store.root) if may_skip else {}
    skipping = [one for one in may_skip if one.begun_by != ROLLBACK or _starts(begun, one)]
    skips = _skips(
        history, begun, [one for one in skipping if _number(one) in ancestry.generations]
    )
    if ancestry.lost is not None:
        lost, gone = ancestry.lost
        earlier = [
            one
            for one in skipping
            if _number(one) not in ancestry.generations
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


def _number(generation: Generation) -> tuple[str, int]:
    return generation.query, generation.generation


def _starts(begun: _Begun, generation: Generation) -> tuple[str, ...]:
    """Return where the sources of a generation were told to go on."""
    found = begun.get(_number(generation))
    return found.starts if found else ()


def _skips(history: GenerationHistory, begun: _Begun, skipping: Sequence[Generation]) -> Skips:
    moves: list[Passed] = []
    for one in sorted(skipping, key=lambda one: one.begun_at):
        found = begun.get(_number(one))
        if found is None:
            raise NotAlignedError(
                f"generation {one.generation} of {one.query} was begun by a {one.begun_by} whose "
                "journal is missing, so it is unknown which records were skipped",
                hint="restore the file of this operation in operations/ of the store from an older "
                f"version, or roll back to before it: savepoints list --query {one.query}",
                query=one.query,
                generation=one.generation,
            )
        if one.begun_by == ROLLBACK:
            moves += _elsewhere(history, found)
        elif one.begun_by == VERB:
            moves += [move.passed for move in ResetPlan.from_json(found.plan).moves]
        else:
            moves += _behind_topics(found, one.query)
    return reset_targets.skipped(moves)


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
