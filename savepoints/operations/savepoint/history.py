"""The savepoints that a query's present comes from, and where its outputs are by the newest."""

from __future__ import annotations

from savepoints.config.settings import Settings
from savepoints.model import Savepoint
from savepoints.store.root import Store


def history(store: Store, query: str) -> list[Savepoint]:
    """Return the savepoints that the current generation comes from, the newest first.

    Those of batches that were rolled back are not among them, and of those that were edited by hand
    only what a generation began from: in place of what it was made of, which comes after it.
    """
    generations = {one.generation: one for one in store.generations.all(query)}
    mine = [one for one in store.catalog.all() if one.query == query]
    by_id = {one.id: one for one in mine}
    found: list[Savepoint] = []
    number: int | None = store.generations.current(query).generation
    newest: int | None = None
    while number is not None:
        found += [
            one
            for one in mine
            if one.state == "complete"
            and one.edit is None
            and one.generation == number
            and (newest is None or one.cut.batch_id <= newest)
        ]
        generation = generations.get(number)
        origin = by_id.get(generation.begun_from) if generation and generation.begun_from else None
        if origin and origin.edit is not None and origin.state == "complete":
            found.append(origin)
        number, newest = (origin.generation, origin.cut.batch_id) if origin else (None, None)
    return found


def output_uris(store: Store, query: str, settings: Settings) -> dict[str, str]:
    """Return where the outputs of a query are: by its newest savepoint, and by the settings."""
    saved = history(store, query)[:1]
    bound = settings.queries.get(query)
    pinned = {output.name: output.uri for one in saved for output in one.outputs}
    return {**pinned, **(bound.outputs if bound else {})}
