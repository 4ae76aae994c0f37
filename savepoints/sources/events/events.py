"""Decode records into events, and keep each record beside its event.

`Input.decode` turns records into columns of the application's own. The archive and merges need
both: the record, so that `decode` can read it again later, and of the decoded event its entity,
time and id. So `decode` keeps a record's position (`topic`, `partition`, `offset`), by which the
two are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from savepoints.errors import UsageError
from savepoints.spark.columns import JSON_OPTIONS, has_times, quoted, text_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Returns what is wanted of each event, of records: `events`, or `without_records`.
EventsOf: TypeAlias = "Callable[[DataFrame, Decoding], DataFrame]"
# Columns of Kafka's source, with headers. By `spark.sql.timestampType` a `timestamp` may be one
# without a time zone, which `timestamp_ltz` never is.
RAW_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp_ltz, timestampType int, headers array<struct<key: string, value: binary>>"
)
RAW = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
# Identifies a record; also the order of arrival.
POSITION = ("topic", "partition", "offset")
EVENT_SCHEMA = f"{RAW_SCHEMA}, entity string, event_time timestamp_ltz, event_id string"
EVENT = (*RAW, "entity", "event_time", "event_id")


@dataclass(frozen=True)
class Decoding:
    """How an input decodes records, wherever they are stored.

    Attributes:
        decode: From Kafka's raw columns to the application's; keeps `topic`, `partition`, `offset`.
        event_id: Columns by which two records are the same event.
    """

    decode: Callable[[DataFrame], DataFrame]
    entity_key: str
    event_time: str
    event_id: Sequence[str]


def events(records: DataFrame, decoding: Decoding) -> DataFrame:
    """Return each record with the entity, time and id of its event.

    Returns:
        Columns `EVENT_SCHEMA`, a row for each record; the last three are null where `decode` leaves
        a record out.
    """
    known = without_records(records, decoding)
    return records.select(*RAW).join(known, list(POSITION), "left").select(*EVENT)


def without_records(records: DataFrame, decoding: Decoding) -> DataFrame:
    """Return the position, entity, time and id of each event; the records are read only once.

    Returns:
        Columns `topic`, `partition`, `offset`, `entity`, `event_time` and `event_id`.
    """
    decoded = decoding.decode(records)
    _require(decoded.columns, decoding)
    from pyspark.sql import functions as F

    return decoded.select(
        *POSITION,
        entity(decoding).alias("entity"),
        F.col(decoding.event_time).cast("timestamp_ltz").alias("event_time"),
        _id(decoded, decoding.event_id).alias("event_id"),
    )


def contents(records: DataFrame, decoding: Decoding) -> DataFrame:
    """Return what each event says, whatever bytes its record says it in.

    Returns:
        Columns `event_id`, `entity` and `content`, JSON of all that `decode` makes of a record
        besides the columns of the record itself, as long as it leaves them as they are.
    """
    from pyspark.sql import functions as F

    from savepoints.spark.columns import as_json

    decoded = decoding.decode(records)
    _require(decoded.columns, decoding)
    kinds = {field.name: field.dataType for field in records.schema}
    names = [name for name in decoded.columns if name not in POSITION]
    # By name and type these may be the record's columns, or the program's own.
    same = [one for one in names if one in RAW and decoded.schema[one].dataType == kinds[one]]
    before = records.select(*POSITION, *(F.col(one).alias(f"__record_{one}") for one in same))
    decoded = decoded.join(before, list(POSITION))

    def content(name: str) -> Column:
        column = F.col(quoted(name))
        if name not in same:
            return column
        return F.when(~column.eqNullSafe(F.col(f"__record_{name}")), column).alias(name)

    own = F.struct(*map(content, names))
    kind = decoded.select(own.alias("own")).schema["own"].dataType
    return decoded.select(
        _id(decoded, decoding.event_id).alias("event_id"),
        entity(decoding).alias("entity"),
        as_json(own, kind).alias("content"),
    )


def entity(decoding: Decoding) -> Column:
    """Return the entity of an event as text; that of a time is in the time zone of the session.

    `archive.same_decoding` refuses an archive that was written in another one.
    """
    from pyspark.sql import functions as F

    return F.expr(text_sql(quoted(decoding.entity_key)))


def _id(decoded: DataFrame, columns: Sequence[str]) -> Column:
    """Return what identifies an event, as text that is the same in all sessions."""
    from pyspark.sql import functions as F

    names = [quoted(one) for one in columns]
    if len(names) > 1:
        return F.to_json(F.struct(*names), JSON_OPTIONS)
    if has_times(decoded.schema[columns[0]].dataType):
        return F.when(F.col(names[0]).isNotNull(), F.to_json(F.struct(*names), JSON_OPTIONS))
    return F.expr(text_sql(names[0]))


def _require(columns: Sequence[str], decoding: Decoding) -> None:
    if not decoding.event_id:
        raise UsageError(
            "the input does not declare which columns identify an event",
            hint='declare them in the application: Input(…, event_id=("order_id",))',
        )
    if lost := [name for name in POSITION if name not in columns]:
        raise UsageError(
            f"decode drops {', '.join(lost)}, so an event cannot be matched to its record",
            hint="change decode to keep Kafka's columns topic, partition and offset",
            columns=lost,
        )
    wanted = (decoding.entity_key, decoding.event_time, *decoding.event_id)
    if lost := [name for name in wanted if name not in columns]:
        raise UsageError(
            f"decode does not return {', '.join(lost)}; it returns {', '.join(columns)}",
            hint="correct entity_key, event_time or event_id in the application's Input(…)",
            columns=lost,
        )
