"""Copying a pinned output aside, and comparing two outputs row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.model import OutputVersion
from savepoints.outputs.compare.by_key import read_output
from savepoints.spark import multiset
from savepoints.spark.columns import quoted
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class RowDifferences:
    """How two tables differ, rows counted as often as they occur.

    Attributes:
        missing: Rows of the expected table that the other lacks.
        extra: Rows of the other that the expected table lacks.
        columns: How their columns differ, such as `n is int instead of bigint`; rows are not
            compared then.
    """

    missing: int
    extra: int
    columns: tuple[str, ...] = ()


def copy(spark: SparkSession, output: OutputVersion, target: Uri) -> None:
    """Write the rows of an output at its pinned version as a new Delta table."""
    read_output(spark, output).write.format("delta").mode("error").save(target.hadoop)


def differences(
    spark: SparkSession, expected: OutputVersion, found: Uri, own_rows: str | None = None
) -> RowDifferences:
    """Compare a table with an output at a version.

    Args:
        own_rows: SQL predicate which is true for the query's rows alone, for an output that others
            write to as well.
    """
    wanted = read_output(spark, expected)
    there = spark.read.format("delta").load(found.hadoop)
    if columns := tuple(_other_columns(wanted.schema, there.schema)):
        return RowDifferences(0, 0, columns)
    there = there.select(*map(quoted, wanted.columns))
    if own_rows is not None:
        wanted, there = wanted.where(own_rows), there.where(own_rows)
    counts, _ = multiset.collect(multiset.different(_rows(wanted), _rows(there)), 0)
    return RowDifferences(counts["missing"], counts["extra"])


def _other_columns(wanted: StructType, there: StructType) -> Iterator[str]:
    first, second = (
        {one.name: one.dataType.simpleString() for one in schema} for schema in (wanted, there)
    )
    for name in {**first, **second}:
        if first.get(name) != second.get(name):
            yield f"{name} is {second.get(name, 'missing')} instead of {first.get(name, 'missing')}"


def _rows(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    nothing = multiset.packed({}).alias("content")
    return multiset.numbered(
        frame.select(multiset.whole(frame.schema).alias("id"), nothing), F.col("content")
    )
