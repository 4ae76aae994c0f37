"""Pipelines with Kafka between queries, rolled back as one, against some that never had the bug."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.errors import NotAlignedError, SourceDataGoneError
from savepoints.local import LocalWorld
from savepoints.operations.pipeline_rollback import pipeline_rollback, rollback_plan
from savepoints.operations.rollback import last_operation
from tests.e2e.marks import NIGHTLY
from tests.fidelity.bug_story import (
    after_the_bug,
    before_the_bug,
    killed_at_each,
    never_killed,
    rolled_back,
    the_bug,
    without_the_bug,
)
from tests.fidelity.topic_lake import SHAPES, TopicLake
from tests.sources.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY


def lakes(
    spark: SparkSession, world: LocalWorld, place: Path, shape: str
) -> tuple[TopicLake, TopicLake]:
    """Return a pipeline, and its twin to which nothing happens."""
    builds, topics = SHAPES[shape]
    broker = Broker.of(world)
    twin, lake = (
        TopicLake.make(spark, place / name, broker, builds, *topics) for name in ("twin", "lake")
    )
    return lake, twin


@pytest.mark.parametrize(
    ("shape", "behind"), [("one", False), *((shape, True) for shape in SHAPES)]
)
def test_all_go_back_to_a_group(
    spark: SparkSession, world: LocalWorld, tmp_path: Path, shape: str, behind: bool
) -> None:
    lake, twin = lakes(spark, world, tmp_path, shape)
    before_the_bug(lake, behind=behind)
    lake.save()
    lake.store.query("silver").create_group(name="before").execute()
    the_bug(lake)
    wanted = without_the_bug(twin, behind=behind)

    rolled_back(lake, "silver", "before", every=True)
    after_the_bug(lake)

    assert lake.tables() == wanted


def test_silver_and_its_readers_go_back_alone_and_once_more(
    spark: SparkSession, world: LocalWorld, tmp_path: Path
) -> None:
    """The second time there are records of two lives of silver to pass by."""
    lake, twin = lakes(spark, world, tmp_path, "one")
    before_the_bug(lake, behind=True)
    lake.save()
    the_bug(lake)

    done = rolled_back(lake, "silver", "latest")

    assert [one.query for one in done.members] == ["silver", "gold", "total"]
    lake.run()
    later = rolled_back(lake, "silver", done.members[0].savepoint_id or "")
    assert [one.batch_id for one in later.members] == [one.batch_id for one in done.members]
    after_the_bug(lake)
    assert lake.tables() == without_the_bug(twin, behind=True)


def test_what_was_taken_back_together_is_undone_together(
    spark: SparkSession, world: LocalWorld, tmp_path: Path
) -> None:
    """After the undo everything is as if nobody had ever gone back."""
    lake, twin = lakes(spark, world, tmp_path, "one")
    before_the_bug(lake, behind=False)
    lake.save()
    lake.give(20, 22)
    lake.run()
    there = lake.tables()
    rolled_back(lake, "silver", "latest")
    assert lake.tables() != there
    lake.give(24)
    lake.run("bronze", "silver", "gold")

    last = last_operation.require(lake.store, "gold")
    pipeline_rollback.execute(rollback_plan.undo_plan(lake.store, last, stopped=True), lake.store)

    lake.follow()
    assert {name: rows for name, rows in lake.tables().items() if name != "bronze"} == {
        name: rows for name, rows in there.items() if name != "bronze"
    }
    lake.give(30, 31)
    lake.run()
    before_the_bug(twin, behind=False)
    twin.give(20, 22)
    twin.run()
    twin.give(24)
    twin.give(30, 31)
    twin.run()
    assert lake.tables() == twin.tables()


def test_trap_a_savepoint_from_before_a_rollback_cannot_read_across_it(
    spark: SparkSession, world: LocalWorld, tmp_path: Path
) -> None:
    """Between the two, the topic has records that were rolled back."""
    lake, _ = lakes(spark, world, tmp_path, "one")
    before_the_bug(lake, behind=True)
    lake.save()
    the_bug(lake)
    rolled_back(lake, "silver", "latest")
    # The one that was taken of it right behind these records does not count.
    behind = lake.store.catalog.find("latest", query="gold")
    lake.store.catalog.relabel([behind.id], lambda old: replace(old, state="broken"))
    lake.has_bug = False
    lake.run("bronze", "silver")
    later = lake.save("silver")["silver"]
    lake.run()

    with pytest.raises(NotAlignedError, match="it was taken before generation 2 of silver"):
        rolled_back(lake, "silver", later.id)


def test_trap_a_topic_that_was_recreated(
    spark: SparkSession, world: LocalWorld, tmp_path: Path
) -> None:
    lake, _ = lakes(spark, world, tmp_path, "one")
    before_the_bug(lake, behind=False)
    lake.save()
    lake.broker.remove(lake.topics["silver"])
    lake.broker.make(name=lake.topics["silver"])

    with pytest.raises(SourceDataGoneError, match="has been deleted and recreated"):
        rolled_back(lake, "silver", "latest")
    with pytest.raises(NotAlignedError, match="has been deleted and recreated"):
        rolled_back(lake, "silver", "latest", check_source=False)


POINTS = (
    "begun",
    "gold.safety_savepoint",
    "silver.topics_ended",
    "gold.checkpoint_written",
    "gold.output_gold_rewound",
    "gold.caught_up",
    "gold.followed",
    "silver.generation_begun",
    "finished",
)


@pytest.mark.parametrize("is_undone", [False, True], ids=["resumed", "undone"])
def test_killed_at_each_step_with_a_reader_behind(
    spark: SparkSession,
    world: LocalWorld,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_undone: bool,
) -> None:
    """One pipeline after the other dies at a step, and is finished or taken back."""
    lake, twin = lakes(spark, world, tmp_path, "one")
    points = POINTS[:-2] if is_undone else POINTS
    killed_at_each(points, lake, monkeypatch, is_undone=is_undone)

    never_killed(twin)
    assert lake.tables() == twin.tables()
