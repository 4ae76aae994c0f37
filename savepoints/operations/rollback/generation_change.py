"""From one generation of a query to the next: what `rollback` and `reset` have in common.

A safety savepoint of the present is taken, a new checkpoint is written, the outputs are taken to
where they belong, and the new generation begins. The live checkpoint is never edited. Each step is
recorded in the journal, so that an operation that was killed anywhere goes on or is taken back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from savepoints.checkpoint import position
from savepoints.checkpoint.logs.source_positions import Starts
from savepoints.errors import (
    QueryRunningError,
    SavepointsError,
    StalePlanError,
    StateUnwrittenError,
    TargetExistsError,
    VerificationError,
)
from savepoints.io import Location
from savepoints.model import Form
from savepoints.operations.rollback import journalled, safety_savepoint
from savepoints.operations.rollback.journalled import JournalledPlan
from savepoints.operations.savepoint import create, plan_basis, restore
from savepoints.operations.savepoint.plan_basis import Basis
from savepoints.outputs.rewind import plan_text, rewind
from savepoints.outputs.rewind.planned_rewind import Rewind
from savepoints.plan import Progress, silent
from savepoints.result import Result
from savepoints.store import batch_log, bindings
from savepoints.store.bindings import Binding
from savepoints.store.locks import journal, lease
from savepoints.store.locks.journal import Journal
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store
from savepoints.store.savepoint import native
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# After which another try would not get further either.
_IN_VAIN = (QueryRunningError, StateUnwrittenError, TargetExistsError, VerificationError)


@dataclass(frozen=True, kw_only=True)
class GenerationPlan(JournalledPlan):
    """What a verb that begins a generation is going to do.

    Attributes:
        savepoint_id: The savepoint that the generation begins from, None for an empty state.
        generation: Its number.
        checkpoint: Its directory.
        binding: What differs from the settings: program, tables and so on; None for nothing.
    """

    savepoint_id: str | None
    generation: int
    checkpoint: str
    binding: Binding | None = None


@dataclass(frozen=True, kw_only=True)
class TransitionPlan(GenerationPlan):
    """What a verb that ends one generation and begins the next is going to do.

    Attributes:
        safety_id: Id of the safety savepoint that is taken first; None when none is.
        from_checkpoint: The query's checkpoint now.
        from_batch: The newest committed batch now; None when there is none.
        outputs: What is done to each output.
        output_uris: All outputs of the query by name, which savepoints that are taken on the way
            pin; more than `outputs` when those stay as they are.
        basis: What the plan was made from; if that has changed, it is not carried out.
    """

    safety_id: str | None
    from_checkpoint: str
    from_batch: int | None
    outputs: tuple[Rewind, ...]
    output_uris: Mapping[str, str] = field(default_factory=dict)
    basis: Basis | None = None


@dataclass(frozen=True)
class NewCheckpoint:
    """What was written as the new checkpoint."""

    seconds: float
    bytes: int


@dataclass(frozen=True, kw_only=True)
class BegunGeneration(Result):
    """What every verb tells that began a generation.

    Attributes:
        operation_id: Id of the operation, as in `savepoints operations` and the events.
        query: Name of the query.
        savepoint_id: Id of the savepoint that the generation begins from, None for an empty state.
        generation: Number of the new generation.
        checkpoint: Its checkpoint directory: what a driver that you start passes to Spark as
            `checkpointLocation` from now on.
        seconds: How long the whole operation took.
    """

    operation_id: str
    query: str
    savepoint_id: str | None
    generation: int
    checkpoint: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Moved(BegunGeneration):
    """What a verb did that began the next generation of a query.

    Attributes:
        safety_id: Id of the savepoint taken of the state before, which `undo` goes back to; None
            when there was nothing to save.
        outputs: New table version of each output, by name.
        bytes_written: Bytes of the new checkpoint.
    """

    safety_id: str | None
    outputs: dict[str, int]
    bytes_written: int


@dataclass(frozen=True)
class OwnStep:
    """A step that only one verb has; run again after a crash it must come to the same.

    Attributes:
        do: What it is given raises when the lease was lost.
    """

    name: str
    do: Callable[[Callable[[], None]], None]


@dataclass(frozen=True)
class Work:
    """What differs between the verbs.

    Attributes:
        prepare: Makes the savepoint that the new generation begins from, where it does not exist.
        complete: Done when checkpoint and outputs are there, before the generation begins.
        follow: Done when it has begun, before the operation counts as finished.
    """

    write: Callable[[], NewCheckpoint]
    prepare: OwnStep | None = None
    complete: OwnStep | None = None
    follow: OwnStep | None = None


def restored(
    plan: GenerationPlan,
    store: Store,
    *,
    form: Form | None = None,
    sources: Starts | None = None,
    query_id: str | None = None,
    progress: Progress = silent,
) -> NewCheckpoint:
    """Write the new checkpoint from the plan's savepoint: what most verbs do as `Work.write`."""
    assert plan.savepoint_id is not None
    restoring = restore.plan(
        store,
        plan.savepoint_id,
        plan.checkpoint,
        form=form,
        sources=sources,
        query_id=query_id,
        owner=plan.operation_id,
        asked=False,  # The plan has refused it, or was asked not to.
    )
    done = restore.execute(restoring, store, progress=progress)
    return NewCheckpoint(done.seconds, done.bytes_written)


def execute(
    plan: TransitionPlan, store: Store, work: Work, *, progress: Progress = silent
) -> Moved:
    """Carry a plan out, holding the query's lease; goes on where an earlier attempt was killed."""
    with lease.hold(store.root, plan.query, plan.verb) as held:
        return carry_out(plan, store, work, held, progress=progress)


def carry_out(
    plan: TransitionPlan, store: Store, work: Work, held: Lease, *, progress: Progress = silent
) -> Moved:
    """Do what `execute` does, under a lease that the caller holds and goes on holding."""
    started = time.monotonic()
    spark = rewind.session_for(plan.outputs, store.settings)
    # 1. The journal: from here on every other verb refuses the query until this one is over.
    log = journalled.begin_or_resume(plan, store, lambda: refuse_changed(plan, store))
    if plan.resumed or log.operation.done:
        refuse_gone_on(plan, log)
    # 2. The present, while nothing has been touched: it is what the whole verb is undone from.
    save_present(plan, store, log, progress)
    # 3. The savepoint to begin from, if it is yet to be taken: of the old checkpoint, too.
    do(work.prepare, log, held)
    # 4. The checkpoint. 5. The outputs, which are not touched before it is there and whole.
    # 6. The generation, on leaving the block: once `run` starts it, nothing can be taken back.
    with new_generation(plan, store, partial(_written, plan, work), log, held):
        versions = rewind_outputs(plan, log, held, progress, spark)
        do(work.complete, log, held)
    # 7. What needs the new generation, such as its first savepoint.
    with journalled.left_unfinished(plan, log):
        do(work.follow, log, held)
    log.finish()
    return Moved(
        **summary(plan, time.monotonic() - started),
        safety_id=plan.safety_id,
        outputs=versions,
        bytes_written=int(log.operation.done["checkpoint_written"]["bytes"]),
    )


def _written(plan: TransitionPlan, work: Work) -> NewCheckpoint:
    """Write the new checkpoint, and look once more whether the query runs unseen.

    Saving and writing take a while, in which a driver without a lease may commit; afterwards there
    would be two that write the outputs.
    """
    written = work.write()
    newest = safety_savepoint.newest_batch(plan.from_checkpoint)
    if newest != plan.from_batch:
        raise QueryRunningError(
            f"{plan.query} is running: a driver that holds no lease has committed batch {newest} "
            f"in {plan.from_checkpoint} since the {plan.verb} operation began; no output was "
            "touched",
            hint="stop the driver; to let others see who runs the query, call savepoints.attach "
            "in it",
            query=plan.query,
        )
    return written


def _said(plan: TransitionPlan) -> str:
    """Return the command that somebody typed, of those that are one plan."""
    return (
        f"savepoints undo {plan.query}" if journal.undoes_the_last(plan.command) else plan.command
    )


def save_present(plan: TransitionPlan, store: Store, log: Journal, progress: Progress) -> None:
    """Take the safety savepoint, unless it was taken before a crash, and copy the batch log."""
    if log.is_done("safety_savepoint") or log.is_done("checkpoint_written"):
        return
    left = store.generations.current(plan.query).generation
    if plan.safety_id is None:
        batch_log.copy_left(store.root, plan.query, left, Location.of(plan.from_checkpoint))
        return
    progress(f"taking the safety savepoint {plan.safety_id}")
    with _withdrawn_after(SavepointsError, plan, log):
        create.save(
            store,
            plan.query,
            checkpoint=plan.from_checkpoint,
            batch_id=plan.from_batch,
            outputs=dict(plan.output_uris),
            description=f"before: {_said(plan)}",
            savepoint_id=plan.safety_id,
            kind="safety",
        )
    batch_log.copy_left(store.root, plan.query, left, Location.of(plan.from_checkpoint))
    log.record("safety_savepoint", savepoint=plan.safety_id)


def rewind_outputs(
    plan: TransitionPlan, log: Journal, held: Lease, progress: Progress, spark: SparkSession | None
) -> dict[str, int]:
    """Take the outputs back and return the version that the commit of each made."""
    versions = {}
    for one in plan.outputs:
        step = f"output_{one.output.name}_rewound"
        if not log.is_done(step):
            held.check()
            progress(plan_text.what(one))
            log.record(step, version=rewind.execute(one, plan.operation_id, spark))
        versions[one.output.name] = int(log.operation.done[step]["version"])
    return versions


def summary(plan: GenerationPlan, seconds: float) -> dict[str, Any]:
    """Return the fields of a `BegunGeneration`."""
    names = ("operation_id", "query", "savepoint_id", "generation")
    return {
        **{name: getattr(plan, name) for name in names},
        "checkpoint": Uri.parse(plan.checkpoint).for_spark,
        "seconds": seconds,
    }


@contextmanager
def new_generation(
    plan: GenerationPlan,
    store: Store,
    write: Callable[[], NewCheckpoint],
    log: Journal,
    held: Lease,
) -> Iterator[None]:
    """Write a generation's checkpoint, let its outputs be made within, then begin it."""
    # From before the savepoint is read until the generation says that it is needed.
    with (
        store.using(plan.savepoint_id, plan.verb)
        if plan.savepoint_id is not None
        else nullcontext()
    ):
        held.check()
        if not log.is_done("checkpoint_written"):
            with _withdrawn_after(_IN_VAIN, plan, log):
                written = write()
            log.record(
                "checkpoint_written",
                checkpoint=plan.checkpoint,
                seconds=written.seconds,
                bytes=written.bytes,
            )
        # Before the generation begins: to run on to a point, the query needs it already.
        bindings.write(store.root, plan.query, plan.generation, plan.binding)
        yield
        # The outputs may have taken longer than the lease lives.
        held.check()
        facts = log.operation.done["checkpoint_written"]
        store.generations.begin(
            plan.query, plan.generation, Location.of(plan.checkpoint), by=plan.verb,
            begun_from=plan.savepoint_id, savepoints=store.catalog.all(),
            restore_seconds=facts["seconds"], restored_bytes=facts["bytes"],
        )  # fmt: skip
        log.record(journal.GENERATION_BEGUN, generation=plan.generation)


def refuse_changed(plan: TransitionPlan, store: Store) -> None:
    """Refuse to begin what was planned from something else than is there now."""
    if plan.basis is not None:
        plan_basis.refuse_changed(store, plan.query, plan.verb, plan.basis)
    if safety_savepoint.newest_batch(plan.from_checkpoint) != plan.from_batch:
        raise QueryRunningError(
            f"{plan.query} is running: its checkpoint {plan.from_checkpoint} has changed since "
            "the plan was made",
            hint=f"stop the query, then run savepoints {plan.verb} again",
            query=plan.query,
        )
    for one in plan.outputs:
        rewind.refuse_stale(one, plan.verb)


def is_rewound(plan: TransitionPlan) -> bool:
    """Return True if an output was taken back."""
    return any(rewind.is_done(one, plan.operation_id) for one in plan.outputs)


def written_behind(plan: TransitionPlan, newest: int | None) -> StalePlanError:
    """Return the refusal of batches that came to outputs which had been changed already.

    Their rows would be lost by an undo, and doubled, or keep others out, if the operation went on.
    """
    after = 0 if plan.from_batch is None else plan.from_batch + 1
    return StalePlanError(
        f"{plan.query} has run to batch {newest} since this {plan.verb} operation changed its "
        f"outputs at batch {plan.from_batch}",
        hint=f"stop the query; delete the files of batch {after} and later from "
        f"{plan.from_checkpoint}/offsets and /commits, so that these batches run again; then undo "
        f"this operation: savepoints operations undo {plan.operation_id}",
        query=plan.query,
        operation=plan.operation_id,
    )


def _overtaken(plan: TransitionPlan) -> list[str]:
    """Return the outputs that the query has written to since they were taken back."""
    committed = -1 if plan.from_batch is None else plan.from_batch
    return [
        one.output.uri
        for one in plan.outputs
        if rewind.is_overtaken(one, plan.operation_id, committed)
    ]


def _half_behind(plan: TransitionPlan) -> StalePlanError:
    """Return the refusal of a batch that came to an output which had been taken back.

    Its rows would stay, and keep out what is written under the numbers up to its own. An undo takes
    them away, and the old checkpoint runs the batch again.
    """
    return StalePlanError(
        f"{', '.join(_overtaken(plan))} was taken back by this {plan.verb} operation, and a driver "
        f"of {plan.query} has written to it since",
        hint="stop the query; undo this operation: savepoints operations undo "
        f"{plan.operation_id}; then begin it again: {plan.command}",
        query=plan.query,
        operation=plan.operation_id,
    )


def has_gone_on(plan: TransitionPlan, log: Journal) -> bool:
    """Return True if a query has other batches than its plan knows, and no generation begun.

    Also one that is in an output that was taken back, and only begun in the checkpoint. Without
    that it is one of the operation's own, which brings a reader to where its table goes back to.
    """
    if log.is_done(journal.GENERATION_BEGUN):
        return False
    newest = safety_savepoint.newest_batch(plan.from_checkpoint)
    begun = position.newest_in(Location.of(plan.from_checkpoint), "offsets")
    committed = -1 if newest is None else newest
    return newest != plan.from_batch or (begun > committed and bool(_overtaken(plan)))


def refuse_gone_on(plan: TransitionPlan, log: Journal) -> None:
    """Refuse to finish what was begun before batches that its safety savepoint does not have.

    A driver that nobody knows of may go on while an operation is unfinished. As long as no output
    was taken back, nothing is lost by planning anew.
    """
    if not has_gone_on(plan, log):
        return
    newest = safety_savepoint.newest_batch(plan.from_checkpoint)
    if newest == plan.from_batch:
        raise _half_behind(plan)
    if any(name.startswith("output") for name in log.operation.done) or is_rewound(plan):
        raise written_behind(plan, newest)
    raise StalePlanError(
        f"{plan.query} has run to batch {newest} since this {plan.verb} operation began at batch "
        f"{plan.from_batch}, so the safety savepoint is out of date",
        hint="stop the query; undo this operation: savepoints operations undo "
        f"{plan.operation_id}; then begin it again: {plan.command}",
        query=plan.query,
        operation=plan.operation_id,
    )


@contextmanager
def _withdrawn_after(
    errors: type[SavepointsError] | tuple[type[SavepointsError], ...],
    plan: GenerationPlan,
    log: Journal,
) -> Iterator[None]:
    """Take an operation back at once that cannot go on, as long as the query was not touched.

    Nobody has to end it by hand then before the query can run again.
    """
    try:
        yield
    except errors:
        native.discard(Location.of(plan.checkpoint), plan.operation_id)
        log.finish(undone=True)
        raise


def first_savepoint(
    plan: TransitionPlan, savepoint_id: str | None, store: Store, progress: Progress
) -> OwnStep | None:
    """Return the step that saves a query where it begins a generation, None without an id.

    Where it was moved in its sources no earlier savepoint is, so that it could not be recovered.
    """
    if savepoint_id is None:
        return None

    def save(_check: Callable[[], None]) -> None:
        progress(f"taking the savepoint {savepoint_id} of generation {plan.generation}")
        create.save(
            store,
            plan.query,
            checkpoint=plan.checkpoint,
            outputs=dict(plan.output_uris),
            description=f"the start of generation {plan.generation}",
            savepoint_id=savepoint_id,
            kind="manual",
        )

    return OwnStep("first_savepoint", save)


def do(step: OwnStep | None, log: Journal, held: Lease) -> None:
    """Take a step of a verb's own and record it; recorded before, nothing happens."""
    if step is not None and not log.is_done(step.name):
        held.check()
        step.do(held.check)
        log.record(step.name)
