"""What a generation reads that Kafka alone does not give: archives by the settings, and merges."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.config.settings import Settings
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.plan import Progress, silent
from savepoints.runtime.archive_batches import ArchivedInputs
from savepoints.runtime.inputs import Inputs
from savepoints.runtime.runner import Runner
from savepoints.store.root import Store
from savepoints.store.tables import merge_ledger
from savepoints.store.tables.merge_ledger import Merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def runner_of(
    spark: SparkSession,
    store: Store,
    inputs: Inputs,
    *,
    generation: int,
    checkpoint: Location,
    position: KafkaOffsets,
    begun_from: Savepoint | None = None,
    progress: Progress = silent,
) -> Runner:
    """Bind an application to run a generation, with what that reads beside Kafka.

    Args:
        begun_from: The savepoint that it is going to begin from, when it has not begun yet: what
            that one's generation has merged, it has.

    Raises:
        NotAlignedError: If it cannot be said which merges it has, because a savepoint is gone from
            which one of its generations began.
    """
    known = (inputs.app.name, generation)
    if begun_from is not None:
        known = begun_from.place
    found = merges(store, *known, position)
    archived = ArchivedInputs(inputs, found) if found or inputs.bound.archives else None
    return Runner(
        spark,
        inputs,
        generation=generation,
        checkpoint=checkpoint,
        archived=archived,
        progress=progress,
    )


def merges(store: Store, query: str, generation: int, position: KafkaOffsets) -> tuple[Merge, ...]:
    """Return the merges that a generation has and that lie, at least in part, after a position."""
    return _of(store, query, generation, lambda one: not is_before(one.offsets, position))


def of_other_topics(
    store: Store, query: str, generation: int, position: KafkaOffsets
) -> tuple[Merge, ...]:
    """Return the merges that a generation has and that were made while it read other topics."""
    return _of(store, query, generation, lambda one: bool(one.offsets.keys() - position.keys()))


def _of(
    store: Store, query: str, generation: int, is_wanted: Callable[[Merge], bool]
) -> tuple[Merge, ...]:
    known = store.ledger.all()
    wanted = {one.id for one in known if is_wanted(one)}
    # Asked only where it matters: a savepoint that is gone keeps no other query from running.
    if not wanted:
        return ()
    descent = merge_ledger.ancestry(
        query, generation, store.generations.all(), store.catalog.all(), known
    )
    return tuple(one for one in merge_ledger.in_effect(known, descent) if one.id in wanted)


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
