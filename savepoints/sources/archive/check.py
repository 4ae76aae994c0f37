"""Check that an archive has every record of Kafka exactly once and unchanged.

Records that Kafka still has are compared one by one. Of removed ones only the number is known: an
offset without a record may be a gap, or not, because transactions and compaction leave such
offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition
from savepoints.config.settings import KafkaSettings
from savepoints.io import Location
from savepoints.sources.archive import progress, table
from savepoints.sources.archive.progress import ArchiveProgress
from savepoints.sources.events import offset_ranges
from savepoints.sources.events.entity_filter import any_of
from savepoints.sources.events.events import POSITION
from savepoints.sources.kafka import read_range, topics
from savepoints.sources.kafka.topics import Topic
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Records named for each kind of difference.
_SAMPLES = 5
_PLACE = ("topic", "partition")
_DIFFERENCES = ("missing", "extra", "different")


@dataclass(frozen=True)
class PartitionCheck:
    """What was found in one partition; all offsets are next-to-read.

    Attributes:
        compared_from: From here up to `end` each record was compared with Kafka's.
        without_record: Offsets before `compared_from` of which the archive has no record; Kafka has
            removed what it had there.
    """

    topic: str
    partition: int
    begin: int
    end: int
    rows: int
    compared_from: int
    compared: int
    missing: int
    extra: int
    different: int
    doubled: int
    without_record: int


@dataclass(frozen=True)
class ArchiveCheck:
    """What a check of an archive found."""

    uri: str
    partitions: tuple[PartitionCheck, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def check(spark: SparkSession, uri: str, settings: KafkaSettings) -> ArchiveCheck:
    """Compare an archive with Kafka, as far as Kafka still has its records; read-only."""
    table.require(Location.of(uri))
    known = progress.load(uri)
    looked = topics.describe(known.end, settings)
    known.require_same({name: one.id for name, one in looked.items() if one.id})
    begin, end = _overlap(known, looked)
    found = _archived(spark, uri)
    differences = _compared(found, read_range.read_records(spark, settings, begin, end), begin, end)
    compared = _by_place(differences.groupBy(*_PLACE).agg(*_sums()))
    own = _by_place(_counted(found, begin))
    partitions = []
    for topic, part, stop in by_partition(known.end):
        rows = own.get((topic, part), {"rows": 0, "doubled": 0, "before": 0})
        first = known.begin[topic][part]
        split = begin.get(topic, {}).get(part, stop)
        partitions.append(
            PartitionCheck(
                topic,
                part,
                first,
                stop,
                rows=rows["rows"],
                compared_from=split,
                **compared.get((topic, part), dict.fromkeys(("compared", *_DIFFERENCES), 0)),
                doubled=rows["doubled"],
                without_record=split - first - rows["before"],
            )
        )
    problems = _problems(known, partitions, looked)
    if any(one.missing or one.extra or one.different for one in partitions):
        problems += _samples(differences)
    return ArchiveCheck(known.uri, tuple(partitions), tuple(problems), _notes(partitions, looked))


def _overlap(known: ArchiveProgress, looked: dict[str, Topic]) -> tuple[KafkaOffsets, KafkaOffsets]:
    """Return the range that both the archive and Kafka have."""
    begin: KafkaOffsets = {}
    end: KafkaOffsets = {}
    for topic, part, stop in by_partition(known.end):
        has = looked[topic].ranges.get(part) if topic in looked else None
        start = max(known.begin[topic][part], has.earliest) if has else stop
        last = min(stop, has.end) if has else stop
        if start < last:
            begin.setdefault(topic, {})[part] = start
            end.setdefault(topic, {})[part] = last
    return begin, end


def _archived(spark: SparkSession, uri: str) -> DataFrame:
    """Read the position and content hash of the records that came from Kafka."""
    from pyspark.sql import functions as F

    rows = spark.read.format("delta").load(Location.of(uri).uri.hadoop)
    hashed = F.xxhash64("key", "value", "timestamp")
    return rows.where(F.col("merge_id").isNull()).select(*POSITION, hashed.alias("archived"))


def _compared(
    found: DataFrame, records: DataFrame, begin: KafkaOffsets, end: KafkaOffsets
) -> DataFrame:
    """Put both side by side: `POSITION`, `archived long`, `sent long`, null where it is not."""
    from pyspark.sql import functions as F

    both = found.where(offset_ranges.between(begin, end)).distinct()
    sent = records.select(*POSITION, F.xxhash64("key", "value", "timestamp").alias("sent"))
    return both.join(sent, list(POSITION), "full_outer").withColumns(
        {
            "missing": F.col("archived").isNull(),
            "extra": F.col("sent").isNull(),
            "different": F.coalesce(F.col("archived") != F.col("sent"), F.lit(False)),  # noqa: FBT003
        }
    )


def _sums() -> list[Column]:
    from pyspark.sql import functions as F

    return [
        F.count("sent").alias("compared"),
        *(F.sum(F.col(name).cast("long")).alias(name) for name in _DIFFERENCES),
    ]


def _counted(found: DataFrame, begin: KafkaOffsets) -> DataFrame:
    """Count the archive's own: rows, rows beyond the first of an offset, offsets before `begin`."""
    from pyspark.sql import functions as F

    starts = [
        (F.col("topic") == topic) & (F.col("partition") == part) & (F.col("offset") >= start)
        for topic, part, start in by_partition(begin)
    ]
    once = found.groupBy(*POSITION).agg(F.count("*").alias("n"))
    return once.groupBy(*_PLACE).agg(
        F.sum("n").alias("rows"),
        F.sum(F.col("n") - 1).alias("doubled"),
        F.count_if(~any_of(starts)).alias("before"),
    )


def _by_place(counts: DataFrame) -> dict[tuple[str, int], dict[str, int]]:
    rows = (row.asDict() for row in counts.collect())
    return {(row.pop("topic"), row.pop("partition")): row for row in rows}


def _problems(
    known: ArchiveProgress, partitions: list[PartitionCheck], looked: dict[str, Topic]
) -> list[str]:
    found = [
        f"{topic} partition {part}: no batch has read offsets {start} to {stop}"
        for topic, part, start, stop in known.holes()
    ]
    counted: dict[tuple[str, int], int] = {}
    for row in known.rows:
        place = (row.topic, row.partition)
        counted[place] = counted.get(place, 0) + row.rows
    for one in partitions:
        where = f"{one.topic} partition {one.partition}"
        has = looked[one.topic].ranges.get(one.partition) if one.topic in looked else None
        if has is None:
            found.append(f"{where}: Kafka has no such partition")
        elif has.end < one.end:
            found.append(f"{where}: the archive extends to {one.end}, Kafka only to {has.end}")
        if counted.get((one.topic, one.partition), 0) != one.rows:
            arrived = counted.get((one.topic, one.partition), 0)
            found.append(
                f"{where}: {count_text(arrived, 'record')} arrived, but the archive has {one.rows}"
            )
        if one.missing:
            found.append(
                f"{where}: the archive lacks {count_text(one.missing, 'record')} from Kafka"
            )
        if one.extra and not _compacts(looked, one.topic):
            found.append(
                f"{where}: the archive has {count_text(one.extra, 'record')} that Kafka does not "
                "have"
            )
        if one.different:
            found.append(
                f"{where}: the archive has {count_text(one.different, 'record')} with content that "
                "differs from Kafka's"
            )
        if one.doubled:
            found.append(f"{where}: the archive has {count_text(one.doubled, 'duplicate record')}")
    return found


def _notes(partitions: list[PartitionCheck], looked: dict[str, Topic]) -> tuple[str, ...]:
    found = []
    for one in partitions:
        where = f"{one.topic} partition {one.partition}"
        if one.without_record:
            found.append(
                f"{where}: the archive has no record for "
                f"{count_text(one.without_record, 'offset')} before {one.compared_from}, "
                "and Kafka can no longer tell whether there was one; transactions "
                "and compaction leave such offsets"
            )
        if one.extra and _compacts(looked, one.topic):
            found.append(
                f"{where}: Kafka's compaction has since removed {count_text(one.extra, 'record')}"
            )
        if one.begin:
            found.append(f"{where}: records before offset {one.begin} were never archived")
    return tuple(found)


def _compacts(looked: dict[str, Topic], topic: str) -> bool:
    return topic in looked and looked[topic].compacts


def _samples(differences: DataFrame) -> list[str]:
    """List a few records of each kind of difference."""
    from pyspark.sql import functions as F

    found = []
    for kind in _DIFFERENCES:
        rows = differences.where(F.col(kind)).orderBy(*POSITION).limit(_SAMPLES).collect()
        if rows:
            listed = ", ".join(f"{row.topic}/{row.partition}/{row.offset}" for row in rows)
            found.append(f"{kind}, for example (topic/partition/offset): {listed}")
    return found
