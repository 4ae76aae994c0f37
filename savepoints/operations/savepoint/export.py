"""`export`: write the canonical rows of a savepoint from its files.

`create` does it right after the pin; a savepoint that was taken with `--format native`, which needs
no JVM and a moment only, can be given its rows later. The manifest is replaced then, by a
conditional PUT, and says the same of everything else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from savepoints import faults
from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.state.files import is_of_operator
from savepoints.errors import NativeOnlyError, SavepointsError, UsageError, message_of
from savepoints.io import Location
from savepoints.model import FORMS, Savepoint
from savepoints.observe.recorder import recorded
from savepoints.operations.savepoint import restore_checks
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.spark import causes
from savepoints.store.locks import lease
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store
from savepoints.store.savepoint import canonical, manifest, native
from savepoints.store.savepoint.manifest import Manifest, StoredFile

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportPlan(Plan):
    """What `export` is going to do.

    Attributes:
        savepoint_id: The savepoint that gets its canonical form.
        operators: Operators whose rows are written.
        done: It has them already; nothing will be done.
    """

    savepoint_id: str
    operators: tuple[int, ...]
    done: bool


def plan(store: Store, name: str, *, query: str | None = None) -> ExportPlan:
    """Plan an export; nothing is written.

    Args:
        name: Id, prefix, tag, `latest`, `latest~2` or `@TIME`.

    Raises:
        SavepointNotFoundError: If there is no such savepoint.
        AmbiguousNameError: If several fit.
        NativeOnlyError: If none of its operators has a canonical form.
    """
    store = store.snapshot()
    savepoint = store.catalog.find(name, query=query)
    mine = tuple(one.operator_id for one in savepoint.operators if one.native_only is None)
    if savepoint.operators and not mine:
        reasons = "; ".join(str(one.native_only) for one in savepoint.operators)
        raise NativeOnlyError(
            f"savepoint {savepoint.id} cannot be exported to the canonical form: {reasons}",
            hint="restore its native form, which is complete: savepoints restore "
            f"{savepoint.id} --to URI",
            savepoint=savepoint.id,
        )
    done = "canonical" in savepoint.forms
    return ExportPlan(
        verb="export",
        query=savepoint.query,
        steps=()
        if done
        else (
            Step("exported", "write the state rows as a Delta table"),
            Step("manifest", "replace the savepoint's manifest"),
            Step("catalog", "record the canonical form in the catalog"),
        ),
        warnings=tuple(
            f"operator {one.operator_id} ({one.name}) stays native only: {one.native_only}"
            for one in savepoint.operators
            if one.native_only
        ),
        savepoint_id=savepoint.id,
        operators=mine,
        done=done,
    )


@recorded
def execute(
    plan: ExportPlan, store: Store, *, progress: Progress = silent, tasks: int | None = None
) -> Savepoint:
    """Write the rows; run again after a crash, it goes on or starts over.

    Args:
        tasks: How many tasks write at the same time, for an export that must leave room for others
            in the session; one for each state partition by default.

    Raises:
        PlacementError: If a state row is not in the partition of its key.
        VerificationError: If a native file is missing or has another checksum than the manifest;
            see `restore_checks.require_intact`.
        LockedError: If another process writes the rows of this savepoint.
    """
    with (
        store.using(plan.savepoint_id, "export"),
        lease.hold_exporting(store.root, plan.savepoint_id, plan.query or "", "export") as held,
    ):
        return _export(plan, store, held, progress, tasks)


def _export(
    plan: ExportPlan, store: Store, held: Lease, progress: Progress, tasks: int | None
) -> Savepoint:
    # Read under the lease: another process may have written the rows since the plan.
    path = manifest.manifest_path(plan.savepoint_id)
    etag = store.root.head(path).etag
    stored = store.manifest(plan.savepoint_id)
    if "canonical" not in stored.savepoint.forms:
        files = _mounted(stored)
        restore_checks.require_present(store, stored.savepoint, files)
        # The rows get hashes of their own, by which what was damaged here would be whole. Of large
        # files Spark's readers check each block.
        restore_checks.require_intact(store, plan.savepoint_id, files)
        progress("writing the state rows (starts Spark if it is not running)")
        stored = with_rows(stored, store, tasks=tasks, check=held.check)
        faults.reach("export.exported")
        held.check()
        try:
            store.root.replace(path, stored.to_bytes(), etag)
        except FileExistsError:
            raise UsageError(
                f"savepoint {plan.savepoint_id} is being exported by another process",
                hint="wait for it to finish, then check the savepoint: savepoints show "
                f"{plan.savepoint_id}",
                savepoint=plan.savepoint_id,
            ) from None
        faults.reach("export.manifest")
    store.catalog.exported(stored.savepoint)
    faults.reach("export.catalog")
    return stored.savepoint


def with_rows(
    stored: Manifest,
    store: Store,
    *,
    tasks: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> Manifest:
    """Write the canonical rows of a savepoint and return its manifest with them.

    Whatever fails, the native form stays as it was, and the rows can be written later.

    The files are laid out as a checkpoint for the while. Operators without a canonical form are
    left out of it, because Spark would refuse to read any state beside theirs.

    Args:
        tasks: See `execute`.
        check: Fails if another process may write the rows by now; what it has written would go.
    """
    savepoint = stored.savepoint
    exported = replace(stored, savepoint=replace(savepoint, forms=FORMS))
    if not savepoint.operators:
        return exported
    from savepoints.spark.session import session
    from savepoints.state.storage import canonical_table

    begun = time.monotonic()
    spark = session(store.settings, f"savepoints export {savepoint.query}")
    scratch = store.root / manifest.directory(savepoint.id) / "mounted"
    table = canonical.table(store.root, savepoint.id)
    check()
    for leftover in (scratch, table):
        leftover.delete(info.path for info in leftover.list())
    try:
        mount(stored, store, scratch)
        files = read_cut(scratch, savepoint.cut.batch_id)
        found = canonical_table.export(spark, scratch, files, table, tasks)
    finally:
        scratch.delete(info.path for info in scratch.list())
    rows = canonical.stored_files(store.root, savepoint.id)
    cost = replace(
        savepoint.cost,
        export_seconds=time.monotonic() - begun,
        export_bytes=sum(file.size for file in rows),
    )
    operators = tuple(
        replace(one, **vars(found[one.operator_id])) if one.operator_id in found else one
        for one in savepoint.operators
    )
    with_contents = replace(
        exported.savepoint,
        operators=operators,
        cost=cost,
        spark_version=spark.version,
        rows_missing=None,
    )
    return replace(exported, savepoint=with_contents, canonical=rows)


def mount(stored: Manifest, store: Store, scratch: Location) -> None:
    """Lay out the native files of a savepoint for reading its canonical operators."""
    wanted = {file.path for file in _mounted(stored)}
    partitions = stored.savepoint.cut.partitions
    native.lay_out(store.root, stored.native, wanted.__contains__, scratch, partitions)


def _mounted(stored: Manifest) -> list[StoredFile]:
    """Return the native files that are read for rows."""
    hidden = [one.operator_id for one in stored.savepoint.operators if one.native_only]
    return [file for file in stored.native if not is_of_operator(file.path, hidden)]


def without_rows(made: Manifest, error: Exception) -> Manifest:
    """Keep a savepoint of which only the rows could not be written, and say so in the log."""
    reason = f"{type(error).__name__}: {message_of(error).strip() or 'no message'}".splitlines()[0]
    if (cause := causes.of(error)) is not None:
        reason = cause.message
    _LOG.error(
        "could not write the state rows of %s, so it has only the native form: %s; add the rows "
        "once the cause is removed: savepoints export %s",
        made.savepoint.id,
        reason,
        made.savepoint.id,
        exc_info=None if isinstance(error, SavepointsError) else error,
    )
    return replace(made, savepoint=replace(made.savepoint, rows_missing=reason))
