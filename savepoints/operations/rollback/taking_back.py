"""Taking back an operation that was killed before its generation began."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from savepoints import faults
from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.observe.recorder import recording
from savepoints.operations.rollback import journalled, last_operation, safety_savepoint
from savepoints.operations.rollback.generation_change import (
    GenerationPlan,
    TransitionPlan,
    is_rewound,
    written_behind,
)
from savepoints.operations.rollback.journalled import JournalledPlan
from savepoints.outputs.rewind import rewind
from savepoints.outputs.rewind.planned_rewind import Rewind
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.store import batch_log, bindings, checked_programs
from savepoints.store.locks import journal, lease
from savepoints.store.root import Store
from savepoints.store.savepoint import native
from savepoints.store.tables.generations import begun


def undo_plan(plan: GenerationPlan, outputs: Iterable[Step] = ()) -> Plan:
    """Say what `take_back` would do, besides what is done to the outputs."""
    made = f"delete the checkpoint {plan.checkpoint} if this operation made it"
    return Plan("undo", plan.query, (*outputs, Step("checkpoint", made)), ())


def undo(
    plan: TransitionPlan,
    store: Store,
    *,
    also: Callable[[], None] = lambda: None,
    changed: Callable[[], Iterable[Rewind]] = lambda: (),
    progress: Progress = silent,
) -> None:
    """Take back the steps of an operation that was interrupted; the safety savepoint stays.

    Args:
        also: Takes back what the verb's own last step may have done; `changed` are its tables.
    """
    spark = rewind.session_for(plan.outputs, store.settings)

    def refuse() -> None:
        rewound = [one for one in plan.outputs if rewind.is_done(one, plan.operation_id)]
        rewind.require_undoable((*rewound, *changed()), plan.operation_id)

    def give_back(check: Callable[[], None]) -> None:
        newest = safety_savepoint.newest_batch(plan.from_checkpoint)
        if newest != plan.from_batch and is_rewound(plan):
            raise written_behind(plan, newest)
        also()
        for one in plan.outputs:
            check()
            progress(f"restoring the output {one.output.uri} to version {one.newest}")
            rewind.undo(one, plan.operation_id, spark)

    take_back(plan, store, give_back, progress, refuse)


def refuse_begun(whole: JournalledPlan, parts: Sequence[GenerationPlan], store: Store) -> None:
    """Refuse to take back an operation of which a generation has begun: that is only finished.

    Args:
        parts: What it does to each query.
    """
    known = begun(store.generations.all())
    for one in parts:
        if (one.query, one.generation, one.checkpoint) in known:
            raise UsageError(
                f"generation {one.generation} of {one.query} has already begun, so the "
                f"{whole.verb} operation can only be finished",
                hint=f"finish the operation (savepoints operations resume {whole.operation_id})"
                + _way_back(whole, parts),
                operation=whole.operation_id,
            )


def _way_back(whole: JournalledPlan, parts: Sequence[GenerationPlan]) -> str:
    """Say how an operation is taken back once it is finished."""
    if not journal.is_undo(whole.to_json()):
        return last_operation.way_back(whole.verb, whole.query)
    # No undo can be undone.
    saved = next(
        (
            one.safety_id
            for one in parts
            if isinstance(one, TransitionPlan) and one.query == whole.query
        ),
        None,
    )
    if saved is None:
        return ""
    words = ["savepoints", whole.verb, *([whole.query] if whole not in parts else []), saved]
    return f", then go back to what it has saved: {' '.join(words)}"


def take_back(
    plan: GenerationPlan,
    store: Store,
    give_back: Callable[[Callable[[], None]], None],
    progress: Progress,
    refuse: Callable[[], None] = lambda: None,
) -> None:
    """Undo an operation that has not begun its generation; killed, it is run again.

    Once begun it cannot be changed into finishing the operation.

    Args:
        give_back: Takes the outputs back; what it is given raises when the lease was lost.
        refuse: Raises when that cannot be done; asked before the undo counts as begun.
    """
    with (
        lease.hold(store.root, plan.query, plan.verb) as held,
        recording(
            store,
            "undo",
            query=plan.query,
            savepoint=plan.savepoint_id,
            operation=plan.operation_id,
        ),
    ):
        log = journalled.reopen(plan, store)
        refuse_begun(plan, (plan,), store)
        if not log.is_done(journal.UNDOING):
            refuse()
        # From here on nothing that was done counts any more: it can only be undone to its end, in
        # reverse order. What others have written stops it; the same command does the rest later.
        log.record(journal.UNDOING)
        give_back(held.check)
        faults.reach(f"{plan.verb}.undo_outputs")
        held.check()
        discard(plan, store, progress)
        faults.reach(f"{plan.verb}.undo_checkpoint")
        log.finish(undone=True)


def discard(plan: GenerationPlan, store: Store, progress: Progress) -> None:
    """Remove what an operation has left of a generation that did not begin.

    The next one has its number, and may be of another program.
    """
    progress(f"deleting the checkpoint {plan.checkpoint} if this operation made it")
    native.discard(Location.of(plan.checkpoint), plan.operation_id)
    bindings.write(store.root, plan.query, plan.generation, None)
    batch_log.forget(store.root, plan.query, plan.generation)
    checked_programs.forget(store.root, plan.query, plan.generation)
