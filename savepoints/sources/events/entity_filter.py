"""Filter events by entity so that Parquet files are read only in part.

Parquet skips row groups by comparisons with single values. Spark makes such comparisons of `IN`
only up to `spark.sql.parquet.pushdown.inFilterThreshold` values, as one chain of ORs; a chain of
thousands is too deep to be passed on, and each row group would be compared with all of it. So a
long list is split into short ones, each behind its range, joined as a balanced tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.spark.columns import quoted, text_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Values in one `IN`; Spark compares at most 10 one by one in Parquet.
_CHUNK = 200
_THRESHOLD = "spark.sql.parquet.pushdown.inFilterThreshold"
# With more entities there is little left to skip, and comparing costs more than reading.
MOST_PUSHED = 20_000


@dataclass(frozen=True)
class Entities:
    """A set of entities.

    Attributes:
        table: All of them, column `entity string`.
        few: The same, sorted, if few enough to filter one by one; else None.
    """

    table: DataFrame
    few: tuple[str, ...] | None


def entities_of(spark: SparkSession, wanted: DataFrame | Sequence[str]) -> Entities:
    """Collect entities from a list or from a DataFrame's first column."""
    from pyspark.sql import functions as F

    if isinstance(wanted, Sequence):
        listed = sorted(set(wanted))
        table = spark.createDataFrame([(one,) for one in listed], "entity string")
    else:
        table = wanted.select(F.expr(text_sql(quoted(wanted.columns[0]))).alias("entity"))
        table = table.where(F.col("entity").isNotNull()).distinct()
        listed = sorted(row.entity for row in table.limit(MOST_PUSHED + 1).collect())
    return Entities(table, tuple(listed) if len(listed) <= MOST_PUSHED else None)


def among(rows: DataFrame, wanted: Entities) -> DataFrame:
    """Keep the rows of some entities; they have a column `entity string`."""
    from pyspark.sql import functions as F

    if wanted.few is None:
        return rows.join(wanted.table, "entity", "left_semi")
    spark, found = rows.sparkSession, wanted.few
    # A user's higher value is kept.
    if int(spark.conf.get(_THRESHOLD) or 0) < _CHUNK:
        spark.conf.set(_THRESHOLD, str(_CHUNK))
    chunks = [found[at : at + _CHUNK] for at in range(0, len(found), _CHUNK)]
    return rows.where(any_of([F.expr(_is_one_of(one)) for one in chunks]))


def _is_one_of(values: Sequence[str]) -> str:
    """Return a chunk's condition as SQL: one JVM call instead of hundreds."""
    literals = [f"cast(X'{value.encode().hex()}' as string)" for value in values]
    return f"entity between {literals[0]} and {literals[-1]} and entity in ({', '.join(literals)})"


def any_of(conditions: Sequence[Column]) -> Column:
    """Combine conditions by OR, as a balanced tree."""
    from pyspark.sql import functions as F

    if not conditions:
        return F.lit(False)  # noqa: FBT003  (Spark's)
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return any_of(conditions[:half]) | any_of(conditions[half:])
