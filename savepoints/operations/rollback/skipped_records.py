"""Records that are in Kafka, but not in the state: a reset with kept state has skipped them.

So has a rollback together with the query that writes the topic: they were taken back there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from savepoints.errors import NotAlignedError
from savepoints.model import Generation
from savepoints.operations.rollback.reset import VERB, ResetPlan
from savepoints.sources.kafka import reset_targets
from savepoints.sources.kafka.reset_targets import Passed, Skips
from savepoints.store.lineage import TOGETHER, GenerationHistory
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import Ancestry


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
    skipping = [
        one
        for one in history.generations
        if one.begun_by in (VERB, TOGETHER)
        and one.begun_from is not None
        and all(one.begun_at > other for other in anew)
    ]
    skips = _skips(store, [one for one in skipping if _number(one) in ancestry.generations])
    if ancestry.lost is not None:
        lost, gone = ancestry.lost
        earlier = [
            one
            for one in skipping
            if _number(one) not in ancestry.generations
            and one.query == lost.query
            and one.generation < lost.generation
        ]
        if _skips(store, earlier):
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


def _skips(store: Store, skipping: Sequence[Generation]) -> Skips:
    if not skipping:
        return {}
    begun = journal.by_generation(store.root)
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
        if one.begun_by == VERB:
            moves += [move.passed for move in ResetPlan.from_json(found.plan).moves]
        else:
            moves += _behind_topics(found, one.query)
    return reset_targets.skipped(moves)


def _behind_topics(done: Operation, query: str) -> Iterator[Passed]:
    """Give what a reader of topics was set behind when their writers were rolled back with it."""
    for read in done.members[query]["topic_reads"]:
        topic = read["topic"]
        ended = done.step_of(read["writer"], "topics_ended")["ends"][topic]
        kept = dict(enumerate(read["ends"]))
        for partition, end in enumerate(ended):
            # Partitions that were added since have nothing but what was taken back.
            yield Passed(topic, partition, kept.get(partition, 0), end)
