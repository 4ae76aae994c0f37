"""`restore`: write a complete new checkpoint directory from a savepoint.

Native: the files are copied back. Canonical: the rows are written through Spark's own state store
writer. `metadata` comes last, so a half-written directory can never be started.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from savepoints import faults
from savepoints.checkpoint.layout import committed_batches
from savepoints.checkpoint.state_files import is_state_data
from savepoints.config import Settings
from savepoints.errors import NotAlignedError, TargetExistsError, UsageError, VerificationError
from savepoints.io import Location
from savepoints.model import Form, Savepoint
from savepoints.operations.plan import Plan, Progress, Step, silent
from savepoints.store import canonical, manifest, native
from savepoints.store.manifest import Manifest, StoredFile
from savepoints.store.root import Store


@dataclass(frozen=True)
class RestorePlan(Plan):
    """What `restore` is going to do.

    Attributes:
        savepoint_id: What is restored.
        target: The checkpoint directory to be.
        form: `native` or `canonical`.
        batch_id: The restored query goes on with the batch after this one.
        partitions: Number of state partitions, None without state.
        files: Files to copy.
        files_bytes: Their bytes.
        rows: State rows to write, 0 for the native form.
        owner: Marks the target as this restore's, so that it can go on after a crash.
    """

    savepoint_id: str
    target: str
    form: Form
    batch_id: int
    partitions: int | None
    files: int
    files_bytes: int
    rows: int
    owner: str


@dataclass(frozen=True)
class Restored:
    """What a restore did.

    Attributes:
        savepoint_id: What was restored.
        checkpoint: Where the query can be started.
        form: From which form.
        batch_id: The query goes on with the batch after this one.
        seconds: How long it took.
        objects: Files in the new checkpoint that came from the savepoint.
        bytes_written: Their bytes; for the canonical form those of all files written.
        already_restored: The same restore had finished there before; nothing was done.
    """

    savepoint_id: str
    checkpoint: str
    form: Form
    batch_id: int
    seconds: float
    objects: int
    bytes_written: int
    already_restored: bool


def plan(
    store: Store,
    name: str,
    to: str,
    *,
    query: str | None = None,
    form: Form | None = None,
    owner: str = "restore",
) -> RestorePlan:
    """Say what would be restored where; nothing is written.

    Args:
        store: Where the savepoint is.
        name: Id, prefix, tag, `latest`, `latest~2` or `@TIME`.
        to: URI of the checkpoint directory to be; must not exist.
        query: Only savepoints of this query.
        form: Which form to restore from; native when the savepoint has it.
        owner: The operation that this restore is a part of.

    Raises:
        SavepointNotFoundError: If there is no such savepoint.
        AmbiguousNameError: If several fit.
        VerificationError: If files of the savepoint are missing.
        UsageError: If the savepoint has not the form asked for.
        TargetExistsError: If anything else is in the directory.
    """
    savepoint = store.catalog.find(name, query=query)
    stored = store.manifest(savepoint.id)
    chosen: Form = form or savepoint.forms[0]
    if chosen not in savepoint.forms:
        raise UsageError(
            f"savepoint {savepoint.id} has no {chosen} form, only {', '.join(savepoint.forms)}",
            hint=f"restore it with --format {savepoint.forms[0]}",
            savepoint=savepoint.id,
        )
    copied = [f for f in stored.native if chosen == "native" or not is_state_data(f.path)]
    _require_present(
        store, savepoint, (*copied, *(stored.canonical if chosen == "canonical" else ()))
    )
    target, mark = Location.of(to), f"{savepoint.id} {chosen} {owner}"
    native.refuse_taken(target, mark)
    steps = [Step("files", f"copy {len(copied)} files to {target}")]
    rows = sum(one.rows or 0 for one in savepoint.operators) if chosen == "canonical" else 0
    if chosen == "canonical" and savepoint.operators:
        steps.append(Step("state", f"write {rows} state rows through Spark"))
    steps.append(Step("metadata", "write metadata, which makes it a checkpoint"))
    return RestorePlan(
        verb="restore",
        query=savepoint.query,
        steps=tuple(steps),
        warnings=(),
        savepoint_id=savepoint.id,
        target=str(target),
        form=chosen,
        batch_id=savepoint.cut.batch_id,
        partitions=savepoint.cut.partitions,
        files=len(copied),
        files_bytes=sum(file.size for file in copied),
        rows=rows,
        owner=mark,
    )


def execute(
    plan: RestorePlan,
    store: Store,
    *,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Restored:
    """Write the checkpoint.

    Run again after a crash, it begins its own unfinished directory anew.

    Raises:
        TargetExistsError: If anything else is in the directory.
        NotAlignedError: If what was written is not what the savepoint has.
    """
    begun = time.monotonic()
    target = Location.of(plan.target)
    stored = store.manifest(plan.savepoint_id)
    fresh = native.claim(target, plan.owner)
    if fresh:
        faults.reach("restore.claimed")
        copied = [f for f in stored.native if plan.form == "native" or not is_state_data(f.path)]
        progress(f"copying {len(copied)} files to {target}")
        native.mount(store.root, copied, target)
        faults.reach("restore.files")
        if plan.form == "canonical" and stored.savepoint.operators:
            progress(f"writing {plan.rows} state rows (starts Spark if it does not run yet)")
            _write_rows(plan, store, stored.savepoint, settings or Settings(), target)
            faults.reach("restore.state")
        _check(plan, stored, target)
        native.seal(store.root, stored.native, target)
        faults.reach("restore.metadata")
    elif committed_batches(target.list())[-1] != plan.batch_id:
        raise TargetExistsError(
            f"{target} was restored from {plan.savepoint_id} before, and its query has run since",
            hint="give --to a directory that does not exist; nothing is ever overwritten",
            target=plan.target,
        )
    files = [info for info in target.list() if info.path != native.RESTORE_MARKER]
    return Restored(
        plan.savepoint_id,
        plan.target,
        plan.form,
        plan.batch_id,
        time.monotonic() - begun,
        len(files),
        sum(info.size for info in files),
        not fresh,
    )


def _require_present(store: Store, savepoint: Savepoint, files: Sequence[StoredFile]) -> None:
    """Check that files of a savepoint are there and have their sizes, without reading them.

    Raises:
        VerificationError: Names the files that are not.
    """
    prefixes = (manifest.directory(savepoint.id), f"files/{savepoint.query_id}")
    there = {info.path: info.size for prefix in prefixes for info in store.root.list(prefix)}
    wrong = [file.stored_at for file in files if there.get(file.stored_at) != file.size]
    if wrong:
        raise VerificationError(
            f"savepoint {savepoint.id} is damaged: {len(wrong)} files are missing or cut, "
            f"such as {wrong[0]}",
            hint=f"see all: savepoints verify {savepoint.id}; restore another: savepoints list",
            savepoint=savepoint.id,
            files=wrong,
        )


def _write_rows(
    plan: RestorePlan, store: Store, savepoint: Savepoint, settings: Settings, target: Location
) -> None:
    from savepoints.spark import session
    from savepoints.state import rewrite

    spark = session(settings, f"savepoints restore {savepoint.query}")
    table = canonical.table(store.root, savepoint.id)
    rewrite.write_state(spark, target.uri, plan.batch_id, table.uri, plan.partitions or 1)


def _check(plan: RestorePlan, stored: Manifest, target: Location) -> None:
    """Compare what lies in the target with the savepoint before it becomes a checkpoint."""
    there = {info.path: info.size for info in target.list()}
    expected = {file.path: file.size for file in stored.native if file.path != "metadata"}
    if plan.form == "canonical":
        expected = {path: size for path, size in expected.items() if not is_state_data(path)}
        for operator in stored.savepoint.operators:
            for partition in range(operator.partitions):
                # The writer makes a full snapshot per partition, whatever the query's settings.
                path = f"state/{operator.operator_id}/{partition}/{plan.batch_id + 1}.zip"
                expected[path] = there.get(path, -1)
    wrong = [path for path, size in expected.items() if there.get(path) != size]
    if wrong:
        raise NotAlignedError(
            f"{target}: {len(wrong)} files are not as the savepoint has them, such as {wrong[0]}",
            hint="run the command again; the directory cannot be started as it is",
            files=wrong,
        )
