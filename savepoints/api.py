"""The verbs as functions: plan and execute in one call.

Each takes the arguments of the `plan` in its module under `savepoints.operations`; call `plan` and
`execute` there to look at the plan in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from savepoints.config import Settings
from savepoints.model import FORMS, Form, Provider, Savepoint
from savepoints.operations import create as _create
from savepoints.operations import export as _export
from savepoints.operations import restore as _restore
from savepoints.operations import rollback as _rollback
from savepoints.operations.plan import Progress, silent
from savepoints.operations.restore import Restored
from savepoints.operations.rollback import RolledBack
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


def rollback(
    store: Store,
    name: str,
    *,
    query: str | None = None,
    settings: Settings | None = None,
    to: str | None = None,
    form: Form | None = None,
    rewind_outputs: bool = True,
    check_source: bool = True,
    progress: Progress = silent,
) -> RolledBack:
    """Take state, offsets and outputs back. See `savepoints.operations.rollback`."""
    plan = _rollback.plan(
        store,
        name,
        query=query,
        settings=settings,
        to=to,
        form=form,
        rewind_outputs=rewind_outputs,
        check_source=check_source,
    )
    return _rollback.execute(plan, store, settings=settings, progress=progress)
