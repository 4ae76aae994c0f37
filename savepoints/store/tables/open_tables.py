"""The Delta tables of a store that one process has open, which are read on from where they were.

Opening a table anew reads its whole log, and reading it all its files; where nobody has written in
between, one listing tells so. A table that was made anew meanwhile, such as by `check
--rebuild-catalog` in another process, is not taken for the one that is open: its newest commit
must still be there, with the same entity tag.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savepoints.io import Location

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

Rows = list[dict[str, Any]]

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json", re.ASCII)


@dataclass
class _Held:
    """A table at a version, whose commit has this tag, and its rows if they were read."""

    table: DeltaTable
    version: int
    etag: str
    rows: pa.Table | None = None


class OpenTables:
    """Tables by URI, each thread with its own: what deltalake has open is not made to be shared."""

    def __init__(self) -> None:
        """Begin with no table open."""
        self._local = threading.local()

    def snapshot(self) -> OpenTables:
        """Return the same tables for whoever wants to see all of them at one moment."""
        return _Snapshot(self)

    def read(self, location: Location, rows: Callable[[], Rows]) -> Rows:
        """Return the rows of a table as they are now."""
        del location  # Only a snapshot knows rows by their table.
        return rows()

    def newest(
        self, location: Location, opened: Callable[[], DeltaTable | None]
    ) -> DeltaTable | None:
        """Return a table at its newest version; None where there is none.

        Args:
            opened: Opens it from the beginning.
        """
        held = self._held.pop(str(location), None)
        if held is not None:
            commits = _commits_from(location, held.version)
            if commits.get(held.version) == held.etag:
                if len(commits) > 1:
                    held.table.update_incremental()
                self._hold(location, held, commits)
                return held.table
        table = opened()
        if table is not None:
            version = int(table.version())
            self._hold(location, _Held(table, -1, ""), _commits_from(location, version))
        return table

    def forget(self, location: Location) -> None:
        """Open a table from its beginning the next time."""
        self._held.pop(str(location), None)

    def committed(self, location: Location, table: DeltaTable, etag: str | None) -> None:
        """Go on from a commit of one's own, of which None says that its tag is not known."""
        self._held.pop(str(location), None)
        if etag is not None:
            self._held[str(location)] = _Held(table, int(table.version()), etag)

    def rows(self, location: Location, table: DeltaTable, read: Callable[[], pa.Table]) -> pa.Table:
        """Return all rows of a table, read once for each version of it."""
        held = self._held.get(str(location))
        if held is None or held.table is not table:
            return read()
        if held.rows is None:
            held.rows = read()
        return held.rows

    @property
    def _held(self) -> dict[str, _Held]:
        found: dict[str, _Held] = self._local.__dict__.setdefault("held", {})
        return found

    def _hold(self, location: Location, before: _Held, commits: dict[int, str]) -> None:
        """Keep a table that is open, unless it is newer than the commits that were listed."""
        version = int(before.table.version())
        if version in commits:
            rows = before.rows if version == before.version else None
            self._held[str(location)] = _Held(before.table, version, commits[version], rows)


class _Snapshot(OpenTables):
    """Tables that are read once: a verb sees them all as they were when it first did.

    What is written through it is read again.
    """

    def __init__(self, tables: OpenTables) -> None:
        """Go on with the tables that are open."""
        super().__init__()
        self._local = tables._local
        self._read: dict[str, Rows] = {}

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
        if (found := _COMMIT.fullmatch(info.path))
    }
