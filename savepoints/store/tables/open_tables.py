"""The Delta tables of a store that one process has open, which are read on from where they were.

Opening a table anew reads its whole log, and reading it all its files; where nobody has written in
between, one listing tells so. A table that was made anew meanwhile, such as by `check
--rebuild-catalog` in another process, is not taken for the one that is open: its newest commit
must still be there, with the same entity tag. With other credentials a table is opened again, too:
deltalake keeps those that it was given, which expire while a query runs.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from savepoints.io import Location, storage_options

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

Rows = list[dict[str, Any]]

# The name of a commit within a table, with its version.
COMMIT = re.compile(r"_delta_log/(\d{20})\.json", re.ASCII)


@dataclass(frozen=True)
class _Held:
    """A table with the options it was opened with, at a version, whose commit has this tag.

    Attributes:
        rows: Its rows, if they were read.
    """

    table: DeltaTable
    options: Mapping[str, str]
    version: int
    etag: str
    rows: pa.Table | None = None


class OpenTables:
    """Tables by URI, each thread with its own: what deltalake has open is not made to be shared."""

    def __init__(self) -> None:
        """Begin with no table open."""
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        """Be pickled and copied with no table open: each process, and each copy, opens its own."""
        return OpenTables, ()

    def snapshot(self) -> OpenTables:
        """Return the same tables for whoever wants to see all of them at one moment."""
        return _Snapshot(self)

    def read(self, location: Location, rows: Callable[[], Rows]) -> Rows:
        """Return the rows of a table as they are now."""
        del location  # Only a snapshot knows rows by their table.
        return rows()

    def newest(
        self, location: Location, opened: Callable[[Mapping[str, str]], DeltaTable | None]
    ) -> DeltaTable | None:
        """Return a table at its newest version; None where there is none.

        Args:
            opened: Opens it from the beginning, with the options that deltalake is to use.
        """
        held = self._held.pop(str(location), None)
        options = storage_options(location.uri)
        if held is not None and held.options == options:
            commits = _commits_from(location, held.version)
            if commits.get(held.version) == held.etag:
                if len(commits) == 1:
                    self._held[str(location)] = held
                else:
                    held.table.update_incremental()
                    self._hold(location, held.table, options, commits)
                return held.table
        table = opened(options)
        if table is not None:
            self.keep(location, table, options)
        return table

    def keep(self, location: Location, table: DeltaTable, options: Mapping[str, str]) -> None:
        """Read on from a table that was opened, or made, with these options."""
        self._hold(location, table, options, _commits_from(location, int(table.version())))

    def forget(self, location: Location) -> None:
        """Open a table from its beginning the next time."""
        self._held.pop(str(location), None)

    def committed(self, location: Location, table: DeltaTable, etag: str | None) -> None:
        """Go on from a commit of one's own, of which None says that its tag is not known."""
        held = self._held.pop(str(location), None)
        if held is not None and held.table is table and etag is not None:
            version = int(table.version())
            self._held[str(location)] = replace(held, version=version, etag=etag, rows=None)

    def rows(self, location: Location, table: DeltaTable, read: Callable[[], pa.Table]) -> pa.Table:
        """Return all rows of a table, read once for each version of it."""
        held = self._held.get(str(location))
        if held is None or held.table is not table:
            return read()
        if held.rows is not None:
            return held.rows
        rows = read()
        self._held[str(location)] = replace(held, rows=rows)
        return rows

    def files(self, location: Location) -> dict[str, pa.Table]:
        """Return the files of a table that were read, by path; of a new version others are new."""
        by_table: dict[str, dict[str, pa.Table]] = self._local.__dict__.setdefault("files", {})
        return by_table.setdefault(str(location), {})

    @property
    def _held(self) -> dict[str, _Held]:
        found: dict[str, _Held] = self._local.__dict__.setdefault("held", {})
        return found

    def _hold(
        self,
        location: Location,
        table: DeltaTable,
        options: Mapping[str, str],
        commits: Mapping[int, str],
    ) -> None:
        """Keep a table that is open, unless it is newer than the commits that were listed."""
        version = int(table.version())
        if version in commits:
            self._held[str(location)] = _Held(table, options, version, commits[version])


class _Snapshot(OpenTables):
    """Tables that are read once: a verb sees them all as they were when it first did.

    What is written through it is read again.
    """

    def __init__(self, tables: OpenTables) -> None:
        """Go on with the tables that are open."""
        super().__init__()
        self._local = tables._local
        self._read: dict[str, Rows] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Be pickled and copied with what was read."""
        return _Snapshot, (OpenTables(),), {"_read": self._read}

    def snapshot(self) -> OpenTables:
        """Return this one."""
        return self

    def read(self, location: Location, rows: Callable[[], Rows]) -> Rows:
        """Return the rows of a table, which are read the first time."""
        if str(location) not in self._read:
            self._read[str(location)] = rows()
        return self._read[str(location)]

    def forget(self, location: Location) -> None:
        """Read a table again the next time, from its beginning."""
        super().forget(location)
        self._read.pop(str(location), None)

    def committed(self, location: Location, table: DeltaTable, etag: str | None) -> None:
        """Read a table again the next time, but only what is new."""
        super().committed(location, table, etag)
        self._read.pop(str(location), None)


def _commits_from(location: Location, version: int) -> dict[int, str]:
    """Return the entity tags of the commits from a version on."""
    after = f"_delta_log/{version - 1:020}.json" if version > 0 else ""
    return {
        int(found[1]): info.etag
        for info in location.list("_delta_log", after=after)
        if (found := COMMIT.fullmatch(info.path))
    }
