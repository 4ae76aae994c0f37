"""Some entities of an archive at little cost: those that are in one or two of its files."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from savepoints.io import Location, Uri
from savepoints.sources import archive_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILES = 2


def entities(
    spark: SparkSession, uri: str, *, count: int, without: DataFrame, seed: str
) -> list[str]:
    """Choose entities by chance, whatever size the archive has.

    Args:
        spark: A session.
        uri: The archive; an empty one has none.
        count: How many at most.
        without: `entity` string: those not to choose.
        seed: The same one chooses the same, of the same archive.
    """
    table = archive_table.find(Location.of(uri))
    files = sorted(table.file_uris()) if table is not None else []
    if not files or not count:
        return []
    chance = random.Random(seed)  # noqa: S311  (nothing secret is chosen)
    chosen = chance.sample(files, min(_FILES, len(files)))
    paths = [Uri.parse(one).hadoop for one in chosen]
    return among(spark.read.schema("entity string").parquet(*paths), count, without, seed)


def among(rows: DataFrame, count: int, without: DataFrame, seed: str) -> list[str]:
    """Choose entities of some rows by chance.

    Args:
        rows: With `entity` string.
        count: How many at most.
        without: `entity` string: those not to choose.
        seed: The same one chooses the same.
    """
    from pyspark.sql import functions as F

    known = rows.where("entity is not null").select("entity").distinct()
    left = known.join(F.broadcast(without.select("entity")), "entity", "left_anti")
    ordered = left.orderBy(F.xxhash64(F.lit(seed), F.col("entity"))).limit(count)
    return sorted(row["entity"] for row in ordered.collect())
