"""`check --rebuild-catalog`: make the catalog say what the savepoints themselves say.

The manifests, overlaid with the labels, have every fact that the catalog has. While its table can
be read only what differs is changed; otherwise its files are put aside and it is made anew.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from savepoints import faults
from savepoints.errors import VerificationError
from savepoints.io import in_parallel
from savepoints.model import Labels, Savepoint, is_id, new_id
from savepoints.moments import utc_now
from savepoints.observe.recorder import recorded
from savepoints.operations.maintain import tag
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.result import Result
from savepoints.store.root import Store
from savepoints.store.savepoint import inventory, labels
from savepoints.store.savepoint.inventory import Directory
from savepoints.store.savepoint.manifest import manifest_path
from savepoints.store.tables import checksums
from savepoints.texts import count_text


@dataclass(frozen=True)
class RebuildPlan(Plan):
    """How the catalog is going to be rebuilt.

    Attributes:
        operation_id: Id of the operation; names the place of the damaged table.
        added: Savepoints without a row.
        changed: Savepoints whose row differs from the manifest.
        removed: Rows whose savepoint has no manifest any more.
        kept: Rows whose manifest is damaged, which stay as they are.
        lost: Directories with a damaged manifest and no row to go by.
        aside: Where the damaged table is put; None when it can be read.
    """

    operation_id: str
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    lost: tuple[str, ...]
    aside: str | None

    @property
    def done(self) -> bool:
        """Return True if there is nothing to do."""
        return not (self.added or self.changed or self.removed or self.aside)


@dataclass(frozen=True)
class Rebuilt(Result):
    """What was done.

    Attributes:
        savepoints: Rows that the catalog has now.
        added: Savepoints that had no row.
        changed: Savepoints whose row differed from the manifest.
        removed: Rows whose savepoint had no manifest any more.
        kept: Rows whose manifest is damaged, which stay as they are.
        lost: Directories with a damaged manifest and no row to go by.
        aside: Where the damaged table was put; None when it could be read.
        seconds: How long it took.
    """

    savepoints: int
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    lost: tuple[str, ...]
    aside: str | None
    seconds: float


@dataclass(frozen=True)
class _Found:
    """What the savepoints say, and what is wrong with those that do not."""

    rows: list[Savepoint] | None
    is_damaged: bool
    savepoints: dict[str, Savepoint]
    damaged: dict[str, str]
    notes: list[str]


def plan(store: Store) -> RebuildPlan:
    """Compare the catalog with the savepoints; nothing is written.

    Raises:
        SavepointsError: If the store cannot be read at the moment.
    """
    found = _look(store)
    rows = {one.id: one for one in found.rows or ()}
    added = [one for one in found.savepoints if one not in rows]
    changed = [
        one.id
        for one in found.savepoints.values()
        if one.id in rows and one.to_json() != rows[one.id].to_json()
    ]
    removed = [one for one in rows if one not in found.savepoints]
    operation = new_id("op", utc_now())
    aside = f"catalog-damaged-{operation}" if found.is_damaged else None
    steps = [
        *([Step("aside", f"move the damaged catalog to {aside}/")] if aside else ()),
        *(Step("added", f"add a row for the savepoint {one} to the catalog") for one in added),
        *(Step("changed", f"correct the catalog row of {one}") for one in changed),
        *(
            Step("removed", f"remove the catalog row of {one}, which has no manifest")
            for one in removed
        ),
    ]
    kept = [one for one in found.damaged if one in rows]
    lost = [one for one in found.damaged if one not in rows]
    return RebuildPlan(
        verb="rebuild-catalog",
        query="",
        steps=tuple(steps),
        warnings=(
            *(() if steps else ("the catalog agrees with the savepoints: nothing to do",)),
            *found.notes,
            *(f"the row of {one} is left unchanged: {found.damaged[one]}" for one in kept),
            *(f"{one} cannot be recovered: {found.damaged[one]}" for one in lost),
        ),
        operation_id=operation,
        added=tuple(added),
        changed=tuple(changed),
        removed=tuple(removed),
        kept=tuple(kept),
        lost=tuple(lost),
        aside=aside,
    )


@recorded
def execute(plan: RebuildPlan, store: Store, *, progress: Progress = silent) -> Rebuilt:
    """Do it, to what is still so; run again after a crash, it goes on.

    Savepoints that are taken meanwhile add their own row.
    """
    begun = time.monotonic()
    found = _look(store)
    if plan.aside is not None and found.is_damaged:
        progress(f"moving the damaged catalog to {plan.aside}/")
        rows = _tagged_once(store, list(found.savepoints.values()), [], progress)
        store.catalog.rebuild(rows, store.root / plan.aside)
        faults.reach("rebuild-catalog.anew")
    elif not plan.done:
        wanted = {*plan.added, *plan.changed}
        progress(
            f"correcting {count_text(len(wanted), 'row')} of the catalog and removing "
            f"{len(plan.removed)}"
        )
        added = [one for name, one in found.savepoints.items() if name in plan.added]
        changed = [one for name, one in found.savepoints.items() if name in plan.changed]
        known = [*(one for one in store.catalog.all() if one.id not in wanted), *changed]
        store.catalog.put([*changed, *_tagged_once(store, added, known, progress)])
        faults.reach("rebuild-catalog.rows")
        store.catalog.remove([name for name in plan.removed if name not in found.savepoints])
    return Rebuilt(
        len(store.catalog.all()),
        plan.added,
        plan.changed,
        plan.removed,
        plan.kept,
        plan.lost,
        plan.aside,
        time.monotonic() - begun,
    )


def _tagged_once(
    store: Store, added: Sequence[Savepoint], known: Sequence[Savepoint], progress: Progress
) -> list[Savepoint]:
    """Return savepoints that get their rows back, each tag on one of a query.

    One whose making was killed before it had a row may have a tag that somebody gave another one
    since. That is then the newer, or was tagged later, which labels of its own say.

    Args:
        known: Those that have rows.
    """

    def age(one: Savepoint) -> tuple[bool, datetime]:
        return store.root.exists(labels.labels_path(one.id)), one.created_at

    ages = dict(zip((one.id for one in added), in_parallel(age, added), strict=True))
    with_rows = [*known]
    for one in sorted(added, key=lambda one: ages[one.id], reverse=True):
        with_rows.append(tag.without_taken(store, one, with_rows, progress))
    return with_rows[len(known) :]


def described(store: Store, row: Savepoint | None, found: Directory) -> tuple[Savepoint, str]:
    """Return a savepoint as its manifest and labels describe it, and what is wrong with the latter.

    Labels that are damaged are taken from the row, or from the savepoint's birth without one.
    """
    assert found.manifest is not None
    born = found.manifest.savepoint
    try:
        known: Labels | None = labels.read(store.root, born.id)
        problem = ""
    except VerificationError as error:
        known, problem = (row or born).labels, error.message
    return born.with_labels(known or born.labels), problem


def _look(store: Store) -> _Found:
    try:
        rows: list[Savepoint] | None = store.reopened().catalog.all()
    except VerificationError:
        rows = None
    if rows is not None and not all(is_id(one.id) for one in rows):
        rows = None  # Somebody else wrote into it: nothing in it is to be trusted.
    wrong = checksums.problems(store.root / "catalog").values()
    is_damaged = rows is None or not all(problem.startswith(checksums.UNKNOWN) for problem in wrong)
    directories = inventory.list_directories(store.root, rows or ()).directories
    by_id = {one.id: one for one in rows or ()}
    whole = [one for one in directories.values() if one.manifest is not None]
    known = in_parallel(lambda one: described(store, by_id.get(one.savepoint_id), one), whole)
    notes = [f"{problem}; its labels are taken from the catalog" for _, problem in known if problem]
    savepoints = {
        one.id: one
        for one, _ in known
        # Its row was taken away, the rest of its removal has yet to come.
        if not (one.state == "expired" and rows is not None and one.id not in by_id)
    }
    damaged = {
        one.savepoint_id: one.problem
        for one in directories.values()
        if one.manifest is None
        and any(info.path == manifest_path(one.savepoint_id) for info in one.files)
    }
    savepoints |= {name: row for name, row in by_id.items() if name in damaged}
    return _Found(rows, is_damaged, savepoints, damaged, notes)
