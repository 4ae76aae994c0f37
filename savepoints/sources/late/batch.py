"""Read late batches, check them as a whole, and convert them to archive events.

A batch is records as Kafka would have had them, or events as the application sees them, which its
`encode` makes records. Both are decoded by the application's own code, which alone decides an
event's entity and time. A batch with bad rows is refused as a whole, or its bad rows are set aside
with a reason; nothing of a refused batch is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.sources.events.events import EVENT, POSITION, RAW, RAW_SCHEMA, Decoding, contents
from savepoints.sources.late import files, validate
from savepoints.sources.late import records as late_records
from savepoints.sources.late.files import OP, UNREADABLE
from savepoints.sources.late.records import PARTITION, LateInput
from savepoints.sources.late.validate import DOUBLE, INSERT, REASON, REMOVE, REPLACE, Rejected

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "KnownOtherwise",
    "LateBatch",
    "LateInput",
    "Rejected",
    "known_otherwise",
    "read",
    "replacing",
    "unknown",
]

_SEEDS = (1, 2)
# Of a topic: a number for each record leaves room for 4 * 10^12 offsets.
_MOST_PARTITIONS = 1 << 20


@dataclass(frozen=True)
class LateBatch:
    """A checked batch.

    Attributes:
        events: Columns `EVENT_SCHEMA` and `op` (`insert` or `remove`); a replaced event is removed
            and inserted. Stored, so that every read is the same.
        content_hash: Of the events in any order: two differently seeded xxHash64 of each,
            by XOR, in hex.
        removed: Events that are removed or replaced.
        seen: Events that were left out because the query has counted them.
        notes: What else is to be known of it.
    """

    events: DataFrame
    rows: int
    removed: int
    first_event_time: datetime | None
    last_event_time: datetime | None
    content_hash: str
    doubled: int
    rejected: tuple[Rejected, ...] = ()
    ignored: tuple[str, ...] = ()
    left_out: int = 0
    seen: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownOtherwise:
    """Events of a batch that the query has seen with other content.

    Attributes:
        example: Id of one of them.
        moved: Id of one that the query has seen under another entity, if there is any.
    """

    rows: int = 0
    example: str | None = None
    moved: str | None = None


def read(
    spark: SparkSession,
    batch: str,
    source: LateInput,
    place: Location,
    *,
    at: datetime,
    clock: Callable[[], datetime | None] = lambda: None,
    before: datetime | None = None,
    quarantine: Location | None = None,
) -> LateBatch:
    """Read and check a batch.

    Args:
        batch: A file, a directory, a pattern, or a Delta table; see `files.read`.
        place: An empty directory, where its events are stored.
        clock: Returns the newest event time of the live query, after which events are not late;
            None where that does not matter. Called when all events are decoded.

    Raises:
        IncompatibleError: If it has other columns, or the application cannot read it.
    """
    from pyspark.sql import functions as F

    decoded = _decoded_schema(spark, source)
    raw = spark.createDataFrame([], RAW_SCHEMA).schema
    records = _among(raw, ("key", "value", "timestamp", "headers"))
    stored = files.read(spark, batch, records=records, events=decoded)
    if not stored.is_records and source.encode is None:
        raise UsageError(
            f"{batch} has decoded events, but the input {source.name} does not define how to "
            "encode them as records",
            hint="define Input(…, encode=…) in the application, or pass the batch as Kafka "
            "records, with each event encoded in a column named value",
            batch=batch,
            input=source.name,
        )
    marked = validate.marked(stored, source.decoding)
    # Null for rows that cannot be decoded.
    op = F.when(F.col(REASON).isNull(), F.col(OP))
    with files.failures(batch, stored.kind):
        ops = {row[0] for row in marked.select(op).distinct().collect()}
    good = marked.where(f"{REASON} IS NULL").drop(REASON, UNREADABLE)
    made = late_records.store(
        spark, good, sorted(ops - {None}), source, place, at=at, encoded=stored.is_records
    )
    left_out = 0
    if before is not None:
        is_left_out = F.coalesce(F.col("event_time") >= F.lit(before), F.expr("false"))
        left_out = made.where(is_left_out).count()
        made = made.where(~is_left_out)
    checked = validate.checked(made, clock())
    found, are_bad = _summed_up(checked)
    are_bad = are_bad or None in ops
    bad = validate.bad_rows(marked, checked)
    rejected = _set_aside(bad, batch, quarantine) if are_bad else ()
    return replace(found, rejected=rejected, ignored=stored.ignored, left_out=left_out)


def replacing(events: DataFrame, seen: int, quarantine: Location | None) -> LateBatch:
    """Return a batch that takes dropped events from where they arrived to where they belong.

    Args:
        events: What arrived: columns `EVENT_SCHEMA`, each event once; stored.
        seen: Events that were left out because the query has counted them.
        quarantine: An empty directory for bad rows, instead of refusing the batch.
    """
    from pyspark.sql import functions as F

    moved = events.select(*EVENT).withColumns(
        {
            "partition": F.lit(PARTITION),
            # Two numbers each: that of the removal and that of the event that takes its place.
            "offset": (F.col("offset") * _MOST_PARTITIONS + F.col("partition")) * 2,
            OP: F.lit(REPLACE),
        }
    )
    checked = validate.checked(moved, None)
    found, are_bad = _summed_up(checked)
    bad = validate.bad_rows(checked)
    rejected = _set_aside(bad, "what was dropped as late", quarantine) if are_bad else ()
    return replace(found, rejected=rejected, seen=seen)


def _set_aside(bad: DataFrame, batch: str, quarantine: Location | None) -> tuple[Rejected, ...]:
    """Store bad rows, or refuse the batch."""
    rejected = validate.rejected(bad)
    if rejected and quarantine is None:
        raise validate.refused(batch, rejected)
    if rejected and quarantine is not None:
        bad.write.mode("error").parquet(quarantine.uri.hadoop)
    return rejected


def unknown(batch: DataFrame, known: DataFrame) -> DataFrame:
    """Return the new events of a batch, and all removals.

    Args:
        known: Events of the same entities, columns `EVENT_SCHEMA`.
    """
    return batch.join(*_are_seen(batch, known), "left_anti")


def known_otherwise(batch: DataFrame, known: DataFrame, decoding: Decoding) -> KnownOtherwise:
    """Compare the events of a batch that are known with those that are known; see `unknown`."""
    from pyspark.sql import functions as F

    told = contents(batch.join(*_are_seen(batch, known), "left_semi").select(*RAW), decoding)
    there = contents(known.select(*RAW), decoding).withColumnsRenamed(
        {"entity": "known_entity", "content": "known_content"}
    )
    # A topic may have an event several times: one that says the same is enough.
    compared = (
        told.join(there, "event_id")
        .groupBy("event_id")
        .agg(
            F.bool_or(F.col("content") == F.col("known_content")).alias("same"),
            F.bool_or(F.col("entity") == F.col("known_entity")).alias("stayed"),
        )
    )
    row = compared.agg(
        F.count_if(~F.col("same")).alias("rows"),
        F.min(F.when(~F.col("same"), F.col("event_id"))).alias("example"),
        F.min(F.when(~F.col("stayed"), F.col("event_id"))).alias("moved"),
    ).collect()[0]
    return KnownOtherwise(int(row["rows"]), row["example"], row["moved"])


def _are_seen(batch: DataFrame, known: DataFrame) -> tuple[DataFrame, Column]:
    """Return the ids of known events that a batch does not take away, and how to join them."""
    from pyspark.sql import functions as F

    ids = known.select(F.col("event_id").alias("known_id")).distinct()
    replaced = batch.where(F.col(OP) == REMOVE).select(F.col("event_id").alias("replaced_id"))
    seen = ids.join(replaced, F.col("known_id") == F.col("replaced_id"), "left_anti")
    return seen, (F.col("event_id") == F.col("known_id")) & (F.col(OP) == INSERT)


def _decoded_schema(spark: SparkSession, source: LateInput) -> StructType:
    """Return the columns of a decoded event, without its position."""
    decoded = source.decoding.decode(spark.createDataFrame([], RAW_SCHEMA)).schema
    return _among(decoded, tuple(name for name in decoded.names if name not in POSITION))


def _among(schema: StructType, names: Sequence[str]) -> StructType:
    from pyspark.sql.types import StructType

    return StructType([one for one in schema if one.name in names])


def _summed_up(checked: DataFrame) -> tuple[LateBatch, bool]:
    """Count what there is, in one job; return the batch of the good rows, and if any are bad."""
    from pyspark.sql import functions as F

    once = checked.where(f"{REASON} IS NULL AND {DOUBLE} = 1").drop(REASON, DOUBLE)
    is_good = F.col(REASON).isNull()
    is_first = is_good & (F.col(DOUBLE) == 1)
    event_time = F.when(is_good, F.col("event_time"))
    content = ("event_id", "entity", "event_time", "value", OP)
    hashes = (
        F.coalesce(F.bit_xor(F.when(is_first, F.xxhash64(F.lit(seed), *content))), F.lit(0)).alias(
            f"hash{seed}"
        )
        for seed in _SEEDS
    )
    row = checked.agg(
        F.count_if(is_first).alias("rows"),
        F.count_if(is_good & ~is_first).alias("doubled"),
        F.count_if(~is_good).alias("bad"),
        F.count_if(is_first & (F.col(OP) != INSERT)).alias("removed"),
        F.unix_micros(F.min(event_time)).alias("first"),
        F.unix_micros(F.max(event_time)).alias("last"),
        *hashes,
    ).collect()[0]
    words = (row[f"hash{seed}"] % (1 << 64) for seed in _SEEDS)
    removed = once.where(f"{OP} <> '{INSERT}'").withColumn(OP, F.lit(REMOVE))
    inserted = once.where(f"{OP} <> '{REMOVE}'").withColumn(
        "offset", F.col("offset") + F.when(F.col(OP) == REPLACE, 1).otherwise(0)
    )
    both = removed.unionByName(inserted.withColumn(OP, F.lit(INSERT)))
    batch = LateBatch(
        both.select(*EVENT, OP),
        int(row["rows"]),
        int(row["removed"]),
        _moment(row["first"]),
        _moment(row["last"]),
        "".join(f"{one:016x}" for one in words),
        int(row["doubled"]),
    )
    return batch, bool(row["bad"])


def _moment(micros: int | None) -> datetime | None:
    if micros is None:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
