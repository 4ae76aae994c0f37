"""Rows in the partitions that their numbers name, on any version of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savepoints.spark.versions import SparkVersion

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Of so many numbers a partition there is one for each partition nearly always.
_TRIED = 16


def by_id(rows: DataFrame, partition: Column, partitions: int) -> DataFrame:
    """Return the rows, each in the partition whose number, from 0, a column has."""
    if SparkVersion.of(rows.sparkSession.version).repartitions_by_id:
        return rows.repartitionById(partitions, partition)
    from pyspark.sql import functions as F

    stand_in = F.array(*map(F.lit, _stand_ins(rows.sparkSession, partitions)))
    return rows.repartition(partitions, F.element_at(stand_in, partition + 1))


def _stand_ins(spark: SparkSession, partitions: int) -> list[int]:
    """Return, for each partition, a number whose hash Spark puts there."""
    from pyspark.sql import functions as F

    found: dict[int, int] = {}
    tried = _TRIED * partitions
    while len(found) < partitions:
        number = F.col("id").cast("int")
        home = F.pmod(F.hash(number), F.lit(partitions))
        found = dict(spark.range(tried).select(home, number).collect())
        tried *= 2
    return [found[one] for one in range(partitions)]
