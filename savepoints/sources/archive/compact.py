"""Compact an archive's many small files into a few large ones, sorted by entity.

Each batch leaves a file in which an entity has few rows. A compaction writes the new files, and
those older runs that are not much larger than them, as one new run; so there are few runs, and each
event is written again a few times only, however large the archive gets. Rows keep their position,
which is the order of arrival. Delta is told that no data changes, so that readers of a stream of
the table see nothing twice; and batches that arrive meanwhile stay.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.errors import NotAlignedError, QueryRunningError
from savepoints.io import Location
from savepoints.sources.archive import files as archive_files
from savepoints.sources.archive import progress
from savepoints.sources.archive import table as archive_table
from savepoints.sources.archive.files import WrittenFiles
from savepoints.sources.archive.table import File

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RUNS = "runs"
# An older run is rewritten if it is at most this many times as large as what is newer.
_FACTOR = 4


@dataclass(frozen=True)
class Compacted:
    """What a compaction did.

    Attributes:
        runs: Sorted runs now; a lookup of an entity reads a page or two of each.
        vacuumed: Files that no version of the last days has and that were removed.
    """

    files_before: int
    files_after: int
    bytes_rewritten: int
    runs: int
    vacuumed: int


def _require_same(location: Location, chosen: Sequence[File], written: WrittenFiles) -> None:
    """Check that as many events were written as are to go: the archive is the only copy of some."""
    before, after = (sum(one.rows for one in files) for files in (chosen, written.files))
    if before != after or written.doubled:
        raise NotAlignedError(
            f"compacting {location} read {before:,} events and wrote {after:,}, "
            f"{written.doubled:,} of them twice; nothing was changed",
            hint="check the archive: python -m savepoints.jobs.archive QUERY INPUT --check",
            uri=str(location),
        )


def compact(spark: SparkSession, uri: str) -> Compacted:
    """Compact an archive, and remove files that no version has needed for a week."""
    location = Location.of(uri)
    table = archive_table.require(location)
    before = archive_table.files(table)
    chosen = choose(before)
    if chosen:
        directory = f"{_RUNS}/{uuid.uuid4().hex}"
        rows = archive_files.read(spark, location, chosen)
        parts = archive_files.ordered(rows, sum(one.rows for one in chosen))
        written = archive_files.write(parts, location, directory)
        _require_same(location, chosen, written)
        archive_table.exchange(location, table, chosen, written.files)
    with suppress(
        QueryRunningError
    ):  # A batch arrived in between; the next compaction includes it.
        progress.compact(uri)
    table.update_incremental()
    after = archive_table.files(table)
    return Compacted(
        files_before=len(before),
        files_after=len(after),
        bytes_rewritten=sum(one.size for one in chosen),
        runs=len({_group(one) for one in after}),
        vacuumed=len(table.vacuum(dry_run=False, full=True)),
    )


def choose(files: Sequence[File]) -> list[File]:
    """Return the files to merge into one run; none when it would not pay."""
    groups: dict[str, list[File]] = {}
    for one in files:
        groups.setdefault(_group(one), []).append(one)
    new = [name for name in groups if not name.startswith(f"{_RUNS}/")]
    if not new:
        return []
    chosen = list(new)
    sizes = {name: sum(one.size for one in found) for name, found in groups.items()}
    total = sum(sizes[name] for name in new)
    for name in sorted(groups.keys() - set(new), key=lambda name: (sizes[name], name)):
        if sizes[name] > _FACTOR * total:
            break
        chosen.append(name)
        total += sizes[name]
    return [one for name in chosen for one in groups[name]] if len(chosen) > 1 else []


def _group(file: File) -> str:
    """Return the directory that one write filled."""
    return file.path.rpartition("/")[0]
