"""`rollback`: take state, offsets and outputs back to an earlier point, as one plan.

The point is a savepoint, a batch that Spark retains, or a time: then the query is run on from the
savepoint before it, by planned batches, to the very offsets of that time. See
`savepoints.operations.transition` for the steps and `savepoints.operations.goal` for the points.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from savepoints.checkpoint.layout import committed_batches
from savepoints.config import Settings
from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.model import Form, kafka_position, new_id, utc_now
from savepoints.operations import advance, create, goal, restore, transition
from savepoints.operations.goal import Goal, Named, Point
from savepoints.operations.plan import Progress, Step, silent
from savepoints.operations.recorded import recorded
from savepoints.operations.transition import Moved, TransitionPlan, Work, Written
from savepoints.outputs import rewind
from savepoints.outputs.rewind import Rewind
from savepoints.outputs.write import owner_prefix
from savepoints.sources import kafka
from savepoints.store.root import Store

VERB = "rollback"


@dataclass(frozen=True)
class RollbackPlan(TransitionPlan):
    """What `rollback` is going to do.

    Attributes:
        form: From which form the state is restored.
        batch_id: The batch of the savepoint; the query goes on with the one after it, or runs on to
            `ends` first.
        takes: The savepoint does not exist yet: it is taken of the retained batch first.
        ends: Where the topics are to be at the end, as Spark's JSON; None to stay at the savepoint.
        application: What runs the query on to `ends`, None without.
    """

    form: Form = "native"
    batch_id: int = -1
    takes: bool = False
    ends: str | None = None
    application: str | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RollbackPlan:
        """Read a plan from the journal, to go on with it."""
        return transition.from_json(cls, data)


@dataclass(frozen=True)
class RolledBack(Moved):
    """What a rollback did.

    Attributes:
        batch_id: The query goes on with the batch after this one.
    """

    batch_id: int


def plan(
    store: Store,
    point: str | Point,
    *,
    query: str | None = None,
    settings: Settings | None = None,
    to: str | None = None,
    form: Form | None = None,
    app: str | None = None,
    rewind_outputs: bool = True,
    check_source: bool = True,
    save_present: bool = True,
) -> RollbackPlan:
    """Find out what a rollback would do and refuse what it could not do exactly; writes nothing.

    An interrupted rollback of the same query to the same point is taken up again: its own plan is
    returned.

    Args:
        store: Where the savepoint is.
        point: Where to; a text is the name of a savepoint.
        query: Only savepoints of this query.
        settings: Where Kafka is and where the query's checkpoints lie.
        to: Checkpoint directory of the new generation, for a query that is not in the settings.
        form: Which form to restore the state from.
        app: What runs the query on to a point in time, if not the one in the settings.
        rewind_outputs: Whether the outputs go back too; without, they keep rows that the rolled
            back batches wrote.
        check_source: Whether to ask Kafka if it still has the records to go on with.
        save_present: Whether to take a safety savepoint; without, the rollback cannot be undone.
            For a present that is damaged.

    Raises:
        QueryRunningError: If the query runs.
        LockedError: If another verb has the query.
        UnfinishedOperationError: If another operation on the query was interrupted.
        SourceDataGoneError: If Kafka no longer has the records.
        NotAlignedError: If an output cannot be taken back without loss.
    """
    settings = settings or Settings()
    found = goal.find(
        store, Named(point) if isinstance(point, str) else point, query=query, settings=settings
    )
    command = " ".join(["savepoints rollback", *found.words, "--yes"])
    if (known := transition.begun(store, found.query, VERB, command)) is not None:
        resumed = RollbackPlan.from_json(known)
        return resumed if rewind_outputs else replace(resumed, outputs=())
    current = store.generations.current(found.query)
    if check_source:
        kafka.require_available(found.offsets, settings.kafka, topics=found.topics)
    number = store.generations.next_number(found.query)
    target = to or transition.next_checkpoint(settings, found.query, number)
    chosen, target = _restoring(store, found, target, form)
    bound = settings.queries.get(found.query)
    application = app or (bound.app if bound else None)
    if found.ends is not None:
        advance.require_possible(found.query, settings, application, rewind_outputs=rewind_outputs)
    own_rows = bound.own_rows if bound else {}
    spark_ids = transition.spark_ids(store, found.query)
    outputs = tuple(
        rewind.plan(
            output,
            owner_prefix(found.query),
            transition.next_app_id(output, found.query, found.generation, number),
            own_rows=own_rows.get(output.name),
            own_ids=spark_ids,
        )
        for output in (found.outputs if rewind_outputs else ())
    )
    kept = [
        note
        for output in (() if rewind_outputs else found.outputs)
        for note in rewind.kept(
            output, transition.next_app_id(output, found.query, found.generation, number)
        )
    ]
    from_batch = transition.present(current)
    safety_id = None
    if from_batch is not None and save_present:
        safety_id = new_id("sp", utc_now())
    return RollbackPlan(
        verb=VERB,
        query=found.query,
        steps=(
            *transition.safety_step(safety_id, current.checkpoint, from_batch),
            *_steps(found, chosen, target, number, outputs),
        ),
        warnings=(
            *_warnings(outputs, current.checkpoint, from_batch, save_present=save_present),
            *kept,
        ),
        command=command,
        operation_id=new_id("op", utc_now()),
        savepoint_id=found.savepoint_id,
        safety_id=safety_id,
        from_checkpoint=current.checkpoint,
        from_batch=from_batch,
        generation=number,
        checkpoint=target,
        outputs=outputs,
        form=chosen,
        batch_id=found.batch_id,
        takes=not found.is_saved,
        ends=None if found.ends is None else kafka_position(found.ends),
        application=application if found.ends is not None else None,
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
        SavepointsError: If the query fails while it is run on.
    """
    settings = settings or Settings()

    def save_batch() -> None:
        progress(f"saving batch {plan.batch_id} as {plan.savepoint_id}")
        saving = create.plan(
            store,
            query=plan.query,
            checkpoint=plan.from_checkpoint,
            settings=settings,
            batch_id=plan.batch_id,
            forms=("native",),
            description=f"for: {plan.command}",
            savepoint_id=plan.savepoint_id,
        )
        create.execute(saving, store, settings=settings)

    def write() -> Written:
        assert plan.savepoint_id is not None
        restoring = restore.plan(
            store, plan.savepoint_id, plan.checkpoint, form=plan.form, owner=plan.operation_id
        )
        done = restore.execute(restoring, store, settings=settings, progress=progress)
        return Written(done.seconds, done.bytes_written)

    def run_on() -> None:
        assert plan.ends is not None
        assert plan.application is not None
        advance.to(
            plan.ends,
            query=plan.query,
            app=plan.application,
            settings=settings,
            generation=plan.generation,
            checkpoint=Location.of(plan.checkpoint),
            store=store,
            progress=progress,
        )

    work = Work(
        write,
        prepare=save_batch if plan.takes else None,
        advance=run_on if plan.ends is not None else None,
    )
    moved = transition.execute(plan, store, work, settings=settings, progress=progress)
    reached = committed_batches(Location.of(plan.checkpoint).list())[-1]
    return RolledBack(**vars(moved), batch_id=reached)


def _restoring(store: Store, found: Goal, target: str, form: Form | None) -> tuple[Form, str]:
    """Return the form to restore and the directory, having refused what cannot be restored."""
    if found.is_saved:
        restoring = restore.plan(store, found.savepoint_id, target, form=form)
        return restoring.form, restoring.target
    if form == "canonical":
        raise UsageError(
            f"batch {found.batch_id} is not saved yet, and is saved natively",
            hint="leave --format out",
        )
    return "native", str(Location.of(target))


def _steps(
    found: Goal, form: Form, target: str, number: int, outputs: tuple[Rewind, ...]
) -> list[Step]:
    name, batch = found.savepoint_id, found.batch_id
    steps = []
    if not found.is_saved:
        steps.append(Step("batch_saved", f"save the retained batch {batch}: {name}"))
    steps.append(Step("checkpoint_written", f"restore {name} (batch {batch}, {form}) to {target}"))
    steps += transition.output_steps(outputs)
    if found.ends is not None:
        steps.append(
            Step("advanced", f"run on from batch {batch} to exactly {kafka_position(found.ends)}")
        )
    steps.append(Step("generation_begun", f"begin generation {number} of {found.query}"))
    return steps


def _warnings(
    outputs: tuple[Rewind, ...],
    checkpoint: str,
    from_batch: int | None,
    *,
    save_present: bool,
) -> list[str]:
    warnings = []
    if from_batch is None:
        warnings.append(f"{checkpoint} has no committed batch: no safety savepoint")
    elif not save_present:
        warnings.append("no safety savepoint is taken: this cannot be undone")
    return warnings + [note for one in outputs for note in rewind.notes(one)]
