"""Whether the tables of a driver are those of its checkpoint, and not ahead of it.

Those that have batches which the checkpoint has yet to begin are of a driver that has started an
older checkpoint of the query: under an id that both have, Delta silently drops batches of the same
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from savepoints.checkpoint import position
from savepoints.errors import NotAlignedError, SavepointsError
from savepoints.io import Location
from savepoints.model import Generation
from savepoints.operations.savepoint import history, output_versions
from savepoints.outputs.delta import batch_version
from savepoints.store import bindings
from savepoints.store.root import Store


def refuse_elsewhere(
    store: Store, generation: Generation | None, outputs: Mapping[str, str]
) -> None:
    """Refuse a driver that writes other tables than those that readers of its query are pointed at.

    Args:
        generation: That of the checkpoint, None while nothing has been saved of it.
        outputs: Table URI of each output of the driver, by name; empty if they are unknown.

    Raises:
        NotAlignedError: If the query was given other tables when the generation began.
    """
    known = generation and bindings.find(store.root, generation.query, generation.generation)
    if not outputs or not generation or not known or not known.has_outputs:
        return
    bound = bindings.apply(store.settings, generation.query, known).queries[generation.query]
    written = {str(Location.of(uri)) for uri in outputs.values()}
    for name, uri in bound.outputs.items():
        if str(Location.of(uri)) not in written:
            raise NotAlignedError(
                f"generation {generation.generation} of {generation.query}, begun by "
                f"{generation.begun_by}, writes its output {name} to {uri}, but this driver writes "
                f"{', '.join(sorted(written))}: readers who ask where the table is would miss that",
                hint="let this driver write to the tables that this shows: savepoints locate "
                f"{generation.query}",
                query=generation.query,
                uri=uri,
            )


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
    known = history.newest(store, generation.query) if generation else None
    if known is None:
        return "start this driver again with a table of its own"
    return (
        f"rewind the table (savepoints rollback {known.id} --query {known.query}) and start "
        "this driver with the new checkpoint"
    )
