"""A batch that Spark has committed and failed to report.

Kafka's source of Spark 4.1.0 to 4.1.2 throws a NullPointerException in
`KafkaMicroBatchStream.metrics` after each batch that was planned before the query started: by a
run with an end, or by one that was killed. The batch is committed by then, and nothing of it is
missing but Spark's report; the next start goes on as if nothing had happened.
"""

from __future__ import annotations

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition, kafka_offsets
from savepoints.checkpoint.position import CheckpointPosition


def is_one(before: CheckpointPosition, now: CheckpointPosition) -> bool:
    """Say whether a query that failed had committed the planned batch, and begun no other.

    Args:
        before: When the query started.
        now: After it failed.
    """
    return before.begun is not None and (now.committed, now.begun) == (before.begun, None)


def rows(before: CheckpointPosition) -> int:
    """Return how many records lie in the planned batch; those of partitions that are new from 0."""
    begins = before.positions or tuple(
        before.initial.get(number) for number in range(len(before.begun_positions))
    )
    return sum(map(_between, map(_offsets, begins), map(_offsets, before.begun_positions)))


def _offsets(position: str | None) -> KafkaOffsets:
    return kafka_offsets(position) or {}


def _between(begin: KafkaOffsets, end: KafkaOffsets) -> int:
    return sum(
        offset - begin.get(topic, {}).get(part, 0) for topic, part, offset in by_partition(end)
    )
