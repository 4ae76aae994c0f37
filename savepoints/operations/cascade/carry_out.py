"""A reader takes over a correction of its table: by its journal, killed anywhere and run again.

A safety savepoint, a new checkpoint with the replayed state of the affected entities whose source
goes on behind the correction, the reader's own rows corrected, and the new generation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from savepoints import faults
from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs import table_position
from savepoints.checkpoint.logs.source_positions import SourceMap
from savepoints.errors import UnfinishedOperationError
from savepoints.io import Location
from savepoints.operations.cascade.cascade_plan import VERB, CascadePlan, Followed
from savepoints.operations.cascade.prepare import AFTER
from savepoints.operations.merge import splice_checkpoint
from savepoints.operations.rollback import generation_change, journalled
from savepoints.operations.rollback.generation_change import Moved, NewCheckpoint, OwnStep, Work
from savepoints.operations.run import pause_for_verb
from savepoints.outputs.correct import commit, correct
from savepoints.outputs.delta import batch_version
from savepoints.plan import Progress, silent
from savepoints.runtime import scratch_query
from savepoints.sources.tables.events import ENTITY
from savepoints.store import bindings, scratch
from savepoints.store.locks import journal, lease
from savepoints.store.locks.journal import Journal, Operation
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def announce(plan: CascadePlan, store: Store) -> None:
    """Begin the journal, before the correction itself: from then on it is finished or undone.

    The caller holds the reader's lease.
    """
    journal.refuse_unfinished(store.root, plan.query)
    journalled.begin(plan, store)


def withdraw(plan: CascadePlan, store: Store) -> None:
    """Take back what was announced only: the correction that it follows was never begun."""
    operation = journal.unfinished(store.root, plan.query)
    if operation is not None and operation.id == plan.operation_id:
        Journal(store.root, operation).finish(undone=True)
    scratch.discard(store, plan.operation_id)


def carry_out(
    plan: CascadePlan, store: Store, held: Lease, *, progress: Progress = silent
) -> Moved:
    """Let the reader go on with the correction; the caller holds its lease.

    Raises:
        UnfinishedOperationError: If the merge that it follows is not finished.
    """
    from savepoints.spark.session import session, session_for

    _require_followed(plan, store)
    settings = bindings.complete(store)
    spark = session_for(session(settings, f"savepoints merge {plan.follows.query}"), 0)
    follows = plan.follows
    version, _ = commit.find_correction(follows.table, follows.app_id, follows.batch_id)
    behind = table_position.after(follows.table_id, version).text

    def write() -> NewCheckpoint:
        progress(f"writing the new state to {plan.checkpoint}")
        return _write(spark, plan, store, behind)

    work = Work(
        write,
        complete=OwnStep("outputs_corrected", lambda check: _correct(spark, plan, progress, check)),
        follow=OwnStep("settled", lambda check: _settle(plan, store, check)),
    )
    moved = generation_change.carry_out(plan, store, work, held, progress=progress)
    scratch.discard(store, plan.operation_id)
    return moved


def finish(plan: CascadePlan, store: Store, *, progress: Progress = silent) -> Moved:
    """Finish one that was interrupted."""
    with lease.hold(store.root, plan.query, VERB) as held:
        return carry_out(plan, store, held, progress=progress)


def undo(plan: CascadePlan, store: Store, *, progress: Progress = silent) -> None:
    """Take back what an interrupted one has done so far.

    Raises:
        UnfinishedOperationError: See `refuse_undo`.
    """
    refuse_undo(plan, store)
    pause_for_verb.undo(
        plan, store, plan.corrections, correct.undo, correct.is_done,
        paused=plan.paused, progress=progress,
    )  # fmt: skip
    scratch.discard(store, plan.operation_id)


def refuse_undo(plan: CascadePlan, store: Store) -> None:
    """Refuse to undo what follows a merge, or its reader would fail at the correction.

    Raises:
        UnfinishedOperationError: If the merge is done: then it can only be finished; or if it is
            not, and would leave this reader out.
    """
    followed = _followed(plan, store)
    if followed is None or followed.undone:
        return
    if followed.state == "unfinished":
        raise UnfinishedOperationError(
            f"the merge {followed.id} of {followed.query} is unfinished, and {plan.query} has to "
            f"take over its correction of {plan.follows.table}",
            hint=followed.ways_out(store.root, f"finish all of it: {plan.command}"),
            operation=plan.operation_id,
        )
    raise UnfinishedOperationError(
        f"the merge {followed.id} has already corrected {plan.follows.table}, so "
        f"{plan.query}, which reads that table, must be corrected too",
        hint=f"finish this operation: savepoints operations resume {plan.operation_id}",
        operation=plan.operation_id,
    )


def refuse_undo_of_followed(operation_id: str, store: Store) -> None:
    """Refuse to undo an interrupted merge that has corrected a table for readers to follow.

    The rewind would be a second commit that takes rows out, and nothing steps a reader over it.
    """
    for one in journal.all_unfinished(store.root):
        if one.verb != VERB:
            continue
        follows = CascadePlan.from_json(dict(one.plan)).follows
        if follows.operation_id == operation_id and _is_corrected(follows):
            raise UnfinishedOperationError(
                f"the merge {operation_id} has already corrected {follows.table}, and {one.query}, "
                "which reads that table, could not continue after an undo",
                hint=f"finish the merge, which then corrects its readers: {one.command}",
                query=one.query,
                operation=operation_id,
            )


def _is_corrected(follows: Followed) -> bool:
    return batch_version.has_batch(follows.table, follows.app_id, follows.batch_id)


def _followed(plan: CascadePlan, store: Store) -> Operation | None:
    known = journal.all_operations(store.root)
    return next((one for one in known if one.id == plan.follows.operation_id), None)


def _require_followed(plan: CascadePlan, store: Store) -> None:
    followed = _followed(plan, store)
    if followed is None or followed.state != "finished":
        state = "was never begun"
        if followed is not None:
            state = "was undone" if followed.undone else "is unfinished"
        raise UnfinishedOperationError(
            f"the merge {plan.follows.operation_id} of {plan.follows.query} {state}, so "
            f"{plan.operation_id}, the correction of {plan.query} that follows from it, cannot be "
            "completed",
            hint=journalled.reopen(plan, store).operation.ways_out(
                store.root, f"run the whole merge again: {plan.command}"
            ),
            query=plan.query,
            operation=plan.operation_id,
        )
    follows = plan.follows
    if not _is_corrected(follows):
        raise UnfinishedOperationError(
            f"{follows.table}, which {plan.query} reads, has not been corrected yet",
            hint=f"run the whole merge again: {plan.command}; or finish the operation on the query "
            "that writes the table (savepoints operations list shows it), then run this command "
            "again",
            query=plan.query,
            operation=plan.operation_id,
        )


def _write(spark: SparkSession, plan: CascadePlan, store: Store, behind: str) -> NewCheckpoint:
    """Write the new checkpoint from the safety savepoint and the replayed state."""
    from savepoints.state.storage.row_sources import CheckpointRows

    checkpoint = Location.of(plan.place) / AFTER / scratch_query.CHECKPOINT
    replayed = CheckpointRows.of(spark, checkpoint, read_cut(checkpoint, plan.replayed_batch))
    return splice_checkpoint.from_safety_savepoint(
        spark,
        plan,
        store,
        lambda _live: replayed,
        _entities(spark, plan),
        SourceMap((behind,), ("0",)),
    )


def _correct(
    spark: SparkSession, plan: CascadePlan, progress: Progress, check: Callable[[], None]
) -> None:
    """Correct the rows of each output; done again after a crash it comes to the same."""
    entities = _entities(spark, plan).selectExpr(ENTITY, "cast(null as bigint) as version")
    results = spark.read.parquet(
        (Location.of(plan.place) / AFTER / scratch_query.RESULTS).uri.hadoop
    )
    for one in plan.corrections:
        check()
        progress(correct.what(one))
        correct.execute(spark, one, entities, results)
        faults.reach(f"cascade.corrected_{one.live.output.name}")


def _settle(plan: CascadePlan, store: Store, check: Callable[[], None]) -> None:
    check()
    pause_for_verb.settle(
        store,
        plan.query,
        kind="merge",
        description=f"after the correction of {plan.follows.table}",
        savepoint_id=plan.first_id,
        paused=plan.paused,
    )


def _entities(spark: SparkSession, plan: CascadePlan) -> DataFrame:
    return spark.read.parquet((Location.of(plan.place) / scratch.ENTITIES).uri.hadoop)
