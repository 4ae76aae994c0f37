"""Copying a cut out of a checkpoint whose query goes on and removes old files meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from savepoints.checkpoint.cut import CutFiles, committed_in, read_cut
from savepoints.errors import NoCommittedBatchError, SavepointsError, VerificationError
from savepoints.io import Location
from savepoints.plan import Progress
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store
from savepoints.store.savepoint import native
from savepoints.store.savepoint.manifest import StoredFile
from savepoints.store.savepoint.native import Pinned
from savepoints.texts import count_text

# A query that commits faster than its files can be copied is given this many chances.
ATTEMPTS = 10
_RETAINED = "spark.sql.streaming.minBatchesToRetain"


def read(checkpoint: Location, batch_id: int | None) -> CutFiles:
    """Read a cut, again when the query's maintenance removes a file in between.

    A directory on a disk is listed in no order: the list may have a commit without its state.
    """
    newest: list[int] | None = None
    for _ in range(ATTEMPTS):
        try:
            return read_cut(checkpoint, batch_id)
        except FileNotFoundError as gone:
            missing = gone
        except NoCommittedBatchError:
            before, newest = newest, committed_in(checkpoint)[-1:]
            if newest == before:
                raise
    raise NoCommittedBatchError(
        f"a file of the batch being read is missing from {checkpoint}: {missing}",
        hint=f"if the query removes old files too quickly, raise {_RETAINED}; otherwise the "
        "checkpoint is damaged, so recover it: savepoints run QUERY --recover",
        checkpoint=str(checkpoint),
    )


def copy(
    checkpoint: Location,
    batch_id: int | None,
    store: Location,
    savepoint_id: str,
    earlier: Sequence[StoredFile],
    begun: set[str],
    progress: Progress,
) -> tuple[CutFiles, Pinned, int]:
    """Copy a cut into the store; return it, where it is, and how many attempts it took.

    Args:
        begun: Is given the paths that are written, before they are.

    Raises:
        NoCommittedBatchError: If the query removes files faster than they can be copied.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            files = read(checkpoint, batch_id)
            progress(f"copying {count_text(len(files.all), 'file')} of batch {files.cut.batch_id}")
            pinned = native.pin(checkpoint, files, store, savepoint_id, earlier, begun)
            return files, pinned, attempt
        except FileNotFoundError as gone:
            progress(f"the query removed {gone} in the meantime; trying a newer batch")
    raise NoCommittedBatchError(
        f"the query removed old files from {checkpoint} before they could be copied, "
        f"{ATTEMPTS} times in a row",
        hint=f"raise {_RETAINED} in the query's Spark configuration, so that Spark keeps files "
        "longer",
        checkpoint=str(checkpoint),
    )


@contextmanager
def taken_back(store: Location, held: Lease) -> Iterator[set[str]]:
    """Give a place for the paths that are written, which are removed if what follows fails.

    Each attempt would leave as much again, and a full disk would stay full. What cannot be removed
    now, `gc` finds.

    Args:
        held: The lease of the query's files; without it another process may share them by now.
    """
    begun: set[str] = set()
    try:
        yield begun
    except SavepointsError:
        with suppress(SavepointsError):
            held.check()
            store.delete(begun)
        raise


def earlier_files(
    store: Store, parent: str | None, query_id: str, generation: int
) -> list[StoredFile]:
    """Return the files of the savepoint before; without them more is copied and hashed."""
    if parent is None:
        return []
    try:
        before = store.manifest(parent)
    except VerificationError:
        return []
    if before.savepoint.query_id != query_id:
        # Another query began in the same directory: what it shares lies under its own id.
        return []
    if before.savepoint.generation == generation:
        return list(before.native)
    # Entity tags tell files of one checkpoint apart, not those of two on different disks.
    return [replace(file, etag="") for file in before.native]
