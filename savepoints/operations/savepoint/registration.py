"""Which generation of a query a checkpoint is: one that nobody registered becomes the next.

A driver of the user's own may begin a checkpoint whenever it likes, and its first savepoint tells.
"""

from __future__ import annotations

from shlex import quote

from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.model import Generation
from savepoints.store.root import Store
from savepoints.store.savepoint import native

# How a generation begins that this library did not start: by the first savepoint taken of it.
_BY = "create"


def replaced(store: Store, query: str, checkpoint: Location) -> Generation | None:
    """Return the generation that a checkpoint without one would replace as the current one.

    Raises:
        UsageError: If `run` manages the query, whose checkpoint is no other than the current one.
    """
    current = store.generations.find_current(query)
    if current is not None and current.begun_by != _BY:
        raise UsageError(
            f"the checkpoint of the query {query} is {current.checkpoint}, not {checkpoint}",
            hint="save this checkpoint under a name of its own: savepoints create "
            f"--checkpoint {quote(str(checkpoint))} --name NAME",
            query=query,
        )
    return current


def generation_of(store: Store, query: str, checkpoint: Location) -> Generation:
    """Return the generation of a checkpoint; one that nobody registered becomes one now."""
    found = store.generations.of_checkpoint(checkpoint)
    if found is not None:
        return found
    return store.generations.begin(
        query,
        store.generations.next_number(query),
        checkpoint,
        by=_BY,
        begun_from=native.restored_by(checkpoint),
        savepoints=store.catalog.all(),
    )
