"""What a merge did."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from savepoints.operations.merge.plan import AppendingPlan, MergePlan, MergingPlan
from savepoints.operations.rollback.generation_change import Moved
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import MergeCounts


@dataclass(frozen=True, kw_only=True)
class Merged(MergeCounts):
    """What a merge did.

    Attributes:
        operation_id: Id of the operation, as in `savepoints operations` and the ledger.
        query: Name of the query.
        generation: Number of the new generation, or of the present one when none has begun.
        checkpoint: Its checkpoint directory; None when none has begun.
        safety_id: Id of the savepoint taken of the state before, for `merge --undo`.
        outputs: New table version of each output.
        pause_seconds: For how long the query wrote nothing: from asking its run to pause until it
            went on. None when it did not run, or the merge was finished after a crash.
        seconds: The whole merge: its planning, with the start of Spark, and its execution.
        merged_by: Id of the merge that had merged just these events before; nothing was done then.
    """

    operation_id: str
    query: str
    generation: int
    checkpoint: str | None = None
    safety_id: str | None = None
    outputs: dict[str, int] = field(default_factory=dict)
    pause_seconds: float | None = None
    seconds: float
    merged_by: str | None = None


def nothing(plan: MergePlan, started: float) -> Merged:
    """Return that nothing had to be done."""
    return Merged(
        operation_id=plan.operation_id,
        query=plan.query,
        generation=plan.generation,
        known=plan.known,
        policy=plan.policy,
        seconds=time.monotonic() - started,
        merged_by=plan.merged_by,
    )


def appended(begun: AppendingPlan, started: float) -> Merged:
    """Return that events are at the end of their topic."""
    return Merged(
        operation_id=begun.operation_id,
        query=begun.query,
        generation=begun.generation,
        **begun.facts.counts(),
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
        **begun.facts.counts(),
        outputs=_versions(store, begun.operation_id),
        pause_seconds=pause_seconds,
        seconds=time.monotonic() - started,
    )


def _versions(store: Store, operation_id: str) -> dict[str, int]:
    """Return the versions that a merge has made, as the ledger has them."""
    noted = next(one for one in store.ledger.all() if one.id == operation_id)
    return {one.name: one.version for one in noted.outputs}
