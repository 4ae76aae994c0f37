"""Whether savepoints of several queries fit together: nobody has read more than the writer holds.

A savepoint of a query has read, of each Delta table, what its sources' positions say, and holds, of
each table that it writes, one version. Restored together they continue as if all had been stopped
at one moment if every reader's position lies within the version of the writer. The same goes for
topics; how much of one a savepoint holds is in it (`OutputTopic`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from savepoints.checkpoint.logs import table_position
from savepoints.checkpoint.logs.kafka_position import kafka_offsets
from savepoints.checkpoint.logs.table_position import TablePosition
from savepoints.io import in_parallel
from savepoints.model import OutputTopic, OutputVersion, Savepoint
from savepoints.operations.pipeline.pipeline_graph import TopicEdge
from savepoints.outputs.delta import log


@dataclass(frozen=True)
class GroupRead:
    """A table that one savepoint of a group holds and another has read.

    Attributes:
        writer: Query of the savepoint that holds it.
        reader: Query of the savepoint that has read it.
        table_uri: Where the table is.
        version: The version that the writer's savepoint holds.
        read: The newest version of which the reader has read rows, or the snapshot that it is
            reading; -1 for none.
        problem: Why the two do not fit together; empty when they do.
    """

    writer: str
    reader: str
    table_uri: str
    version: int
    read: int
    problem: str

    def __str__(self) -> str:
        """Say why they do not fit together."""
        return (
            f"{self.reader} is ahead of {self.writer}: {self.problem} of {self.table_uri}, "
            f"but the savepoint of {self.writer} ends at version {self.version}"
        )


def reads(readers: Sequence[Savepoint], writers: Sequence[Savepoint]) -> tuple[GroupRead, ...]:
    """Compare what savepoints have read with what savepoints hold, each one of a query."""
    pairs = [
        (writer, reader, output, position)
        for reader in readers
        for text in reader.cut.offsets
        if (position := table_position.parse(text))
        for writer in writers
        for output in writer.outputs
        if output.kind == "delta" and output.table_id == position.table_id
    ]
    return tuple(in_parallel(lambda pair: _read(*pair), pairs))


def _read(
    writer: Savepoint, reader: Savepoint, output: OutputVersion, position: TablePosition
) -> GroupRead:
    newest, problem = _newest(position), ahead(output, position)
    return GroupRead(writer.query, reader.query, output.uri, output.version, newest, problem)


def ahead(output: OutputVersion, position: TablePosition) -> str:
    """Say what a reader at a position has read beyond an output's version; empty for nothing.

    Commits without rows, as OPTIMIZE makes them, do not count.
    """
    newest = _newest(position)
    if newest <= output.version:
        return ""
    seen = newest + 1
    for commit in log.commits(output.uri, newest):
        if commit.version <= output.version:
            return ""
        if commit.changes_data:
            return f"it has read version {commit.version} ({commit.operation or 'commit'})"
        seen = commit.version
    if seen == output.version + 1:
        return ""
    return f"it has read version {newest}, and versions before {seen} are gone from the log"


def _newest(position: TablePosition) -> int:
    # A snapshot is read at its version also before its first file.
    is_begun = position.index >= 0 or position.in_snapshot
    return position.version if is_begun else position.version - 1


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


def topic_reads(
    readers: Sequence[Savepoint], writers: Sequence[Savepoint], edges: Sequence[TopicEdge]
) -> tuple[GroupTopicRead, ...]:
    """Compare what savepoints have read of topics with what savepoints hold, each one of a query.

    Args:
        edges: Which queries read topics of which others.
    """
    reading = {one.query: one for one in readers}
    writing = {one.query: one for one in writers}
    return tuple(
        _topic_read(writing[writer], reading[reader], topic)
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
    """Return how far each source of a savepoint that topic_reads a topic has read it."""
    found = (kafka_offsets(text) or {} for text in reader.cut.offsets)
    return [one[topic] for one in found if topic in one]


def _topic_read(writer: Savepoint, reader: Savepoint, topic: str) -> GroupTopicRead:
    output = held(writer, topic)
    ends = output.ends if output else None
    furthest: dict[int, int] = {}
    for one in positions(reader, topic):
        for part, offset in one.items():
            furthest[part] = max(offset, furthest.get(part, offset))
    problem = _topic_problem(writer, reader, topic, furthest)
    return GroupTopicRead(writer.query, reader.query, topic, ends, furthest, problem)


def _topic_problem(
    writer: Savepoint, reader: Savepoint, topic: str, read: Mapping[int, int]
) -> str:
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
