"""Records that are in Kafka, but not in the state: a reset with kept state has skipped them.

So has a rollback together with the query that writes the topic: they were taken back there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, lowest_offsets
from savepoints.errors import NotAlignedError
from savepoints.model import Generation, Savepoint, from_json
from savepoints.sources.kafka import reset_targets
from savepoints.sources.kafka.reset_targets import Move, Passed, Skips
from savepoints.store.lineage import TOGETHER, GenerationHistory
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import Ancestry

_RESET = "reset"


@dataclass(frozen=True)
class Moved:
    """What has moved a query in its sources as it began a generation, with its state kept.

    Attributes:
        by: The operation; None if its journal is gone.
    """

    generation: Generation
    by: Operation | None

    def __str__(self) -> str:
        """Name it."""
        return f"the {self.generation.begun_by} that began generation {self.generation.generation}"


def moves_since(store: Store, savepoint: Savepoint) -> list[Moved]:
    """Return what has moved a query in its sources since a savepoint that it comes from.

    A reset with kept state has, and a rollback together with the writer of a topic, which has set
    it behind what was taken back there.

    Returns:
        The newest first.
    """
    generations = {(one.query, one.generation): one for one in store.generations.all()}
    begun = journal.by_generation(store.root)
    found = []
    at: Generation | None = store.generations.current(savepoint.query)
    while at is not None and at.begun_from and at.went_on_after(savepoint):
        by = begun.get(_number(at))
        if at.begun_by == _RESET or (at.begun_by == TOGETHER and _is_behind(at, by, savepoint)):
            found.append(Moved(at, by))
        came = at.origin
        at = None if came is None else generations.get((came.query, came.generation))
    return found


def _is_behind(at: Generation, by: Operation | None, savepoint: Savepoint) -> bool:
    """Say whether a query was set behind something in a topic; without a journal it may have."""
    if by is None:
        return bool(lowest_offsets(savepoint.cut.offsets))
    return bool(by.members.get(at.query, {}).get("topic_reads"))


def way_back(savepoint: Savepoint, moves: Sequence[Moved], *options: str) -> str:
    """Say how to go to a savepoint from before moves, and how to make these again from there.

    Args:
        moves: The newest first.
        options: Of the rollback.
    """
    back = " ".join(["savepoints rollback", savepoint.id, *options])
    # An undo cannot be done again.
    if any(one.by is None or one.by.is_undo for one in moves):
        return back
    again = ", ".join(one.by.command for one in reversed(moves) if one.by)
    return f"{back}; then, before it runs, do that again: {again}"


def refuse_read(store: Store, savepoint: Savepoint, there: KafkaOffsets, when: str) -> None:
    """Refuse to run a query from a savepoint on to a position over what it has since skipped.

    Args:
        there: The position, of a time.
        when: The time.

    Raises:
        NotAlignedError: If records between the two are in no state that the query has had since.
    """
    moves = moves_since(store, savepoint)
    read = lowest_offsets(savepoint.cut.offsets)
    for (topic, part), ranges in _skips(store, [one.generation for one in moves]).items():
        for begin, end in ranges:
            if read.get(topic, {}).get(part, 0) < end and begin < there.get(topic, {}).get(part, 0):
                query = savepoint.query
                raise NotAlignedError(
                    f"{query} cannot be run to {when}: from {savepoint.id}, its newest savepoint "
                    f"before that, it would read offsets {begin} to {end - 1} of topic {topic} "
                    f"partition {part}, which {moves[0]} has passed over",
                    hint="use the commit times of batches, if one was committed since then: "
                    f"savepoints rollback --at {when} --exact --at-by commit --query {query}; or "
                    f"go to that savepoint: {way_back(savepoint, moves)}",
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
        if one.begun_by == _RESET
        and one.begun_from is None
        and _number(one) in ancestry.generations
    ]
    skipping = [
        one
        for one in history.generations
        if one.begun_by in (_RESET, TOGETHER)
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


def read_again(store: Store, query: str, to: KafkaOffsets) -> Iterator[str]:
    """Say which records a query reads from a position on that were rolled back with their writer.

    Args:
        to: The position.
    """
    begun = journal.by_generation(store.root)
    generation = store.generations.current(query).generation
    moves: list[Passed] = []
    for place in sorted(GenerationHistory.of(store).ancestry(query, generation).generations):
        by = begun.get(place)
        if by is not None and by.members.get(place[0], {}).get("topic_reads"):
            moves += _behind_topics(by, place[0])
    for (topic, part), ranges in sorted(reset_targets.skipped(moves).items()):
        for begin, end in ranges:
            if to.get(topic, {}).get(part, end) < end:
                yield (
                    f"offsets {begin} to {end - 1} of topic {topic} partition {part} were rolled "
                    "back by a pipeline rollback, and will be read as well"
                )


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
        if one.begun_by == _RESET:
            moves += [from_json(Move, move).passed for move in found.plan["moves"]]
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
