"""The savepoints that a query's present comes from, and where its outputs are by the newest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from savepoints.checkpoint.cut import CutFiles
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import CheckpointDamagedError
from savepoints.io import Location
from savepoints.model import Cut, Form, Generation, Savepoint
from savepoints.operations.savepoint import forms
from savepoints.store.root import Store
from savepoints.store.tables import living_line


def history(store: Store, query: str) -> list[Savepoint]:
    """Return the savepoints that the current generation comes from, the newest first.

    Those of batches that were rolled back are not among them, and of those that were edited by hand
    only what a generation began from.
    """
    store.generations.current(query)
    return living_line.whole(query, store.generations.all(), store.catalog.all())


def newest(store: Store, query: str) -> Savepoint | None:
    """Return the newest savepoint that the current generation comes from, None without any."""
    known = history(store, query) if store.generations.find_current(query) else []
    return known[0] if known else None


def with_state(store: Store, generation: Generation) -> Savepoint | None:
    """Return the newest savepoint of a generation that has state, None without one.

    A checkpoint whose `state` is gone as a whole is that of a query without state by its files.
    """
    return next(
        (
            one
            for one in store.catalog.all()
            if one.place == generation.place and one.state == "complete" and one.operators
        ),
        None,
    )


def require_state(store: Store, generation: Generation, files: CutFiles) -> None:
    """Refuse to take a checkpoint that has lost its state for one without: nothing else tells.

    Raises:
        CheckpointDamagedError: If savepoints of the generation have state and its files have none.
    """
    if not files.operators and (saved := with_state(store, generation)) is not None:
        raise CheckpointDamagedError(
            f"the checkpoint {generation.checkpoint} of {generation.query} has no state, although "
            f"its savepoint {saved.id} has: the directory 'state' is gone",
            hint=f"recover it: savepoints run {generation.query} --recover; for a driver of your "
            f"own: savepoints rollback latest --query {generation.query} --no-safety-savepoint",
            query=generation.query,
            checkpoint=generation.checkpoint,
        )


def dated(cut: Cut, origin: Savepoint | None) -> Cut:
    """Return the cut of a checkpoint that began from a savepoint, with the time of its commit.

    In a restored checkpoint the files of the batch that it was restored to are copies, and younger.
    """
    if origin is not None and origin.cut.batch_id == cut.batch_id:
        return replace(cut, committed_at=origin.cut.committed_at)
    return cut


def output_topics(
    savepoints: Iterable[Savepoint], query: str, settings: Settings
) -> tuple[str, ...]:
    """Return the topics that a query writes: by the settings, or by its newest savepoint.

    By the newest of any generation: whoever goes back to before it was named still writes it.

    Args:
        savepoints: All of the store, the newest first.
    """
    bound = settings.queries.get(query)
    if bound is not None and bound.output_topics:
        return tuple(sorted(bound.output_topics))
    last = next((one for one in savepoints if one.query == query), None)
    return () if last is None else tuple(sorted(one.topic for one in last.output_topics))


def saved(
    store: Store, query: str, generation: int | None, batch_id: int | None, wanted: Sequence[Form]
) -> Savepoint | None:
    """Return a whole savepoint of a batch that has the state in these forms, None without one."""
    for one in store.catalog.all():
        is_good = one.state == "complete" and one.edit is None
        of = (one.query, one.generation, one.cut.batch_id)
        if is_good and of == (query, generation, batch_id) and forms.has(one, wanted):
            return one
    return None


def output_uris(store: Store, query: str, settings: Settings) -> dict[str, str]:
    """Return where the outputs of a query are: by its newest savepoint, and by the settings."""
    return located(pinned_uris(store, query), settings.queries.get(query))


def located(pinned: Mapping[str, str], bound: QuerySettings | None) -> dict[str, str]:
    """Return where outputs are by a savepoint and by the settings, each table once."""
    wanted = bound.outputs if bound else {}
    places = {str(Location.of(uri)) for uri in wanted.values()}
    return {**{name: uri for name, uri in pinned.items() if uri not in places}, **wanted}


def named_as_now(savepoint: Savepoint, outputs: Mapping[str, str]) -> Savepoint:
    """Return a savepoint whose outputs have the names that these tables have now.

    A driver without settings calls a table by its directory, and an App by a name of its own.

    Args:
        outputs: Tables by their names.
    """
    names = {str(Location.of(uri)): name for name, uri in outputs.items()}
    taken = {one.name for one in savepoint.outputs}
    called = {one.name: names.get(one.uri, one.name) for one in savepoint.outputs}
    return replace(
        savepoint,
        outputs=tuple(
            one if called[one.name] in taken else replace(one, name=called[one.name])
            for one in savepoint.outputs
        ),
    )


def named_as_bound(savepoint: Savepoint, settings: Settings) -> Savepoint:
    """Return a savepoint whose outputs have the names that the settings give to their tables."""
    bound = settings.queries.get(savepoint.query)
    return savepoint if bound is None else named_as_now(savepoint, bound.outputs)


def pinned_uris(store: Store, query: str) -> dict[str, str]:
    """Return where the outputs of a query are by its newest savepoint, if it has one."""
    found = newest(store, query)
    return {one.name: one.uri for one in found.outputs} if found else {}
