"""What a savepoint has read of topics whose writers go back, and how the rest of them is passed.

A topic keeps what was written to it. So a reader has to read exactly what belongs to the writer's
savepoint, and then to go on behind everything that is there when the writer stands still: what is
rolled back lies between the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from savepoints.checkpoint.logs.kafka_position import kafka_offsets, kafka_position
from savepoints.config.settings import KafkaSettings
from savepoints.errors import NotAlignedError
from savepoints.model import Generation, OutputTopic, Savepoint
from savepoints.operations.pipeline import topic_check
from savepoints.operations.pipeline.pipeline_graph import TopicEdge
from savepoints.sources.kafka import topics
from savepoints.sources.kafka.topics import TopicEnds
from savepoints.store import lineage


@dataclass(frozen=True)
class TopicRead:
    """One topic of a source of a reader, whose writer goes back.

    Attributes:
        source: Number of the source, in the order of the offset log.
        writer: Query that writes the topic.
        topic: Its name.
        topic_id: Kafka's own id of it; null if not known.
        ends: By partition, the offset up to which the reader has to read: where the writer's
            savepoint ends.
        behind: Offsets that it has not read of these.
    """

    source: int
    writer: str
    topic: str
    topic_id: str | None
    ends: tuple[int, ...]
    behind: int

    def at_the_cut(self, position: str) -> str:
        """Return a position of the source, as Spark's JSON, that is read on to the ends."""
        offsets = kafka_offsets(position) or {}
        mine = offsets.get(self.topic, {})
        wanted = {part: end for part, end in enumerate(self.ends) if end > mine.get(part, 0)}
        return kafka_position({**offsets, self.topic: {**mine, **wanted}})

    def past(self, position: str, ended: Sequence[int]) -> str:
        """Return a position of the source that is behind all that the topic had at a moment."""
        offsets = kafka_offsets(position) or {}
        return kafka_position({**offsets, self.topic: dict(enumerate(ended))})


def reads_of(
    reader: Savepoint,
    writers: Sequence[Savepoint],
    edges: Sequence[TopicEdge],
    generations: Sequence[Generation],
) -> tuple[tuple[TopicRead, ...], str]:
    """Find out how far a savepoint has read the topics that others go back in.

    Returns:
        As `table_reads.reads_of`.
    """
    for found in topic_check.reads([reader], writers, edges):
        if found.problem:
            return (), found.problem
    reads: list[TopicRead] = []
    for writer in writers:
        is_later = any(
            one.query == writer.query
            and one.generation <= writer.generation
            and lineage.reruns(one, reader.created_at)
            for one in generations
        )
        for topic in sorted({one.topic for one in edges if one.writer == writer.query}):
            output = topic_check.held(writer, topic)
            if output is None or output.ends is None or not output.is_exact:
                return (), _inexact(writer, topic)
            mine = _reads(reader, writer, output, output.ends)
            if not mine:
                return (), f"it has no position in topic {topic}"
            is_behind = any(one.behind for one in mine)
            if is_behind and is_later:
                return (), _across(writer, topic)
            reads += mine
    return tuple(reads), ""


def ends_now(reads: Sequence[TopicRead], kafka: KafkaSettings) -> dict[str, TopicEnds]:
    """Return where topics end now, which must still be those of the savepoints.

    Raises:
        NotAlignedError: As `refuse_changed`.
        EnvironmentUnfitError: If Kafka does not answer.
    """
    now = topics.ends({one.topic for one in reads}, kafka)
    refuse_changed(reads, now)
    return now


def refuse_changed(reads: Iterable[TopicRead], now: Mapping[str, TopicEnds]) -> None:
    """Refuse topics that are no longer those of the savepoints."""
    for read in reads:
        there = now.get(read.topic)
        if there is None:
            problem = "no longer exists"
        elif None not in (there.id, read.topic_id) and there.id != read.topic_id:
            problem = f"has been deleted and recreated since the savepoint of {read.writer}"
        elif len(there.ends) < len(read.ends) or any(
            end < before for end, before in zip(there.ends, read.ends, strict=False)
        ):
            problem = f"no longer reaches the offsets in the savepoint of {read.writer}"
        else:
            continue
        raise NotAlignedError(
            f"topic {read.topic} {problem}",
            hint=f"choose a later savepoint: savepoints list --query {read.writer}",
            query=read.writer,
            topic=read.topic,
        )


def _reads(
    reader: Savepoint, writer: Savepoint, output: OutputTopic, ends: tuple[int, ...]
) -> list[TopicRead]:
    found = []
    for number, text in enumerate(reader.cut.offsets):
        offsets = (kafka_offsets(text) or {}).get(output.topic)
        if offsets is not None:
            behind = sum(max(end - offsets.get(part, 0), 0) for part, end in enumerate(ends))
            found.append(
                TopicRead(number, writer.query, output.topic, output.topic_id, ends, behind)
            )
    return found


def _inexact(writer: Savepoint, topic: str) -> str:
    return (
        f"{writer.id} does not say exactly where the records of {writer.query} in topic "
        f"{topic} end, because another batch was running; to be able to roll back to a savepoint, "
        f"stop or pause {writer.query} before you take it"
    )


def _across(writer: Savepoint, topic: str) -> str:
    return (
        f"it was taken before generation {writer.generation} of {writer.query}, and topic "
        f"{topic} still has records written since then that were rolled back"
    )
