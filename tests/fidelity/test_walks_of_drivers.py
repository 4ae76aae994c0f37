"""Kills and verbs in the order of chance, on drivers of users, against a count of events."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from savepoints.local import LocalWorld
from tests import draw
from tests.fidelity.driver_input import DriverInput
from tests.fidelity.driver_job import Job
from tests.fidelity.driver_process import Processes
from tests.fidelity.driver_walk import DriverWalk
from tests.fidelity.marks import WALK
from tests.sources.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = WALK
STEPS = 40


@pytest.fixture
def walk_place(request: pytest.FixtureRequest, world: LocalWorld, tmp_path: Path) -> str:
    """Give a place for store, checkpoints and tables, as the parameter says."""
    if request.param == "local":
        return str(tmp_path / "walk")
    bucket = f"walk-{uuid.uuid4().hex[:10]}"
    world.create_bucket(bucket)
    return f"s3a://{bucket}/walk"


@pytest.mark.parametrize(
    ("program", "walk_place"),
    [("pairs", "local"), ("once", "local"), ("sums", "local"), ("pairs", "s3"), ("sums", "s3")],
    indirect=["walk_place"],
)
def test_after_each_step_tables_and_states_are_those_of_what_was_read(
    world: LocalWorld,
    spark: SparkSession,
    tmp_path: Path,
    walk_place: str,
    processes: Processes,
    program: str,
) -> None:
    """Whatever is killed: the driver, its Python alone, or a verb, and at whichever moment.

    Store, checkpoints and tables are local files or on S3; the file sink has its own log there, and
    is walked through on local files.
    """
    kafka = {"servers": world.bootstrap_servers, "topic": Broker.of(world).make(partitions=2)}
    of: dict[str, Any] = kafka if program == "sums" else {}
    job = Job(program, str(tmp_path / "walk"), walk_place, "main", **of)
    walk = DriverWalk(
        spark=spark,
        job=job,
        input=DriverInput(job),
        chance=draw.chance("drivers", program, walk_place[:2]),
        processes=processes,
    )
    walk.begin()
    for _ in range(STEPS):
        walk.step()
    walk.check_left_over()
