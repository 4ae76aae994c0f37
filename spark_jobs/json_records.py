"""Events as Kafka values in JSON, with times as whole milliseconds since 1970.

A number of milliseconds is the same instant in every time zone that a session may have, and the
event time that comes of it is exact. Where a record is stays with its event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

AT = "at"
"""The column with the event time; in JSON it is `at_ms`."""


def decode(records: DataFrame, fields: str) -> DataFrame:
    """Read the events in Kafka records; a value that is no JSON makes the query fail.

    Args:
        records: Kafka's raw columns.
        fields: The fields of a value but `at_ms`, in Spark's words.

    Returns:
        The fields, `at` (timestamp), and the record's topic, partition and offset.
    """
    event = F.from_json(
        F.col("value").cast("string"), f"{fields}, at_ms long", {"mode": "FAILFAST"}
    )
    read = records.select(event.alias("event"), "topic", "partition", "offset")
    timed = read.select("event.*", "topic", "partition", "offset")
    return timed.withColumn(AT, F.timestamp_millis("at_ms")).drop("at_ms")


def encode(events: DataFrame, fields: str, key: str) -> DataFrame:
    """Write events as Kafka records; a time between two milliseconds makes the query fail.

    Args:
        events: The fields, and `at`.
        fields: As for `decode`.
        key: The field that is the key of the record.

    Returns:
        key and value, both binary.
    """
    names = [field.split()[0] for field in fields.split(",")]
    value = F.to_json(F.struct(*names, _whole_milliseconds().alias("at_ms")))
    return events.select(
        F.col(key).cast("string").cast("binary").alias("key"), value.cast("binary").alias("value")
    )


def _whole_milliseconds() -> Column:
    at = F.col(AT)
    refused = F.raise_error(
        F.concat(F.lit("the event time is no whole millisecond: "), at.cast("string"))
    )
    return F.when(F.unix_micros(at) % 1000 == 0, F.unix_millis(at)).when(at.isNotNull(), refused)
