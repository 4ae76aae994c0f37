"""Queries without `checkpointLocation`: Spark removes their checkpoint when they stop."""

from __future__ import annotations

import re

from savepoints.errors import PartlyDoneError
from savepoints.io import Location
from savepoints.operations.savepoint import history
from savepoints.store.root import Store

# As Spark names the directory (`Utils.createTempDir`).
_NAME = re.compile(r"temporary-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
HINT = 'start the query with .option("checkpointLocation", …), a directory that stays'


def is_temporary(checkpoint: Location) -> bool:
    """Return True if a query has the checkpoint that Spark makes for one without any."""
    return _NAME.fullmatch(str(checkpoint).rpartition("/")[2]) is not None


def refuse_removed(store: Store, query: str, checkpoint: Location) -> None:
    """Refuse a last savepoint of a query whose checkpoint Spark has just removed.

    Raises:
        PartlyDoneError: If it has; it names the newest savepoint.
    """
    if not is_temporary(checkpoint) or checkpoint.exists("metadata"):
        return
    last = history.newest(store, query)
    known = f"; the newest is {last.id} (batch {last.cut.batch_id})" if last else ""
    raise PartlyDoneError(
        f"{query} has stopped, but no final savepoint was taken{known}: it was started without "
        f"checkpointLocation, so Spark has removed its checkpoint {checkpoint}",
        hint=HINT,
        query=query,
    )
