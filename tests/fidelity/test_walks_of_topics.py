"""A driver, a topic and an App that reads it: verbs and kills by chance, against a count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from savepoints.local import LocalWorld
from tests import draw
from tests.e2e.late_desk import LateDesk
from tests.fidelity.driver_job import Job
from tests.fidelity.driver_process import Processes
from tests.fidelity.marks import WALK
from tests.fidelity.topic_walk import TopicWalk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = WALK
STEPS = 60


@pytest.mark.parametrize("merges", [False, True], ids=["drivers-killed", "merges"])
def test_what_is_not_rolled_back_counts_once(
    world: LocalWorld, spark: SparkSession, processes: Processes, merges: bool
) -> None:
    directory = processes.directory / "walk"
    desk = LateDesk.open(world, spark, directory, "running")
    job = Job(
        "events", str(directory), str(directory), "driver",
        servers=world.bootstrap_servers, topic=desk.desk.topics["events"],
    )  # fmt: skip
    desk.bind(outputs={"out": str(directory / "out")})
    walk = TopicWalk(
        desk=desk,
        job=job,
        config=str(desk.desk.write_settings()),
        processes=processes,
        chance=draw.chance("topic walk", merges),
        merges=merges,
    )
    walk.begin()
    for _ in range(STEPS):
        walk.step()
    walk.check()
