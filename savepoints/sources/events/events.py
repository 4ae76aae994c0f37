"""Events as an application sees them, beside the records that they came in.

`Input.decode` turns records into columns of the application's own. For the archive and for merges
both are needed: the record, so that `decode` can read it again later, and of what was decoded only
whose event it is, when it happened and which event it is. So `decode` keeps the position of a
record (`topic`, `partition`, `offset`), by which the two are brought together again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.errors import UsageError
from savepoints.spark.columns import JSON_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# What Kafka's source gives, with headers.
RAW_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)
RAW = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
# By which a record is found again; also the order in which records arrived.
POSITION = ("topic", "partition", "offset")
EVENT_SCHEMA = f"{RAW_SCHEMA}, entity string, event_time timestamp, event_id string"
EVENT = (*RAW, "entity", "event_time", "event_id")


@dataclass(frozen=True)
class Decoding:
    """How an input reads records: the part of an `Input` that does not depend on where they are.

    Attributes:
        decode: From Kafka's raw columns to the application's; keeps `topic`, `partition`, `offset`.
        entity_key: Column that the state is kept by.
        event_time: Column with the time at which an event happened.
        event_id: Columns by which two records are the same event.
    """

    decode: Callable[[DataFrame], DataFrame]
    entity_key: str
    event_time: str
    event_id: Sequence[str]


def events(records: DataFrame, decoding: Decoding) -> DataFrame:
    """Add to each record its entity, event time and event id.

    Args:
        records: Columns `RAW_SCHEMA`.

    Returns:
        Columns `EVENT_SCHEMA`, a row for each record; the last three are null where `decode` leaves
        a record out.

    Raises:
        UsageError: If `decode` does not keep the position, lacks a column that was named, or the
            input does not say what identifies an event.
    """
    decoded = decoding.decode(records)
    _require(decoded.columns, decoding)
    from pyspark.sql import functions as F

    known = decoded.select(
        *POSITION,
        F.col(decoding.entity_key).cast("string").alias("entity"),
        F.col(decoding.event_time).cast("timestamp").alias("event_time"),
        _id(decoding.event_id).alias("event_id"),
    )
    return records.select(*RAW).join(known, list(POSITION), "left").select(*EVENT)


def _id(columns: Sequence[str]) -> Column:
    """Return what identifies an event, as text."""
    from pyspark.sql import functions as F

    if len(columns) == 1:
        return F.col(columns[0]).cast("string")
    return F.to_json(F.struct(*columns), JSON_OPTIONS)


def _require(columns: Sequence[str], decoding: Decoding) -> None:
    if not decoding.event_id:
        raise UsageError(
            "the input does not say by which columns two records are the same event",
            hint='name them in the application: Input(…, event_id=("order_id",))',
        )
    if lost := [name for name in POSITION if name not in columns]:
        raise UsageError(
            f"decode leaves out {', '.join(lost)}, so an event cannot be brought together with its "
            "record",
            hint="keep Kafka's columns topic, partition and offset in what decode returns",
            columns=lost,
        )
    wanted = (decoding.entity_key, decoding.event_time, *decoding.event_id)
    if lost := [name for name in wanted if name not in columns]:
        raise UsageError(
            f"decode gives no column {', '.join(lost)}; it gives {', '.join(columns)}",
            hint="correct entity_key, event_time or event_id of the input",
            columns=lost,
        )
