"""Files of the store's tables that no version has any more: compaction and changes leave them."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta

from savepoints.delta_reader import open_delta
from savepoints.io import Location, ObjectInfo, in_parallel
from savepoints.moments import utc_now
from savepoints.store.tables.open_tables import COMMIT

# The tables have no partitions, so their rows are not in directories.
_ROWS = re.compile(r"[^/]+\.parquet")
# A writer names its files when it commits, and a reader that has opened a version goes on with it:
# both take seconds, and leave no sign.
_AT_WORK = timedelta(hours=1)


def find(table: Location, oldest: datetime) -> list[ObjectInfo]:
    """Return the data files that no version of a table has had since a time, or for an hour.

    Raises:
        DeltaError: deltalake's, if the table cannot be read.
    """
    oldest = min(oldest, utc_now() - _AT_WORK)
    listed = table.list()
    old = [one for one in listed if _ROWS.fullmatch(one.path) and one.last_modified <= oldest]
    if not old:
        return []
    new = [one.path for one in listed if one.last_modified > oldest]
    commits = [path for path in new if COMMIT.fullmatch(path)]
    kept = current(table).union(*in_parallel(lambda path: _removed(table, path), commits))
    return [one for one in old if one.path not in kept]


def current(table: Location) -> set[str]:
    """Return the data files of the newest version of a table, as paths within it."""
    import pyarrow as pa

    found = pa.table(open_delta(table).get_add_actions(flatten=True))
    return {str(path) for path in found.column("path").to_pylist()}


def _removed(table: Location, commit: str) -> set[str]:
    """Return the files that a commit has taken out of the table."""
    try:
        actions = map(json.loads, table.get(commit).splitlines())
    except FileNotFoundError:
        return set()  # Delta has removed it, so it is not that new.
    return {str(one["remove"]["path"]) for one in actions if "remove" in one}
