"""Records that a reset with kept state skipped: they are in Kafka, but not in the state."""

from __future__ import annotations

from collections.abc import Sequence

from savepoints.errors import NotAlignedError
from savepoints.model import Generation
from savepoints.operations.rollback.reset import VERB, ResetPlan
from savepoints.sources.kafka import reset_targets
from savepoints.sources.kafka.reset_targets import Skips
from savepoints.store.lineage import GenerationHistory
from savepoints.store.locks import journal
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import Ancestry


def find(store: Store, history: GenerationHistory, ancestry: Ancestry) -> Skips:
    """Return the offsets that nothing on the way to a generation has read.

    Raises:
        NotAlignedError: If that cannot be said, because the journal of a reset is gone, or the
            savepoint from which a later generation began.
    """
    all_resets = [one for one in history.generations if one.begun_by == VERB]
    # One with empty state reads everything from where it begins.
    anew = [
        one.begun_at
        for one in all_resets
        if one.begun_from is None and _number(one) in ancestry.generations
    ]
    resets = [
        one
        for one in all_resets
        if one.begun_from is not None and all(one.begun_at > other for other in anew)
    ]
    skips = _skips(store, [one for one in resets if _number(one) in ancestry.generations])
    if ancestry.lost is not None:
        lost, gone = ancestry.lost
        earlier = [
            one
            for one in resets
            if _number(one) not in ancestry.generations
            and one.query == lost.query
            and one.generation < lost.generation
        ]
        if _skips(store, earlier):
            raise NotAlignedError(
                f"it is unknown whether generation {lost.generation} of {lost.query} has read the "
                f"records that the reset to generation {earlier[-1].generation} skipped, because "
                f"the savepoint {gone}, from which it began, was deleted",
                hint="copy that savepoint back from another store, if there is a copy: "
                f"savepoints copy {gone} DEST --store OTHER",
                savepoint=gone,
            )
    return skips


def _number(generation: Generation) -> tuple[str, int]:
    return generation.query, generation.generation


def _skips(store: Store, resets: Sequence[Generation]) -> Skips:
    if not resets:
        return {}
    begun = journal.by_generation(store.root)
    moves = []
    for one in sorted(resets, key=lambda one: one.begun_at):
        found = begun.get(_number(one))
        if found is None:
            raise NotAlignedError(
                f"generation {one.generation} of {one.query} was begun by a reset whose journal "
                "is missing, so it is unknown which records were skipped",
                hint="restore the file of this operation in operations/ of the store from an older "
                f"version, or roll back to before the reset: savepoints list --query {one.query}",
                query=one.query,
                generation=one.generation,
            )
        moves.append(ResetPlan.from_json(found.plan).moves)
    return reset_targets.skipped(moves)
