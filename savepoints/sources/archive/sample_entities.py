"""Sample an archive's entities cheaply, from the footers of some files."""

from __future__ import annotations

import random
from itertools import accumulate
from typing import TYPE_CHECKING

from savepoints.io import Location, in_parallel
from savepoints.sources.archive import files as archive_files
from savepoints.sources.archive import table as archive_table
from savepoints.sources.archive.table import File

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Candidates per entity wanted, since late events may touch some of them.
_FOR_EACH = 10
# Footers read at most.
_FILES = 50


def entities(
    spark: SparkSession, uri: str, *, count: int, without: DataFrame, seed: str
) -> list[str]:
    """Choose entities at random, at a cost that does not grow with the archive.

    Args:
        uri: The archive; an empty one has none.
        without: `entity` string: those not to choose.
    """
    location = Location.of(uri)
    table = archive_table.open_if_exists(location)
    files = [one for one in archive_table.files(table) if _has_arrivals(one)] if table else []
    if not files or not count:
        return []
    chance = random.Random(seed)  # noqa: S311  (nothing secret is chosen)
    chance.shuffle(files)
    groups = accumulate(-(-one.rows // archive_files.GROUP_ROWS) for one in files)
    enough = next((n for n, some in enumerate(groups, 1) if some >= _FOR_EACH * count), len(files))
    chosen = files[: min(enough, _FILES)]
    firsts = in_parallel(lambda one: archive_files.first_entities(location, one), chosen)
    named = sorted(set().union(*firsts))
    some = chance.sample(named, min(_FOR_EACH * count, len(named)))
    rows = spark.createDataFrame([(one,) for one in some], "entity string")
    found = among(rows, count, without, seed)
    if len(found) == count:
        return found
    return among(archive_files.read(spark, location, chosen), count, without, seed)


def _has_arrivals(file: File) -> bool:
    """Return True if a file has more than a merge's events, which have few entities."""
    return bool(file.highest.get("partition", 0) >= 0)


def among(rows: DataFrame, count: int, without: DataFrame, seed: str) -> list[str]:
    """Choose entities of some rows at random.

    Args:
        rows: With `entity` string.
        without: `entity` string: those not to choose.
    """
    from pyspark.sql import functions as F

    known = rows.where("entity is not null").select("entity").distinct()
    left = known.join(F.broadcast(without.select("entity")), "entity", "left_anti")
    ordered = left.orderBy(F.xxhash64(F.lit(seed), F.col("entity"))).limit(count)
    return sorted(row["entity"] for row in ordered.collect())
