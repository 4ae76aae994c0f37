"""`kill -9` at random moments: a job that verifies itself finds nothing lost or doubled."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.config.settings import QuerySettings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from spark_jobs.orders.cdnow import orders_between, read_orders
from spark_jobs.orders.comparison import compare
from spark_jobs.orders.producer import produce
from tests import draw, spark_session
from tests.e2e.shop import QUERY, RIGHT, called, environment
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1800)]

BEGIN = date(1997, 1, 1)
# Killed when one of these is there, which is before, within and after the writing of outputs.
MOMENTS = ("offsets", "out", "commits")
FORM = ("--format", "native")


class Job:
    """`savepoints run order_totals` as a process, everything but Kafka on the local file system."""

    def __init__(self, world: LocalWorld, directory: Path) -> None:
        self.directory = directory
        self.topic = f"orders-{directory.name}"
        self.table = directory / "totals"
        self._servers = world.bootstrap_servers
        bound = QuerySettings(app=RIGHT, checkpoints=str(directory / "live"))
        conf = spark_session.settings().spark.conf
        lines = "".join(f'"{key}" = "{value}"\n' for key, value in conf.items())
        (directory / "store").mkdir()
        (directory / "savepoints.toml").write_text(
            f'store = "{directory}/store"\n[spark]\nmaster = "local[2]"\n[spark.conf]\n{lines}'
            f'[queries.{QUERY}]\napp = "{bound.app}"\ncheckpoints = "{bound.checkpoints}"\n'
            f'max_offsets_per_trigger = 250\n[queries.{QUERY}.outputs]\ntotals = "{self.table}"\n'
            f'[queries.{QUERY}.topics]\norders = "{self.topic}"\n'
        )

    def sell(self, begin: date, end: date) -> None:
        orders = orders_between(read_orders(), from_date=begin, until_date=end)
        produce(orders, bootstrap_servers=self._servers, topic=self.topic)

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "savepoints", "run", QUERY, *FORM, *options]
        return subprocess.Popen(
            command,
            cwd=self.directory,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *options: str) -> tuple[int, str, str]:
        """Run it in this process, whose Spark knows nothing of what was killed."""
        settings = ("--config", str(self.directory / "savepoints.toml"))
        return called("run", QUERY, *FORM, *options, *settings)

    def finish(self, *options: str) -> str:
        """Run it to the end."""
        code, out, err = self.call("--until", "latest", *options)
        assert code == 0, err
        return out + err

    @property
    def store(self) -> Store:
        return Store.at(str(self.directory / "store")).make()

    @property
    def checkpoint(self) -> Location:
        return Location.of(self.store.generations.current(QUERY).checkpoint)

    def seen(self, moment: str) -> int:
        """Count what there is of a moment: batches begun or committed, versions of the output."""
        if moment == "out":
            return len(list((self.table / "_delta_log").glob("*.json")))
        current = self.store.generations.find_current(QUERY)
        if current is None:
            return 0
        files = Location.of(current.checkpoint).list(moment)
        return sum("." not in info.path for info in files)

    def kill_when(self, moment: str, more: int, *options: str) -> None:
        """Start it, and kill it when there is so much more of a moment than before."""
        before = self.seen(moment)
        process = self.start(*options)
        try:
            wait_until(
                lambda: process.poll() is not None or self.seen(moment) >= before + more,
                f"there are {more} more in {moment}",
            )
        finally:
            process.kill()
            process.communicate()


def killed_at_random(job: Job, rng: random.Random, kills: int) -> None:
    """Kill it, delete its checkpoint, and compare with pandas."""
    until = BEGIN + timedelta(days=kills + 2)
    job.sell(BEGIN, until)
    for _ in range(kills):
        end = rng.choice([(), ("--until", "latest")])
        job.kill_when(rng.choice(MOMENTS), rng.randint(1, 2), *end)
    job.finish()
    assert compare(str(job.table), until).exact
    saved = job.store.catalog.all()[0]

    begun, until = until, until + timedelta(days=2)
    job.sell(begun, until)
    job.kill_when("commits", 1)
    job.checkpoint.delete(info.path for info in job.checkpoint.list())
    code, _, said = job.call("--until", "latest")
    assert code == 13, said
    assert f"savepoints run {QUERY} --recover" in said

    said = job.finish("--recover")

    assert f"recovering from {saved.id}" in said
    assert job.store.generations.current(QUERY).begun_from == saved.id
    assert compare(str(job.table), until).exact


@pytest.mark.nightly
def test_killed_at_random_moments_and_with_its_checkpoint_lost_nothing_is_lost_or_doubled(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    killed_at_random(Job(world, tmp_path), draw.chance("killed once"), kills=1)


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(4))
def test_killed_many_times(
    spark: SparkSession,
    world: LocalWorld,
    world_environment: dict[str, str],
    tmp_path: Path,
    number: int,
) -> None:
    killed_at_random(Job(world, tmp_path), draw.chance("killed many times", number), kills=6)
