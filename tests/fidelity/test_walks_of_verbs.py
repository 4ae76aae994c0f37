"""Verbs in the order of chance, against a model that counts events, and against pandas.

Verbs die at crash points on their way, and are repeated or taken back. One query and its forks:
each kind of state, with merges by each policy that comes to the same, rollbacks, resets with and
without state, edits, copies, promotions. Three queries: what `pipeline` does to them, and merges
through all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.local import LocalWorld
from tests import draw
from tests.e2e.desk import PARTITIONS
from tests.e2e.late_desk import Event, LateDesk
from tests.e2e.medallion_shop import MedallionShop
from tests.fidelity import walk_programs
from tests.fidelity.driver_process import Processes
from tests.fidelity.joined_walk import INPUTS, JoinedWalk
from tests.fidelity.marks import WALK
from tests.fidelity.pipeline_walk import PipelineWalk
from tests.fidelity.verb_walk import Walk
from tests.fidelity.walk_model import Program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = WALK
STEPS, STEPS_OF_A_PIPELINE = 60, 40
PROGRAMS = [
    walk_programs.TOTALS, walk_programs.WINDOWS, walk_programs.SESSIONS, walk_programs.ANSWERS,
    walk_programs.VISITS, walk_programs.TICKS,
]  # fmt: skip


@pytest.mark.parametrize("most", [None, 3], ids=["at-once", "three-at-once"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.app)
def test_after_each_verb_table_and_state_are_those_of_the_events_that_count(
    world: LocalWorld,
    world_environment: dict[str, str],
    spark: SparkSession,
    tmp_path: Path,
    program: Program,
    most: int | None,
) -> None:
    desk = LateDesk.open(world, spark, tmp_path, program.app)
    desk.bind(max_offsets_per_trigger=most)
    walk = Walk.begin(world, desk, program, draw.chance("walk", program.app, most))
    for _ in range(STEPS):
        walk.step()


@pytest.mark.parametrize("most", [None, 3], ids=["at-once", "three-at-once"])
def test_after_each_verb_a_join_of_two_topics_is_that_of_the_events_that_count(
    world: LocalWorld,
    world_environment: dict[str, str],
    spark: SparkSession,
    tmp_path: Path,
    most: int | None,
) -> None:
    program = walk_programs.ANSWERS_APART
    desk = LateDesk.open(world, spark, tmp_path, program.app)
    archives = {name: str(tmp_path / f"archive-{name}") for name in INPUTS}
    desk.bind(max_offsets_per_trigger=most, archives=archives)
    none: list[list[Event]] = [[] for _ in range(len(INPUTS) * PARTITIONS)]
    chance = draw.chance("walk", program.app, most)
    walk = JoinedWalk.begin(world, desk, program, chance, log=none, archived=(0,) * len(none))
    for _ in range(STEPS):
        walk.step()


def test_after_each_verb_each_level_is_what_pandas_computes(
    world: LocalWorld, processes: Processes, spark: SparkSession
) -> None:
    shop = MedallionShop.open(world, processes.directory / "walk")
    walk = PipelineWalk(
        shop=shop,
        chance=draw.chance("pipeline walk"),
        config=str(shop.directory / "savepoints.toml"),
        processes=processes,
        changes=300,
    )
    walk.sell()
    walk.check()
    for _ in range(STEPS_OF_A_PIPELINE):
        walk.step()
