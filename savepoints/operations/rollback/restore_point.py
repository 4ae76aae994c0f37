"""Restoring a point that is no savepoint: a retained batch, or exactly a time.

The savepoint before it is restored into a new directory, and for a time the query is run on there
by planned batches. What those batches write is thrown away: the outputs are not touched. To take
outputs along, see `savepoints.operations.rollback.rollback`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from savepoints.checkpoint import position
from savepoints.config.settings import Settings
from savepoints.io import Location
from savepoints.model import Form
from savepoints.observe.recorder import recorded
from savepoints.operations.rollback import notes, run_to_point
from savepoints.operations.rollback import target as rollback_target
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.operations.rollback.run_to_point import RestoredQuery
from savepoints.operations.rollback.target import Point, ResolvedTarget
from savepoints.operations.savepoint import restore, restore_checks
from savepoints.operations.savepoint.restore import Restored
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.runtime.archive_of import archives_of
from savepoints.sources import source_logs
from savepoints.sources.combined import availability
from savepoints.store import bindings
from savepoints.store.root import Store
from savepoints.store.savepoint import native


@dataclass(frozen=True)
class PointPlan(Plan):
    """What restoring a point is going to do.

    Attributes:
        savepoint_id: What is restored.
        target: The new checkpoint directory.
        form: The form to restore from; None lets the restore choose.
        batch_id: Batch of the savepoint.
        from_checkpoint: The checkpoint that the savepoint is first taken from; None when it exists.
        generation: The generation that it is of.
        ends: Offsets to run to, as Spark's JSON; None to stay.
        application: The program that runs the query to `ends`; None without them.
        owner: Marks the directory as belonging to this request, so that the same request continues
            there.
    """

    savepoint_id: str
    target: str
    form: Form | None
    batch_id: int
    from_checkpoint: str | None
    generation: int
    ends: str | None
    application: str | None
    owner: str


def plan(
    store: Store,
    point: Point,
    to: str,
    *,
    query: str | None = None,
    form: Form | None = None,
    app: str | None = None,
    even_broken: bool = False,
    check_outputs: bool = True,
    accept_unreplayable: bool = False,
) -> PointPlan:
    """Plan a new checkpoint with the state of a point in time or of a batch; nothing is written.

    Args:
        point: The time or batch: `AtTime`, `AtBatch`.
        to: URI of the new checkpoint directory, which must not exist.
        form: Which form to restore from.
        app: The program that runs the query to that point, if not the one in the settings.
        even_broken: Accept a savepoint that `verify` found broken.
        check_outputs: Whether to refuse a checkpoint whose next batches a table has seen already.
        accept_unreplayable: Accept a source that cannot be read again, or files that are gone, so
            that rows may be lost.

    Raises:
        SavepointNotFoundError: If no savepoint lies before the point.
        NoCommittedBatchError: If the batch is not retained.
        UsageError: If the query is not in the settings but has to be run to the point.
        TargetExistsError: If anything else is in the directory.
    """
    store = store.snapshot()
    name, _ = rollback_target.identity(store, point, query)
    context = QueryContext.open(store, name)
    found = rollback_target.resolve(context, point)
    settings = bindings.complete(store, generations={found.query: found.generation})
    application = None
    if found.ends is not None:
        availability.require_available(
            found.offsets,
            settings.kafka,
            topics=found.topics,
            archives=archives_of(settings, found.query),
        )
        application = run_to_point.application_of(found.query, settings, app, rewind_outputs=True)
    told: list[str] = []
    if found.ends is not None:
        told.append("everything the query writes on the way is discarded: no output is touched")
    if not found.is_saved:
        told += notes.of_topics_read(store, found)
    if not found.is_saved and not accept_unreplayable:
        logs = source_logs.of_checkpoint(Location.of(context.current.checkpoint), found.batch_id)
        told += restore_checks.require_read_again(store, found.query, logs)
    target = str(Location.of(to))
    owner = f"point:{hashlib.sha256(' '.join(found.words).encode()).hexdigest()[:16]}"
    if found.is_saved:
        restoring = restore.plan(
            store,
            found.savepoint_id,
            target,
            form=form,
            owner=owner,
            even_broken=even_broken,
            check_outputs=check_outputs,
            accept_unreplayable=accept_unreplayable,
        )
        form, from_checkpoint = restoring.form, None
        told += restoring.warnings
    else:
        rollback_target.refuse_unsaved(found, form)
        from_checkpoint = context.current.checkpoint
    return PointPlan(
        verb="restore",
        query=found.query,
        steps=tuple(_steps(found, target)),
        warnings=tuple(told),
        savepoint_id=found.savepoint_id,
        target=target,
        form=form,
        batch_id=found.batch_id,
        from_checkpoint=from_checkpoint,
        generation=found.generation,
        ends=found.ends,
        application=application,
        owner=owner,
    )


def _steps(found: ResolvedTarget, target: str) -> Iterator[Step]:
    name, batch = found.savepoint_id, found.batch_id
    if not found.is_saved:
        yield Step("savepoint", f"take the savepoint {name} of batch {batch}")
    yield Step("checkpoint", f"restore {name} (batch {batch}) to {target}")
    if found.ends is not None:
        yield Step("advanced", f"run the query to exactly {run_to_point.what(found.ends)}")


@recorded
def execute(plan: PointPlan, store: Store, *, progress: Progress = silent) -> Restored:
    """Restore the point; run again after a crash, it goes on.

    Raises:
        TargetExistsError: If anything else is in the directory.
        SavepointsError: If the query fails while it is run on.
    """
    begun = time.monotonic()
    settings = bindings.complete(store, generations={plan.query: plan.generation})
    if plan.from_checkpoint is not None:
        rollback_target.save_batch(
            store,
            query=plan.query,
            checkpoint=plan.from_checkpoint,
            batch_id=plan.batch_id,
            savepoint_id=plan.savepoint_id,
            settings=settings,
        )
    target = Location.of(plan.target)
    restoring = restore.plan(
        store,
        plan.savepoint_id,
        plan.target,
        form=plan.form,
        owner=plan.owner,
        asked=False,  # The plan has refused it, or was asked not to.
    )
    already = native.is_restored(target, restoring.owner)
    if already:
        _refuse_run_since(plan, target)
    else:
        restore.execute(restoring, store, progress=progress)
    if plan.ends is not None:
        _run_on(plan, plan.ends, store, settings, progress)
    return restore.restored(restoring, begun=begun, already=already and plan.ends is None)


def _run_on(
    plan: PointPlan, ends: str, store: Store, settings: Settings, progress: Progress
) -> None:
    """Run the query on in the new directory; what its batches write is thrown away."""
    assert plan.application is not None
    bound = settings.queries[plan.query]
    with store.scratch() as scratch:
        thrown_away = {name: str(scratch / "outputs" / name) for name in bound.outputs}
        other = bound.model_copy(update={"outputs": thrown_away})
        RestoredQuery(
            query=plan.query,
            app=plan.application,
            settings=settings.model_copy(
                update={"queries": {**settings.queries, plan.query: other}}
            ),
            generation=plan.generation,
            checkpoint=Location.of(plan.target),
            store=store,
            begun_from=store.manifest(plan.savepoint_id).savepoint,
            is_copy=True,
            progress=progress,
        ).run_to(ends)


def _refuse_run_since(plan: PointPlan, target: Location) -> None:
    """Refuse a directory in which the query has been started after it was restored."""
    now = position.read(target)
    if plan.ends is None:
        has_run = now.committed != plan.batch_id or now.begun is not None
    else:
        has_run = run_to_point.is_beyond(now, plan.ends)
    if has_run:
        raise restore.run_since(plan.target, plan.savepoint_id)
