"""`fork`: a savepoint becomes a new query, with a checkpoint and outputs of its own.

Nothing of the query that the savepoint is of is touched: the fork gets a restored checkpoint under
a new Spark id, tables with the rows that its outputs had at the savepoint, and a binding that says
so in the store. Offsets, state, watermark and batch ids stay as they are in the savepoint. Each
step is recorded in the journal, so that a fork that was killed goes on or is taken back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from savepoints.errors import StalePlanError, TargetExistsError
from savepoints.observe.recorder import recorded
from savepoints.operations.fork import fork_plan
from savepoints.operations.fork.fork_plan import VERB, ForkPlan, ForksPlan, step_of, what_of
from savepoints.operations.migrate import migrate
from savepoints.operations.rollback import generation_change, journalled, taking_back
from savepoints.operations.rollback.generation_change import BegunGeneration, NewCheckpoint
from savepoints.operations.savepoint import restore_checks
from savepoints.outputs.fork import isolated_copy
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.store.locks import lease
from savepoints.store.locks.journal import Journal
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store


@dataclass(frozen=True, kw_only=True)
class Forked(BegunGeneration):
    """What a fork did.

    Attributes:
        savepoint_id: Id of the savepoint that the fork begins from.
        origin: Name of the query that the savepoint belongs to.
        query_id: Spark's id of the new query.
        batch_id: The batch that was restored; the fork continues with the next one.
        outputs: Table of each output that was made.
        bytes_written: Bytes of checkpoint and tables; what is only referred to is not counted.
        already_forked: The same fork was there before; nothing was done.
    """

    savepoint_id: str
    origin: str
    query_id: str
    batch_id: int
    outputs: dict[str, str]
    bytes_written: int
    already_forked: bool = False


def execute_all(
    plan: ForksPlan, store: Store, *, progress: Progress = silent
) -> tuple[Forked, ...]:
    """Make each fork; those that are there when a later one fails stay. See `execute`."""
    return tuple(execute(one, store, progress=progress) for one in plan.forks)


@recorded
def execute(plan: ForkPlan, store: Store, *, progress: Progress = silent) -> Forked:
    """Make the fork, holding the lease of its name; goes on where an earlier attempt was killed."""
    if plan.finished:
        return forked(plan, 0.0, 0)
    started = time.monotonic()

    with lease.hold(store.root, plan.query, VERB) as held:
        log = journalled.begin_or_resume(plan, store, lambda: refuse_taken(plan, store))
        with generation_change.new_generation(
            plan, store, partial(_write, plan, store, progress), log, held
        ):
            isolate_outputs(plan, log, held, progress)
            refuse_rolled_back(plan, store)
        log.finish()
    return forked(plan, time.monotonic() - started, bytes_written(plan, log))


def _write(plan: ForkPlan, store: Store, progress: Progress) -> NewCheckpoint:
    """Write the checkpoint, with the state as it was saved or converted for the program."""
    progress(f"restoring the savepoint {plan.savepoint_id} to {plan.checkpoint}")
    if plan.migration is None:
        return generation_change.restored(
            plan, store, form=plan.form, query_id=plan.query_id, progress=progress
        )
    app = plan.binding.settings().app
    restoring = fork_plan.plan_migration(
        store, plan.savepoint_id, plan.checkpoint, app, plan.migration,
        query_id=plan.query_id, operation_id=plan.operation_id, progress=progress,
    )  # fmt: skip
    if restoring.owner != plan.state:
        raise StalePlanError(
            f"{app} has changed since the plan for this fork was made",
            hint=f"undo the fork (savepoints operations undo {plan.operation_id}), then run "
            "savepoints fork again",
            query=plan.query,
        )
    done = migrate.execute(restoring, store, progress=progress)
    return NewCheckpoint(done.seconds, done.bytes_written)


def isolate_outputs(plan: ForkPlan, log: Journal, held: Lease, progress: Progress) -> None:
    """Make the tables of a fork, those that are recorded left out."""
    for one in plan.outputs:
        held.check()
        if not log.is_done(step_of(one)):
            progress(what_of(one))
            isolated_copy.execute(one, plan.operation_id, held.check)
            log.record(step_of(one), table=one.uri)


def remove_outputs(plan: ForkPlan, check: Callable[[], None], progress: Progress) -> None:
    """Remove the tables that an interrupted fork has made."""
    for one in plan.outputs:
        check()
        progress(f"deleting the table {one.uri} if this fork made it")
        isolated_copy.undo(one, plan.operation_id)


def bytes_written(plan: ForkPlan, log: Journal) -> int:
    """Return the bytes of checkpoint and tables that a fork has written."""
    copied = sum(one.bytes for one in plan.outputs if one.way == "copy")
    return int(log.operation.done["checkpoint_written"]["bytes"]) + copied


def undo_plan(plan: ForkPlan) -> Plan:
    """Say what taking an interrupted fork back would do."""
    removed = (
        Step(f"output_{one.output.name}", f"delete the table {one.uri} if this operation made it")
        for one in plan.outputs
    )
    return taking_back.undo_plan(plan, removed)


def undo(plan: ForkPlan, store: Store, *, progress: Progress = silent) -> None:
    """Remove what an interrupted fork has made, and nothing else; killed, it is run again."""

    def remove(check: Callable[[], None]) -> None:
        remove_outputs(plan, check, progress)

    taking_back.take_back(plan, store, remove, progress)


def refuse_taken(plan: ForkPlan, store: Store) -> None:
    """Refuse a name that was taken since the plan."""
    if store.generations.all(plan.query):
        raise TargetExistsError(
            f"a query named {plan.query} was created after the plan was made",
            hint="choose another name for the fork",
            query=plan.query,
        )


def refuse_rolled_back(plan: ForkPlan, store: Store) -> None:
    """Refuse to begin a fork when records of a topic were rolled back since its plan.

    A rollback looks for readers that it would leave behind before this one is there.

    Raises:
        UnfinishedOperationError: If they are being rolled back.
        StalePlanError: If they were, as the fork would read them without a word.
    """
    saved = store.manifest(plan.savepoint_id).savepoint
    restore_checks.refuse_rolling_back(store, saved)
    for note in restore_checks.topics_read_again(store, saved):
        if note not in plan.warnings:
            raise StalePlanError(
                f"since the plan for {plan.query} was made, something was rolled back: {note}",
                hint=f"undo this fork: savepoints operations undo {plan.operation_id}; then, if "
                f"you want it all the same: {plan.command}",
                query=plan.query,
                operation=plan.operation_id,
            )


def forked(plan: ForkPlan, seconds: float, written: int) -> Forked:
    """Say what a fork did."""
    return Forked(
        **generation_change.summary(plan, seconds),
        origin=plan.origin,
        query_id=plan.query_id,
        batch_id=plan.batch_id,
        outputs={one.output.name: one.uri for one in plan.outputs},
        bytes_written=written,
        already_forked=plan.finished,
    )
