"""What is saved of a query whose JVM ended before its driver could take a last savepoint."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote

from savepoints.checkpoint import position
from savepoints.errors import PartlyDoneError
from savepoints.io import Location
from savepoints.operations.savepoint import history
from savepoints.store.root import Store


def refusal(
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
