"""Batches that were planned before the query started, with the Kafka source that fails on them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from savepoints.checkpoint import position
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.local.jars import resolve, resolve_jars
from tests.e2e.shop import QUERY, Shop, environment
from tests.spark_session import wait_until
from tests.versions import installed

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.nightly,
    pytest.mark.versions,
    pytest.mark.skipif(installed.VERSION != (4, 1), reason="it is the source of 4.1.0 to 4.1.2"),
]

FAILING = Path(__file__).parents[1] / "data" / "kafka_source_4_1"
BEGIN, END = date(1997, 1, 1), date(1997, 1, 5)
SOURCE = "spark-sql-kafka-0-10"


@pytest.fixture
def shop(
    world: LocalWorld,
    world_environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Shop:
    """Give a shop whose commands run with that source."""
    jars = tmp_path / "jars"
    jars.mkdir()
    others = [jar for jar in resolve_jars().spark if not jar.name.startswith(SOURCE)]
    for jar in (*others, *resolve(FAILING)):
        (jars / jar.name).symlink_to(jar)
    monkeypatch.setenv("SAVEPOINTS_JARS", str(jars))
    return Shop.open(world, tmp_path, max_offsets=400, on_s3=False)


def test_trap_a_source_that_throws_after_each_planned_batch_does_not_stop_a_run_with_an_end(
    shop: Shop,
) -> None:
    sold = shop.sell(BEGIN, END)

    done = shop.command("run", QUERY, "--until", "latest", "--format", "native", "-o", "json")

    assert done.returncode == 0, done.stderr
    ran = json.loads(done.stdout)["run"]
    assert (ran["batches"], ran["input_rows"]) == (-(-sold // 400), sold)
    assert "after it had committed batch 0" in done.stderr
    assert shop.compare(END).exact


def test_trap_a_run_that_was_killed_goes_on_past_the_batch_that_it_had_begun(shop: Shop) -> None:
    sold = shop.sell(BEGIN, END)
    killed = shop.command("run", QUERY, crash_at="run.outputs_written")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    checkpoint = Location.of(shop.store.generations.current(QUERY).checkpoint)
    assert position.read(checkpoint).begun == 0

    runner = subprocess.Popen(
        [sys.executable, "-m", "savepoints", "run", QUERY, "--every", "1h", "--format", "native"],
        cwd=shop.directory,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        last = -(-sold // 400) - 1
        wait_until(
            lambda: runner.poll() is not None or position.read(checkpoint).committed == last,
            "all batches are committed",
        )
        runner.send_signal(signal.SIGTERM)
        _, said = runner.communicate(timeout=100)
    finally:
        runner.kill()

    assert runner.returncode == 0, said
    assert "after it had committed batch 0" in said
    assert shop.compare(END).exact
