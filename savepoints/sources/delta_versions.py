"""Which versions of a Delta table a stream can read, and when each was committed.

A stream reads the commits themselves, so what counts is which of them the log still has. Times are
those that Delta's time travel goes by: the in-commit timestamp where the table has them, otherwise
when the file of the commit was written, each later than the one before (`DeltaHistoryManager`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from savepoints.checkpoint.logs import table_position
from savepoints.delta_reader import CHANGE_FEED, open_delta
from savepoints.errors import NotFoundError, SourceDataGoneError, UsageError
from savepoints.io import Location, in_parallel
from savepoints.moments import moment_of, rfc3339
from savepoints.uri import spelled

_COMMIT = re.compile(r"(\d{20})\.json", re.ASCII)
_IN_COMMIT = "delta.enableInCommitTimestamps"
_TICK = timedelta(milliseconds=1)


@dataclass(frozen=True)
class TableVersions:
    """The versions of a table.

    Attributes:
        table_id: Delta's own id of it.
        times: When each version was committed whose commit the log has without a gap up to the
            newest.
        has_change_feed: Whether a stream may read its change data feed, in which rows that are
            taken out are rows like others.
    """

    uri: str
    table_id: str
    times: Mapping[int, datetime]
    has_change_feed: bool = False

    @property
    def newest(self) -> int:
        """The newest version."""
        return max(self.times)

    @property
    def oldest(self) -> int:
        """The first version whose commit is there."""
        return min(self.times)

    def before(self, moment: datetime) -> int:
        """Return the newest version that was committed before a time.

        Raises:
            SourceDataGoneError: If the log no longer says it.
            UsageError: If the table had no version yet.
        """
        found = [version for version, at in self.times.items() if at < moment]
        if found:
            return max(found)
        first = (
            f"the log of {self.uri} begins with version {self.oldest}, committed at "
            f"{rfc3339(self.first)}"
        )
        if self.oldest > 0:
            raise SourceDataGoneError(
                f"{first}, so it no longer says which version was the newest before "
                f"{rfc3339(moment)}",
                hint="choose a later time; to keep the log longer, raise "
                "delta.logRetentionDuration",
                uri=self.uri,
            )
        raise UsageError(
            f"{first}, so the table did not exist before {rfc3339(moment)}",
            hint=f"choose a time after {rfc3339(self.first)}",
        )

    @property
    def first(self) -> datetime:
        """When the oldest was committed."""
        return self.times[self.oldest]


def read(uri: str) -> TableVersions:
    """Find out which versions a table has.

    Raises:
        NotFoundError: If there is no table.
    """
    from deltalake.exceptions import TableNotFoundError

    location = Location.of(uri)
    try:
        table = open_delta(location)
    except TableNotFoundError:
        raise NotFoundError(
            f"there is no Delta table at {location}",
            hint="first run the query that writes it: savepoints run NAME --until latest",
            uri=str(location),
        ) from None
    metadata, log = table.metadata(), location / "_delta_log"
    files = {
        int(match[1]): info.last_modified
        for info in log.list()
        if (match := _COMMIT.fullmatch(info.path))
    }
    newest = oldest = int(table.version())
    while oldest - 1 in files:
        oldest -= 1
    versions = range(oldest, newest + 1)
    times = {version: files[version] for version in versions if version in files}
    if metadata.configuration.get(_IN_COMMIT) == "true":
        known = in_parallel(lambda at: _in_commit(log.get(f"{at:020}.json")), list(times))
        said = zip(times.items(), known, strict=True)
        times = {version: found or written for (version, written), found in said}
    has_change_feed = metadata.configuration.get(CHANGE_FEED) == "true"
    return TableVersions(str(location), str(metadata.id), _rising(times), has_change_feed)


def read_each(uris: Iterable[str]) -> list[TableVersions]:
    """Find out which versions tables have, of each once, in whatever spellings it is given."""
    return [read(uri) for uri in sorted(set(map(spelled, uris)))]


def require_commits(
    positions: Iterable[str | None],
    uris: Iterable[str],
    *,
    query: str,
    ends: Mapping[str, int] | None = None,
) -> dict[str, range]:
    """Check that logs still have the commits that come after positions in tables.

    Tables at other places than these are not looked at: Delta refuses them when the query starts.

    Args:
        positions: Of sources, as Spark's JSON; those of other kinds are ignored.
        query: Who is going to read them.
        ends: By table, the last version to be read, where that is not the newest one.

    Returns:
        The versions that come next, by table; not of those with a change data feed.

    Raises:
        NotFoundError: If there is no table at one of the places.
        SourceDataGoneError: If commits are gone.
    """
    found: dict[str, range] = {}
    wanted = [one for one in map(table_position.parse, positions) if one is not None]
    tables = {one.table_id: one for one in read_each(uris)} if wanted else {}
    for one in wanted:
        table = tables.get(one.table_id)
        # What is left of the table as it was at first is no commit.
        version = one.version + one.in_snapshot
        if table is not None and version < table.oldest:
            raise SourceDataGoneError(
                f"the query would read version {version} of {table.uri} next, but the log of the "
                f"table no longer has versions before {table.oldest}",
                hint=f"choose a newer savepoint (savepoints list --query {query}), or start over "
                f"with the table as it is: savepoints reset {query} --to-earliest; to keep the log "
                "longer, raise delta.logRetentionDuration",
                uri=table.uri,
                version=version,
            )
        if table is not None and not table.has_change_feed:
            end = (ends or {}).get(table.uri, table.newest)
            known = found.get(table.uri, range(version, end + 1))
            found[table.uri] = range(min(known.start, version), end + 1)
    return found


def _in_commit(data: bytes) -> datetime | None:
    """Return the time that a commit says of itself, which is the first action then."""
    info = json.loads(data.partition(b"\n")[0]).get("commitInfo") or {}
    at = info.get("inCommitTimestamp")
    return None if at is None else moment_of(int(at))


def _rising(times: Mapping[int, datetime]) -> dict[int, datetime]:
    """Let each time lie after the one before, as Delta does: clocks of writers differ."""
    found: dict[int, datetime] = {}
    last: datetime | None = None
    for version, at in sorted(times.items()):
        last = at if last is None or at > last else last + _TICK
        found[version] = last
    return found
