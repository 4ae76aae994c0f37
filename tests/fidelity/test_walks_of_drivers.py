"""Kills and verbs in the order of chance, on drivers of users, against a count of events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.local import LocalWorld
from savepoints.local.jars import resolve_jars
from tests import draw
from tests.fidelity.driver_input import DriverInput
from tests.fidelity.driver_job import Job
from tests.fidelity.driver_process import Processes
from tests.fidelity.driver_walk import DriverWalk
from tests.sources.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(3000),
]
STEPS = 40


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    monkeypatch.setenv("SAVEPOINTS_JARS", str(resolve_jars().spark_directory))
    directory = tmp_path / "walk"
    (directory / "in").mkdir(parents=True)
    made = Processes(directory)
    yield made
    made.end_all()


@pytest.mark.parametrize("program", ["pairs", "once", "sums"])
def test_after_each_step_tables_and_states_are_those_of_what_was_read(
    world: LocalWorld,
    world_environment: dict[str, str],
    spark: SparkSession,
    processes: Processes,
    program: str,
) -> None:
    """Whatever is killed: the driver, its Python alone, or a verb, and at whichever moment."""
    kafka = {"servers": world.bootstrap_servers, "topic": Broker.of(world).make(partitions=2)}
    of = kafka if program == "sums" else {}
    job = Job(program, str(processes.directory), "main", **of)
    walk = DriverWalk(
        spark=spark,
        job=job,
        input=DriverInput(job),
        chance=draw.chance("drivers", program),
        processes=processes,
    )
    walk.begin()
    for _ in range(STEPS):
        walk.step()
    walk.check_left_over()
