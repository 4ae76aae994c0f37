"""What a query that goes back has read since, and reads again."""

from __future__ import annotations

from collections.abc import Sequence

from savepoints.checkpoint.logs import offset_log
from savepoints.errors import IncompatibleError
from savepoints.io import Location
from savepoints.model import KafkaOffsets, kafka_offsets
from savepoints.sources.kafka.offsets import count
from savepoints.texts import count_text


def note(checkpoint: str, newest: int | None, offsets: Sequence[str | None]) -> list[str]:
    """Say how many records lie between a target and the newest batch.

    Args:
        checkpoint: Of the generation that is left.
        newest: Its newest committed batch, None when it has none.
        offsets: Where each source of the target continues, as Spark's JSON.

    Returns:
        Nothing where that is not known: of other sources than Kafka's, when partitions were added
        since, or if the checkpoint that is left is damaged.
    """
    if newest is None:
        return []
    name = f"offsets/{newest}"
    try:
        now = offset_log.parse(Location.of(checkpoint).get(name), name).sources
        pairs = zip(map(_of_kafka, offsets), map(_of_kafka, now), strict=True)
        records = sum(count(begin, end) for begin, end in pairs)
    except (FileNotFoundError, ValueError, IncompatibleError):
        return []
    return (
        [f"{count_text(records, 'record')} read since then will be read again"] if records else []
    )


def _of_kafka(position: str | None) -> KafkaOffsets:
    found = kafka_offsets(position)
    if found is None:
        raise ValueError(f"{position} is not a set of Kafka offsets")
    return found
