"""The verbs as functions: plan and execute in one call.

Each takes the arguments of the `plan` in its module under `savepoints.operations`; call `plan` and
`execute` there to look at the plan in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from savepoints.config import Settings
from savepoints.model import FORMS, Form, Provider, Savepoint
from savepoints.operations import copy as _copy
from savepoints.operations import create as _create
from savepoints.operations import expire as _expire
from savepoints.operations import export as _export
from savepoints.operations import gc as _gc
from savepoints.operations import point as _point
from savepoints.operations import rebuild as _rebuild
from savepoints.operations import reset as _reset
from savepoints.operations import restore as _restore
from savepoints.operations import rollback as _rollback
from savepoints.operations import tag as _tag
from savepoints.operations.copy import Copied
from savepoints.operations.expire import Expired
from savepoints.operations.gc import GRACE, Collected
from savepoints.operations.goal import Point
from savepoints.operations.plan import Progress, silent
from savepoints.operations.rebuild import Rebuilt
from savepoints.operations.reset import State
from savepoints.operations.reset_outputs import Outputs
from savepoints.operations.restore import Restored
from savepoints.operations.rollback import RolledBack
from savepoints.operations.transition import Moved
from savepoints.sources.targets import Scope, Target
from savepoints.store.retention import Policy
from savepoints.store.root import Store


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
    """Take a savepoint. See `savepoints.operations.create`."""
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
    """Write the canonical rows of a savepoint. See `savepoints.operations.export`."""
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
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Restored:
    """Write a new checkpoint from a savepoint. See `savepoints.operations.restore`."""
    plan = _restore.plan(
        store, name, to, query=query, form=form, partitions=partitions, provider=provider
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
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Restored:
    """Write a new checkpoint for a time or a retained batch. See `savepoints.operations.point`."""
    plan = _point.plan(store, point, to, query=query, settings=settings, form=form, app=app)
    return _point.execute(plan, store, settings=settings, progress=progress)


def reset(
    store: Store,
    query: str,
    target: Target | datetime,
    *,
    settings: Settings | None = None,
    state: State = "empty",
    outputs: Outputs = "keep",
    scope: Scope | None = None,
    skipped: Sequence[str] = (),
    allow_data_loss: bool = False,
    to: str | None = None,
    progress: Progress = silent,
) -> Moved:
    """Begin a query anew at chosen offsets. See `savepoints.operations.reset`."""
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
    app: str | None = None,
    rewind_outputs: bool = True,
    check_source: bool = True,
    progress: Progress = silent,
) -> RolledBack:
    """Take state, offsets and outputs back. See `savepoints.operations.rollback`."""
    plan = _rollback.plan(
        store,
        point,
        query=query,
        settings=settings,
        to=to,
        form=form,
        app=app,
        rewind_outputs=rewind_outputs,
        check_source=check_source,
    )
    return _rollback.execute(plan, store, settings=settings, progress=progress)


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
    """Name, describe or pin a savepoint. See `savepoints.operations.tag`."""
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


def expire(
    store: Store,
    policy: Policy | None = None,
    *,
    query: str | None = None,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Expired:
    """Remove the savepoints that no rule keeps. See `savepoints.operations.expire`."""
    plan = _expire.plan(store, policy, query=query, settings=settings)
    return _expire.execute(plan, store, progress=progress)


def gc(store: Store, *, grace: timedelta = GRACE, progress: Progress = silent) -> Collected:
    """Remove what no savepoint needs. See `savepoints.operations.gc`."""
    return _gc.execute(_gc.plan(store, grace=grace), store, progress=progress)


def copy(
    store: Store,
    name: str,
    destination: str,
    *,
    query: str | None = None,
    progress: Progress = silent,
) -> Copied:
    """Copy a savepoint into another store. See `savepoints.operations.copy`."""
    plan = _copy.plan(store, name, destination, query=query)
    return _copy.execute(plan, store, progress=progress)


def rebuild_catalog(store: Store, *, progress: Progress = silent) -> Rebuilt:
    """Make the catalog say what the savepoints say. See `savepoints.operations.rebuild`."""
    return _rebuild.execute(_rebuild.plan(store), store, progress=progress)
