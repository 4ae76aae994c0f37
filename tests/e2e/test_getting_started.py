"""Every command of docs/getting-started.md runs, in its order."""

from __future__ import annotations

import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.local import LocalWorld
from spark_jobs.orders.__main__ import main as orders
from spark_jobs.orders.comparison import compare
from tests.e2e.pages import blocks
from tests.e2e.shop import called, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(1200),
]

PAGE = "getting-started.md"


def apart(line: str) -> None:
    """Run a command of the page as a process, as a new user does."""
    words = shlex.split(line)
    words = ["-m", *words] if words[0] == "savepoints" else words[1:]
    done = subprocess.run(
        [sys.executable, *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def here(line: str) -> None:
    """Run a command of the page in this process, where Spark runs already."""
    words = shlex.split(line)
    if words[0] == "savepoints":
        code, out, err = called(*words[1:])
        assert code == 0, f"{line}\n{out}\n{err}"
    else:
        assert words[:3] == ["python", "-m", "spark_jobs.orders"]
        assert orders(words[3:]) == 0, line


def run_the_page(world: LocalWorld, *, processes: int) -> None:
    """As a new user would: settings from the page, then its commands, then its Python.

    Args:
        world: Where everything is.
        processes: So many of the commands, the first ones, run as processes of their own.
    """
    world.create_bucket("lake")
    Path("savepoints.toml").write_text(blocks(PAGE, "toml")[0])
    commands = [line[2:] for block in blocks(PAGE, "console") for line in block.splitlines()]
    assert len(commands) >= 15
    for number, line in enumerate(commands):
        (apart if number < processes else here)(line)
    assert compare("s3://lake/tables/order_totals", date(1997, 2, 15)).exact
    done = subprocess.run(
        [sys.executable, "-c", blocks(PAGE, "python")[0]],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert '{"orders":' in done.stdout


def test_every_command_of_the_page_runs(
    spark: SparkSession,
    world: LocalWorld,
    world_environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Orders, the first run, which starts Spark with the page's settings, and `list` apart."""
    monkeypatch.chdir(tmp_path)
    run_the_page(world, processes=3)


def test_every_command_of_the_page_runs_as_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with LocalWorld.start() as world:
        for name, value in world.environment.items():
            monkeypatch.setenv(name, value)
        run_the_page(world, processes=100)
