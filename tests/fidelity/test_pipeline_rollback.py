"""Pipelines rolled back as one, against pipelines that never had the bug."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from savepoints.errors import UsageError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.pipeline_rollback import pipeline_rollback, rollback_plan
from savepoints.operations.rollback import last_operation, rollback
from tests.fidelity.bug_story import (
    after_the_bug,
    before_the_bug,
    killed_at_each,
    never_killed,
    rolled_back,
    the_bug,
    without_the_bug,
)
from tests.fidelity.lake import SHAPES, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def lakes(spark: SparkSession, place: Path, shape: str) -> tuple[Lake, Lake]:
    """Return a pipeline, and its twin to which nothing happens."""
    made = []
    for name in ("twin", "lake"):
        there = Location.of(str(place)) / name
        made.append(Lake(spark, there, Store.at(str(there / "store")).make(), SHAPES[shape]))
    return made[1], made[0]


@pytest.mark.parametrize(
    ("shape", "behind"), [("chain", False), *((shape, True) for shape in SHAPES)]
)
def test_all_go_back_to_a_group(
    spark: SparkSession, tmp_path: Path, shape: str, behind: bool
) -> None:
    lake, twin = lakes(spark, tmp_path, shape)
    before_the_bug(lake, behind=behind)
    lake.save()
    lake.store.query("silver").create_group(name="before").execute()
    the_bug(lake)

    rolled_back(lake, "silver", "before", every=True)
    after_the_bug(lake)

    assert lake.tables() == without_the_bug(twin, behind=behind)


def test_silver_and_its_readers_go_back_alone(spark: SparkSession, tmp_path: Path) -> None:
    lake, twin = lakes(spark, tmp_path, "several")
    before_the_bug(lake, behind=True)
    lake.save()
    the_bug(lake)
    before = lake.rows("bronze")

    done = rolled_back(lake, "silver", "latest")

    assert [one.query for one in done.members] == ["silver", "copy", "gold"]
    assert lake.rows("bronze") == before
    after_the_bug(lake)
    assert lake.tables() == without_the_bug(twin, behind=True)


def test_what_was_taken_back_together_is_undone_together(
    spark: SparkSession, tmp_path: Path
) -> None:
    """After the undo everything is as if nobody had ever gone back."""
    lake, twin = lakes(spark, tmp_path, "chain")
    before_the_bug(lake, behind=False)
    lake.save()
    lake.give(20, 22)
    lake.run()
    there = lake.tables()
    rolled_back(lake, "silver", "latest")
    assert lake.tables() != there

    last = last_operation.require(lake.store, "gold")
    pipeline_rollback.execute(rollback_plan.undo_plan(lake.store, last, stopped=True), lake.store)

    lake.follow()
    assert lake.tables() == there
    lake.give(30, 31)
    lake.run()
    before_the_bug(twin, behind=False)
    twin.give(20, 22)
    twin.give(30, 31)
    twin.run()
    assert lake.tables() == twin.tables()
    with pytest.raises(UsageError, match="was itself an undo"):
        rollback_plan.undo_plan(lake.store, last_operation.require(lake.store, "silver"))


def test_trap_one_query_rolled_back_alone_leaves_its_reader_with_the_bug(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its reader has read what was taken back, and fails at the commit that did it."""
    lake, _ = lakes(spark, tmp_path, "chain")
    before_the_bug(lake, behind=False)
    lake.save()
    the_bug(lake)

    plan = rollback.plan(
        lake.store, "latest", query="silver", to=str(lake.place / "alone"), stopped=True
    )
    rollback.execute(plan, lake.store)
    lake.follow()

    with pytest.raises(StreamingQueryException, match="DELTA_SOURCE_IGNORE_DELETE"):
        after_the_bug(lake)


POINTS = (
    "begun",
    "gold.safety_savepoint",
    "gold.checkpoint_written",
    "silver.output_silver_rewound",
    "gold.caught_up",
    "gold.followed",
    "silver.generation_begun",
    "finished",
)


@pytest.mark.parametrize("is_undone", [False, True], ids=["resumed", "undone"])
def test_killed_at_each_step_with_a_reader_behind(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_undone: bool
) -> None:
    """One pipeline after the other dies at a step, and is finished or taken back.

    Taken back, gold has read what it had not read before: so it is compared after it has gone on.
    """
    lake, twin = lakes(spark, tmp_path, "chain")
    points = POINTS[:-2] if is_undone else POINTS
    killed_at_each(points, lake, monkeypatch, is_undone=is_undone)

    never_killed(twin)
    assert lake.tables() == twin.tables()
