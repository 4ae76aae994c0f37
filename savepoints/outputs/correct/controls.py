"""Controls in an output: rows of entities that no late event touches, as live and as replayed.

They have to be the same, row by row and as often. Floating-point numbers may differ by a share that
somebody asked for, since sums of them depend on the order of additions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from savepoints.errors import IncompatibleError
from savepoints.model import OutputVersion
from savepoints.outputs.correct.entity_rows import EntityRows
from savepoints.outputs.correct.row_difference import ROW
from savepoints.outputs.delta.row_selection import EVERYTHING, RowSelection
from savepoints.outputs.delta.write import Mode
from savepoints.outputs.rewind.planned_rewind import Rewind
from savepoints.spark import columns, multiset
from savepoints.spark.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LIVE, _REPLAYED = "live", "replayed"
_SAMPLE = 5
_NOTHING: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class OutputControls:
    """How an output has the controls.

    Attributes:
        sample: Some of both, as JSON values: `difference` and the row's columns in `row`.
    """

    output: str
    entities: int
    missing: int
    extra: int
    sample: tuple[dict[str, Any], ...]


def compare_rows(
    spark: SparkSession,
    live: OutputVersion,
    entities: DataFrame,
    replayed: DataFrame,
    *,
    mode: Mode,
    key: tuple[str, ...],
    entity: str,
    everybody: DataFrame,
    own_rows: str | None = None,
    tolerance: float = 0.0,
    selection: RowSelection = EVERYTHING,
) -> OutputControls:
    """Compare the rows of the controls in a table with what the replay makes of them.

    Args:
        live: The table at the version that belongs to the batch up to which was replayed.
        entities: The controls: `entity` string, and `version` bigint of the table at the base of
            each, null for one that begins with nothing.
        replayed: The program's columns and `replay_slice`: all that the replay wrote.
        key: Columns that identify a row, for `upsert`.
        entity: Column with the entity that a row is about.
        everybody: All entities that were replayed: `entity` string.
        own_rows: SQL predicate which is true for the query's rows alone, for a shared table.
        tolerance: Most by which two floating-point numbers may differ, as a share.
        selection: Which part of the program's result the table has.
    """
    table = Rewind(live, live.version, {}, "", own_rows)
    rows = EntityRows.of(spark, table, entity, mode, key, selection)
    rows.require_applicable(replayed)
    _refuse_strays(rows, replayed, everybody)
    found = rows.differing(entities, replayed)
    schema = rows.table.schema
    differs = _apart(found.frame, schema, tolerance)
    counted = {one["side"]: one["count"] for one in differs.groupBy("side").count().collect()}
    touched, shown = 0, _NOTHING
    if counted:  # Mostly nothing differs, so it does not pay to keep the rows for these.
        touched = differs.select(f"{ROW}.{quoted(rows.entity)}").distinct().count()
        shown = _sample(differs)
    return OutputControls(
        live.name,
        touched,
        counted.get(_LIVE, 0),
        counted.get(_REPLAYED, 0),
        shown,
    )


def _apart(frame: DataFrame, schema: StructType, tolerance: float) -> DataFrame:
    """Return `side` string and `row`, each as often as only that side has it."""
    from pyspark.sql import functions as F

    more = F.col("have") - F.col("want")
    alone = frame.where(more != 0).select(
        F.when(more > 0, _LIVE).otherwise(_REPLAYED).alias("side"),
        F.explode(F.array_repeat(ROW, F.abs(more).cast("int"))).alias(ROW),
    )
    floats = [one.name for one in schema if one.dataType.typeName() in {"float", "double"}]
    if not tolerance or not floats:
        return alone
    return _not_close(alone, schema, floats, tolerance)


def _not_close(
    alone: DataFrame, schema: StructType, floats: Sequence[str], tolerance: float
) -> DataFrame:
    """Leave out rows of both sides that differ by no more than a share in their numbers."""
    from pyspark.sql import functions as F

    rest = {
        one.name: columns.comparable(F.col(ROW)[one.name], one.dataType)
        for one in schema
        if one.name not in floats
    }
    numbers = F.struct(*(F.col(ROW)[name].alias(name) for name in floats)).alias("numbers")
    packed = alone.select(
        "side", multiset.packed(rest).alias("id"), F.struct(numbers, ROW).alias("content")
    )
    live, replayed = (
        multiset.numbered(
            packed.where(F.col("side") == side).drop("side"), F.col("content.numbers")
        )
        for side in (_LIVE, _REPLAYED)
    )

    def close(one: Column, other: Column) -> Column:
        pairs = ((one["numbers"][name], other["numbers"][name]) for name in floats)
        return reduce(and_, (_close(*pair, tolerance) for pair in pairs))

    apart = multiset.different(live, replayed, close)
    left = (
        apart.where(f"{column} IS NOT NULL").select(F.lit(side).alias("side"), f"{column}.{ROW}")
        for column, side in (("before", _LIVE), ("after", _REPLAYED))
    )
    first, second = left
    return first.unionByName(second)


def _close(one: Column, other: Column, tolerance: float) -> Column:
    """Return whether two numbers are equal or close, as `math.isclose` has it; never null."""
    from pyspark.sql import functions as F

    first, second = one.cast("double"), other.cast("double")
    gap, largest = F.abs(first - second), F.greatest(F.abs(first), F.abs(second))
    # To Spark NaN is larger than all else and equal to itself, so a bound alone would let it pass.
    close = (gap <= largest * tolerance) & (gap < float("inf"))
    return first.eqNullSafe(second) | F.coalesce(close, F.lit(False))  # noqa: FBT003


def _refuse_strays(rows: EntityRows, replayed: DataFrame, everybody: DataFrame) -> None:
    """Refuse rows of entities that were not replayed: they are called otherwise in the output."""
    from pyspark.sql import functions as F

    text = rows.entity_text
    known = everybody.select(F.col("entity").alias("__known"))
    stray = (
        rows.written(replayed)
        .join(known, text == F.col("__known"), "left_anti")
        .select(text)
        .first()
    )
    if stray is not None:
        raise IncompatibleError(
            f"the replay wrote a row to {rows.live.output.uri} with {rows.entity} = "
            f"{stray[0]!r}, which is not one of the entities that were replayed",
            hint="in the application, name the column that holds the entity: Output(…, "
            "entity_key=…)",
            uri=rows.live.output.uri,
            column=rows.entity,
        )


def _sample(differs: DataFrame) -> tuple[dict[str, Any], ...]:
    from pyspark.sql import functions as F

    text = columns.as_json(F.col(ROW), differs.schema[ROW].dataType)
    said = {_LIVE: "missing", _REPLAYED: "extra"}
    found = differs.select("side", text.alias("text")).orderBy("text", "side").limit(_SAMPLE)
    return tuple(
        {"difference": said[one["side"]], "row": json.loads(one["text"])} for one in found.collect()
    )
