"""The verbs as functions: plan and execute in one call.

Each takes the arguments of the `plan` in its module under `savepoints.operations`; call `plan` and
`execute` there to look at the plan in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from savepoints.checkpoint.logs.source_positions import Starts
from savepoints.config.settings import Settings
from savepoints.model import FORMS, Form, Provider, Savepoint
from savepoints.operations.fork import compare as _compare
from savepoints.operations.fork import fork as _fork
from savepoints.operations.fork import promote as _promote
from savepoints.operations.fork.compare_savepoints import SAMPLE
from savepoints.operations.fork.fork import Forked, ForkOptions
from savepoints.operations.fork.promote import Promoted
from savepoints.operations.fork.promote_steps import HandOver
from savepoints.operations.fork.verdict import Comparison
from savepoints.operations.maintain import copy as _copy
from savepoints.operations.maintain import expire as _expire
from savepoints.operations.maintain import gc as _gc
from savepoints.operations.maintain import rebuild_catalog as _rebuild
from savepoints.operations.maintain import rename as _rename
from savepoints.operations.maintain import tag as _tag
from savepoints.operations.maintain.copy import Copied
from savepoints.operations.maintain.expire import Expired
from savepoints.operations.maintain.gc import GRACE, Collected
from savepoints.operations.maintain.rebuild_catalog import Rebuilt
from savepoints.operations.merge import merge as _merge
from savepoints.operations.merge.merge import Merged
from savepoints.operations.migrate import edit as _edit
from savepoints.operations.migrate import migrate as _migrate
from savepoints.operations.rollback import reset as _reset
from savepoints.operations.rollback import restore_point as _point
from savepoints.operations.rollback import rollback as _rollback
from savepoints.operations.rollback.generation_change import Moved
from savepoints.operations.rollback.reset import State
from savepoints.operations.rollback.reset_outputs import Outputs
from savepoints.operations.rollback.rollback import RolledBack
from savepoints.operations.rollback.target import Point
from savepoints.operations.savepoint import create as _create
from savepoints.operations.savepoint import export as _export
from savepoints.operations.savepoint import restore as _restore
from savepoints.operations.savepoint.restore import Restored
from savepoints.outputs.fork.isolated_copy import CopyMode
from savepoints.plan import Progress, silent
from savepoints.sources.kafka.reset_targets import Target, TargetScope
from savepoints.state.change.edit import StateEdit
from savepoints.store.retention_policy import RetentionPolicy
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import MergePolicy


def create(
    store: Store,
    *,
    query: str | None = None,
    checkpoint: str | None = None,
    settings: Settings | None = None,
    batch_id: int | None = None,
    forms: Sequence[Form] = FORMS,
    outputs: dict[str, str] | None = None,
    tags: Sequence[str] = (),
    description: str = "",
    progress: Progress = silent,
) -> Savepoint:
    """Take a savepoint. See `savepoints.operations.savepoint.create`."""
    plan = _create.plan(
        store,
        query=query,
        checkpoint=checkpoint,
        settings=settings,
        batch_id=batch_id,
        forms=forms,
        outputs=outputs,
        tags=tags,
        description=description,
    )
    return _create.execute(plan, store, settings=settings, progress=progress)


def export(
    store: Store,
    name: str,
    *,
    query: str | None = None,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Savepoint:
    """Write the canonical rows of a savepoint. See `savepoints.operations.savepoint.export`."""
    plan = _export.plan(store, name, query=query)
    return _export.execute(plan, store, settings=settings, progress=progress)


def restore(
    store: Store,
    name: str,
    to: str,
    *,
    query: str | None = None,
    form: Form | None = None,
    partitions: int | None = None,
    provider: Provider | None = None,
    sources: Starts | None = None,
    even_broken: bool = False,
    check_outputs: bool = True,
    accept_unreplayable: bool = False,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Restored:
    """Write a new checkpoint from a savepoint. See `savepoints.operations.savepoint.restore`."""
    plan = _restore.plan(
        store,
        name,
        to,
        query=query,
        form=form,
        partitions=partitions,
        provider=provider,
        sources=sources,
        even_broken=even_broken,
        check_outputs=check_outputs,
        accept_unreplayable=accept_unreplayable,
    )
    return _restore.execute(plan, store, settings=settings, progress=progress)


def restore_point(
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
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Restored:
    """Write a new checkpoint for a time or a retained batch.

    See `savepoints.operations.rollback.restore_point`.
    """
    plan = _point.plan(
        store,
        point,
        to,
        query=query,
        settings=settings,
        form=form,
        app=app,
        even_broken=even_broken,
        check_outputs=check_outputs,
        accept_unreplayable=accept_unreplayable,
    )
    return _point.execute(plan, store, settings=settings, progress=progress)


def restore_migrated(
    store: Store,
    name: str,
    to: str,
    *,
    app: str,
    query: str | None = None,
    maps: Sequence[str] = (),
    defaults: Mapping[str, str] | None = None,
    allow_dropped_state: bool = False,
    partitions: int | None = None,
    provider: Provider | None = None,
    even_broken: bool = False,
    check_outputs: bool = True,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Restored:
    """Write a new checkpoint for a changed program. See `savepoints.operations.migrate.migrate`."""
    plan = _migrate.plan(
        store,
        name,
        to,
        app=app,
        query=query,
        maps=maps,
        defaults=defaults,
        allow_dropped_state=allow_dropped_state,
        partitions=partitions,
        provider=provider,
        even_broken=even_broken,
        check_outputs=check_outputs,
        settings=settings,
        progress=progress,
    )
    return _migrate.execute(plan, store, settings=settings, progress=progress)


def reset(
    store: Store,
    query: str,
    target: Target | datetime,
    *,
    settings: Settings | None = None,
    state: State = "empty",
    outputs: Outputs = "keep",
    scope: TargetScope | None = None,
    skipped: Sequence[str] = (),
    allow_data_loss: bool = False,
    to: str | None = None,
    stopped: bool = False,
    progress: Progress = silent,
) -> Moved:
    """Begin a query anew at chosen offsets. See `savepoints.operations.rollback.reset`."""
    plan = _reset.plan(
        store,
        query,
        target,
        settings=settings,
        state=state,
        outputs=outputs,
        scope=scope,
        skipped=skipped,
        allow_data_loss=allow_data_loss,
        to=to,
        stopped=stopped,
    )
    return _reset.execute(plan, store, settings=settings, progress=progress)


def rollback(
    store: Store,
    point: str | Point,
    *,
    query: str | None = None,
    settings: Settings | None = None,
    to: str | None = None,
    form: Form | None = None,
    sources: Starts | None = None,
    app: str | None = None,
    rewind_outputs: bool = True,
    check_source: bool = True,
    even_broken: bool = False,
    accept_unreplayable: bool = False,
    stopped: bool = False,
    progress: Progress = silent,
) -> RolledBack:
    """Take state, offsets and outputs back. See `savepoints.operations.rollback.rollback`."""
    plan = _rollback.plan(
        store,
        point,
        query=query,
        settings=settings,
        to=to,
        form=form,
        sources=sources,
        app=app,
        rewind_outputs=rewind_outputs,
        check_source=check_source,
        even_broken=even_broken,
        accept_unreplayable=accept_unreplayable,
        stopped=stopped,
    )
    return _rollback.execute(plan, store, settings=settings, progress=progress)


def fork(
    store: Store,
    savepoint: str,
    *names: str,
    app: str | None = None,
    way: CopyMode = "copy",
    checkpoints: str | None = None,
    outputs: Mapping[str, str] | None = None,
    form: Form | None = None,
    check_source: bool = True,
    query: str | None = None,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> tuple[Forked, ...]:
    """Make new queries of a savepoint. See `savepoints.operations.fork.fork`."""
    options = ForkOptions(app, way, checkpoints, outputs, form, check_source)
    plan = _fork.plan_all(store, savepoint, names, options, query=query, settings=settings)
    return _fork.execute_all(plan, store, settings=settings, progress=progress)


def compare(
    store: Store,
    *queries: str,
    settings: Settings,
    until: str = "latest",
    keys: Mapping[str, Sequence[str]] | None = None,
    metrics: Mapping[str, str] | None = None,
    sample: int = SAMPLE,
    state: bool = True,
    progress: Progress = silent,
) -> Comparison:
    """Run queries to one end and compare them. See `savepoints.operations.fork.compare`."""
    plan = _compare.plan(
        store,
        queries,
        settings=settings,
        until=until,
        keys=keys,
        metrics=metrics,
        sample=sample,
        state=state,
    )
    return _compare.execute(plan, store, settings=settings, progress=progress)


def edit(
    store: Store,
    name: str,
    change: StateEdit,
    *,
    reason: str,
    query: str | None = None,
    operator: int | None = None,
    variable: str | None = None,
    at_most: int = _edit.AT_MOST,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Savepoint:
    """Repair chosen state rows of a savepoint. See `savepoints.operations.migrate.edit`."""
    plan = _edit.plan(
        store,
        name,
        change,
        reason=reason,
        query=query,
        operator=operator,
        variable=variable,
        at_most=at_most,
        settings=settings,
        progress=progress,
    )
    return _edit.execute(plan, store, change, settings=settings, progress=progress)


def merge(
    store: Store,
    query: str,
    batch: str,
    *,
    settings: Settings,
    input_name: str | None = None,
    controls: int | None = None,
    quarantine: str | None = None,
    policy: MergePolicy = "exact",
    until: datetime | None = None,
    wait: timedelta = timedelta(minutes=10),
    progress: Progress = silent,
) -> Merged:
    """Work late events into live state and outputs. See `savepoints.operations.merge.merge`."""
    prepared = _merge.prepare(
        store,
        query,
        batch,
        given=settings,
        input_name=input_name,
        controls=controls,
        quarantine=quarantine,
        policy=policy,
        until=until,
        progress=progress,
    )
    return _merge.execute(prepared, store, given=settings, wait=wait, progress=progress)


def promote(
    store: Store,
    fork: str,
    *,
    settings: Settings,
    into: str | None = None,
    hand_over: HandOver = "replace",
    checks: bool = True,
    wait: timedelta = timedelta(minutes=10),
    progress: Progress = silent,
) -> Promoted:
    """Let a fork take over from the live query. See `savepoints.operations.fork.promote`."""
    plan = _promote.plan(
        store, fork, settings=settings, into=into, hand_over=hand_over, checks=checks
    )
    return _promote.execute(plan, store, settings=settings, wait=wait, progress=progress)


def tag(
    store: Store,
    name: str,
    *,
    query: str | None = None,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    description: str | None = None,
    pinned: bool | None = None,
    move: bool = False,
) -> Savepoint:
    """Name, describe or pin a savepoint. See `savepoints.operations.maintain.tag`."""
    plan = _tag.plan(
        store,
        name,
        query=query,
        add=add,
        remove=remove,
        description=description,
        pinned=pinned,
        move=move,
    )
    return _tag.execute(plan, store)


def rename(store: Store, query: str, to: str, *, settings: Settings | None = None) -> None:
    """Give a query another name. See `savepoints.operations.maintain.rename`."""
    _rename.execute(_rename.plan(store, query, to, settings=settings), store)


def expire(
    store: Store,
    policy: RetentionPolicy | None = None,
    *,
    query: str | None = None,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Expired:
    """Remove the savepoints that no rule keeps. See `savepoints.operations.maintain.expire`."""
    plan = _expire.plan(store, policy, query=query, settings=settings)
    return _expire.execute(plan, store, progress=progress)


def gc(store: Store, *, grace: timedelta = GRACE, progress: Progress = silent) -> Collected:
    """Remove what no savepoint needs. See `savepoints.operations.maintain.gc`."""
    return _gc.execute(_gc.plan(store, grace=grace), store, progress=progress)


def copy(
    store: Store,
    name: str,
    destination: str,
    *,
    query: str | None = None,
    progress: Progress = silent,
) -> Copied:
    """Copy a savepoint into another store. See `savepoints.operations.maintain.copy`."""
    plan = _copy.plan(store, name, destination, query=query)
    return _copy.execute(plan, store, progress=progress)


def rebuild_catalog(store: Store, *, progress: Progress = silent) -> Rebuilt:
    """Make the catalog say what the savepoints say.

    See `savepoints.operations.maintain.rebuild_catalog`.
    """
    return _rebuild.execute(_rebuild.plan(store), store, progress=progress)
