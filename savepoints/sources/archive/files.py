"""The Parquet files of an archive: sorted by entity, in small row groups, written by Spark.

Where the rows of an entity are together, a row group has few entities, and the footer of the file
says which: that makes a lookup of a few entities cheap. So files are written sorted, and compaction
brings the rows of an entity together. Row groups and not pages, although Parquet has an index of
pages too: all columns of a row group lie in one piece, pages in as many pieces as there are
columns. A dictionary for each column chunk would be larger than what it saves; and least and
greatest values are kept only of columns that are looked for, since footers are read each time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savepoints.io import Location
from savepoints.sources.archive.table import File
from savepoints.sources.events.events import EVENT_SCHEMA, POSITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

# The least that is read for an entity: this many rows or bytes, whichever is less.
GROUP_ROWS = 1_000
_GROUP_BYTES = 256 * 1024
SCHEMA = f"{EVENT_SCHEMA}, merge_id string, op string"
# Rows per file: of a batch, which many tasks should write, and of a run.
_BATCH_ROWS, _RUN_ROWS = 250_000, 1_000_000
_FEW_VALUES = ("topic", "partition", "timestampType", "merge_id", "op")
_NOT_LOOKED_FOR = (
    "key",
    "value",
    "timestamp",
    "timestampType",
    "headers.list.element.key",
    "headers.list.element.value",
    "event_time",
    "event_id",
)
_WRITING = {
    "parquet.block.row.count.limit": str(GROUP_ROWS),
    "parquet.block.size": str(_GROUP_BYTES),
    "parquet.enable.dictionary": "false",
    **{f"parquet.enable.dictionary#{name}": "true" for name in _FEW_VALUES},
    **{f"parquet.column.statistics.enabled#{name}": "false" for name in _NOT_LOOKED_FOR},
    "compression": "zstd",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
# The length of the footer and the magic number, at the end of each file.
_TAIL = 8
# The footer is enough: reading indexes and dictionaries costs more requests than it saves.
_READING = {
    # Otherwise events would be missing without a word where the user's settings allow that.
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "parquet.filter.columnindex.enabled": "false",
    "parquet.filter.dictionary.enabled": "false",
}


@dataclass(frozen=True)
class WrittenFiles:
    """What was written.

    Attributes:
        arrived: Records and newest event time (microseconds) by topic and partition.
        offsets: First and last offset by topic and partition.
        doubled: Rows that share a position with another.
    """

    files: tuple[File, ...]
    arrived: Mapping[tuple[str, int], tuple[int, int | None]]
    offsets: Mapping[tuple[str, int], tuple[int, int]]
    doubled: int


def spread(rows: DataFrame, count: int) -> DataFrame:
    """Bring an entity's rows (`SCHEMA`) together, in enough files to keep all tasks busy."""
    files = math.ceil(count / _BATCH_ROWS)
    return rows.repartition(files, "entity") if files > 1 else rows.coalesce(1)


def ordered(rows: DataFrame, count: int) -> DataFrame:
    """Give each file a range of entities, so that a few entities need few files.

    Args:
        rows: Columns of `SCHEMA`; read twice, for Spark takes a sample first.
    """
    return rows.repartitionByRange(max(1, math.ceil(count / _RUN_ROWS)), "entity", "event_time")


def write(parts: DataFrame, root: Location, directory: str) -> WrittenFiles:
    """Write a file sorted by entity of each partition of some rows, columns of `SCHEMA`."""
    from pyspark.sql import functions as F

    place = (root / directory).uri.hadoop
    parts.sortWithinPartitions("entity", *POSITION).write.options(**_WRITING).parquet(place)
    spark = parts.sparkSession
    found = (
        spark.read.schema(parts.schema)
        .parquet(place)
        .groupBy(
            F.col("_metadata.file_name").alias("name"),
            F.col("_metadata.file_size").alias("size"),
            "topic",
            "partition",
            # The late events of each merge are counted from 0.
            "merge_id",
        )
        .agg(
            F.count("*").alias("rows"),
            F.count_distinct("offset").alias("records"),
            F.min("offset").alias("lowest"),
            F.max("offset").alias("highest"),
            F.min("entity").alias("first"),
            F.max("entity").alias("last"),
            F.max(F.unix_micros("event_time")).alias("newest"),
        )
        .collect()
    )
    return _summed(found, directory)


def read(spark: SparkSession, root: Location, files: Sequence[File]) -> DataFrame:
    """Read files of the table, columns `SCHEMA`, as Parquet: Delta ignores these options."""
    if not files:
        return spark.createDataFrame([], SCHEMA)
    paths = ((root / one.path).uri.hadoop for one in files)
    return spark.read.schema(SCHEMA).options(**_READING).parquet(*paths)


def first_entities(root: Location, file: File) -> set[str]:
    """Return the first entity of each row group from a file's footer, without a JVM.

    Source: "File Metadata" of the Parquet format; a footer ends with its own length.
    """
    from pyarrow import BufferReader, parquet

    length = int.from_bytes(root.get_range(file.path, file.size - _TAIL, 4), "little") + _TAIL
    footer = root.get_range(file.path, file.size - length, length)
    known = parquet.read_metadata(BufferReader(footer))
    column = known.schema.names.index("entity")
    said = (known.row_group(n).column(column).statistics for n in range(known.num_row_groups))
    return {str(one.min) for one in said if one is not None and one.has_min_max}


def _summed(found: list[Row], directory: str) -> WrittenFiles:
    files: dict[str, list[Row]] = {}
    arrived: dict[tuple[str, int], tuple[int, int | None]] = {}
    offsets: dict[tuple[str, int], tuple[int, int]] = {}
    for row in found:
        first, last = offsets.get((row.topic, row.partition), (row.lowest, row.highest))
        offsets[row.topic, row.partition] = min(first, row.lowest), max(last, row.highest)
        files.setdefault(row.name, []).append(row)
        count, newest = arrived.get((row.topic, row.partition), (0, None))
        later = max((one for one in (newest, row.newest) if one is not None), default=None)
        arrived[row.topic, row.partition] = (count + row.rows, later)
    return WrittenFiles(
        tuple(_file(f"{directory}/{name}", rows) for name, rows in sorted(files.items())),
        arrived,
        offsets,
        sum(row.rows - row.records for row in found),
    )


def _file(path: str, rows: list[Row]) -> File:
    lowest: dict[str, Any] = {
        "partition": min(row.partition for row in rows),
        "offset": min(row.lowest for row in rows),
    }
    highest: dict[str, Any] = {
        "partition": max(row.partition for row in rows),
        "offset": max(row.highest for row in rows),
    }
    # Rows without an entity have no minimum; a group of only such rows has no statistics.
    known = [row for row in rows if row.first is not None]
    if known:
        lowest["entity"] = min(row.first for row in known)
        highest["entity"] = max(row.last for row in known)
    return File(path, rows[0].size, sum(row.rows for row in rows), lowest, highest)
