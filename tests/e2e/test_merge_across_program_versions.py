"""Late events from before a program, or a table beside it, was changed: the plan says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from savepoints.local import LocalWorld
from savepoints.moments import utc_now
from savepoints.operations.rollback.target import AtTime
from savepoints.runtime.app import App
from tests.e2e import late_apps
from tests.e2e.late_desk import Event, LateDesk
from tests.e2e.marks import NIGHTLY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

pytestmark = NIGHTLY

BEFORE = (Event("1", "a", 1, 3), Event("2", "b", 2, 4), Event("3", "c", 4, 5))
AFTER = (Event("4", "a", 8, 13), Event("5", "b", 16, 14), Event("6", "rare", 32, 15))
NEWEST = (Event("7", "a", 64, 23), Event("8", "c", 128, 24))


def doubled_if_rare(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Count events of one entity twice, which no control entity shows."""
    from pyspark.sql import functions as F

    events = inputs["events"]
    counted = F.when(F.col("k") == "rare", F.col("n") * 2).otherwise(F.col("n"))
    return late_apps.totals({"events": events.withColumn("n", counted)})


changed = App("running", {"events": late_apps.read()}, doubled_if_rare, late_apps.running.outputs)


def multiplied(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Count with factors from a table, as it is when a batch runs."""
    from pyspark.sql import SparkSession

    factors = SparkSession.active().read.format("delta").load(os.environ["FACTORS"])
    events = inputs["events"].join(factors, "k")
    return late_apps.totals(
        {
            "events": events.selectExpr("*", "n * factor AS product")
            .drop("n")
            .withColumnRenamed("product", "n")
        }
    )


joined = App("running", {"events": late_apps.read()}, multiplied, late_apps.running.outputs)


def test_trap_a_program_changed_in_place_replayed_older_batches_without_a_word(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    desk = LateDesk.open(world, spark, tmp_path, "running")
    desk.arrive(BEFORE)
    older = desk.write([Event("late", "a", 1000, 3.5)], "older.parquet")
    newer = desk.write([Event("late, but newer", "a", 1000, 20)], "newer.parquet")

    def warned(batch: str) -> list[str]:
        plan = desk.desk.store.query(desk.desk.query).merge(batch).plan
        return [one for one in plan.warnings if "another version of" in one]

    assert warned(older) == []
    desk.bind(app=f"{__name__}:changed")
    (now,) = warned(older)
    assert f"the newest batches were read by another version of {__name__}:changed" in now

    desk.arrive(AFTER)
    desk.desk.store.create(query=desk.desk.query).execute()
    desk.archive()  # It has the times by which a savepoint is known to be older than an event.
    desk.arrive(NEWEST)
    (then,) = warned(older)
    assert "batches up to 0 of generation 1 were read by another version" in then
    assert warned(newer) == []


def test_trap_what_ran_a_query_on_to_its_point_was_kept_nowhere(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """Batches that run before a generation begins are of it, whatever program runs them."""
    desk = LateDesk.open(world, spark, tmp_path, "running")
    desk.arrive(BEFORE)
    desk.produce(AFTER)
    query = desk.desk.store.query(desk.desk.query)
    other = f"{__name__}:changed"
    query.rollback(AtTime(utc_now()), app=other).execute()
    desk.arrive(NEWEST)
    desk.archive()

    late = desk.write([Event("late", "a", 1000, 3.5)])
    warnings = query.merge(late).plan.warnings

    (then,) = (one for one in warnings if "another version of" in one)
    assert "batches up to 1 of generation 2 were read by another version" in then


def test_trap_a_table_beside_the_inputs_is_read_as_it_is_now(
    world: LocalWorld,
    world_environment: dict[str, str],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No control entity shows it: the plan has to say so."""
    table = str(tmp_path / "factors")

    def set_factor(of_a: int) -> None:
        factors = pa.table({"k": ["a", "b", "c"], "factor": [of_a, 1, 1]})
        write_deltalake(table, factors, mode="overwrite")

    set_factor(1)
    monkeypatch.setenv("FACTORS", table)
    desk = LateDesk.open(world, spark, tmp_path, "running")
    desk.bind(app=f"{__name__}:joined")
    desk.arrive(BEFORE)
    set_factor(10)

    late = desk.write([Event("late", "a", 1000, 3.5)])
    merge = desk.desk.store.query(desk.desk.query).merge(late)

    assert [
        one
        for one in merge.plan.warnings
        if f"besides its inputs, the program reads file:{table}: " in one
    ]
    merge.execute()
    rows = spark.read.format("delta").load(desk.desk.settings.queries["running"].outputs["out"])
    totals = {row["k"]: row["total"] for row in rows.collect()}
    assert totals == {"a": 10 * (1 + 1000), "b": 2, "c": 4}
