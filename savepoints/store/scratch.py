"""Where what a merge makes lies until the merge is done, below the store's `scratch/`.

Until its journal begins, nobody but the process that makes it needs it. Spark writes even a few
rows to an object store in sixty requests, so where its tasks run on this machine they write to the
local disk, and the files that are needed from then on are copied to the store.
"""

from __future__ import annotations

import atexit
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from savepoints import temporary
from savepoints.io import Location, in_parallel
from savepoints.store.locks import readers
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import MergePolicy, ReplayStrategy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Rows of the batch that are no events.
SET_ASIDE = "set-aside"
EVENTS, ENTITIES, LIVE = "merged-events", "merged-entities", "live"
TOUCHED = "touched-partitions"
# Of Hadoop's local file system, beside each file.
_CHECKSUM = ".crc"
# Those of this process, by operation.
_SIGNS: dict[str, ExitStack] = {}


def place_of(store: Store, operation_id: str) -> Location:
    """Return where what a merge makes lies until it is done."""
    return store.root / "scratch" / operation_id


def claim(store: Store, operation_id: str) -> Location:
    """Return `place_of`, with a sign of this process there, before it has any file.

    Until the journal begins nothing else keeps `gc` away from it. The sign goes with `discard`, or
    with this process.
    """
    if operation_id not in _SIGNS:
        sign = ExitStack()
        sign.enter_context(readers.using(store.root, operation_id, "temporary files"))
        _SIGNS[operation_id] = sign
    return place_of(store, operation_id)


def work_of(store: Store, operation_id: str, spark: SparkSession) -> Location:
    """Return where a merge works until its journal begins: an empty directory."""
    is_here = (spark.sparkContext.master or "").startswith("local")
    if store.root.uri.scheme == "file" or not is_here:
        return claim(store, operation_id)
    disk = (spark.conf.get("spark.local.dir", None) or "").partition(",")[0]
    return Location.of(str(temporary.directory(operation_id, disk or None)))


@atexit.register
def _leave() -> None:
    """Take away the signs of plans that nobody has carried out: `gc` may remove their files."""
    while _SIGNS:
        _, sign = _SIGNS.popitem()
        sign.close()


def share(
    work: Location, place: Location, directories: Collection[str], *, shared: Collection[str] = ()
) -> set[str]:
    """Copy what was made in some directories to where whoever finishes the merge looks for it.

    Args:
        work: From `work_of`.
        place: From `place_of`; nothing is copied if that is the same.
        shared: Paths that an earlier call returned; they are not copied again.

    Returns:
        The paths that are there now.
    """
    if work == place:
        return set()
    found = {
        info.path
        for name in directories
        for info in work.list(name)
        if not info.path.endswith(_CHECKSUM)
    }
    new = sorted(found - set(shared))
    in_parallel(lambda path: place.copy_from(work, path, path), new)
    return found


def replay_directory(policy: MergePolicy, strategy: ReplayStrategy | None) -> str:
    """Return where a replay lies, below the scratch directory of its merge."""
    return strategy or policy


def discard(store: Store, operation_id: str, work: Location | None = None) -> None:
    """Remove what a merge has made, which nothing needs any more.

    Args:
        work: From `work_of`, where this process has worked.
    """
    place = place_of(store, operation_id)
    place.delete(info.path for info in place.list())
    if (sign := _SIGNS.pop(operation_id, None)) is not None:
        sign.close()
    if work is not None and work != place:
        temporary.remove(Path(str(work)))


def keep(spark: SparkSession, frame: DataFrame, place: Location) -> DataFrame:
    """Write rows to Parquet and return them as read from there, where their plan begins.

    What Spark only keeps in memory it still plans from its very beginning, in each query and each
    step of one: half of a merge's time where events are few.
    """
    frame.write.parquet(place.uri.hadoop)
    return spark.read.schema(frame.schema).parquet(place.uri.hadoop)
