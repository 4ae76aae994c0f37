"""`fork`: a savepoint becomes a new query, with a checkpoint and outputs of its own.

Nothing of the query that the savepoint is of is touched: the fork gets a restored checkpoint under
a new Spark id, tables with the rows that its outputs had at the savepoint, and a binding that says
so in the store. Offsets, state, watermark and batch ids stay as they are in the savepoint. Each
step is recorded in the journal, so that a fork that was killed goes on or is taken back.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from savepoints import faults
from savepoints.config.settings import Settings
from savepoints.errors import TargetExistsError, UnfinishedOperationError, UsageError
from savepoints.io import Location
from savepoints.model import rfc3339, utc_now
from savepoints.observe.recorder import recorded, recording
from savepoints.operations.fork.fork_plan import (
    VERB,
    ForkOptions,
    ForkPlan,
    ForksPlan,
    plan,
    plan_all,
    step_of,
    what_of,
)
from savepoints.operations.savepoint import restore
from savepoints.outputs.fork import isolated_copy
from savepoints.plan import (
    Plan,
    Progress,
    Step,
    silent,
)
from savepoints.store import bindings
from savepoints.store.locks import journal, lease
from savepoints.store.locks.journal import Journal, Operation
from savepoints.store.root import Store
from savepoints.store.savepoint import native

__all__ = [
    "VERB",
    "ForkOptions",
    "ForkPlan",
    "Forked",
    "ForksPlan",
    "execute",
    "execute_all",
    "plan",
    "plan_all",
    "undo",
    "undo_plan",
]


@dataclass(frozen=True)
class Forked:
    """What a fork did.

    Attributes:
        operation_id: Its name in the journal.
        query: The new query.
        savepoint_id: What it begins from.
        origin: The query that the savepoint is of.
        query_id: Spark's id of the new query.
        generation: Its first generation.
        checkpoint: The directory of that.
        batch_id: It goes on with the batch after this one.
        outputs: Table of each output that was made.
        seconds: How long it took.
        bytes_written: Bytes of checkpoint and tables; what is only referred to is not counted.
        already_forked: The same fork was there before; nothing was done.
    """

    operation_id: str
    query: str
    savepoint_id: str
    origin: str
    query_id: str
    generation: int
    checkpoint: str
    batch_id: int
    outputs: dict[str, str]
    seconds: float
    bytes_written: int
    already_forked: bool = False


def execute_all(
    plan: ForksPlan,
    store: Store,
    *,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> tuple[Forked, ...]:
    """Make each fork; those that are there when a later one fails stay. See `execute`."""
    return tuple(execute(one, store, settings=settings, progress=progress) for one in plan.forks)


@recorded
def execute(
    plan: ForkPlan,
    store: Store,
    *,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Forked:
    """Make the fork, holding the lease of its name; goes on where an earlier attempt was killed.

    Raises:
        LockedError: If another verb has the name.
        TargetExistsError: If the query, or something in one of its places, came to be meanwhile.
        UnfinishedOperationError: If another operation was begun since the plan.
    """
    if plan.finished:
        return _forked(plan, seconds=0.0, written=0, already=True)
    started = time.monotonic()
    with lease.hold(store.root, plan.query, VERB) as held:
        log = _open_journal(plan, store)
        # From before it is read until the generation says that it is needed.
        with store.using(plan.savepoint_id, VERB):
            if not log.is_done("checkpoint_written"):
                progress(f"restoring {plan.savepoint_id} to {plan.checkpoint}")
                restoring = restore.plan(
                    store,
                    plan.savepoint_id,
                    plan.checkpoint,
                    form=plan.form,
                    query_id=plan.query_id,
                    owner=plan.operation_id,
                    asked=False,  # The plan has refused it, or was asked not to.
                )
                done = restore.execute(restoring, store, settings=settings, progress=progress)
                log.record("checkpoint_written", seconds=done.seconds, bytes=done.bytes_written)
            facts = log.operation.done["checkpoint_written"]
            for one in plan.outputs:
                held.check()
                if not log.is_done(step_of(one)):
                    progress(what_of(one))
                    isolated_copy.execute(one, plan.operation_id, held.check)
                    log.record(step_of(one), table=one.uri)
            held.check()
            bindings.write(store.root, plan.query, plan.generation, plan.binding)
            store.generations.begin(
                plan.query,
                plan.generation,
                Location.of(plan.checkpoint),
                by=VERB,
                begun_from=plan.savepoint_id,
                restore_seconds=facts["seconds"],
                restored_bytes=facts["bytes"],
            )
            log.record("generation_begun", generation=plan.generation)
            log.finish()
    copied = sum(one.bytes for one in plan.outputs if one.way == "copy")
    return _forked(plan, seconds=time.monotonic() - started, written=int(facts["bytes"]) + copied)


def undo_plan(plan: ForkPlan) -> Plan:
    """Say what taking an interrupted fork back would do."""
    removed = [
        Step(f"output_{one.output.name}", f"remove {one.uri} if the operation wrote it")
        for one in plan.outputs
    ]
    checkpoint = Step("checkpoint", f"remove {plan.checkpoint} if the operation wrote it")
    return Plan("undo", plan.query, (*removed, checkpoint), ())


def undo(plan: ForkPlan, store: Store, *, progress: Progress = silent) -> None:
    """Remove what an interrupted fork has made, and nothing else; killed, it is run again.

    Raises:
        UsageError: If its generation has begun, so that only a formality is left to do.
        NotAlignedError: If somebody has written to one of its tables.
    """
    with (
        lease.hold(store.root, plan.query, VERB) as held,
        recording(
            store,
            "undo",
            query=plan.query,
            savepoint=plan.savepoint_id,
            operation=plan.operation_id,
        ),
    ):
        log = _open_journal(plan, store, undoing=True)
        if store.generations.all(plan.query):
            raise UsageError(
                f"generation {plan.generation} of {plan.query} has begun already",
                hint=f"finish the fork: savepoints operations resume {plan.operation_id}",
                operation=plan.operation_id,
            )
        # From here on nothing that was done counts any more, so it can only be undone to its end.
        log.record(journal.UNDOING)
        for one in plan.outputs:
            held.check()
            progress(f"removing {one.uri} if this fork wrote it")
            isolated_copy.undo(one, plan.operation_id)
        faults.reach(f"{VERB}.undo_outputs")
        held.check()
        progress(f"removing {plan.checkpoint} if this fork wrote it")
        native.discard(Location.of(plan.checkpoint), plan.operation_id)
        bindings.write(store.root, plan.query, plan.generation, None)
        faults.reach(f"{VERB}.undo_checkpoint")
        log.finish(undone=True)


def _open_journal(plan: ForkPlan, store: Store, *, undoing: bool = False) -> Journal:
    unfinished = journal.unfinished(store.root, plan.query)
    if unfinished is None:
        if plan.resumed:
            raise UnfinishedOperationError(
                f"{VERB} {plan.operation_id} was finished by another process meanwhile",
                hint="see the result: savepoints lineage",
                operation=plan.operation_id,
            )
        if store.generations.all(plan.query):
            raise TargetExistsError(
                f"the query {plan.query} came to be since the plan was made",
                hint="give the fork another name",
                query=plan.query,
            )
        operation = Operation(
            plan.operation_id,
            VERB,
            plan.query,
            plan.to_json(),
            plan.command,
            begun_at=rfc3339(utc_now()),
        )
        return Journal.begin(store.root, operation)
    is_same = unfinished.id == plan.operation_id
    if not is_same or (journal.UNDOING in unfinished.done and not undoing):
        raise journal.refusal(unfinished)
    return Journal(store.root, unfinished)


def _forked(plan: ForkPlan, *, seconds: float, written: int, already: bool = False) -> Forked:
    return Forked(
        plan.operation_id,
        plan.query,
        plan.savepoint_id,
        plan.origin,
        plan.query_id,
        plan.generation,
        plan.checkpoint,
        plan.batch_id,
        {one.output.name: one.uri for one in plan.outputs},
        seconds,
        written,
        already,
    )
