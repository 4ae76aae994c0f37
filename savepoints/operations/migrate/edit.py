"""`edit`: repair the state in a savepoint by hand; the result is a new savepoint.

Chosen rows of its state are changed or removed; offsets, watermark, output versions and
all other rows are those of the savepoint that is edited, which stays as it is. The new one has the
canonical form only, since state stores cannot be written in place. As when a savepoint is taken the
order is files, rows, manifest, catalog row: until the last step it does not exist, and what a
killed `edit` left is removed by `gc`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from savepoints import faults
from savepoints.errors import NativeOnlyError, NotFoundError, UsageError, VerificationError
from savepoints.model import Cost, Edit, Savepoint, new_id
from savepoints.moments import utc_now
from savepoints.observe.recorder import recording, who
from savepoints.operations.inspect import read_state
from savepoints.operations.migrate import editable
from savepoints.operations.savepoint.state_rows import state_rows
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.state.change.edit import Counted, Edited, Family, StateEdit, edited
from savepoints.state.storage.canonical_table import Contents
from savepoints.state.typed.compare import RowChange
from savepoints.store.locks import lease
from savepoints.store.root import Store
from savepoints.store.savepoint import canonical, manifest, native
from savepoints.store.savepoint.manifest import Manifest, StoredFile
from savepoints.texts import count_text

AT_MOST = 1000
_SHOWN = 20


@dataclass(frozen=True)
class EditPlan(Plan):
    """What `edit` is going to do.

    Attributes:
        savepoint_id: Id of the new savepoint.
        parent: The savepoint that is edited.
        query_id: Spark's id of the query.
        operator_id: Operator whose rows are changed.
        variable: State variable of a `transformWithState`, None for other operators.
        where: SQL that chooses the rows; None for all.
        assignments: What is set, as `field = SQL`.
        delete: Whether the rows are removed.
        function: Name of the function that changes them, None for SQL.
        reason: Reason for the edit, as free text.
        rows: All rows of the state.
        rows_chosen: Rows that the condition selects.
        rows_changed: Selected rows whose value changes; 0 when they are removed.
        content_hash: Hash of the selected rows and their new values; the execution must get the
            same.
        sample: The first selected rows, before and after.
    """

    savepoint_id: str
    parent: str
    query_id: str
    operator_id: int
    variable: str | None
    where: str | None
    assignments: tuple[str, ...]
    delete: bool
    function: str | None
    reason: str
    rows: int
    rows_chosen: int
    rows_changed: int
    content_hash: str
    sample: tuple[RowChange, ...]


def plan(
    store: Store,
    name: str,
    change: StateEdit,
    *,
    reason: str,
    query: str | None = None,
    operator: int | None = None,
    variable: str | None = None,
    at_most: int = AT_MOST,
    progress: Progress = silent,
) -> EditPlan:
    """Find the rows and compute what they become; nothing is written.

    Raises:
        SavepointNotFoundError: If there is no such savepoint.
        AmbiguousNameError: If several fit.
        NativeOnlyError: If an operator has no canonical form, or the savepoint has only its native
            form, which this Spark cannot read.
        IncompatibleError: If the change would make the state inconsistent, or the state cannot be
            decoded.
    """
    store = store.snapshot()
    _require_change(change, reason)
    savepoint = store.catalog.find(name, query=query)
    _require_editable(savepoint)
    chosen = read_state.choose(
        savepoint, read_state.variables(store, savepoint), operator, variable=variable
    )
    family = editable.family(store, savepoint, chosen, deletes=change.delete)
    function = getattr(change.function, "__qualname__", None) if change.function else None
    with store.using(savepoint.id, "edit"):
        progress("finding the rows (starts Spark if it is not running)")
        with _edited(store, store.manifest(savepoint.id), family, change) as found:
            counted = found.count()
            _require_rows(savepoint, chosen.options, change, counted, at_most)
            sample = found.sample(_SHOWN)
    what = f"remove {counted.chosen}" if change.delete else f"change {counted.changed}"
    new = new_id("sp", utc_now())
    return EditPlan(
        verb="edit",
        query=savepoint.query,
        steps=(
            Step("files", f"copy the metadata files of {savepoint.id} to a new savepoint {new}"),
            Step(
                "rows",
                f"copy the state, and {what} of {count_text(counted.rows, 'row')} of {family}",
            ),
            Step("manifest", "write the savepoint's manifest"),
            Step("catalog", "add the new savepoint to the catalog"),
        ),
        warnings=_warnings(savepoint, change, counted),
        savepoint_id=new,
        parent=savepoint.id,
        query_id=savepoint.query_id,
        operator_id=chosen.operator_id,
        variable=chosen.name,
        where=change.where,
        assignments=change.assignments,
        delete=change.delete,
        function=function,
        reason=reason,
        rows=counted.rows,
        rows_chosen=counted.chosen,
        rows_changed=counted.changed,
        content_hash=counted.content_hash,
        sample=sample,
    )


def execute(
    plan: EditPlan, store: Store, change: StateEdit, *, progress: Progress = silent
) -> Savepoint:
    """Make the new savepoint. Running the same plan again after a crash goes on or starts over.

    Args:
        change: The same change; of a function the plan has only the name.

    Raises:
        LockedError: If another savepoint of the query is being taken, or one removed.
    """
    parameters = {
        "parent": plan.parent, "operator_id": plan.operator_id, "variable": plan.variable,
        "where": plan.where, "set": "; ".join(plan.assignments), "delete": plan.delete or None,
        "function": plan.function, "reason": plan.reason,
    }  # fmt: skip
    with (
        recording(
            store, "edit", query=plan.query, savepoint=plan.savepoint_id, parameters=parameters
        ) as noted,
        store.using(plan.parent, "edit"),
        lease.hold_files(store.root, plan.query_id, plan.query, "edit") as held,
    ):
        path = manifest.manifest_path(plan.savepoint_id)
        if not store.root.exists(path):
            made = _make(plan, store, change, held.moment(), progress)
            held.check()
            store.root.create(path, made.to_bytes())
            faults.reach("edit.manifest")
        savepoint = store.manifest(plan.savepoint_id).savepoint
        held.check()
        store.catalog.add(savepoint)
        faults.reach("edit.catalog")
        noted.note(
            seconds=savepoint.cost.seconds,
            bytes=savepoint.cost.export_bytes,
            rows=plan.rows_chosen if plan.delete else plan.rows_changed,
        )
    return savepoint


def _make(
    plan: EditPlan, store: Store, change: StateEdit, taken_at: datetime, progress: Progress
) -> Manifest:
    begun = time.monotonic()
    parent = store.manifest(plan.parent)
    home = store.root / manifest.directory(plan.savepoint_id)
    home.delete(info.path for info in home.list())
    small = parent.small_files
    progress(f"copying {count_text(len(small), 'file')} and the state rows of {plan.parent}")
    copied = _copy(store, small, plan.savepoint_id)
    faults.reach("edit.files")

    chosen = read_state.choose(
        parent.savepoint,
        read_state.variables(store, parent.savepoint),
        plan.operator_id,
        variable=plan.variable,
    )
    family = editable.family(store, parent.savepoint, chosen, deletes=plan.delete)
    with _edited(store, parent, family, change) as found:
        table = canonical.table(store.root, plan.savepoint_id)
        counted, contents = found.write(table, parent.savepoint.operators)
    if counted != Counted(plan.rows, plan.rows_chosen, plan.rows_changed, plan.content_hash):
        raise VerificationError(
            "the change is not deterministic: the rows that it selects or the values that it "
            f"writes differ from the plan (rows selected: {counted.chosen}, planned: "
            f"{plan.rows_chosen}; rows changed: {counted.changed}, planned: {plan.rows_changed}); "
            "nothing was changed",
            hint="remove rand(), now() and the like from the expressions",
        )
    faults.reach("edit.rows")
    rows = canonical.stored_files(store.root, plan.savepoint_id)
    cost = Cost(
        export_seconds=time.monotonic() - begun,
        objects_copied=len(copied),
        bytes_copied=sum(file.size for file in copied),
        export_bytes=sum(file.size for file in rows),
    )
    described = _described(plan, parent.savepoint, contents, cost)
    savepoint = replace(described, created_at=taken_at)
    return replace(parent, savepoint=savepoint, native=copied, canonical=rows)


def _described(
    plan: EditPlan, parent: Savepoint, contents: dict[int, Contents], cost: Cost
) -> Savepoint:
    empty = Contents(0, 0, "0" * 32)
    return replace(
        parent,
        id=plan.savepoint_id,
        forms=("canonical",),
        operators=tuple(
            replace(one, **vars(contents.get(one.operator_id, empty))) for one in parent.operators
        ),
        cost=cost,
        parent=parent.id,
        edit=Edit(
            by=who(),
            reason=plan.reason,
            operator_id=plan.operator_id,
            variable=plan.variable,
            where=plan.where,
            assignments=plan.assignments,
            function=plan.function,
            rows_changed=plan.rows_changed,
            rows_removed=plan.rows_chosen if plan.delete else 0,
        ),
        tags=(),
        kind="edit",
        description=f"edited: {plan.reason}",
        pinned=False,
        state="complete",
        state_reason=None,
    )


def _copy(store: Store, files: Sequence[StoredFile], savepoint_id: str) -> tuple[StoredFile, ...]:
    """Copy the small files, each compared with its hash where it arrives."""

    def copy(file: StoredFile) -> StoredFile:
        target = f"{manifest.directory(savepoint_id)}/checkpoint/{file.path}"
        try:
            store.root.copy_from(store.root, file.stored_at, target)
            arrived = store.root.sha256(target)
            problem = f"damaged: its SHA-256 is {arrived} instead of {file.sha256}"
        except FileNotFoundError:
            arrived, problem = "", "missing"
        if arrived != file.sha256:
            raise VerificationError(
                f"{file.stored_at} is {problem}",
                hint="choose another savepoint to edit: savepoints list",
                files=[file.stored_at],
            )
        return replace(file, stored_at=target)

    return tuple(native.bring(copy, files))


@contextmanager
def _edited(store: Store, stored: Manifest, family: Family, change: StateEdit) -> Iterator[Edited]:
    from savepoints.spark.session import session
    from savepoints.state.typed import typed

    spark = session(store.settings, f"savepoints edit {stored.savepoint.query}")
    with state_rows(stored, store, typed.reading_session(spark, stored.savepoint.cut)) as rows:
        yield edited(rows, family, change)


def _require_change(change: StateEdit, reason: str) -> None:
    given = [bool(change.assignments), change.delete, change.function is not None]
    if sum(given) != 1:
        raise UsageError(
            "an edit must either set fields or delete rows, not both",
            hint="pass, for example, --set 'count = count + 1' to change rows, or --delete",
        )
    if change.delete and change.where is None:
        raise UsageError(
            "--delete needs a condition", hint="add --where SQL; to remove all rows: --where true"
        )
    if not reason.strip():
        raise UsageError(
            "a reason is required",
            hint="pass the reason, which is stored with the savepoint: --reason 'ticket 4711'",
        )


def _require_editable(savepoint: Savepoint) -> None:
    if savepoint.state != "complete":
        raise VerificationError(
            f"savepoint {savepoint.id} is {savepoint.state}: {savepoint.state_reason}",
            hint="choose another savepoint to edit: savepoints list",
            savepoint=savepoint.id,
        )
    if native := [one for one in savepoint.operators if one.native_only]:
        raise NativeOnlyError(
            f"the state of savepoint {savepoint.id} cannot be written as rows: operator "
            f"{native[0].operator_id} ({native[0].name}) has no canonical form, because "
            f"{native[0].native_only}",
            hint=f"restore it unchanged instead: savepoints restore {savepoint.id} --format "
            "native --to URI",
            savepoint=savepoint.id,
        )


def _require_rows(
    savepoint: Savepoint, options: str, change: StateEdit, counted: Counted, at_most: int
) -> None:
    look = f"show the rows: savepoints state {savepoint.id} {options}"
    if not counted.chosen:
        raise NotFoundError(
            f"no row matches: {change.where or 'the state is empty'} "
            f"({count_text(counted.rows, 'row')} checked)",
            hint=look,
            savepoint=savepoint.id,
        )
    if not change.delete and not counted.changed:
        raise NotFoundError(
            f"nothing to change: all matching rows ({counted.chosen}) already have these values",
            hint=look,
            savepoint=savepoint.id,
        )
    concerned = counted.changed if change.function is not None else counted.chosen
    if concerned > at_most:
        raise UsageError(
            f"{concerned} of {counted.rows} rows would be "
            f"{'removed' if change.delete else 'updated'}, more than the limit of {at_most}",
            hint=f"narrow --where, or allow this with --at-most {concerned}",
        )


def _warnings(savepoint: Savepoint, change: StateEdit, counted: Counted) -> tuple[str, ...]:
    note = "the new savepoint has only the canonical form, and latest, @TIME and run --recover skip"
    notes = [f"{note} it: refer to it by its id or a tag"]
    if savepoint.outputs:
        notes.append(
            "outputs are not edited: rows already written from this state remain until the query "
            "writes them again"
        )
    if not change.delete and change.function is None and counted.changed < counted.chosen:
        notes.append(
            f"{counted.chosen - counted.changed} of the {counted.chosen} selected rows already "
            "have these values"
        )
    return tuple(notes)
