"""Files that a file source has read: which of them it could still read again.

Spark's file source lists its directory, so a file that is gone is left out without an error:
`cleanSource` removes what was read, and buckets expire it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from savepoints.checkpoint.logs.file_log import ReadFile
from savepoints.io import Location, in_parallel
from savepoints.moments import epoch_ms

# From so many files of a directory on, listing it takes fewer requests than asking for each.
_LISTED = 100


@dataclass(frozen=True)
class Unlike:
    """Files that are not there as they were read, by their paths, in order."""

    gone: tuple[str, ...]
    changed: tuple[str, ...]


def look(files: Iterable[ReadFile]) -> Unlike:
    """Find out which files are gone, and which were written again since they were read.

    Stores say times of changes in milliseconds or in whole seconds, or both, so these count.
    """
    wanted = {one.path: one.modified_ms for one in files}
    by_directory: dict[str, list[str]] = defaultdict(list)
    for path in sorted(wanted):
        directory, _, name = path.rpartition("/")
        by_directory[directory].append(name)
    found: dict[str, datetime | None] = {}
    for directory, names in by_directory.items():
        times = _times(Location.of(f"{directory}/"), names)
        found |= {f"{directory}/{name}": times[name] for name in names}
    return Unlike(
        tuple(path for path in sorted(wanted) if found[path] is None),
        tuple(
            path
            for path in sorted(wanted)
            if (at := found[path]) is not None and epoch_ms(at) // 1000 != wanted[path] // 1000
        ),
    )


def _times(place: Location, names: list[str]) -> dict[str, datetime | None]:
    """Return when files of a directory were last changed, None for those that are gone."""
    listed = place.list(after=names[0]) if len(names) >= _LISTED else []
    known: dict[str, datetime | None] = {info.path: info.last_modified for info in listed}
    # A list leaves out files without bytes, and its first one.
    rest = [name for name in names if name not in known]
    return known | dict(zip(rest, in_parallel(lambda name: _time(place, name), rest), strict=True))


def _time(place: Location, name: str) -> datetime | None:
    try:
        return place.head(name).last_modified
    except FileNotFoundError:
        return None
