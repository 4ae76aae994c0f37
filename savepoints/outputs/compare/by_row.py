"""Copying a pinned output aside, and comparing two outputs row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.errors import FileSinkError
from savepoints.model import OutputVersion
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class RowDifferences:
    """How two tables differ, rows counted as often as they occur.

    Attributes:
        missing: Rows of the expected table that the other lacks.
        extra: Rows of the other that the expected table lacks.
    """

    missing: int
    extra: int


def copy(spark: SparkSession, output: OutputVersion, target: Uri) -> None:
    """Write the rows of an output at its pinned version as a new Delta table.

    Raises:
        FileSinkError: If it is a file sink, whose versions Spark cannot read.
    """
    _at(spark, output).write.format("delta").mode("error").save(target.hadoop)


def differences(spark: SparkSession, expected: OutputVersion, found: Uri) -> RowDifferences:
    """Compare a table with an output at a version.

    Raises:
        FileSinkError: If the output is a file sink, whose versions Spark cannot read.
    """
    wanted = _at(spark, expected)
    there = spark.read.format("delta").load(found.hadoop).select(*wanted.columns)
    return RowDifferences(wanted.exceptAll(there).count(), there.exceptAll(wanted).count())


def _at(spark: SparkSession, output: OutputVersion) -> DataFrame:
    if output.kind == "files":
        raise FileSinkError(
            f"{output.uri} is written by Spark's file sink, which cannot be read as it was",
            hint="leave the output out: only Delta tables can be compared",
            uri=output.uri,
        )
    uri = Uri.parse(output.uri).hadoop
    return spark.read.format("delta").option("versionAsOf", output.version).load(uri)
