"""Kills and verbs in the order of chance, on drivers of users, against a count of events."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from savepoints.io import Location
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
def place(request: pytest.FixtureRequest, world: LocalWorld, tmp_path: Path) -> str:
    """Give a place for store, checkpoints and tables, as the parameter says."""
    if request.param == "local":
        return str(tmp_path / "walk")
    bucket = f"walk-{uuid.uuid4().hex[:10]}"
    world.create_bucket(bucket)
    return f"s3a://{bucket}/walk"


@pytest.fixture
def processes(
    tmp_path: Path, place: str, world_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Processes]:
    monkeypatch.setenv("SAVEPOINTS_JARS", str(resolve_jars().spark_directory))
    (tmp_path / "walk" / "in").mkdir(parents=True)
    made = Processes(tmp_path, Location.of(place))
    yield made
    made.end_all()


@pytest.mark.parametrize(
    ("program", "place"),
    [("pairs", "local"), ("once", "local"), ("sums", "local"), ("pairs", "s3"), ("sums", "s3")],
    indirect=["place"],
)
def test_after_each_step_tables_and_states_are_those_of_what_was_read(
    world: LocalWorld,
    spark: SparkSession,
    tmp_path: Path,
    place: str,
    processes: Processes,
    program: str,
) -> None:
    """Whatever is killed: the driver, its Python alone, or a verb, and at whichever moment.

    Store, checkpoints and tables are local files or on S3; the file sink has its own log there, and
    is walked through on local files.
    """
    kafka = {"servers": world.bootstrap_servers, "topic": Broker.of(world).make(partitions=2)}
    of: dict[str, Any] = kafka if program == "sums" else {}
    job = Job(program, str(tmp_path / "walk"), place, "main", **of)
    walk = DriverWalk(
        spark=spark,
        job=job,
        input=DriverInput(job),
        chance=draw.chance("drivers", program, place[:2]),
        processes=processes,
    )
    walk.begin()
    for _ in range(STEPS):
        walk.step()
    walk.check_left_over()
