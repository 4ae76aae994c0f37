"""A query that an App and a driver of the user's run in turns: kills and verbs by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from savepoints.local import LocalWorld
from tests import draw
from tests.e2e.late_desk import LateDesk
from tests.fidelity import walk_programs
from tests.fidelity.driver_job import Job
from tests.fidelity.driver_process import Processes
from tests.fidelity.handed_walk import HandedWalk
from tests.fidelity.marks import WALK
from tests.fidelity.walk_model import Program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = WALK
STEPS = 60
PROGRAMS = [
    walk_programs.TOTALS, walk_programs.WINDOWS, walk_programs.VISITS, walk_programs.TICKS,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.app)
def test_after_each_step_table_and_state_are_those_of_the_events_that_count(
    world: LocalWorld, spark: SparkSession, processes: Processes, program: Program
) -> None:
    directory = processes.directory / "walk"
    desk = LateDesk.open(world, spark, directory, program.app)
    job = Job(
        "app", str(directory), str(directory), program.app,
        servers=world.bootstrap_servers, topic=desk.desk.topics["events"],
    )  # fmt: skip
    desk.bind(outputs={"out": job.table})
    walk = HandedWalk.begin(
        world,
        desk,
        program,
        draw.chance("handed walk", program.app),
        job=job,
        config=str(desk.desk.write_settings()),
        processes=processes,
    )
    for _ in range(STEPS):
        walk.step()
