"""What a generation reads that Kafka alone does not give: archives by the settings, and merges."""

from __future__ import annotations

from collections.abc import Callable

from savepoints.app import App
from savepoints.config import QuerySettings, Settings
from savepoints.model import KafkaOffsets
from savepoints.past import Past
from savepoints.store import ledger
from savepoints.store.ledger import Merge
from savepoints.store.root import Store


def past_of(
    store: Store,
    app: App,
    bound: QuerySettings,
    settings: Settings,
    *,
    query: str,
    generation: int,
    position: KafkaOffsets,
) -> Past | None:
    """Return what the batches of a generation read beside Kafka; None when there is no such thing.

    Args:
        store: Where the ledger is.
        app: The application.
        bound: What it is bound to.
        settings: Where Kafka is.
        query: Name of the query that the generation is of.
        generation: Its number, or that of the one which it is going to begin from.
        position: Where it stands.

    Raises:
        NotAlignedError: If it cannot be said which merges it has, because a savepoint is gone from
            which one of its generations began.
    """
    found = merges(store, query, generation, position)
    return Past(app, bound, settings.kafka, found) if found or bound.archives else None


def merges(store: Store, query: str, generation: int, position: KafkaOffsets) -> tuple[Merge, ...]:
    """Return the merges that a generation has and that lie, at least in part, after a position.

    Raises:
        NotAlignedError: See `past_of`.
    """
    return _of(store, query, generation, lambda one: not is_before(one.offsets, position))


def of_other_topics(
    store: Store, query: str, generation: int, position: KafkaOffsets
) -> tuple[Merge, ...]:
    """Return the merges that a generation has and that were made while it read other topics.

    Raises:
        NotAlignedError: See `past_of`.
    """
    return _of(store, query, generation, lambda one: bool(one.offsets.keys() - position.keys()))


def _of(
    store: Store, query: str, generation: int, is_wanted: Callable[[Merge], bool]
) -> tuple[Merge, ...]:
    known = ledger.Ledger(store.root).all()
    wanted = {one.id for one in known if is_wanted(one)}
    # Asked only where it matters: a savepoint that is gone keeps no other query from running.
    if not wanted:
        return ()
    descent = ledger.ancestry(
        query, generation, store.generations.all(), store.catalog.all(), known
    )
    return tuple(one for one in ledger.in_effect(known, descent) if one.id in wanted)


def archives_of(settings: Settings, query: str) -> tuple[str, ...]:
    """Return the archives of the inputs of a query, as far as the settings name them."""
    bound = settings.queries.get(query)
    return tuple(bound.archives.values()) if bound else ()


def is_before(offsets: KafkaOffsets, position: KafkaOffsets) -> bool:
    """Say whether some offsets lie at or before a position, of the topics that both have."""
    return all(
        position[topic].get(part, 0) >= offset
        for topic in offsets.keys() & position.keys()
        for part, offset in offsets[topic].items()
    )
