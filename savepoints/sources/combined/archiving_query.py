"""The query that archives Kafka exactly once, from where the archive ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from savepoints.checkpoint import position
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, kafka_position, lowest_offsets
from savepoints.config.settings import KafkaSettings
from savepoints.errors import NotAlignedError, QueryRunningError, SourceDataGoneError
from savepoints.io import Location
from savepoints.sources.archive import archive, progress, same_decoding
from savepoints.sources.events.events import RAW, Decoding, events
from savepoints.sources.kafka import live_ranges, read_range, topics
from savepoints.sources.kafka.offsets import Range
from savepoints.sources.kafka.spark_options import reader_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class Archiving:
    """What is archived, and where.

    Attributes:
        most: Most records of a batch; None for no limit.
        every: Pause between two batches; None to archive what is available and stop.
    """

    uri: str
    topic: str
    decoding: Decoding
    kafka: KafkaSettings
    most: int | None = None
    every: timedelta | None = None


def start(spark: SparkSession, what: Archiving) -> StreamingQuery:
    """Start archiving where the archive ends; a new one begins with the oldest record.

    Raises:
        IncompatibleError: If the program decodes events differently than the archive has them.
    """
    archive.make(spark, what.uri)
    archive.mend(what.uri)
    same_decoding.require(spark, what.uri, what.decoding)
    ids = topics.ids([what.topic], what.kafka)
    begin = _begin(what, ids)
    checkpoint = Location.of(what.uri) / archive.CHECKPOINT
    reader = (
        spark.readStream.format("kafka")
        .options(**reader_options(what.kafka))
        .option("subscribe", what.topic)
        .option("startingOffsets", kafka_position(begin))
    )
    if what.most:
        reader = reader.option("maxOffsetsPerTrigger", what.most)

    def write(records: DataFrame, batch_id: int) -> None:
        append(what, ids, records, batch_id)

    writer = (
        reader.load()
        .select(*RAW)
        .writeStream.queryName(f"archive of {what.topic}")
        .option("checkpointLocation", checkpoint.uri.hadoop)
        .foreachBatch(write)
    )
    if what.every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(
        processingTime=f"{int(what.every.total_seconds() * 1000)} milliseconds"
    ).start()


def append(
    what: Archiving, topic_ids: Mapping[str, str], records: DataFrame, batch_id: int
) -> None:
    """Append a batch of the archive's query.

    Args:
        topic_ids: Kafka's id of the topic when the query began.
        records: Columns `RAW_SCHEMA`.

    Raises:
        QueryRunningError: If the checkpoint is at another batch: the range of that one would be
            written down for the records of this one.
        SourceDataGoneError: If the topic was recreated since the query began: its records have
            offsets of their own.
    """
    checkpoint = Location.of(what.uri) / archive.CHECKPOINT
    now = position.read(checkpoint)
    if now.begun != batch_id:
        raise QueryRunningError(
            f"another process runs the query of the archive {what.uri}: this one writes batch "
            f"{batch_id}, but batch {now.next_batch} is the next one in {checkpoint}",
            hint="run only one job per archive; this batch was not added, and the next run "
            "continues where the archive ends",
            uri=what.uri,
        )

    def require_same_topic() -> None:
        progress.require_same_topic(what.uri, topic_ids, topics.ids([what.topic], what.kafka))

    archive.append(
        what.uri,
        events(records, what.decoding),
        begin=now.offsets,
        end=lowest_offsets(now.begun_positions),
        topic_ids=topic_ids,
        confirm=require_same_topic,
    )


def _begin(what: Archiving, ids: Mapping[str, str]) -> KafkaOffsets:
    """Return the archive's end, after checking that its query is there too."""
    known = progress.load(what.uri)
    known.require_same(ids)
    end = known.end
    has = live_ranges.ranges([what.topic], what.kafka)
    begin = {
        what.topic: {
            part: end.get(what.topic, {}).get(part, one.earliest)
            for part, one in has[what.topic].items()
        }
    }
    read_range.require(what.kafka, end, end)
    now = position.read(Location.of(what.uri) / archive.CHECKPOINT)
    # After a kill, a batch may be in the archive and the offset log, but not committed.
    stands = [now.offsets] if now.committed is not None else []
    if now.begun is not None:
        stands.append(lowest_offsets(now.begun_positions))
    if end and stands and end not in stands:
        raise NotAlignedError(
            f"the archive {what.uri} ends at {kafka_position(end)}, but the query that writes "
            f"it is at {kafka_position(stands[0])}",
            hint=f"delete {Location.of(what.uri) / archive.CHECKPOINT}: the next run then "
            "continues where the archive ends",
            uri=what.uri,
        )
    if stands:
        _require_beginnings(what, stands[0], has[what.topic])
    return begin


def _require_beginnings(what: Archiving, stands: KafkaOffsets, has: Mapping[int, Range]) -> None:
    """Check that Kafka has the first records of partitions that are new to the query.

    Spark begins these at 0, and fails where Kafka has no such record
    (`KafkaOffsetReader.getOffsetRangesFromResolvedOffsets`).
    """
    gone = [
        f"{what.topic} partition {part}: 0 to {one.earliest}"
        for part, one in sorted(has.items())
        if part not in stands.get(what.topic, {}) and one.earliest
    ]
    if gone:
        raise SourceDataGoneError(
            "Kafka no longer has the first records of partitions that are new to the query that "
            f"archives: {'; '.join(gone)}",
            hint=f"delete {Location.of(what.uri) / archive.CHECKPOINT} and run the job again: it "
            "continues where the archive ends, and begins these partitions with the first record "
            "that Kafka still has; whatever needs earlier records is refused",
            uri=what.uri,
            partitions=gone,
        )
