"""Topics that were deleted and created again under their names since a query has read them.

The offsets that it has reached belong to the deleted ones: in those of today other records are
there, and only the ids that savepoints have tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.errors import SourceDataGoneError
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.sources.kafka import topics as kafka_topics
from savepoints.store import lineage


def find(
    positions: Sequence[KafkaOffsets], context: QueryContext, *, allow_data_loss: bool
) -> frozenset[str]:
    """Return those of a query's topics; none is known where no savepoint has their ids.

    Raises:
        SourceDataGoneError: If there are some, and what they had must not be given up.
    """
    recorded = lineage.topics_known(context.store, context.current)
    names = {topic for one in positions for topic in one} & recorded.keys()
    ids = kafka_topics.ids(names, context.settings.kafka)
    found = sorted(topic for topic, id_ in ids.items() if recorded[topic].topics[topic] != id_)
    if found and not allow_data_loss:
        raise SourceDataGoneError(
            f"topic {found[0]} has been deleted and recreated since savepoint "
            f"{recorded[found[0]].id} was taken: the offsets that {context.query} has reached "
            "belong to the deleted topic, and records that it had not read are gone",
            hint="accept that loss, and read the new topic from the target on: --allow-data-loss",
            topics=found,
        )
    return frozenset(found)


def forgotten(
    positions: Sequence[KafkaOffsets], topics: Collection[str]
) -> tuple[KafkaOffsets, ...]:
    """Return where sources are, without offsets of these topics, as if they had yet to be read."""
    return tuple(
        {topic: {} if topic in topics else parts for topic, parts in one.items()}
        for one in positions
    )


def notes(topics: Collection[str]) -> Iterator[str]:
    """Say what becomes of the offsets of these topics."""
    for one in sorted(topics):
        yield (
            f"topic {one} has been deleted and recreated: none of its records counts as read, and "
            "partitions that do not move start at their first record"
        )
