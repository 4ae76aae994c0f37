"""State whose key has a map: its rows are written, and restored elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.savepoint import create, restore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def run(spark: SparkSession, source: Path, checkpoint: Path) -> dict[tuple[object, ...], int]:
    """Read what there is; return what is counted by the map that is the key."""
    found: dict[tuple[object, ...], int] = {}

    def write(batch: object, _number: int) -> None:
        for row in batch.collect():  # type: ignore[attr-defined]
            found[tuple(sorted(row["by"].items()))] = row["count"]

    events = spark.readStream.schema("id long").parquet(str(source))
    # Entries in one order and in the other, which are one key.
    by = "IF(id % 2 = 0, map('a', id % 5, 'b', 0L), map('b', 0L, 'a', id % 5)) AS by"
    query = (
        events.selectExpr("id", by)
        .groupBy("by")
        .count()
        .writeStream.outputMode("complete")
        .foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


def test_trap_state_by_a_map_had_no_rows(
    spark: SparkSession, local_store: Store, on_local: Location
) -> None:
    """Spark hashes maps to place them, and refuses to hash them in a query."""
    place = Path(str(on_local))
    spark.range(0, 20).write.parquet(str(place / "events"))
    run(spark, place / "events", place / "live")
    plan = create.plan(local_store, query="maps", checkpoint=str(place / "live"))
    saved = create.execute(plan, local_store)
    assert "canonical" in saved.forms
    restoring = restore.plan(
        local_store, saved.id, str(place / "wide"), form="canonical", partitions=5,
        check_outputs=False,
    )  # fmt: skip
    restore.execute(restoring, local_store)

    spark.range(20, 40).write.mode("append").parquet(str(place / "events"))

    wanted = {(("a", one), ("b", 0)): 8 for one in range(5)}
    assert run(spark, place / "events", place / "wide") == wanted
    assert run(spark, place / "events", place / "live") == wanted
