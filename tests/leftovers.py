"""What must hold of a store after any crash: savepoints are whole or absent, and what is not needed
can be found."""

from __future__ import annotations

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.inspect.verify import verify
from savepoints.operations.savepoint import restore
from savepoints.store.savepoint.labels import labels_path
from savepoints.store.savepoint.manifest import manifest_path
from savepoints.store.tables import catalog
from tests.samples import contents


def stored(store: Store) -> set[str]:
    """Return the paths of all files of savepoints, of what they share and of what is for a while.

    Lock files, which a local file system needs, are empty and not listed.
    """
    tops = ("savepoints", "files", "scratch", "uses")
    return {info.path for top in tops for info in store.root.list(top)}


def named(store: Store) -> set[str]:
    """Return the paths of all files that savepoints with a row need."""
    found = set()
    for one in store.catalog.all():
        found |= {file.stored_at for file in store.manifest(one.id).files}
        found |= {manifest_path(one.id), labels_path(one.id)}
    return found


def left_over(store: Store) -> set[str]:
    """Return what lies in the store and no savepoint needs."""
    return stored(store) - named(store)


def all_are_whole(store: Store) -> list[str]:
    """Check every savepoint that can be named, by its checksums, and return their ids."""
    there = catalog.select(store.catalog.all())
    for one in there:
        report = verify(store, one.id, depth="checksums")
        assert (report.grade, report.findings) == ("ok", ())
    return [one.id for one in there]


def restored(store: Store, savepoint_id: str, target: Location) -> dict[str, bytes]:
    """Restore a savepoint natively and return the files of the checkpoint, but for its marker."""
    restore.execute(restore.plan(store, savepoint_id, str(target), form="native"), store)
    found = contents(target)
    del found["_savepoints_restored_by"]
    return found
