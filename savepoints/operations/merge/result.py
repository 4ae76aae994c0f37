"""What a merge did."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from savepoints.operations.merge.append import AppendingPlan
from savepoints.operations.merge.apply import Facts, MergingPlan
from savepoints.operations.merge.plan import MergePlan
from savepoints.operations.rollback.generation_change import Moved
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import MergePolicy, ReplayStrategy


@dataclass(frozen=True)
class Merged:
    """What a merge did.

    Attributes:
        operation_id: Its name in the journal, in the ledger, and in the archive.
        query: The query.
        generation: The generation that has begun; the one there was when none has.
        checkpoint: Its directory; None when none has begun.
        safety_id: The savepoint of what was before, for `merge --undo`.
        rows: Events that were merged.
        known: Events of the batch that the query had seen already.
        entities: Entities that the events touch.
        controls: Control entities that came out as the query had them.
        policy: What was guaranteed, or given up.
        way: How it was replayed: `short`, in few slices, or `faithful`, batch by batch; None when
            nothing had to be done, and for policies that do neither.
        outputs: New table version of each output.
        pause_seconds: For how long the query wrote nothing: from asking its run to pause until it
            went on. None when it did not run, or the merge was finished after a crash.
        seconds: The whole merge.
        merged_by: Id of the merge that had merged just these events before; nothing was done then.
    """

    operation_id: str
    query: str
    generation: int
    checkpoint: str | None
    safety_id: str | None
    rows: int
    known: int
    entities: int
    controls: int
    policy: MergePolicy
    way: ReplayStrategy | None
    outputs: dict[str, int]
    pause_seconds: float | None
    seconds: float
    merged_by: str | None = None


def nothing(plan: MergePlan, started: float) -> Merged:
    """Return that nothing had to be done."""
    return Merged(
        operation_id=plan.operation_id,
        query=plan.query,
        generation=plan.generation,
        checkpoint=None,
        safety_id=None,
        rows=0,
        known=plan.known,
        entities=0,
        controls=0,
        policy=plan.policy,
        way=None,
        outputs={},
        pause_seconds=None,
        seconds=time.monotonic() - started,
        merged_by=plan.merged_by,
    )


def appended(begun: AppendingPlan, started: float) -> Merged:
    """Return that events are at the end of their topic."""
    return Merged(
        operation_id=begun.operation_id,
        query=begun.query,
        generation=begun.generation,
        checkpoint=None,
        safety_id=None,
        **_facts(begun.facts),
        outputs={},
        pause_seconds=None,
        seconds=time.monotonic() - started,
    )


def finished(
    store: Store,
    begun: MergingPlan,
    moved: Moved,
    started: float,
    pause_seconds: float | None = None,
) -> Merged:
    """Return what a merge did that began a generation."""
    return Merged(
        operation_id=begun.operation_id,
        query=begun.query,
        generation=moved.generation,
        checkpoint=moved.checkpoint,
        safety_id=moved.safety_id,
        **_facts(begun.facts),
        outputs=_versions(store, begun.operation_id),
        pause_seconds=pause_seconds,
        seconds=time.monotonic() - started,
    )


def _facts(facts: Facts) -> dict[str, Any]:
    names = ("rows", "known", "entities", "controls", "policy", "way")
    return {name: getattr(facts, name) for name in names}


def _versions(store: Store, operation_id: str) -> dict[str, int]:
    """Return the versions that a merge has made, as the ledger has them."""
    noted = next(one for one in store.ledger.all() if one.id == operation_id)
    return {one.name: one.version for one in noted.outputs}
