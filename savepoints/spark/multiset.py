"""The difference of two frames as multisets of rows, computed by Spark.

A row has an identity (`id`) and the rest (`content`), see `packed`. Rows of one identity are
numbered, and those of one identity and number are compared. So a row that is there twice and once
differs by one row. Nothing but counts and samples comes to the driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from savepoints.spark import columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import StructType

RowDifferenceKind = Literal["changed", "missing", "extra"]

KINDS: tuple[RowDifferenceKind, ...] = ("changed", "missing", "extra")


@dataclass(frozen=True)
class RowDifference:
    """A row that differs.

    Attributes:
        difference: `missing` in the second table, `extra` there, or `changed`.
        key: The columns that identify it, as JSON values.
        number: Its number among the rows that are identified alike, from 1.
        before: The other columns in the first table, None for an extra row.
        after: The same in the second table, None for a missing row.
    """

    difference: RowDifferenceKind
    key: dict[str, Any]
    number: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass(frozen=True)
class TypeChange:
    """The types of what both tables or savepoints have, where they differ.

    Attributes:
        before: In the first one.
        after: In the second one.
    """

    before: str
    after: str


def packed(fields: Mapping[str, Column]) -> Column:
    """Pack columns that can be compared into one that is never null: a struct, or `{}` of none."""
    from pyspark.sql import functions as F

    named = [column.alias(name) for name, column in fields.items()]
    return F.struct(*named) if named else F.lit("{}")


def whole(schema: StructType) -> Column:
    """Pack the columns of a schema."""
    from pyspark.sql import functions as F

    return packed(
        {
            one.name: columns.comparable(F.col(columns.quoted(one.name)), one.dataType)
            for one in schema
        }
    )


def numbered(rows: DataFrame, order: Column) -> DataFrame:
    """Add the `number` of each row among those with its `id`, from 1."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    return rows.withColumn("number", F.row_number().over(Window.partitionBy("id").orderBy(order)))


def _equal(one: Column, other: Column) -> Column:
    return one.eqNullSafe(other)


def different(
    before: DataFrame, after: DataFrame, same: Callable[[Column, Column], Column] = _equal
) -> DataFrame:
    """Return the rows that differ.

    Args:
        before: `id` and `content`, neither ever null, and `number`.
        same: Whether two contents are the same; must not be null.

    Returns:
        `difference` (`RowDifferenceKind`), `id`, `number`, and the contents `before` and `after`,
        of which one is null for a row that only one of the frames has.
    """
    from pyspark.sql import functions as F

    other = after.toDF(*(f"other_{name}" for name in after.columns))
    same_row = F.col("id").eqNullSafe(F.col("other_id")) & (
        F.col("number") == F.col("other_number")
    )
    difference = (
        F.when(F.col("number").isNull(), "extra")
        .when(F.col("other_number").isNull(), "missing")
        .when(~same(F.col("content"), F.col("other_content")), "changed")
    )
    return (
        before.join(other, same_row, "full_outer")
        .select(
            difference.alias("difference"),
            F.coalesce("id", "other_id").alias("id"),
            F.coalesce("number", "other_number").alias("number"),
            F.col("content").alias("before"),
            F.col("other_content").alias("after"),
        )
        .where("difference IS NOT NULL")
    )


def collect(
    rows: DataFrame, sample: int, *figures: Column
) -> tuple[dict[str, Any], list[RowDifference]]:
    """Count the rows that differ, and take the first of each kind in the order of their keys.

    Args:
        figures: Aggregates of them to compute besides, under their aliases.
    """
    from pyspark.sql import functions as F

    rows.persist()
    try:
        counts = (F.count_if(F.col("difference") == kind).alias(kind) for kind in KINDS)
        found = rows.agg(*counts, *figures).collect()[0].asDict()
        first = [
            one for kind in KINDS if found[kind] and sample for one in _first(rows, kind, sample)
        ]
    finally:
        rows.unpersist()
    return found, first


def _first(rows: DataFrame, kind: RowDifferenceKind, sample: int) -> list[RowDifference]:
    from pyspark.sql import functions as F

    texts = [
        columns.as_json(F.col(name), rows.schema[name].dataType).alias(name)
        if rows.schema[name].dataType.typeName() == "struct"
        else F.col(name)
        for name in ("id", "before", "after")
    ]
    first = rows.where(F.col("difference") == kind).orderBy("id", "number").limit(sample)

    def difference(row: Row) -> RowDifference:
        before, after = (row[side] and json.loads(row[side]) for side in ("before", "after"))
        return RowDifference(kind, json.loads(row["id"]), int(row["number"]), before, after)

    return [difference(row) for row in first.select("number", *texts).collect()]
