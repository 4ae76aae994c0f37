"""`operations`: what verbs with several steps have done, and finishing or undoing one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from savepoints.errors import IncompatibleError, NotFoundError, UsageError
from savepoints.operations.cascade import carry_out as cascade
from savepoints.operations.cascade import cascade_plan
from savepoints.operations.cascade.cascade_plan import CascadePlan
from savepoints.operations.fork import fork, promote, promote_steps
from savepoints.operations.fork.fork import Forked, ForkPlan
from savepoints.operations.fork.promote_steps import PromotionPlan
from savepoints.operations.merge import append, merge
from savepoints.operations.merge import plan as merge_plan
from savepoints.operations.merge.append import Appended
from savepoints.operations.merge.plan import AppendingPlan, MergingPlan
from savepoints.operations.pipeline import pipeline_rollback, rollback_plan
from savepoints.operations.pipeline.joint_plan import JointPlan
from savepoints.operations.pipeline.pipeline_rollback import PipelineRolledBack
from savepoints.operations.pipeline.rollback_plan import PipelineRollbackPlan
from savepoints.operations.pipeline_fork import (
    pipeline_fork,
    pipeline_fork_plan,
    pipeline_promote,
    pipeline_promotion,
)
from savepoints.operations.pipeline_fork.pipeline_fork import PipelineForked
from savepoints.operations.pipeline_fork.pipeline_fork_plan import PipelineForkPlan
from savepoints.operations.pipeline_fork.pipeline_promote import PipelinePromoted
from savepoints.operations.pipeline_fork.pipeline_promotion import PipelinePromotionPlan
from savepoints.operations.rollback import generation_change, reset, rollback
from savepoints.operations.rollback.generation_change import Moved, TransitionPlan
from savepoints.operations.rollback.reset import ResetPlan
from savepoints.operations.rollback.rollback import RollbackPlan
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store

_PLANS: dict[
    str,
    type[
        RollbackPlan
        | ResetPlan
        | PromotionPlan
        | MergingPlan
        | ForkPlan
        | AppendingPlan
        | CascadePlan
        | PipelineRollbackPlan
        | PipelineForkPlan
        | PipelinePromotionPlan
    ],
] = {
    cascade_plan.VERB: CascadePlan,
    merge_plan.APPEND: AppendingPlan,
    fork.VERB: ForkPlan,
    merge_plan.VERB: MergingPlan,
    promote_steps.VERB: PromotionPlan,
    rollback.VERB: RollbackPlan,
    rollback_plan.VERB: PipelineRollbackPlan,
    pipeline_fork_plan.VERB: PipelineForkPlan,
    pipeline_promotion.VERB: PipelinePromotionPlan,
    reset.VERB: ResetPlan,
}

# What is told of an operation that was finished.
_Done: TypeAlias = (
    Moved | Forked | Appended | PipelineRolledBack | PipelineForked | PipelinePromoted
)
# What is known of one that was begun.
_Begun: TypeAlias = TransitionPlan | ForkPlan | AppendingPlan | JointPlan | PipelineForkPlan

_FINISH: dict[type[Plan], Callable[..., _Done]] = {
    AppendingPlan: append.finish,
    CascadePlan: cascade.finish,
    ForkPlan: fork.execute,
    MergingPlan: merge.finish,
    PipelineForkPlan: pipeline_fork.execute,
    PipelinePromotionPlan: pipeline_promote.finish,
    PipelineRollbackPlan: pipeline_rollback.execute,
    PromotionPlan: promote.finish,
    ResetPlan: reset.execute,
    RollbackPlan: rollback.execute,
}


def find(store: Store, operation_id: str) -> Operation:
    """Return the one operation with this id, or with an id that begins so."""
    known = journal.all_operations(store.root)
    fitting = [one for one in known if one.id.startswith(operation_id)]
    if len(fitting) == 1:
        return fitting[0]
    raise NotFoundError(
        f"{len(fitting)} of {len(known)} operations match {operation_id!r}",
        hint="list the operations: savepoints operations list",
        operation=operation_id,
        candidates=[one.id for one in fitting],
    )


def plan(store: Store, operation_id: str) -> _Begun:
    """Return the plan of an operation that was interrupted; see `resume`."""
    return _plan(find(store, operation_id))


def undo_plan(store: Store, operation_id: str) -> Plan:
    """Plan to undo an operation; nothing is written."""
    begun = plan(store, operation_id)
    if isinstance(begun, ForkPlan):
        return fork.undo_plan(begun)
    if isinstance(begun, AppendingPlan):
        append.refuse_undo(begun)
    if isinstance(begun, PipelineForkPlan):
        return pipeline_fork.undo_plan(begun)
    if isinstance(begun, JointPlan):
        return rollback_plan.undo_begun_plan(store, begun)
    changed = list(begun.outputs)
    if isinstance(begun, PromotionPlan):
        changed += [one.live for one in begun.taken]
    if isinstance(begun, MergingPlan | CascadePlan):
        changed += [one.live for one in begun.corrections]
    outputs = [
        Step(f"output_{one.output.name}", f"restore {one.output.uri} to version {one.newest}")
        for one in changed
    ]
    removed = Step("checkpoint", f"remove {begun.checkpoint} if the operation wrote it")
    return Plan("undo", begun.query, (*outputs, removed), ("the safety savepoint is kept",))


def resume(store: Store, operation_id: str, *, progress: Progress = silent) -> _Done:
    """Finish an operation that was interrupted, following the plan that it began with."""
    begun = plan(store, operation_id)
    return _FINISH[type(begun)](begun, store, progress=progress)


def undo(store: Store, operation_id: str, *, progress: Progress = silent) -> Operation:
    """Take back what an interrupted operation has done so far."""
    operation = find(store, operation_id)
    begun = _plan(operation)
    if isinstance(begun, ForkPlan):
        fork.undo(begun, store, progress=progress)
    elif isinstance(begun, AppendingPlan):
        append.refuse_undo(begun)
    elif isinstance(begun, PromotionPlan):
        promote.undo(begun, store, progress=progress)
    elif isinstance(begun, MergingPlan):
        merge.undo(begun, store, progress=progress)
    elif isinstance(begun, CascadePlan):
        cascade.undo(begun, store, progress=progress)
    elif isinstance(begun, PipelineForkPlan):
        pipeline_fork.undo(begun, store, progress=progress)
    elif isinstance(begun, JointPlan):
        pipeline_rollback.undo(begun, store, progress=progress)
    else:
        generation_change.undo(begun, store, progress=progress)
    return find(store, operation.id)


def undo_together_plan(
    store: Store, last: Operation, *, stopped: bool = False
) -> PipelineRollbackPlan | None:
    """Plan to take a finished operation on several queries back; None for one on one query.

    Args:
        last: The last operation on one of the queries.
        stopped: Somebody has made sure that no driver runs the queries.

    Raises:
        NotFoundError: If something else was done to one of the queries since.
        UsageError: If it was an undo.
    """
    kind = _PLANS[last.verb]
    if not issubclass(kind, JointPlan):
        return None
    return rollback_plan.undo_plan(store, last, kind.from_json(last.plan), stopped=stopped)


def _plan(operation: Operation) -> _Begun:
    if operation.finished_at is not None:
        what = "undone" if operation.undone else "finished"
        raise UsageError(
            f"{operation.verb} {operation.id} was {what} at {operation.finished_at}",
            hint=f"list later operations: savepoints operations list --query {operation.query}",
            operation=operation.id,
        )
    if operation.verb not in _PLANS:
        raise IncompatibleError(
            f"this version cannot finish a {operation.verb}",
            hint=f"use the version that began the operation: {operation.command}",
            operation=operation.id,
        )
    return _PLANS[operation.verb].from_json(dict(operation.plan))
