"""Whether savepoints fit together through topics: nobody has read more than the writer's holds.

As `group_check` for tables. How much of a topic a savepoint holds is in it: `OutputTopic`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from savepoints.checkpoint.logs.kafka_position import kafka_offsets
from savepoints.model import OutputTopic, Savepoint
from savepoints.operations.pipeline.pipeline_graph import TopicEdge


@dataclass(frozen=True)
class GroupTopicRead:
    """A topic that one savepoint of a group holds and another has read.

    Attributes:
        writer: Query of the savepoint that holds it.
        reader: Query of the savepoint that has read it.
        topic: Its name.
        held: By partition, the offset before which all belongs to the writer's savepoint; null if
            that is not known.
        read: By partition, the next offset that the reader has not read.
        problem: Why the two do not fit together; empty when they do.
    """

    writer: str
    reader: str
    topic: str
    held: tuple[int, ...] | None
    read: Mapping[int, int]
    problem: str

    def __str__(self) -> str:
        """Say why they do not fit together."""
        return self.problem


def reads(
    readers: Sequence[Savepoint], writers: Sequence[Savepoint], edges: Sequence[TopicEdge]
) -> tuple[GroupTopicRead, ...]:
    """Compare what savepoints have read of topics with what savepoints hold, each one of a query.

    Args:
        edges: Which queries read topics of which others.
    """
    reading = {one.query: one for one in readers}
    writing = {one.query: one for one in writers}
    return tuple(
        _read(writing[writer], reading[reader], topic)
        for writer, reader, topic in dict.fromkeys(
            (one.writer, one.reader, one.topic) for one in edges
        )
        if writer in writing and reader in reading
    )


def held(writer: Savepoint, topic: str) -> OutputTopic | None:
    """Return what a savepoint of a topic's writer says of it; None for nothing."""
    return next((one for one in writer.output_topics if one.topic == topic), None)


def recreated(writer: Savepoint, reader: Savepoint, topic: str) -> bool:
    """Return True if two savepoints speak of different topics of one name."""
    output = held(writer, topic)
    ids = {output.topic_id if output else None, reader.topics.get(topic)}
    return len(ids - {None}) > 1


def positions(reader: Savepoint, topic: str) -> list[Mapping[int, int]]:
    """Return how far each source of a savepoint that reads a topic has read it."""
    found = (kafka_offsets(text) or {} for text in reader.cut.offsets)
    return [one[topic] for one in found if topic in one]


def _read(writer: Savepoint, reader: Savepoint, topic: str) -> GroupTopicRead:
    output = held(writer, topic)
    ends = output.ends if output else None
    furthest: dict[int, int] = {}
    for one in positions(reader, topic):
        for part, offset in one.items():
            furthest[part] = max(offset, furthest.get(part, offset))
    problem = _problem(writer, reader, topic, furthest)
    return GroupTopicRead(writer.query, reader.query, topic, ends, furthest, problem)


def _problem(writer: Savepoint, reader: Savepoint, topic: str, read: Mapping[int, int]) -> str:
    output = held(writer, topic)
    if not any(read.values()):
        return ""
    if output is None:
        return (
            f"the savepoint {writer.id} of {writer.query} does not say how far topic {topic} "
            "had been written, because the topic was not yet named as an output of the query"
        )
    if recreated(writer, reader, topic):
        return f"topic {topic} was deleted and recreated between the savepoints"
    if output.ends is None:
        return (
            f"the savepoint {writer.id} of {writer.query} does not say how far topic {topic} "
            "had been written, because another batch was running or Kafka did not answer"
        )
    return "; ".join(
        f"{reader.query} is ahead of {writer.query}: it has read topic {topic} up to offset "
        f"{offset} of partition {part}, but the savepoint of {writer.query} ends at offset {end}"
        for part, offset in sorted(read.items())
        if offset > (end := output.ends[part] if part < len(output.ends) else 0)
    )
