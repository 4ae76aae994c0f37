"""What a batch has of its sources: their positions, and the logs that they keep themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from savepoints.checkpoint import source_entries
from savepoints.checkpoint.logs import file_log, offset_log
from savepoints.checkpoint.logs.file_log import ReadFile
from savepoints.checkpoint.logs.offset_log import OffsetLogEntry
from savepoints.checkpoint.logs.source_kind import kind_of
from savepoints.io import Location, in_parallel


@dataclass(frozen=True)
class SourceLogs:
    """The sources of a batch, in a checkpoint or in a savepoint.

    Attributes:
        entries: Where each entry of their own logs lies in `place`, by its path in the checkpoint.
    """

    place: Location
    batch_id: int
    offsets: OffsetLogEntry
    entries: Mapping[str, str]

    def only(self, sources: Collection[str]) -> SourceLogs:
        """Return those of some sources, by their directories below `sources/`."""
        there = {name: at for name, at in self.offsets.positions.items() if name in sources}
        offsets = replace(self.offsets, names=tuple(there), sources=tuple(there.values()))
        return replace(self, offsets=offsets)

    def files(self, source: str) -> dict[str, ReadFile]:
        """Return the files that a source has read, by their paths."""
        paths = file_log.in_force(self.entries, source)
        read = in_parallel(
            lambda path: file_log.files(self.place.get(self.entries[path]), path), paths
        )
        return {one.path: one for several in read for one in several}

    def files_since(self, before: SourceLogs) -> list[ReadFile]:
        """Return the files that sources of an earlier batch have read after it, up to this one."""
        found: list[ReadFile] = []
        for source, at in source_entries.positions(self.entries, self.offsets).items():
            if source in before.offsets.names and kind_of(at) == "files":
                known = before.files(source)
                found += [one for path, one in self.files(source).items() if path not in known]
        return found


def of_checkpoint(checkpoint: Location, batch_id: int) -> SourceLogs:
    """Return those of a batch that the offset log of a checkpoint has."""
    offsets = f"offsets/{batch_id}"
    paths = [info.path for info in checkpoint.list("sources")]
    return of_files(checkpoint, batch_id, {path: path for path in (offsets, *paths)})


def of_files(place: Location, batch_id: int, places: Mapping[str, str]) -> SourceLogs:
    """Return those of a batch of which each file of the checkpoint lies somewhere in a place."""
    name = f"offsets/{batch_id}"
    offsets = offset_log.parse(place.get(places[name]), name)
    used = source_entries.used(places, offsets)
    return SourceLogs(place, batch_id, offsets, {path: places[path] for path in used})
