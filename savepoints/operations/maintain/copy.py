"""`copy`: bring a savepoint into another store or local directory.

The copy is complete and independent: shared files come along, and nothing in it points back. Files
go first, each compared with its SHA-256 where it arrives; then labels, manifest, catalog row, as
when a savepoint is taken. So until the last step the copy does not exist, and run again after a
crash it goes on with what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from shlex import quote

from savepoints import faults
from savepoints.errors import TargetExistsError, UsageError, VerificationError
from savepoints.io import Location
from savepoints.model import Labels, Savepoint, SavepointState
from savepoints.observe.recorder import recorded
from savepoints.operations.inspect import verification
from savepoints.operations.inspect.verify import reading
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.result import Result
from savepoints.store.locks import lease
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store
from savepoints.store.savepoint import labels, manifest, native
from savepoints.store.savepoint.labels import labels_path
from savepoints.store.savepoint.manifest import Manifest, StoredFile
from savepoints.store.tables import tags
from savepoints.texts import bytes_text, count_text
from savepoints.uri import lies_in


@dataclass(frozen=True)
class CopyPlan(Plan):
    """What `copy` is going to do.

    Attributes:
        savepoint_id: What is copied.
        query_id: Spark's id of its query.
        destination: Root of the other store.
        files: Files of the savepoint, without manifest and labels.
        files_bytes: Their bytes.
        objects_there: Those that are at the destination already, with their size.
        labels: Tags and the like that the copy gets.
        done: The destination already has it, whole; nothing will be done.
    """

    savepoint_id: str
    query_id: str
    destination: str
    files: int
    files_bytes: int
    objects_there: int
    labels: Labels
    done: bool


@dataclass(frozen=True)
class Copied(Result):
    """What `copy` did.

    Attributes:
        savepoint_id: What was copied; its id is the same there.
        destination: Root of the other store.
        objects_copied: Files that were copied.
        bytes_written: Their bytes.
        objects_there: Files that were already there with the same content.
        seconds: How long it took.
        already_copied: The destination already had it, whole; nothing was done.
    """

    savepoint_id: str
    destination: str
    objects_copied: int
    bytes_written: int
    objects_there: int
    seconds: float
    already_copied: bool


def plan(store: Store, name: str, destination: str, *, query: str | None = None) -> CopyPlan:
    """Plan a copy of a savepoint; nothing is written.

    Args:
        name: Id, prefix, tag, `latest`, `latest~2` or `@TIME`.
        destination: Root of the other store, which is created if it does not exist.

    Raises:
        SavepointNotFoundError: If there is no such savepoint.
        AmbiguousNameError: If several fit.
        StoreNotFoundError: If the destination's bucket does not exist.
        UsageError: If one store lies within the other.
        VerificationError: If the savepoint is broken, or files of it are missing.
        TargetExistsError: If the destination has another savepoint of this id.
    """
    store = store.snapshot()
    savepoint = store.catalog.find(name, query=query)
    target = Store.at(destination)
    _refuse_nested(store.root, target.root)
    stored = _whole(store, savepoint)
    missing = _missing(target, stored)
    known = target.catalog.all()
    state = _state_there(store, target, savepoint, known)
    done = state == "complete" and not missing
    kept, notes = _labels(savepoint, known)
    if not target.exists():
        notes += (f"there is no store at {target.root} yet: one will be created",)
    size = bytes_text(sum(file.size for file in missing))
    steps: tuple[Step, ...] = (
        Step("files", f"copy {count_text(len(missing), 'file')} ({size}) to {target.root}"),
        Step("manifest", "write the savepoint's labels and manifest"),
        Step("catalog", "add the savepoint to the catalog of that store"),
    )
    if state is not None:
        steps = (
            Step("files", f"copy what is missing or damaged of it in {target.root} once more"),
        )
        notes = (f"{target.root} already has this savepoint, but not whole",)
    return CopyPlan(
        verb="copy",
        query=savepoint.query,
        steps=() if done else steps,
        warnings=(f"{target.root} already has this savepoint: nothing to do",) if done else notes,
        savepoint_id=savepoint.id,
        query_id=savepoint.query_id,
        destination=str(target.root),
        files=len(stored.files),
        files_bytes=sum(file.size for file in stored.files),
        objects_there=len(stored.files) - len(missing),
        labels=kept,
        done=done,
    )


@recorded
def execute(plan: CopyPlan, store: Store, *, progress: Progress = silent) -> Copied:
    """Copy the savepoint; run again after a crash, it goes on.

    Raises:
        LockedError: If savepoints of the query are added or removed at the destination.
        TargetExistsError: If the destination has another savepoint of this id by now.
    """
    begun = time.monotonic()
    target = Store.at(plan.destination).make(progress)
    savepoint = store.catalog.find(plan.savepoint_id)
    state = _state_there(store, target, savepoint, target.catalog.all())
    if state == "complete" and not _missing(target, store.manifest(savepoint.id)):
        seconds = time.monotonic() - begun
        return Copied(
            plan.savepoint_id, plan.destination, 0, 0, plan.files, seconds, already_copied=True
        )
    with (
        reading(store, plan.savepoint_id, "copy"),
        lease.hold_files(target.root, plan.query_id, plan.query, "copy") as held,
    ):
        stored = _whole(store, savepoint)
        progress(f"copying {count_text(len(stored.files), 'file')} to {target.root}")
        copied = _copy_files(store.root, target.root, stored.files, held)
        faults.reach("copy.files")
        held.check()
        if state is None:  # Those of one that is there are its own.
            _write_labels(target.root, stored.savepoint, plan.labels)
        path = manifest.manifest_path(plan.savepoint_id)
        try:
            # What was copied, whatever the manifest says by now: its rows may have been written.
            target.root.create(path, stored.to_bytes())
        except FileExistsError:
            _refuse_other(store, target, savepoint)
        faults.reach("copy.manifest")
        held.check()
        target.catalog.add(stored.savepoint.with_labels(plan.labels))
        faults.reach("copy.catalog")
    return Copied(
        plan.savepoint_id,
        plan.destination,
        len(copied),
        sum(file.size for file in copied),
        len(stored.files) - len(copied),
        time.monotonic() - begun,
        already_copied=False,
    )


def _copy_files(
    source: Location, target: Location, files: Sequence[StoredFile], held: Lease
) -> list[StoredFile]:
    """Copy what is not there yet and compare every file at its destination; returns the copied."""

    def bring(file: StoredFile) -> StoredFile | None:
        held.check()
        path = file.stored_at
        try:
            if target.head(path).size == file.size and target.sha256(path) == file.sha256:
                return None
            # Something else is there: it must not be replaced by what is no better.
            _require_whole(source, file)
        except FileNotFoundError:
            pass
        try:
            target.copy_from(source, path, path)
        except FileNotFoundError:
            raise _damaged(source, file, "is missing") from None
        if target.sha256(path) != file.sha256:
            target.delete([path])
            _require_whole(source, file)
            raise VerificationError(
                f"the copy {target}/{path} differs from the original in {source}",
                hint="run the command again",
                file=path,
            )
        return file

    return [file for file in native.bring(bring, files) if file is not None]


def _require_whole(source: Location, file: StoredFile) -> None:
    try:
        if source.sha256(file.stored_at) == file.sha256:
            return
    except FileNotFoundError:
        raise _damaged(source, file, "is missing") from None
    raise _damaged(source, file, "does not have the SHA-256 given in the manifest")


def _damaged(source: Location, file: StoredFile, problem: str) -> VerificationError:
    return VerificationError(
        f"the savepoint is damaged and was not copied: {source}/{file.stored_at} {problem}",
        hint="copy another savepoint; to list them all: savepoints list",
        files=[file.stored_at],
    )


def _whole(store: Store, savepoint: Savepoint) -> Manifest:
    """Return the manifest of a savepoint that is not known to be damaged."""
    if savepoint.state == "broken":
        raise VerificationError(
            f"savepoint {savepoint.id} is broken: {savepoint.state_reason}",
            hint="copy another savepoint; if this one has been repaired, check it again: "
            f"savepoints verify {savepoint.id}",
            savepoint=savepoint.id,
        )
    stored = store.manifest(savepoint.id)
    wrong = verification.check_files(store.root, [stored], None).of(stored)
    if wrong:
        raise VerificationError(
            f"savepoint {savepoint.id} is damaged: {wrong[0].what} {wrong[0].problem}"
            + (
                f" (and {count_text(len(wrong) - 1, 'more damaged file')})"
                if len(wrong) > 1
                else ""
            ),
            hint=f"list all damaged files: savepoints verify {savepoint.id}",
            savepoint=savepoint.id,
            files=[one.what for one in wrong],
        )
    return stored


def _missing(target: Store, stored: Manifest) -> list[StoredFile]:
    """Return the files that the destination does not have with their size."""
    homes = manifest.directory(stored.savepoint.id), f"files/{stored.savepoint.query_id}"
    there = {info.path: info.size for home in homes for info in target.root.list(home)}
    return [file for file in stored.files if there.get(file.stored_at) != file.size]


def _state_there(
    store: Store, target: Store, savepoint: Savepoint, known: Sequence[Savepoint]
) -> SavepointState | None:
    """Return the state of this very savepoint at the destination, None if it has none of its id.

    Raises:
        TargetExistsError: If it has another one of its id, or is removing it.
    """
    state = next((one.state for one in known if one.id == savepoint.id), None)
    if state is None:
        return None
    if state == "expired":
        raise TargetExistsError(
            f"{savepoint.id} is being removed from {target.root}",
            hint=f"finish the removal first: savepoints gc --yes --store {quote(str(target.root))}",
            savepoint=savepoint.id,
            target=str(target.root),
        )
    _refuse_other(store, target, savepoint)
    return state


def _refuse_other(store: Store, target: Store, savepoint: Savepoint) -> None:
    path = manifest.manifest_path(savepoint.id)
    if target.root.exists(path) and target.root.get(path) == store.root.get(path):
        return
    raise TargetExistsError(
        f"{target.root} already has a savepoint {savepoint.id}, but with different content",
        hint=f"compare the two: savepoints show {savepoint.id}, then the same with --store "
        f"{quote(str(target.root))}; if only one of the two has the canonical form, write that "
        f"form in the store that lacks it: savepoints export {savepoint.id} --store URI",
        savepoint=savepoint.id,
        target=str(target.root),
    )


def _refuse_nested(source: Location, target: Location) -> None:
    if lies_in(str(source), str(target)) or lies_in(str(target), str(source)):
        raise UsageError(
            f"the stores {target} and {source} are the same, or one is inside the other",
            hint="choose a destination that neither contains the store nor lies inside it",
        )


def _labels(savepoint: Savepoint, known: Sequence[Savepoint]) -> tuple[Labels, tuple[str, ...]]:
    """Leave out tags that name another savepoint of the query at the destination."""
    taken = tags.tagged(known, savepoint.query, savepoint.tags, but=[savepoint.id])
    free = tuple(name for name in savepoint.tags if name not in taken)
    notes = (
        f"the tag {name} is not copied, because it already names {one} there"
        for name, one in taken.items()
    )
    return replace(savepoint.labels, tags=free), tuple(notes)


def _write_labels(target: Location, born: Savepoint, wanted: Labels) -> None:
    """Write the labels, or take away those of an interrupted copy; nobody sees them yet."""
    if wanted == born.labels:
        target.delete([labels_path(born.id)])
    else:
        labels.document(target, born.id).put(wanted)
