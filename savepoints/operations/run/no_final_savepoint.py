"""Queries of which no last savepoint can be taken: their JVM or their checkpoint is gone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from shlex import quote

from savepoints.checkpoint import position
from savepoints.errors import PartlyDoneError
from savepoints.io import Location
from savepoints.operations.savepoint import history
from savepoints.store.root import Store

# As Spark names the directory of a query without `checkpointLocation`, which it removes when the
# query stops (`Utils.createTempDir`).
_NAME = re.compile(r"temporary-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
HINT = 'start the query with .option("checkpointLocation", …), a directory that stays'


def of_ended_jvm(
    store: Store, query: str, checkpoint: Location, outputs: Mapping[str, str]
) -> PartlyDoneError:
    """Return the error that names the newest savepoint, and what saves the newest batch."""
    ended = f"the JVM of this driver has ended, so no final savepoint of {query} was taken"
    newest = history.newest(store, query)
    batch = position.read(checkpoint).committed
    again = "start the driver again: it continues from its checkpoint"
    alone = (
        "if Ctrl-C or another signal ended the JVM, send it only to the Python process next time"
    )
    if batch is None:
        return PartlyDoneError(f"{ended}; no batch was committed either", hint=again, query=query)
    if newest is None:
        tables = "".join(f" --table {quote(f'{name}={uri}')}" for name, uri in outputs.items())
        return PartlyDoneError(
            f"{ended}, and there is no earlier savepoint; the newest committed batch is {batch}",
            hint=f"save that batch: savepoints create --checkpoint {quote(str(checkpoint))} --name "
            f"{query}{tables} --format native; {alone}",
            query=query,
        )
    is_saved = newest.cut.batch_id == batch
    return PartlyDoneError(
        f"{ended}; the newest savepoint is {newest.id} (batch {newest.cut.batch_id}), and the "
        f"newest committed batch is {batch}",
        hint=again
        if is_saved
        else f"save that batch: savepoints create {query} --format native; {alone}",
        query=query,
        savepoint=newest.id,
    )


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
