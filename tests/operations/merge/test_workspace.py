"""What a merge keeps: the same rows, in the plan if they are few, in files if they are not."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from savepoints.io import Location
from savepoints.operations.merge import workspace
from savepoints.operations.merge.workspace import Workspace
from savepoints.sources.archive import files

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture
def events(spark: SparkSession) -> DataFrame:
    """Rows of all types that events have, with nulls and a time before the epoch."""
    text = F.encode(F.concat(F.lit("ä\0"), F.col("id").cast("string")), "utf-8")
    moment = F.lit(datetime(1931, 2, 3, 4, 5, 6, 789, tzinfo=UTC))
    given = {"event_time": moment, "key": text, "value": text}
    return spark.range(50).select(
        *(
            F.when(F.col("id") % 3 > 0, given.get(one.name, F.col("id")).cast(one.dataType))
            .otherwise(F.lit(None))
            .alias(one.name)
            for one in spark.createDataFrame([], files.SCHEMA).schema
            if one.dataType.typeName() not in {"array", "struct", "map"}
        )
    )


@pytest.mark.parametrize("most", [50, 49])
def test_rows_are_the_same_in_the_plan_and_in_files(
    spark: SparkSession,
    events: DataFrame,
    on_local: Location,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    monkeypatch.setattr(workspace, "FEW_ROWS", most)

    kept = Workspace(spark, on_local, few=True).keep(events, "kept")

    assert bool(on_local.list("kept")) == (most < 50)
    assert [(one.name, one.dataType) for one in kept.schema] == [
        (one.name, one.dataType) for one in events.schema
    ]
    assert sorted(map(repr, kept.collect())) == sorted(map(repr, events.collect()))


def test_trap_few_rows_may_be_more_bytes_than_a_driver_takes(
    spark: SparkSession, on_local: Location
) -> None:
    """Spark refuses to collect more than `spark.driver.maxResultSize`; they are written instead."""
    limit = 1 << 30  # Spark's default.
    rows = spark.range(0, 24, 1, 24).select(F.repeat(F.lit("x"), limit // 16).alias("value"))

    kept = Workspace(spark, on_local, few=True).keep(rows, "kept")

    assert on_local.list("kept")
    assert kept.count() == 24
