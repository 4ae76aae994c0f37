"""From what the present of a query comes: merges, and batches that tell it from events alone.

A replay puts nothing but events together again. What somebody did to the state besides, by editing
it, by going to other offsets, or by letting another program or query go first, is not in them: so
no entity can be replayed from before such a thing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition
from savepoints.io import Location
from savepoints.model import Generation, Savepoint
from savepoints.store import batch_log
from savepoints.store.batch_log import Batch
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store
from savepoints.store.tables import merge_ledger
from savepoints.store.tables.merge_ledger import Ancestry, Merge

# Generations that begin with nothing but events, or with a savepoint as it was taken.
_PLAIN = frozenset({"run", "rollback", "merge", "restore", "bootstrap"})
_TOGETHER = "pipeline rollback"


@dataclass(frozen=True)
class GenerationHistory:
    """What a store knows of its generations, read once."""

    generations: Sequence[Generation]
    savepoints: Sequence[Savepoint]
    merges: Sequence[Merge]

    @classmethod
    def of(cls, store: Store) -> GenerationHistory:
        """Read it."""
        return cls(store.generations.all(), store.catalog.all(), store.ledger.all())

    def ancestry(self, query: str, generation: int) -> Ancestry:
        """Return the generations from which one descends."""
        return merge_ledger.ancestry(
            query, generation, self.generations, self.savepoints, self.merges
        )

    def in_effect(self, query: str, generation: int) -> list[Merge]:
        """Return the merges that a generation has in its state, the oldest first.

        Raises:
            NotAlignedError: If that cannot be said, because a savepoint is gone from which one of
                its generations began.
        """
        return merge_ledger.in_effect(self.merges, self.ancestry(query, generation))

    def begins_behind(self, live: Generation, merge: Merge, beginning: KafkaOffsets) -> bool:
        """Return True if a query was reset to offsets from which it does not read a merge again.

        Args:
            beginning: Where it began with empty state, as its checkpoint says.
        """
        known = self.ancestry(live.query, live.generation).generations
        reset = any(
            _is_empty_reset(one) and one.begun_at > merge.at
            for one in self.generations
            if (one.query, one.generation) in known
        )
        return reset and all(
            beginning.get(topic, {}).get(part, 0) >= offset
            for topic, part, offset in by_partition(merge.offsets)
        )


@dataclass(frozen=True)
class Reach:
    """The generations whose batches made the present of a query.

    Attributes:
        newest: By generation, the newest of its batches that counts; None for all.
        first: By generation, the first of its batches that counts.
        ends_with: What cannot be told from events, in words; empty if all batches can.
    """

    newest: Mapping[int, int | None]
    first: Mapping[int, int]
    ends_with: str

    def has(self, savepoint: Savepoint) -> bool:
        """Return True if a savepoint lies within."""
        if savepoint.generation not in self.newest or savepoint.edit is not None:
            return False
        newest = self.newest[savepoint.generation]
        return newest is None or savepoint.cut.batch_id <= newest


def reach(store: Store, query: str) -> Reach:
    """Find out how far back it goes."""
    generations = {one.generation: one for one in store.generations.all(query)}
    savepoints = {one.id: one for one in store.catalog.all()}
    begun = cache(partial(journal.by_generation, store.root))  # Few lines need it, none twice.
    newest: dict[int, int | None] = {}
    first: dict[int, int] = {}
    at: Generation = store.generations.current(query)
    until: int | None = None
    while True:
        newest[at.generation], first[at.generation] = until, 0
        where = f"generation {at.generation}"
        if not _begins_with_events(at, begun):
            return Reach(newest, first, f"{where} was begun by {at.begun_by}")
        if at.begun_from is None:
            return Reach(newest, first, "")
        origin = at.origin_among(savepoints)
        if origin is None:
            return Reach(
                newest, first, f"{at.begun_from}, from which {where} began, no longer exists"
            )
        first[at.generation] = origin.batch_id + 1
        if origin.is_edited:
            return Reach(newest, first, f"the state of {at.begun_from} was edited")
        if origin.query != query or origin.generation not in generations:
            return Reach(newest, first, f"{where} began from {at.begun_from} of {origin.query}")
        at, until = generations[origin.generation], origin.batch_id


def _begins_with_events(
    generation: Generation, begun: Callable[[], Mapping[tuple[str, int], Operation]]
) -> bool:
    """Return True unless something else than events made what a generation begins with.

    Args:
        begun: Reads the operations that began generations.
    """
    if generation.begun_by in _PLAIN or _is_empty_reset(generation):
        return True
    if generation.begun_by != _TOGETHER:
        return False
    operation = begun().get((generation.query, generation.generation))
    # A reader of a topic is set behind the records that were taken back, which are still there.
    return operation is not None and any(
        one["rollback"]["query"] == generation.query and not one["topic_reads"]
        for one in operation.plan["members"]
    )


def _is_empty_reset(generation: Generation) -> bool:
    """Return True for a generation that begins with nothing, at offsets that somebody chose."""
    return generation.begun_by == "reset" and generation.begun_from is None


def batches(
    store: Store, query: str, known: Reach, checkpoint: Location | None = None
) -> dict[int, Batch]:
    """Return the batches that made the present, by number, as far as the batch log has them.

    Args:
        checkpoint: That of the current generation, for batches that nobody has copied yet.
    """
    found: dict[int, Batch] = {}
    for generation, until in known.newest.items():
        logged = batch_log.read(store.root, query, generation)
        if checkpoint is not None and until is None:
            newest = max(logged, default=-1)
            logged |= {one.batch_id: one for one in batch_log.kept(checkpoint, newest)}
        found |= {
            number: one
            for number, one in logged.items()
            if number >= known.first[generation] and (until is None or number <= until)
        }
    return found
