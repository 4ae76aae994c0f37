"""Whether the tables of a driver have batches that its checkpoint has yet to begin.

They are those of a driver that has started an older checkpoint of the query: under an id that both
have, Delta silently drops batches of the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from savepoints.checkpoint import position
from savepoints.errors import NotAlignedError, SavepointsError
from savepoints.io import Location
from savepoints.model import Generation
from savepoints.operations.savepoint import history, output_versions
from savepoints.outputs.delta import batch_version
from savepoints.store.root import Store


def refuse(
    store: Store,
    generation: Generation | None,
    query: str,
    query_id: str,
    checkpoint: Location,
    outputs: Mapping[str, str],
) -> None:
    """Refuse to write into a table that has batches which a checkpoint has yet to begin.

    Args:
        generation: That of the checkpoint, None while nothing has been saved of it.
        query_id: Spark's id of the query.
        outputs: Table URI of each output, by name.

    Raises:
        NotAlignedError: If a table has them.
    """
    number = generation.generation if generation else store.generations.next_number(query)
    bound = store.settings.queries.get(query)
    for name, uri in outputs.items():
        ids = output_versions.writers(query, name, number, query_id, bound)
        try:
            # Before the offsets: what is in the table then has begun here.
            table = batch_version.open_table(uri)
        except SavepointsError:
            continue  # There is none yet, or it cannot be read, as each savepoint will tell.
        seen = [at for at in map(table.transaction_version, ids) if at is not None]
        begun = position.newest_in(checkpoint, "offsets")
        if (written := max(seen, default=-1)) > begun:
            raise NotAlignedError(
                f"{uri} already has the batches of {query} up to {written}, but in {checkpoint} "
                f"{'no batch has' if begun < 0 else f'only batches up to {begun} have'} begun: "
                "another driver has run the query from an old checkpoint, and Delta silently "
                f"drops every batch up to {written} that this driver writes",
                hint="make sure that the other driver has stopped, then "
                + _way_back(store, generation),
                query=query,
                uri=uri,
            )


def _way_back(store: Store, generation: Generation | None) -> str:
    known = history.history(store, generation.query) if generation else []
    if not known:
        return "start this driver again with a table of its own"
    return (
        f"rewind the table (savepoints rollback {known[0].id} --query {known[0].query}) and start "
        "this driver with the new checkpoint"
    )
