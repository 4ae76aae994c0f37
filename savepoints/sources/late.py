"""Late batches: read, checked as a whole, and made events like those of the archive.

A batch is records as Kafka would have had them, or events as the application sees them, which its
`encode` makes records. Both are decoded by the application's own code, so that nothing else decides
whose event it is and when it happened. A batch with bad rows is refused as a whole, or they are set
aside with the reason; nothing of a refused batch is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from savepoints import columns
from savepoints.errors import IncompatibleError, LateBatchError, SavepointsError, UsageError
from savepoints.io import Location, plain
from savepoints.model import rfc3339
from savepoints.sources import late_files
from savepoints.sources.events import EVENT, POSITION, RAW, RAW_SCHEMA, Decoding, events
from savepoints.sources.late_files import OP, UNREADABLE, Stored

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

INSERT, REMOVE, REPLACE = "insert", "remove", "replace"
_OPS = (INSERT, REMOVE, REPLACE)
# Partition of late events, which never were in a topic.
PARTITION = -1
SAMPLES = 5
_SEEDS = (1, 2)
_REASON = "reason"
_SHOWN = 2_000


@dataclass(frozen=True)
class LateInput:
    """The input that a batch is for.

    Attributes:
        name: What the application calls it.
        topic: Its topic.
        decoding: How it reads records.
        encode: From decoded columns to Kafka's `key` and `value`; None if the application has none.
    """

    name: str
    topic: str
    decoding: Decoding
    encode: Callable[[DataFrame], DataFrame] | None = None


@dataclass(frozen=True)
class Rejected:
    """Rows of a batch that cannot be merged, for one reason.

    Attributes:
        reason: Why.
        rows: How many.
        samples: The first of them, as JSON values.
    """

    reason: str
    rows: int
    samples: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class LateBatch:
    """A batch that was read and checked.

    Attributes:
        events: Columns `EVENT_SCHEMA` and `op` (`insert` or `remove`); an event that is replaced is
            removed and inserted. Stored, so that it is the same each time.
        rows: Its events; one that is replaced counts once.
        entities: How many entities they are of.
        first_event_time: Earliest of them; None without any.
        last_event_time: Latest of them, likewise.
        content_hash: Of the events, whatever their order: two differently seeded xxHash64 of each,
            by XOR, in hex.
        doubled: Rows that were there more than once, and count once.
        rejected: Rows that were set aside.
        ignored: Columns that nothing used.
    """

    events: DataFrame
    rows: int
    entities: int
    first_event_time: datetime | None
    last_event_time: datetime | None
    content_hash: str
    doubled: int
    rejected: tuple[Rejected, ...]
    ignored: tuple[str, ...]


def read(
    spark: SparkSession,
    batch: str,
    source: LateInput,
    place: Location,
    *,
    at: datetime,
    clock: datetime | None = None,
    quarantine: Location | None = None,
) -> LateBatch:
    """Read and check a batch.

    Args:
        spark: Any session.
        batch: A file, a directory, a pattern, or a Delta table; see `late_files.read`.
        source: The input that it is for.
        place: An empty directory, where its events are stored.
        at: The time of the merge; of records that come without one it is the timestamp.
        clock: Newest event time that the live query has seen; later events are no late ones.
        quarantine: An empty directory where bad rows are put, instead of refusing the batch.

    Raises:
        NotFoundError: If there is nothing.
        UsageError: If its format is not known, or it has events and the input no `encode`.
        IncompatibleError: If its columns are others, or the application cannot read it.
        LateBatchError: If it has bad rows and they are not to be set aside.
    """
    decoded = _decoded_schema(spark, source)
    raw = spark.createDataFrame([], RAW_SCHEMA).schema
    records = _among(raw, ("key", "value", "timestamp", "headers"))
    stored = late_files.read(spark, batch, records=records, events=decoded)
    if not stored.is_records and source.encode is None:
        raise UsageError(
            f"{batch} has decoded events, and the input {source.name} does not say how they are "
            "encoded",
            hint="give the batch as records, or the application an Input(…, encode=…)",
            batch=batch,
            input=source.name,
        )
    marked = _marked(stored, source.decoding)
    made = _stored(spark, marked, stored, source, place, at)
    checked = _checked(made, clock)
    bad = _bad_rows(marked, checked)
    rejected = _rejected(bad)
    if rejected and quarantine is None:
        raise _refused(batch, rejected)
    if rejected and quarantine is not None:
        bad.write.mode("error").parquet(quarantine.uri.hadoop)
    return _summed_up(checked, rejected, stored.ignored)


def unknown(batch: DataFrame, known: DataFrame) -> DataFrame:
    """Return the events of a batch that are not known already, and all removals.

    Args:
        batch: `LateBatch.events`.
        known: Events of the same entities, columns `EVENT_SCHEMA`.
    """
    from pyspark.sql import functions as F

    ids = known.select(F.col("event_id").alias("known_id")).distinct()
    replaced = batch.where(F.col(OP) == REMOVE).select(F.col("event_id").alias("replaced_id"))
    seen = ids.join(replaced, F.col("known_id") == F.col("replaced_id"), "left_anti")
    same = (F.col("event_id") == F.col("known_id")) & (F.col(OP) == INSERT)
    return batch.join(seen, same, "left_anti")


def _decoded_schema(spark: SparkSession, source: LateInput) -> StructType:
    """Return the columns of a decoded event, without its place in a topic."""
    decoded = source.decoding.decode(spark.createDataFrame([], RAW_SCHEMA)).schema
    return _among(decoded, tuple(name for name in decoded.names if name not in POSITION))


def _among(schema: StructType, names: Sequence[str]) -> StructType:
    from pyspark.sql.types import StructType

    return StructType([one for one in schema if one.name in names])


def _marked(stored: Stored, decoding: Decoding) -> DataFrame:
    """Say of each stored row why it cannot even be tried, if so: column `reason`."""
    from pyspark.sql import functions as F

    rows = stored.rows.withColumn(OP, F.lower(F.coalesce(F.col(OP), F.lit(INSERT))))
    reasons = [
        (F.col(UNREADABLE).isNotNull(), "not readable"),
        (~F.col(OP).isin(*_OPS), f"op is none of {', '.join(_OPS)}"),
    ]
    if stored.is_records:
        reasons.append((F.col("value").isNull(), "no value"))
    else:
        reasons += [
            (F.col(decoding.entity_key).isNull(), "no entity"),
            (F.col(decoding.event_time).isNull(), "no event time"),
            *((F.col(name).isNull(), "no event id") for name in decoding.event_id),
        ]
    return rows.withColumn(_REASON, _first(reasons))


def _stored(
    spark: SparkSession,
    marked: DataFrame,
    stored: Stored,
    source: LateInput,
    place: Location,
    at: datetime,
) -> DataFrame:
    """Encode, number and decode the good rows, and store what comes of it.

    Returns:
        Columns `EVENT_SCHEMA` and `op`, a row for each good row.
    """
    good = marked.where(f"{_REASON} IS NULL").drop(_REASON, UNREADABLE)
    ops = [op for (op,) in good.select(OP).distinct().collect()]
    with_records = place.uri / "records"
    with_events = place.uri / "events"
    for op in sorted(ops):
        rows = _of_op(good, op)
        try:
            if not stored.is_records:
                assert source.encode is not None
                rows = source.encode(rows)
            _numbered(rows, op, source.topic, at).write.mode("append").parquet(with_records.hadoop)
        except SavepointsError:
            raise
        except Exception as error:  # It is whatever the program raises.
            raise _unfit(source, "encoded", error) from error
    schema = f"{RAW_SCHEMA}, {OP} string"
    if not ops:
        nothing = spark.createDataFrame([], f"{schema}, entity string, event_time timestamp, "
                                        "event_id string")  # fmt: skip
        return nothing.select(*EVENT, OP)
    numbered = spark.read.schema(schema).parquet(with_records.hadoop)
    for op in sorted(ops):
        try:
            decoded = events(numbered.where(f"{OP} = '{op}'").drop(OP), source.decoding)
            _with_op(decoded, op).write.mode("append").parquet(with_events.hadoop)
        except SavepointsError:
            raise
        except Exception as error:  # It is whatever the program raises.
            raise _unfit(source, "decoded", error) from error
    return spark.read.parquet(with_events.hadoop).select(*EVENT, OP)


def _of_op(rows: DataFrame, op: str) -> DataFrame:
    return rows.where(f"{OP} = '{op}'").drop(OP)


def _with_op(rows: DataFrame, op: str) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.withColumn(OP, F.lit(op))


def _numbered(rows: DataFrame, op: str, topic: str, at: datetime) -> DataFrame:
    """Return records with a place of their own, as `RAW_SCHEMA` and `op`."""
    from pyspark.sql import functions as F

    there = set(rows.columns)
    null = F.lit(None)
    # Of two numbers the second is for the row that takes the place of this one. An op is written
    # as a whole, so the numbers of one are told from those of another by its place among them.
    number = F.monotonically_increasing_id() * len(_OPS) + _OPS.index(op)
    now = F.lit(at).cast("timestamp")
    found: dict[str, Column] = {
        "key": F.col("key") if "key" in there else null.cast("binary"),
        "value": F.col("value"),
        "topic": F.lit(topic),
        "partition": F.lit(PARTITION),
        "offset": number * 2,
        "timestamp": F.coalesce(F.col("timestamp"), now) if "timestamp" in there else now,
        "timestampType": F.lit(0),
        "headers": F.col("headers")
        if "headers" in there
        else null.cast("array<struct<key: string, value: binary>>"),
    }
    return rows.select(*(found[name].alias(name) for name in RAW), F.lit(op).alias(OP))


def _checked(made: DataFrame, clock: datetime | None) -> DataFrame:
    """Say of each event why it cannot be merged, if so, and which of its doubles it is.

    Returns:
        Columns `EVENT_SCHEMA`, `op`, `reason` string, and `double` int: 1 for the first of events
        that are the same.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    nothing = F.col("entity").isNull() & F.col("event_time").isNull() & F.col("event_id").isNull()
    reasons = [
        (nothing, "left out by decode"),
        (F.col("entity").isNull(), "no entity"),
        (F.col("event_time").isNull(), "no event time"),
        (F.col("event_id").isNull(), "no event id"),
    ]
    if clock is not None:
        newest = F.lit(clock).cast("timestamp")
        reasons.append(
            (F.col("event_time") > newest, f"later than the live query is, {rfc3339(clock)}")
        )
    same_id = Window.partitionBy("event_id")
    content = F.xxhash64("key", "value", "entity", "event_time", OP)
    own = made.withColumn("content", content)
    others = F.size(F.collect_set("content").over(same_id)) > 1
    reasons.append((others, "different events with one id"))
    number = F.row_number().over(same_id.orderBy("offset"))
    return own.withColumns({_REASON: _first(reasons), "double": number}).drop("content")


def _bad_rows(marked: DataFrame, checked: DataFrame) -> DataFrame:
    """Return `reason` string and `row` string, JSON, of all rows that cannot be merged."""
    from pyspark.sql import functions as F

    def shown(frame: DataFrame) -> DataFrame:
        bad = frame.where(f"{_REASON} IS NOT NULL")
        names = [name for name in bad.columns if name not in {_REASON, "double"}]
        row = F.struct(*(F.col(f"`{name}`") for name in names))
        kind = bad.select(row.alias("row")).schema["row"].dataType
        return bad.select(_REASON, columns.as_json(row, kind).alias("row"))

    return shown(marked).unionByName(shown(checked))


def _rejected(bad: DataFrame) -> tuple[Rejected, ...]:
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    by_reason = Window.partitionBy(_REASON)
    numbered = bad.select(
        _REASON,
        F.substring("row", 1, _SHOWN).alias("row"),
        F.count(F.lit(1)).over(by_reason).alias("rows"),
        F.row_number().over(by_reason.orderBy("row")).alias("number"),
    )
    found: dict[str, Rejected] = {}
    for one in numbered.where(F.col("number") <= SAMPLES).orderBy(_REASON, "number").collect():
        known = found.get(one[_REASON], Rejected(one[_REASON], int(one["rows"]), ()))
        sample = (*known.samples, _sample(one["row"]))
        found[one[_REASON]] = Rejected(known.reason, known.rows, sample)
    return tuple(sorted(found.values(), key=lambda one: -one.rows))


def _sample(text: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except ValueError:
        return {"row": text}  # It was cut.
    return {name: value for name, value in row.items() if value is not None}


def _summed_up(
    checked: DataFrame, rejected: tuple[Rejected, ...], ignored: tuple[str, ...]
) -> LateBatch:
    from pyspark.sql import functions as F

    good = checked.where(f"{_REASON} IS NULL").drop(_REASON)
    once = good.where("double = 1").drop("double")
    hashes = (
        F.coalesce(
            F.bit_xor(F.xxhash64(F.lit(seed), "event_id", "entity", "event_time", "value", OP)),
            F.lit(0),
        ).alias(f"hash{seed}")
        for seed in _SEEDS
    )
    row = once.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_distinct("entity").alias("entities"),
        F.unix_micros(F.min("event_time")).alias("first"),
        F.unix_micros(F.max("event_time")).alias("last"),
        *hashes,
    ).collect()[0]
    words = (row[f"hash{seed}"] % (1 << 64) for seed in _SEEDS)
    removed = once.where(f"{OP} <> '{INSERT}'").withColumn(OP, F.lit(REMOVE))
    inserted = once.where(f"{OP} <> '{REMOVE}'").withColumn(
        "offset", F.col("offset") + F.when(F.col(OP) == REPLACE, 1).otherwise(0)
    )
    both = removed.unionByName(inserted.withColumn(OP, F.lit(INSERT)))
    return LateBatch(
        both.select(*EVENT, OP),
        int(row["rows"]),
        int(row["entities"]),
        _moment(row["first"]),
        _moment(row["last"]),
        "".join(f"{one:016x}" for one in words),
        good.count() - int(row["rows"]),
        rejected,
        ignored,
    )


def _first(reasons: Sequence[tuple[Column, str]]) -> Column:
    """Return the first reason that holds, null when none does."""
    from pyspark.sql import functions as F

    return F.coalesce(*(F.when(condition, F.lit(reason)) for condition, reason in reasons))


def _moment(micros: int | None) -> datetime | None:
    from datetime import timedelta, timezone

    if micros is None:
        return None
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)


def _refused(batch: str, rejected: Sequence[Rejected]) -> LateBatchError:
    rows = sum(one.rows for one in rejected)
    counted = ", ".join(f"{one.rows} {one.reason}" for one in rejected)
    example = json.dumps(rejected[0].samples[0], ensure_ascii=False)[:300]
    return LateBatchError(
        f"{rows} rows of {batch} cannot be merged: {counted}; for example {example}",
        hint="correct the batch, or set these rows aside: --quarantine URI",
        batch=batch,
        rejected=[vars(one) for one in rejected],
    )


def _unfit(source: LateInput, what: str, error: Exception) -> IncompatibleError:
    return IncompatibleError(
        f"the batch cannot be {what} by the input {source.name}: {plain(str(error))[:500]}",
        hint="correct the rows that it names; the whole batch was left alone",
        input=source.name,
    )
