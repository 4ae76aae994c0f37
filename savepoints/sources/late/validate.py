"""Validate the rows of a late batch: reasons, counts and samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from savepoints.errors import LateBatchError
from savepoints.moments import rfc3339
from savepoints.sources.events.events import Decoding
from savepoints.sources.late.files import OP, UNREADABLE, Stored
from savepoints.spark import columns
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

INSERT, REMOVE, REPLACE = "insert", "remove", "replace"
OPS = (INSERT, REMOVE, REPLACE)
# Why a row cannot be merged, null for a good one; and which of its duplicates it is.
REASON, DOUBLE = "reason", "double"
SAMPLES = 5
_SHOWN = 2_000


@dataclass(frozen=True)
class Rejected:
    """Rows of a batch that one reason keeps from being merged."""

    reason: str
    rows: int
    samples: tuple[dict[str, Any], ...]


def marked(stored: Stored, decoding: Decoding) -> DataFrame:
    """Add the column `reason`: why a stored row cannot be decoded, if so."""
    from pyspark.sql import functions as F

    rows = stored.rows.withColumn(OP, F.lower(F.coalesce(F.col(OP), F.lit(INSERT))))
    reasons = [
        (F.col(UNREADABLE).isNotNull(), "not readable"),
        (~F.col(OP).isin(*OPS), f"op is not one of {', '.join(OPS)}"),
    ]
    if stored.is_records:
        reasons.append((F.col("value").isNull(), "no value"))
    else:
        reasons += [
            (F.col(decoding.entity_key).isNull(), "no entity"),
            (F.col(decoding.event_time).isNull(), "no event time"),
            *((F.col(name).isNull(), "no event id") for name in decoding.event_id),
        ]
    return rows.withColumn(REASON, _first(reasons))


def checked(made: DataFrame, clock: datetime | None) -> DataFrame:
    """Mark each event with why it cannot be merged, if so, and which of its duplicates it is.

    Returns:
        Columns `EVENT_SCHEMA`, `op`, `reason` string, and `double` int: 1 for the first of equal
        events.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    nothing = F.col("entity").isNull() & F.col("event_time").isNull() & F.col("event_id").isNull()
    reasons = [
        (nothing, "dropped by decode"),
        (F.col("entity").isNull(), "no entity"),
        (F.col("event_time").isNull(), "no event time"),
        (F.col("event_id").isNull(), "no event id"),
    ]
    if clock is not None:
        newest = F.lit(clock).cast("timestamp_ltz")
        reasons.append(
            (
                F.col("event_time") > newest,
                (f"later than the position of the live query, {rfc3339(clock)}"),
            )
        )
    same_id = Window.partitionBy("event_id")
    content = F.xxhash64("key", "value", "entity", "event_time", OP)
    own = made.withColumn("content", content)
    others = F.size(F.collect_set("content").over(same_id)) > 1
    reasons.append((others, "different events with the same id"))
    number = F.row_number().over(same_id.orderBy("offset"))
    return own.withColumns({REASON: _first(reasons), DOUBLE: number}).drop("content")


def bad_rows(*marked: DataFrame) -> DataFrame:
    """Return `reason` string and `row` string, JSON, of all rows that cannot be merged.

    Args:
        marked: From `marked` and `checked`.
    """
    from pyspark.sql import functions as F

    def shown(frame: DataFrame) -> DataFrame:
        bad = frame.where(f"{REASON} IS NOT NULL")
        names = [name for name in bad.columns if name not in {REASON, DOUBLE}]
        row = F.struct(*(F.col(columns.quoted(name)) for name in names))
        kind = bad.select(row.alias("row")).schema["row"].dataType
        return bad.select(REASON, columns.as_json(row, kind).alias("row"))

    return reduce(lambda one, more: one.unionByName(more), map(shown, marked))


def rejected(bad: DataFrame) -> tuple[Rejected, ...]:
    """Count bad rows by reason, the most frequent first."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    by_reason = Window.partitionBy(REASON)
    numbered = bad.select(
        REASON,
        F.substring("row", 1, _SHOWN).alias("row"),
        F.count(F.lit(1)).over(by_reason).alias("rows"),
        F.row_number().over(by_reason.orderBy("row")).alias("number"),
    )
    found: dict[str, Rejected] = {}
    for one in numbered.where(F.col("number") <= SAMPLES).orderBy(REASON, "number").collect():
        known = found.get(one[REASON], Rejected(one[REASON], int(one["rows"]), ()))
        sample = (*known.samples, _sample(one["row"]))
        found[one[REASON]] = Rejected(known.reason, known.rows, sample)
    return tuple(sorted(found.values(), key=lambda one: -one.rows))


def _sample(text: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except ValueError:
        return {"row": text}  # It was truncated.
    return {name: value for name, value in row.items() if value is not None}


def _first(reasons: Sequence[tuple[Column, str]]) -> Column:
    """Return the first reason that holds, null when none does."""
    from pyspark.sql import functions as F

    return F.coalesce(*(F.when(condition, F.lit(reason)) for condition, reason in reasons))


def refused(batch: str, rejected: Sequence[Rejected]) -> LateBatchError:
    """Return the error for a batch with bad rows."""
    rows = sum(one.rows for one in rejected)
    counted = ", ".join(f"{one.reason} ({one.rows})" for one in rejected)
    example = json.dumps(rejected[0].samples[0], ensure_ascii=False)[:300]
    return LateBatchError(
        f"{batch} has {count_text(rows, 'row')} that cannot be merged: {counted}; for example "
        f"{example}",
        hint="correct the batch, or write these rows elsewhere and merge the rest: "
        "--quarantine URI",
        batch=batch,
        rejected=[vars(one) for one in rejected],
    )
