"""Number, decode and store the good rows of a late batch as records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from savepoints.errors import IncompatibleError, SavepointsError, message_of
from savepoints.io import Location
from savepoints.io_errors import plain
from savepoints.sources.events.events import EVENT, EVENT_SCHEMA, RAW, RAW_SCHEMA, Decoding, events
from savepoints.sources.late.files import OP
from savepoints.sources.late.validate import OPS
from savepoints.spark.columns import as_json, comparable, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Partition of late events, which were never in a topic.
PARTITION = -1


@dataclass(frozen=True)
class LateInput:
    """The input that a batch is for.

    Attributes:
        encode: From decoded columns to Kafka's `key` and `value`; None if the application has none.
    """

    name: str
    topic: str
    decoding: Decoding
    encode: Callable[[DataFrame], DataFrame] | None = None


def store(
    spark: SparkSession,
    good: DataFrame,
    ops: Sequence[str],
    source: LateInput,
    place: Location,
    *,
    at: datetime,
    encoded: bool,
) -> DataFrame:
    """Encode, number and decode rows, and store the result.

    Args:
        good: Rows of `files.read` without bad ones.
        ops: Those that they have.
        place: An empty directory.
        at: Timestamp of records that have none.
        encoded: Whether the rows are records already.

    Returns:
        Columns `EVENT_SCHEMA` and `op`, a row for each.

    Raises:
        IncompatibleError: If `encode` or `decode` fails, or `decode` does not give back what
            `encode` was given.
    """
    from pyspark.sql import functions as F

    raw, schema = f"{RAW_SCHEMA}, {OP} string", f"{EVENT_SCHEMA}, {OP} string"
    records, decoded = place.uri / "records", place.uri / "events"
    if not ops:
        return spark.createDataFrame([], schema).select(*EVENT, OP)
    # `encode` and `decode` keep no other columns, so each op goes through them on its own.
    for op in ops:
        rows = good.where(f"{OP} = '{op}'").drop(OP)
        with _failures(source, "encoded"):
            if not encoded:
                assert source.encode is not None
                rows = source.encode(rows)
            _numbered(rows, op, source.topic, at).write.mode("append").parquet(records.hadoop)
    numbered = spark.read.schema(raw).parquet(records.hadoop)
    if not encoded:
        _require_kept(good, numbered.drop(OP), source)
    for op in ops:
        with _failures(source, "decoded"):
            found = events(numbered.where(f"{OP} = '{op}'").drop(OP), source.decoding)
            found.withColumn(OP, F.lit(op)).write.mode("append").parquet(decoded.hadoop)
    return spark.read.schema(schema).parquet(decoded.hadoop).select(*EVENT, OP)


def _numbered(rows: DataFrame, op: str, topic: str, at: datetime) -> DataFrame:
    """Return records with a place of their own, as `RAW_SCHEMA` and `op`."""
    from pyspark.sql import functions as F

    there = set(rows.columns)
    null = F.lit(None)
    # Of two numbers the second is for the row that takes the place of this one. An op is written
    # as a whole, so the numbers of one are told from those of another by its place among them.
    number = F.monotonically_increasing_id() * len(OPS) + OPS.index(op)
    now = F.lit(at).cast("timestamp_ltz")
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


def _require_kept(given: DataFrame, records: DataFrame, source: LateInput) -> None:
    """Refuse records that `decode` reads as other events than `encode` was given."""
    from pyspark.sql import functions as F

    names = [one for one in given.columns if one != OP]

    def compared(rows: DataFrame) -> DataFrame:
        kinds = {one.name: one.dataType for one in rows.schema}
        columns = (comparable(F.col(quoted(one)), kinds[one]).alias(one) for one in names)
        return rows.select(*columns)

    with _failures(source, "decoded"):
        others = compared(source.decoding.decode(records)).exceptAll(compared(given))
        row = as_json(F.struct(*map(quoted, names)), others.schema)
        other = others.select(row).first()
    if other is not None:
        raise IncompatibleError(
            f"encode of the input {source.name} changes events: decode makes of its records "
            f"{other[0][:500]}, which the batch does not have",
            hint="make encode write every column as it is; F.to_json, for example, cuts times to "
            'milliseconds without {"timestampFormat": "yyyy-MM-dd\'T\'HH:mm:ss.SSSSSSXXXXX"}',
            input=source.name,
        )


@contextmanager
def _failures(source: LateInput, what: str) -> Iterator[None]:
    """Turn the application's exceptions into our error."""
    try:
        yield
    except SavepointsError:
        raise
    except Exception as error:  # The program may raise anything.
        raise IncompatibleError(
            f"the batch could not be {what} for the input {source.name}: "
            f"{plain(message_of(error))[:500]}",
            hint="correct the rows or the application's function, depending on the message; none "
            "of the batch was merged",
            input=source.name,
        ) from error
