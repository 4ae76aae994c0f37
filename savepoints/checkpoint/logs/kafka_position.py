"""Positions of Kafka sources, as Spark's offset log has them (`JsonUtils.partitionOffsets`)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

_T = TypeVar("_T")

# Next-to-read offset by topic and partition.
KafkaOffsets: TypeAlias = dict[str, dict[int, int]]


def kafka_offsets(position: str | None) -> KafkaOffsets | None:
    """Read a source position as Kafka's `{topic: {partition: next offset}}`; None for others.

    The offset log does not name a source's kind, so the form decides: only Kafka's has two levels
    with whole numbers on both sides of the inner one.
    """
    if position is None:
        return None
    try:
        data = json.loads(position)
        if not data or not all(isinstance(parts, dict) and parts for parts in data.values()):
            return None
        if not all(type(o) is int for parts in data.values() for o in parts.values()):
            return None
        return {
            topic: {int(partition): offset for partition, offset in parts.items()}
            for topic, parts in data.items()
        }
    except (ValueError, AttributeError):
        return None


def lowest_offsets(positions: Iterable[str | None]) -> KafkaOffsets:
    """Merge the Kafka positions of several sources; of two for one topic, the lower counts."""
    found: KafkaOffsets = {}
    for position in positions:
        for topic, parts in (kafka_offsets(position) or {}).items():
            known = found.setdefault(topic, {})
            for part, offset in parts.items():
                known[part] = min(offset, known.get(part, offset))
    return found


def apart(positions: Iterable[KafkaOffsets]) -> tuple[str, int, int, int] | None:
    """Return a partition that two sources have read up to different offsets, None without any.

    Returns:
        Topic, partition, and the two offsets in the order of the sources.
    """
    found: dict[tuple[str, int], int] = {}
    for position in positions:
        for topic, part, offset in by_partition(position):
            known = found.setdefault((topic, part), offset)
            if known != offset:
                return topic, part, known, offset
    return None


def sources_apart(positions: Iterable[str | None]) -> tuple[str, int, int, int] | None:
    """Return the same of sources with their positions as Spark's JSON."""
    return apart(kafka_offsets(position) or {} for position in positions)


def is_added(known: Collection[int], partition: int) -> bool:
    """Say whether a partition may have been added to a topic since a position in some partitions.

    Kafka counts them up: one below a known one was there before, so it is not read at all, by
    Spark's option `assign`.
    """
    return partition > max(known, default=-1)


def topics_added(then: Sequence[str | None], now: Sequence[str | None]) -> set[str]:
    """Return the topics that sources read besides those that they read at an earlier position.

    A source that no longer reads one of its topics was given others instead.
    """
    if len(then) != len(now):
        return set()
    read = ([kafka_offsets(one) or {} for one in positions] for positions in (then, now))
    return {
        topic
        for before, after in zip(*read, strict=True)
        if before and before.keys() <= after.keys()
        for topic in after.keys() - before.keys()
    }


def with_added(position: KafkaOffsets, there: Mapping[str, Collection[int]]) -> KafkaOffsets:
    """Return a position with the partitions that were added since, which are read from offset 0.

    Args:
        there: The partitions that each topic has now.
    """
    return {
        topic: {**{part: 0 for part in there.get(topic, ()) if is_added(parts, part)}, **parts}
        for topic, parts in position.items()
    }


def by_partition(found: Mapping[str, Mapping[int, _T]]) -> Iterator[tuple[str, int, _T]]:
    """Yield topic, partition and what there is of it, such as an offset, in their order."""
    for topic, parts in sorted(found.items()):
        for part in sorted(parts):
            yield topic, part, parts[part]


def kafka_position(offsets: KafkaOffsets) -> str:
    """Write Kafka's offsets as Spark's offset log has them; the reverse of `kafka_offsets`."""
    ordered = {
        topic: {str(partition): offset for partition, offset in sorted(parts.items())}
        for topic, parts in sorted(offsets.items())
    }
    return json.dumps(ordered, separators=(",", ":"))
