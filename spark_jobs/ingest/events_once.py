"""Events that a feed gives several times, each once; what cannot be decided, with the reason.

See `spark_jobs.ingest.memory` for what is remembered and for how long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pandas as pd
from pyspark.sql import functions as F

from savepoints.runtime.app import App, Input, Output
from spark_jobs.ingest.memory import Kept, Memory, Record, advance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

_ROW = (
    "event_id string, at_ms long, payload string, partition int, offset long, value string, "
    "reason string"
)


def decode(records: DataFrame) -> DataFrame:
    """Take records as they are: one that cannot be read is refused, and stops nothing.

    Returns:
        bucket (text; empty for a record that the loader did not write), value (binary: Arrow gives
        no text to Python that is not UTF-8), topic, partition, offset, timestamp.
    """
    bucket = F.regexp_extract(F.col("key").cast("string"), r"^[0-9]{2}$", 0)
    return records.select(
        F.coalesce(bucket, F.lit("")).alias("bucket"),
        F.coalesce(F.col("value"), F.lit("").cast("binary")).alias("value"),
        "topic",
        "partition",
        "offset",
        "timestamp",
    )


def _advance(
    _: tuple[str], chunks: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    names = list(Record._fields)
    # Arrow may have cut the records of a bucket anywhere.
    rows = [row for one in chunks for row in one[names].itertuples(index=False, name=None)]
    records = [
        Record(int(partition), int(offset), bytes(value).decode(errors="replace"))
        for partition, offset, value in rows
    ]
    memory, kept = advance(Memory(*state.get) if state.exists else Memory(), records)
    state.update(tuple(memory))
    if kept:
        # As objects: a column of numbers of which one is missing would become one of floats.
        yield pd.DataFrame(kept, columns=list(Kept._fields), dtype=object)


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the query.

    Args:
        inputs: `records`, decoded.

    Returns:
        event_id, at, payload, partition, offset, value, reason (null for an event, which is one
        for the first time); for append mode.
    """
    found = (
        inputs["records"]
        .groupBy("bucket")
        .applyInPandasWithState(
            _advance,
            _ROW,
            # As text: workers of Spark 4.2.0 cannot read that a column of state is an array.
            "mark_ms long, newest_ms long, records long, copies long, seen string",
            "append",
            "NoTimeout",
        )
    )
    at = F.timestamp_millis("at_ms").alias("at")
    return found.select("event_id", at, "payload", "partition", "offset", "value", "reason")


app = App(
    name="events_once",
    inputs={
        "records": Input(topic="feed", decode=decode, entity_key="bucket", event_time="timestamp")
    },
    build=build,
    outputs={
        "events": Output(
            mode="append", where="reason IS NULL", columns=("event_id", "at", "payload")
        ),
        "refused": Output(
            mode="append",
            where="reason IS NOT NULL",
            columns=("reason", "event_id", "at", "partition", "offset", "value"),
        ),
    },
)
