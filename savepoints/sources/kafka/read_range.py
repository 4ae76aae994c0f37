"""Read Kafka records between two positions as a Spark table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition, kafka_position
from savepoints.config.settings import KafkaSettings
from savepoints.errors import SourceDataGoneError
from savepoints.sources.events.events import RAW, RAW_SCHEMA
from savepoints.sources.kafka import live_ranges
from savepoints.sources.kafka.spark_options import reader_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_records(
    spark: SparkSession, settings: KafkaSettings, begin: KafkaOffsets, end: KafkaOffsets
) -> DataFrame:
    """Read the records between two positions, in columns `RAW_SCHEMA`."""
    if not end:
        return spark.createDataFrame([], RAW_SCHEMA)
    reader = (
        spark.read.format("kafka")
        .options(**reader_options(settings))
        .option("assign", json.dumps({topic: sorted(parts) for topic, parts in end.items()}))
        .option("startingOffsets", kafka_position(begin))
        .option("endingOffsets", kafka_position(end))
    )
    return reader.load().select(*RAW)


def require(settings: KafkaSettings, begin: KafkaOffsets, end: KafkaOffsets) -> None:
    """Check that Kafka has the records between two positions; Spark fails later and says less."""
    has = live_ranges.ranges(sorted(end), settings) if end else {}
    gone = []
    for topic, part, stop in by_partition(end):
        start, one = begin[topic][part], has[topic].get(part)
        if one is None or start < one.earliest or stop > one.end:
            found = f"{one.earliest} to {one.end}" if one else "nothing"
            gone.append(f"{topic} partition {part}: wanted {start} to {stop}, available {found}")
    if gone:
        raise SourceDataGoneError(
            f"neither the archive nor Kafka has all required records: {'; '.join(gone)}",
            hint="choose another savepoint (if the archive job failed: archive the topic again, at "
            "another URI); in the future, archive records before Kafka's retention removes them: "
            "python -m savepoints.jobs.archive QUERY INPUT --until latest",
            partitions=gone,
        )
