"""What a planned batch reads when it is not Kafka's alone: an archive, and events of merges.

Kafka may have removed what comes next; then the batch reads the archive up to its end, and Kafka
from exactly there. And a query that begins anew before offsets at which late events were merged
reads them once more, as if they had come in time: each in the first batch after which an event as
new as it has arrived. Up to there no batch before it can have made it late.

Which events a batch reads depends on its offsets, the archive and the ledger alone, so a batch that
was killed reads the same when it is run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import (
    KafkaOffsets,
    by_partition,
    kafka_offsets,
    lowest_offsets,
)
from savepoints.checkpoint.position import CheckpointPosition
from savepoints.errors import NotAlignedError, SourceDataGoneError
from savepoints.runtime.inputs import Inputs
from savepoints.sources.archive import archive
from savepoints.sources.archive.progress import ArchiveProgress
from savepoints.sources.combined import (
    archive_then_kafka,
    availability,
    available_ranges,
    trigger_source,
)
from savepoints.sources.events.events import RAW
from savepoints.sources.kafka.offsets import (
    ends,
    merge,
    require_new_partitions,
    with_new_partitions,
)
from savepoints.store.tables.merge_ledger import Merge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from savepoints.sources.kafka.offsets import Ranges


@dataclass(frozen=True)
class Reading:
    """What one batch reads.

    Attributes:
        inputs: By input, its records as a stream: Kafka's columns.
        kept: What is held in memory until the batch is done.
    """

    batch: int
    inputs: dict[str, DataFrame]
    rows: int
    kept: tuple[DataFrame, ...]

    def release(self) -> None:
        """Let go of what is held in memory."""
        for one in self.kept:
            one.unpersist()


@dataclass(frozen=True)
class ArchivedInputs:
    """What a query reads that Kafka alone does not give.

    Attributes:
        inputs: Its inputs, and where their events are.
        merges: The merges that its state has, or is to have once it has read up to their offsets,
            the oldest first.
    """

    inputs: Inputs
    merges: tuple[Merge, ...] = ()

    def pending(self, position: KafkaOffsets) -> tuple[Merge, ...]:
        """Return the merges whose events lie ahead of a query that stands somewhere."""
        return tuple(one for one in self.merges if not self._has_passed(one, position))

    def until(self, position: KafkaOffsets, ranges: Ranges) -> KafkaOffsets | None:
        """Return where a query is to go by planned batches first; None when Kafka has it all.

        That is the end of the archive; and for topics that are read from Kafka alone, their end.
        """
        require_new_partitions(position, ranges)
        begin = with_new_partitions(position, ranges)
        _require_known(self.inputs.app.name, begin, ranges)
        pending = self.require_replayable(begin)
        archived = {self.inputs.topic(one.input) for one in pending}
        for topic, parts in begin.items():
            if any(offset < ranges[topic][part].kafka_earliest for part, offset in parts.items()):
                archived.add(topic)
        if not archived:
            return None
        found = ends({topic: ranges[topic] for topic in begin.keys() - archived})
        found |= {topic: dict(begin[topic]) for topic in archived}
        for one in available_ranges.of_topics(self.inputs.archives, archived):
            for topic in archived & one.end.keys():
                for part, offset in one.end[topic].items():
                    found[topic][part] = max(offset, found[topic].get(part, 0))
        return found

    def within(self, begin: KafkaOffsets, end: KafkaOffsets) -> KafkaOffsets:
        """Return how far a batch may go: while merges are ahead, not beyond the archive.

        By the archive alone it is decided which of their events a batch reads, today and whenever
        it is run again.
        """
        found = {topic: dict(parts) for topic, parts in end.items()}
        for one in self.pending(begin):
            known = self._require_archived(one).end
            topic = self.inputs.topic(one.input)
            for part, offset in found.get(topic, {}).items():
                start = begin.get(topic, {}).get(part, 0)
                there = known.get(topic, {}).get(part, start)
                found[topic][part] = max(start, min(offset, there))
        return found

    def require_replayable(self, position: KafkaOffsets) -> tuple[Merge, ...]:
        """Check that the events of merges ahead can be read where they belong.

        Raises:
            NotFoundError: If an archive does not have the events of one.
        """
        pending = self.pending(position)
        for one in pending:
            known = self._require_archived(one)
            topic = self.inputs.topic(one.input)
            known.require({topic: position.get(topic, {})})
        return pending

    def reading(self, spark: SparkSession, now: CheckpointPosition) -> Reading | None:
        """Return what the batch reads that is planned; None when Kafka alone has it all.

        Raises:
            UsageError: If two sources read a topic from different offsets.
        """
        assert now.begun is not None
        starts = now.positions or tuple(one for _, one in sorted(now.initial.items()))
        is_empty = now.offsets == lowest_offsets(now.begun_positions)
        if is_empty or self._is_all_in_kafka(now.offsets):
            return None
        ranges = self.inputs.ranges()
        require_new_partitions(_one(starts), ranges)
        begin, end = with_new_partitions(_one(starts), ranges), _one(now.begun_positions)
        rows = {name: self._rows(spark, name, begin, end) for name in self.inputs.app.inputs}
        inputs = {}
        for name, one in rows.items():
            topic = self.inputs.topic(name)
            inputs[name] = trigger_source.streamed(spark, one, {topic: begin.get(topic, {})})
        kept = tuple(rows.values())
        return Reading(now.begun, inputs, sum(one.count() for one in kept), kept)

    def _is_all_in_kafka(self, position: KafkaOffsets) -> bool:
        """Say whether a query has no need of archives, which are not looked at for that."""
        return not self.pending(position) and all(
            position.get(topic, {}).get(part, 0) >= one.earliest
            for topic, part, one in by_partition(
                availability.ranges(self.inputs.topics, self.inputs.kafka)
            )
        )

    def _rows(
        self, spark: SparkSession, name: str, begin: KafkaOffsets, end: KafkaOffsets
    ) -> DataFrame:
        """Return the records of an input, those of a partition together and in order."""
        topic = self.inputs.topic(name)
        merges = [one for one in self.pending(begin) if one.input == name]
        since, until = {topic: begin.get(topic, {})}, {topic: end.get(topic, {})}
        if merges:
            ids, reached = [one.id for one in merges], {one.id: one.offsets for one in merges}
            rows = self.inputs.rows(
                spark, name, since=since, until=until, entities=None, merges=ids
            )
            rows = archive.applied(rows, ids, reached)
            rows = self._due(spark, name, rows, merges, since, until)
        else:
            rows = archive_then_kafka.records(
                spark, self.inputs.bound.archives.get(name), self.inputs.kafka, since, until
            )
        parts = len(until[topic]) + bool(merges)
        ordered = rows.select(*RAW).repartition(parts, "topic", "partition")
        return ordered.sortWithinPartitions("topic", "partition", "offset").persist()

    def _due(
        self,
        spark: SparkSession,
        name: str,
        rows: DataFrame,
        merges: Sequence[Merge],
        begin: KafkaOffsets,
        end: KafkaOffsets,
    ) -> DataFrame:
        """Leave out the late events that belong to an earlier batch, or to a later one."""
        from pyspark.sql import functions as F

        # The archive begins where the query did, or before.
        before, after = (self.inputs.clock(spark, name, one, since={}) for one in (begin, end))
        is_due = F.col("merge_id").isNull()
        for one in merges:
            mine = F.col("merge_id") == one.id
            if before is not None:
                mine &= F.col("event_time") > F.lit(before)
            if not self._has_passed(one, end):
                reached = F.lit(None).cast("timestamp_ltz") if after is None else F.lit(after)
                mine &= F.col("event_time") <= reached
            is_due |= mine
        return rows.where(is_due)

    def _require_archived(self, one: Merge) -> ArchiveProgress:
        self.inputs.require_merged(one, self.inputs.app.name)
        known = self.inputs.arrivals(one.input)
        topic = self.inputs.topic(one.input)
        try:
            known.require({topic: one.offsets.get(topic, {})})
        except NotAlignedError as error:
            raise NotAlignedError(
                f"cannot determine the order in which the events of merge {one.id} arrived: "
                f"{error.message}",
                hint=error.hint,
                merge=one.id,
            ) from None
        return known

    def _has_passed(self, one: Merge, position: KafkaOffsets) -> bool:
        topics = (
            {self.inputs.topic(one.input)}
            if one.input in self.inputs.app.inputs
            else set(one.offsets)
        ) & one.offsets.keys()
        return all(
            position.get(topic, {}).get(part, 0) >= offset
            for topic in topics
            for part, offset in one.offsets[topic].items()
        )


def _require_known(query: str, position: KafkaOffsets, ranges: Ranges) -> None:
    """Refuse a position in what the query does not read any more, or Kafka does not have."""
    for topic, part, offset in by_partition(position):
        if part not in ranges.get(topic, {}):
            raise SourceDataGoneError(
                f"the query is at offset {offset} of topic {topic} partition {part}, which "
                f"{'Kafka does not have' if topic in ranges else 'it does not read any more'}",
                hint=f"correct [queries.{query}.topics] in the settings; or, if the partition was "
                "deleted, begin again without it: savepoints reset "
                f"{query} --to-earliest --allow-data-loss --dry-run",
                topic=topic,
                partition=part,
            )


def _one(positions: Sequence[str | None]) -> KafkaOffsets:
    return merge(
        (kafka_offsets(one) or {} for one in positions),
        instead="roll back to a savepoint whose sources are at the same offsets (savepoints list "
        "-o json shows them), or begin anew: savepoints reset QUERY --to-earliest",
    )
