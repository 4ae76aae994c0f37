"""`operations`: what verbs with several steps have done, and finishing or undoing one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from savepoints.errors import IncompatibleError, NotFoundError, UsageError
from savepoints.operations.begin import bootstrap, seed, seed_plan
from savepoints.operations.begin.bootstrap import Bootstrapped, BootstrapPlan
from savepoints.operations.begin.seed import Seeded
from savepoints.operations.begin.seed_plan import SeedPlan
from savepoints.operations.cascade import carry_out as cascade
from savepoints.operations.cascade import cascade_plan
from savepoints.operations.cascade.cascade_plan import CascadePlan
from savepoints.operations.fork import fork, fork_plan, promote, promote_steps
from savepoints.operations.fork.fork import Forked
from savepoints.operations.fork.fork_plan import ForkPlan
from savepoints.operations.fork.promote_steps import PromotionPlan
from savepoints.operations.merge import append, merge
from savepoints.operations.merge import plan as merge_plan
from savepoints.operations.merge.append import Appended
from savepoints.operations.merge.plan import AppendingPlan, MergingPlan, SplicePlan
from savepoints.operations.pipeline.joint_plan import JointPlan
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
from savepoints.operations.pipeline_rollback import pipeline_rollback, rollback_plan
from savepoints.operations.pipeline_rollback.pipeline_rollback import PipelineRolledBack
from savepoints.operations.pipeline_rollback.rollback_plan import PipelineRollbackPlan
from savepoints.operations.rollback import reset, rollback, taking_back
from savepoints.operations.rollback.generation_change import GenerationPlan, Moved, TransitionPlan
from savepoints.operations.rollback.journalled import JournalledPlan
from savepoints.operations.rollback.reset import ResetPlan
from savepoints.operations.rollback.rollback import RollbackPlan
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store

# What is told of an operation that was finished.
Done: TypeAlias = (
    Moved
    | Forked
    | Appended
    | PipelineRolledBack
    | PipelineForked
    | PipelinePromoted
    | Seeded
    | Bootstrapped
)


class _Verb(NamedTuple):
    """What an operation of a verb is read as from the journal, and what ends it."""

    plan: type[JournalledPlan]
    finish: Callable[..., Done]
    undo: Callable[..., None]


def _undo_merge(plan: MergingPlan, store: Store, *, progress: Progress) -> None:
    cascade.refuse_undo_of_followed(plan.operation_id, store)
    merge.undo(plan, store, progress=progress)


_VERBS = {
    bootstrap.VERB: _Verb(BootstrapPlan, bootstrap.execute, bootstrap.undo),
    seed_plan.VERB: _Verb(SeedPlan, seed.execute, seed.undo),
    cascade_plan.VERB: _Verb(CascadePlan, cascade.finish, cascade.undo),
    fork_plan.VERB: _Verb(ForkPlan, fork.execute, fork.undo),
    merge_plan.APPEND: _Verb(
        AppendingPlan, append.finish, lambda plan, *_, **__: append.refuse_undo(plan)
    ),
    merge_plan.VERB: _Verb(MergingPlan, merge.finish, _undo_merge),
    promote_steps.VERB: _Verb(PromotionPlan, promote.finish, promote.undo),
    reset.VERB: _Verb(ResetPlan, reset.execute, taking_back.undo),
    rollback.VERB: _Verb(RollbackPlan, rollback.execute, taking_back.undo),
    pipeline_fork_plan.VERB: _Verb(PipelineForkPlan, pipeline_fork.execute, pipeline_fork.undo),
    pipeline_promotion.VERB: _Verb(
        PipelinePromotionPlan, pipeline_promote.finish, pipeline_rollback.undo
    ),
    rollback_plan.VERB: _Verb(
        PipelineRollbackPlan, pipeline_rollback.execute, pipeline_rollback.undo
    ),
}


def find(store: Store, operation_id: str) -> Operation:
    """Return the one operation with this id, or with an id that begins so."""
    known = journal.all_operations(store.root)
    fitting = [one for one in known if one.id.startswith(operation_id)]
    if len(fitting) == 1:
        return fitting[0]
    raise NotFoundError(
        f"{operation_id!r} matches {len(fitting)} of {len(known)} operations, but must match "
        "exactly one",
        hint="copy the whole id from the list: savepoints operations list",
        operation=operation_id,
        candidates=[one.id for one in fitting],
    )


def plan(store: Store, operation_id: str) -> JournalledPlan:
    """Return the plan of an operation that was interrupted; see `resume`."""
    operation = find(store, operation_id)
    return _verb(operation).plan.from_json(operation.plan)


def undo_plan(store: Store, operation_id: str) -> Plan:
    """Plan to undo an operation; nothing is written."""
    begun = plan(store, operation_id)
    parts = begun.transitions if isinstance(begun, JointPlan) else (begun,)
    generations = [one for one in parts if isinstance(one, GenerationPlan)]
    taking_back.refuse_begun(begun, generations, store)
    _refuse_undo(begun, store)
    if isinstance(begun, ForkPlan):
        return fork.undo_plan(begun)
    if isinstance(begun, SeedPlan):
        return taking_back.undo_plan(begun)
    if isinstance(begun, BootstrapPlan):
        return bootstrap.undo_plan(begun)
    if isinstance(begun, PipelineForkPlan):
        return pipeline_fork.undo_plan(begun)
    if isinstance(begun, JointPlan):
        return rollback_plan.undo_begun_plan(store, begun)
    assert isinstance(begun, TransitionPlan)
    changed = list(begun.outputs)
    if isinstance(begun, PromotionPlan):
        changed += [one.live for one in begun.taken]
    if isinstance(begun, SplicePlan):
        changed += [one.live for one in begun.corrections]
    outputs = [
        Step(
            f"output_{one.output.name}",
            f"restore the output {one.output.uri} to version {one.newest}",
        )
        for one in changed
    ]
    removed = Step(
        "checkpoint", f"delete the checkpoint {begun.checkpoint} if the operation made it"
    )
    return Plan("undo", begun.query, (*outputs, removed), ("the safety savepoint is kept",))


def _refuse_undo(begun: JournalledPlan, store: Store) -> None:
    """Refuse what the undo of a verb refuses besides, so that no plan says that it could be."""
    if isinstance(begun, AppendingPlan):
        append.refuse_undo(begun)
    if isinstance(begun, PipelineForkPlan):
        pipeline_fork.refuse_undo(begun, store)
    if isinstance(begun, MergingPlan):
        cascade.refuse_undo_of_followed(begun.operation_id, store)
    if isinstance(begun, CascadePlan):
        cascade.refuse_undo(begun, store)


def resume(store: Store, operation_id: str, *, progress: Progress = silent) -> Done:
    """Finish an operation that was interrupted, following the plan that it began with."""
    operation = find(store, operation_id)
    verb = _verb(operation)
    return verb.finish(verb.plan.from_json(operation.plan), store, progress=progress)


def undo(store: Store, operation_id: str, *, progress: Progress = silent) -> Operation:
    """Take back what an interrupted operation has done so far."""
    operation = find(store, operation_id)
    verb = _verb(operation)
    verb.undo(verb.plan.from_json(operation.plan), store, progress=progress)
    return find(store, operation.id)


def undo_together_plan(
    store: Store, last: Operation, *, stopped: bool = False
) -> PipelineRollbackPlan | None:
    """Plan to take a finished operation on several queries back; None for one on one query.

    Args:
        last: The last operation on one of the queries.
        stopped: You have made sure that no driver runs the queries.

    Raises:
        NotFoundError: If something else was done to one of the queries since.
        UnfinishedOperationError: If one of the queries has not done its part yet.
        UsageError: If it was an undo.
    """
    kind = _VERBS[last.verb].plan
    if issubclass(kind, JointPlan):
        return rollback_plan.undo_plan(store, last, kind.from_json(last.plan), stopped=stopped)
    return rollback_plan.undo_merge_plan(store, last, stopped=stopped)


def _verb(operation: Operation) -> _Verb:
    """Return what an operation is of; refuse one that is over, or of a version to come."""
    if operation.finished_at is not None:
        what = "undone" if operation.undone else "finished"
        raise UsageError(
            f"the {operation.verb} operation {operation.id} has already been {what}, at "
            f"{operation.finished_at}",
            hint="list what was done to the query: savepoints operations list --query "
            f"{operation.query}",
            operation=operation.id,
        )
    if operation.verb not in _VERBS:
        raise IncompatibleError(
            f"this version of savepoints does not know the operation {operation.verb} and "
            "cannot finish it",
            hint=f"finish it with the version that began it: {operation.command}",
            operation=operation.id,
        )
    return _VERBS[operation.verb]
