"""`gc`: find what no catalog row names, adopt what is a whole savepoint and delete the rest.

A `create` that died before its last step has left a whole savepoint without a row: it gets one, so
nothing is ever lost when a row is lost. Everything else is what a verb that was killed left: files
of half a savepoint, shared files that no manifest names, scratch directories, signs of readers that
are gone, savepoints whose removal was interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta

from savepoints import faults
from savepoints.errors import LockedError
from savepoints.observe.recorder import recording
from savepoints.operations.maintain import orphans, removal, tag
from savepoints.operations.maintain.orphans import Orphan
from savepoints.operations.maintain.removal import Removed
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.result import Result
from savepoints.store.locks import lease
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store
from savepoints.store.savepoint import inventory, labels
from savepoints.store.savepoint.inventory import Inventory
from savepoints.store.savepoint.labels import labels_path
from savepoints.store.savepoint.manifest import manifest_path
from savepoints.texts import count_text

GRACE = timedelta(hours=24)


@dataclass(frozen=True)
class GcPlan(Plan):
    """What `gc` is going to do.

    Attributes:
        grace_seconds: Nothing younger is touched, except for interrupted removals.
        orphans: What was found that is old enough.
        young: How many were found that are too young.
    """

    grace_seconds: float
    orphans: tuple[Orphan, ...]
    young: int

    @property
    def bytes(self) -> int:
        """Bytes that will be freed; an interrupted removal may free shared files besides."""
        return sum(one.bytes for one in self.orphans if one.action != "adopt")


@dataclass(frozen=True)
class Collected(Result):
    """What was done.

    Attributes:
        adopted: Ids of savepoints that have a row now.
        finished: Ids of savepoints whose removal is finished now.
        kept: Savepoints whose removal was interrupted and that something needs, with the reasons.
        files: Files that were deleted.
        bytes: Their bytes.
        locked: Query ids that were left alone because another process is working on their
            savepoints, with what it does.
        findings: What was left because it is unknown whether something needs it.
        seconds: How long it took.
    """

    adopted: tuple[str, ...]
    finished: tuple[str, ...]
    kept: Mapping[str, tuple[str, ...]]
    files: int
    bytes: int
    locked: Mapping[str, str]
    findings: tuple[str, ...]
    seconds: float


def plan(store: Store, *, grace: timedelta = GRACE) -> GcPlan:
    """Plan to remove files that no row names and that are older than the grace time.

    Args:
        grace: Minimum age of a file; a younger one may belong to a savepoint that is being taken.

    Raises:
        VerificationError: If the catalog has no rows although there are manifests: it was lost.
    """
    store = store.snapshot()
    found = orphans.find(store, grace)
    return GcPlan(
        verb="gc",
        query="",
        steps=tuple(Step(one.action, one.repair) for one in found.orphans),
        warnings=found.findings,
        grace_seconds=grace.total_seconds(),
        orphans=found.orphans,
        young=found.young,
    )


def execute(plan: GcPlan, store: Store, *, progress: Progress = silent) -> Collected:
    """Do what was planned, of what is still so; query ids that others work on are left alone.

    Raises:
        VerificationError: If the catalog was lost meanwhile.
    """
    begun = time.monotonic()
    work = _Work(store, timedelta(seconds=plan.grace_seconds), progress)
    groups: dict[str | None, list[Orphan]] = {}
    for one in plan.orphans:
        groups.setdefault(one.query_id, []).append(one)
    with recording(store, plan.verb, parameters={"grace_seconds": plan.grace_seconds}) as noted:
        for query_id, planned in groups.items():
            if query_id is None:
                work.collect(planned, None)
                continue
            with ExitStack() as stack:
                try:
                    held = stack.enter_context(
                        lease.hold_files(store.root, query_id, query_id, plan.verb)
                    )
                except LockedError as error:
                    work.locked[query_id] = error.message
                    continue
                work.collect(planned, held)
        done = work.done(plan.warnings, time.monotonic() - begun)
        noted.note(
            bytes=done.bytes,
            message=f"added {', '.join(done.adopted) or 'nothing'} to the catalog, deleted "
            f"{count_text(done.files, 'file')}",
        )
    return done


@dataclass
class _Work:
    """One execution: what it is to do, and what it has done."""

    store: Store
    grace: timedelta
    progress: Progress
    locked: dict[str, str] = field(default_factory=dict)
    adopted: list[str] = field(default_factory=list)
    deleted: dict[str, int] = field(default_factory=dict)
    removed: list[Removed] = field(default_factory=list)

    def collect(self, planned: Sequence[Orphan], held: Lease | None) -> None:
        """Do what was planned for one query id, of what is still so."""
        found = orphans.find(self.store, self.grace)
        wanted = {(one.place, one.action): one.files for one in planned}
        now = [one for one in found.orphans if (one.place, one.action) in wanted]
        for one in now:
            if one.action == "adopt":
                _check(held)
                self.progress(f"adding {one.name} to the catalog")
                self._adopt(one.name, found.there)
        for one in now:
            if one.kind in orphans.OF_EXPORT:
                self._clear(one, found.there, held)
        files = {
            path: size
            for one in now
            if one.action == "delete" and one.kind not in orphans.OF_EXPORT
            for path, size in one.files.items()
            if path in wanted[one.place, one.action]
        }
        self._delete(files, {one.name for one in now if one.kind == "directory"}, held)
        finish = [one.name for one in now if one.action == "finish"]
        if finish and held is not None:
            query_id = planned[0].query_id or ""
            self.removed.append(
                removal.remove(self.store, query_id, finish, held, progress=self.progress)
            )

    def _clear(self, one: Orphan, there: Inventory, held: Lease | None) -> None:
        """Delete what an export left, as far as that is so while no other can begin."""
        savepoint_id = one.place.split("/")[1]
        row = there.directories[savepoint_id].row
        assert row
        try:
            with lease.hold_exporting(self.store.root, row.id, row.query, "gc") as exporting:
                again = orphans.left_by_export(inventory.look(self.store.root, row))
                exporting.check()
                left = {info.path: info.size for info in again.get(one.kind, ())}
                self._delete({path: left[path] for path in left if path in one.files}, (), held)
        except LockedError as error:
            self.locked[row.query_id] = error.message

    def _adopt(self, savepoint_id: str, there: Inventory) -> None:
        found = there.directories[savepoint_id].manifest
        assert found
        said = labels.read(self.store.root, savepoint_id)
        adopted = found.savepoint.with_labels(said) if said else found.savepoint
        known = self.store.catalog.all() if adopted.tags else ()
        adopted = tag.without_taken(self.store, adopted, known, self.progress)
        self.store.catalog.add(adopted)
        faults.reach("gc.adopted")
        self.adopted.append(savepoint_id)

    def _delete(self, files: Mapping[str, int], ids: Collection[str], held: Lease | None) -> None:
        """Delete files, manifests after everything that they name, and labels last."""
        manifests = {manifest_path(name) for name in ids} & files.keys()
        said = {labels_path(name) for name in ids} & files.keys()
        rest = files.keys() - manifests - said
        for step, group in (("files", rest), ("manifest", manifests), ("labels", said)):
            _check(held)
            self.store.root.delete(group)
            self.deleted |= {path: files[path] for path in group}
            faults.reach(f"gc.{step}")

    def done(self, findings: Sequence[str], seconds: float) -> Collected:
        """Return what was done."""
        texts = [text for one in self.removed for text in one.findings]
        return Collected(
            adopted=tuple(self.adopted),
            finished=tuple(name for one in self.removed for name in one.ids),
            kept={name: why for one in self.removed for name, why in one.kept.items()},
            files=len(self.deleted) + sum(one.files for one in self.removed),
            bytes=sum(self.deleted.values()) + sum(one.bytes for one in self.removed),
            locked=self.locked,
            findings=tuple(dict.fromkeys((*findings, *texts))),
            seconds=seconds,
        )


def _check(held: Lease | None) -> None:
    if held is not None:
        held.check()
