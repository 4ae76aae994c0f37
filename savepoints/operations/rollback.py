"""`rollback`: take state, offsets and outputs back to a savepoint, as one plan.

The live checkpoint is never edited: a new generation begins from the savepoint. First a safety
savepoint of the present is taken. Each step is recorded in the journal, so that a rollback that was
killed anywhere goes on when it is run again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from savepoints import faults
from savepoints.checkpoint.layout import committed_batches
from savepoints.config import Settings
from savepoints.errors import (
    QueryRunningError,
    UnfinishedOperationError,
    UsageError,
)
from savepoints.io import Location
from savepoints.model import Form, OutputVersion, Savepoint, new_id, rfc3339, utc_now
from savepoints.operations import create, restore
from savepoints.operations.plan import Plan, Progress, Step, silent
from savepoints.operations.recorded import recorded, recording
from savepoints.outputs import rewind
from savepoints.outputs.rewind import Rewind
from savepoints.outputs.write import app_id, owner_prefix
from savepoints.sources import kafka
from savepoints.store import journal, lease, native
from savepoints.store.journal import Journal, Operation
from savepoints.store.root import Store


@dataclass(frozen=True)
class RollbackPlan(Plan):
    """What `rollback` is going to do.

    Attributes:
        operation_id: Its name in the journal and in the outputs' commits.
        savepoint_id: What the query goes back to.
        safety_id: Id of the savepoint that is taken of the present first; None when the present has
            no committed batch to save.
        from_checkpoint: Where the query lives now.
        generation: Number of the generation that begins.
        checkpoint: Its directory.
        form: From which form the state is restored.
        batch_id: The query goes on with the batch after this one.
        from_batch: The newest committed batch now; None when there is none.
        outputs: What is done to each output.
        resumed: The plan was begun before and goes on.
    """

    operation_id: str
    savepoint_id: str
    safety_id: str | None
    from_checkpoint: str
    generation: int
    checkpoint: str
    form: Form
    batch_id: int
    from_batch: int | None
    outputs: tuple[Rewind, ...]
    resumed: bool = False

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RollbackPlan:
        """Read a plan from the journal, to go on with it."""
        outputs = tuple(
            Rewind(**{**one, "output": OutputVersion(**one["output"])}) for one in data["outputs"]
        )
        steps = tuple(Step(**one) for one in data["steps"])
        known = {"steps": steps, "warnings": tuple(data["warnings"]), "outputs": outputs}
        return cls(**{**data, **known, "resumed": True})


@dataclass(frozen=True)
class RolledBack:
    """What a rollback did.

    Attributes:
        operation_id: Its name in the journal.
        query: The query.
        savepoint_id: What it went back to.
        safety_id: The savepoint of what was before, None when there was nothing to save.
        generation: The generation that has begun.
        checkpoint: Its directory.
        batch_id: The query goes on with the batch after this one.
        outputs: New table version of each output.
        seconds: How long it took.
        bytes_written: Bytes of the new checkpoint.
    """

    operation_id: str
    query: str
    savepoint_id: str
    safety_id: str | None
    generation: int
    checkpoint: str
    batch_id: int
    outputs: dict[str, int]
    seconds: float
    bytes_written: int


def plan(
    store: Store,
    name: str,
    *,
    query: str | None = None,
    settings: Settings | None = None,
    to: str | None = None,
    form: Form | None = None,
    rewind_outputs: bool = True,
    check_source: bool = True,
) -> RollbackPlan:
    """Find out what a rollback would do and refuse what it could not do exactly; writes nothing.

    An interrupted rollback of the same query to the same savepoint is taken up again: its own plan
    is returned.

    Args:
        store: Where the savepoint is.
        name: Id, prefix, tag, `latest`, `latest~2` or `@TIME`.
        query: Only savepoints of this query.
        settings: Where Kafka is and where the query's checkpoints lie.
        to: Checkpoint directory of the new generation, for a query that is not in the settings.
        form: Which form to restore the state from.
        rewind_outputs: Whether the outputs go back too; without, they keep rows that the rolled
            back batches wrote.
        check_source: Whether to ask Kafka if it still has the records to go on with.

    Raises:
        QueryRunningError: If the query runs.
        LockedError: If another verb has the query.
        UnfinishedOperationError: If another operation on the query was interrupted.
        SourceDataGoneError: If Kafka no longer has the records.
        NotAlignedError: If an output cannot be taken back without loss.
    """
    settings = settings or Settings()
    savepoint = store.catalog.find(name, query=query)
    lease.refuse_held(store.root, savepoint.query)
    begun = journal.unfinished(store.root, savepoint.query)
    if begun is not None:
        if begun.verb == "rollback" and begun.plan["savepoint_id"] == savepoint.id:
            resumed = RollbackPlan.from_json(dict(begun.plan))
            return resumed if rewind_outputs else replace(resumed, outputs=())
        raise journal.refusal(begun)
    current = store.generations.current(savepoint.query)
    if check_source:
        kafka.require_available(savepoint.cut.offsets, settings.kafka)
    number = store.generations.next_number(savepoint.query)
    target = to or _next_checkpoint(settings, savepoint.query, number)
    restoring = restore.plan(store, savepoint.id, target, form=form)
    outputs = [
        rewind.plan(output, owner_prefix(savepoint.query), _next_app_id(output, savepoint, number))
        for output in (savepoint.outputs if rewind_outputs else ())
    ]
    from_batch, safety_id = _present(current.checkpoint), new_id("sp", utc_now())
    warnings = []
    steps = []
    if from_batch is None:
        warnings.append(f"{current.checkpoint} has no committed batch: no safety savepoint")
    else:
        steps.append(Step("safety_savepoint", f"save the present, batch {from_batch}: {safety_id}"))
    steps.append(
        Step(
            "checkpoint_restored",
            f"restore {savepoint.id} (batch {savepoint.cut.batch_id}, {restoring.form}) "
            f"to {restoring.target}",
        )
    )
    steps += [
        Step(
            f"output_{one.output.name}_rewound",
            f"take {one.output.uri} from version {one.newest} back to the rows and transaction "
            f"ids of version {one.output.version}, in one commit",
        )
        for one in outputs
    ]
    steps.append(Step("generation_begun", f"begin generation {number} of {savepoint.query}"))
    if outputs:
        warnings.append("streaming readers of the outputs will see the rewind as changed data")
    elif savepoint.outputs:
        warnings.append("the outputs keep what was written after the savepoint: rows may double")
    return RollbackPlan(
        verb="rollback",
        query=savepoint.query,
        steps=tuple(steps),
        warnings=tuple(warnings),
        operation_id=new_id("op", utc_now()),
        savepoint_id=savepoint.id,
        safety_id=None if from_batch is None else safety_id,
        from_checkpoint=current.checkpoint,
        generation=number,
        checkpoint=restoring.target,
        form=restoring.form,
        batch_id=savepoint.cut.batch_id,
        from_batch=from_batch,
        outputs=tuple(outputs),
    )


@recorded
def execute(
    plan: RollbackPlan,
    store: Store,
    *,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> RolledBack:
    """Roll back, holding the query's lease; goes on where an earlier attempt was killed.

    Raises:
        QueryRunningError: If the query runs, or its checkpoint changed since the plan.
        LockedError: If another verb has the query.
        UnfinishedOperationError: If another operation was begun since the plan.
    """
    begun = time.monotonic()
    with (
        lease.hold(store.root, plan.query, "rollback") as held,
        # From before the journal says that it is needed until the generation does.
        store.using(plan.savepoint_id, "rollback"),
    ):
        log = _open_journal(plan, store)

        if plan.safety_id is not None and not log.is_done("safety_savepoint"):
            progress(f"taking the safety savepoint {plan.safety_id}")
            _save_present(plan, store, settings)
            log.record("safety_savepoint", savepoint=plan.safety_id)

        held.check()
        if not log.is_done("checkpoint_restored"):
            restored = restore.execute(
                restore.plan(
                    store,
                    plan.savepoint_id,
                    plan.checkpoint,
                    form=plan.form,
                    owner=plan.operation_id,
                ),
                store,
                settings=settings,
                progress=progress,
            )
            log.record(
                "checkpoint_restored",
                checkpoint=plan.checkpoint,
                seconds=restored.seconds,
                bytes=restored.bytes_written,
            )
        restored_facts = log.operation.done["checkpoint_restored"]

        versions = {}
        for one in plan.outputs:
            held.check()
            progress(f"rewinding {one.output.uri} to version {one.output.version}")
            versions[one.output.name] = rewind.execute(one, plan.operation_id)
            log.record(f"output_{one.output.name}_rewound", version=versions[one.output.name])

        held.check()
        store.generations.begin(
            plan.query,
            plan.generation,
            Location.of(plan.checkpoint),
            by="rollback",
            begun_from=plan.savepoint_id,
            restore_seconds=restored_facts["seconds"],
            restored_bytes=restored_facts["bytes"],
        )
        log.record("generation_begun", generation=plan.generation)
        log.finish()
    return RolledBack(
        plan.operation_id,
        plan.query,
        plan.savepoint_id,
        plan.safety_id,
        plan.generation,
        plan.checkpoint,
        plan.batch_id,
        versions,
        time.monotonic() - begun,
        int(restored_facts["bytes"]),
    )


def undo(plan: RollbackPlan, store: Store, *, progress: Progress = silent) -> None:
    """Take back the steps of a rollback that was interrupted; run again, it goes on.

    The safety savepoint stays.

    Raises:
        UsageError: If the new generation has begun, so that only a formality is left to do.
        NotAlignedError: If others have written to an output since.
    """
    with (
        lease.hold(store.root, plan.query, "rollback") as held,
        recording(
            store,
            "undo",
            query=plan.query,
            savepoint=plan.savepoint_id,
            operation=plan.operation_id,
        ),
    ):
        log = _open_journal(plan, store)
        if any(one.generation == plan.generation for one in store.generations.all(plan.query)):
            raise UsageError(
                f"generation {plan.generation} of {plan.query} has begun already",
                hint=f"finish the rollback: savepoints operations resume {plan.operation_id}",
                operation=plan.operation_id,
            )
        for one in plan.outputs:
            held.check()
            progress(f"bringing {one.output.uri} back to version {one.newest}")
            rewind.undo(one, plan.operation_id)
        faults.reach("rollback.undo_outputs")
        held.check()
        progress(f"removing {plan.checkpoint} if this rollback wrote it")
        native.discard(Location.of(plan.checkpoint), plan.operation_id)
        faults.reach("rollback.undo_checkpoint")
        log.finish(undone=True)


def _open_journal(plan: RollbackPlan, store: Store) -> Journal:
    unfinished = journal.unfinished(store.root, plan.query)
    if unfinished is None:
        if plan.resumed:
            raise UnfinishedOperationError(
                f"rollback {plan.operation_id} was finished by another process meanwhile",
                hint="see the result: savepoints list",
                operation=plan.operation_id,
            )
        if _present(plan.from_checkpoint) != plan.from_batch:
            raise QueryRunningError(
                f"{plan.from_checkpoint} changed since the plan was made: the query runs",
                hint="stop the query, then roll back again",
                query=plan.query,
            )
        for one in plan.outputs:
            rewind.refuse_foreign(one.output, one.newest, one.owner)
        command = f"savepoints rollback {plan.savepoint_id} --yes"
        operation = Operation(
            plan.operation_id,
            "rollback",
            plan.query,
            plan.to_json(),
            command,
            begun_at=rfc3339(utc_now()),
        )
        return Journal.begin(store.root, operation)
    if unfinished.id != plan.operation_id:
        raise journal.refusal(unfinished)
    return Journal(store.root, unfinished)


def _save_present(plan: RollbackPlan, store: Store, settings: Settings | None) -> Savepoint:
    saving = create.plan(
        store,
        query=plan.query,
        checkpoint=plan.from_checkpoint,
        settings=settings,
        batch_id=plan.from_batch,
        forms=("native",),
        outputs={one.output.name: one.output.uri for one in plan.outputs},
        description=f"before the rollback to {plan.savepoint_id}",
        savepoint_id=plan.safety_id,
    )
    return create.execute(saving, store, settings=settings)


def _present(checkpoint: str) -> int | None:
    """Return the newest committed batch of a checkpoint, None when there is none."""
    batches = committed_batches(Location.of(checkpoint).list())
    return batches[-1] if batches else None


def _next_checkpoint(settings: Settings, query: str, number: int) -> str:
    configured = settings.queries.get(query)
    if configured is None:
        raise UsageError(
            f"the query {query} is not in the settings, so where its new checkpoint goes is open",
            hint="give a directory that does not exist: --to s3://bucket/path",
            query=query,
        )
    return str(checkpoint_of(configured.checkpoints, query, number))


def checkpoint_of(root: str, query: str, generation: int) -> Location:
    """Return the checkpoint directory of a generation of a query that `run` manages."""
    return Location.of(root) / query / str(generation)


def _next_app_id(output: OutputVersion, savepoint: Savepoint, number: int) -> str:
    """Return the application id under which the next generation writes an output."""
    own = app_id(savepoint.query, output.name, savepoint.generation)
    if output.app_id == own:
        return app_id(savepoint.query, output.name, number)
    return output.app_id
