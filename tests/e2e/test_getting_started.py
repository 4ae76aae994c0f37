"""Every command of docs/getting-started.md runs, in its order."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from savepoints.local import LocalWorld
from spark_jobs.orders.comparison import compare
from tests.e2e.shop import environment

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1200)]

PAGE = (Path(__file__).parents[2] / "docs" / "getting-started.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_every_command_of_the_page_runs(
    world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    """As a new user would: settings from the page, then its commands, then its Python."""
    world.create_bucket("lake")
    (tmp_path / "savepoints.toml").write_text(blocks("toml")[0])
    commands = [line[2:] for block in blocks("console") for line in block.splitlines()]
    assert len(commands) >= 15
    for line in commands:
        words = shlex.split(line)
        words = ["-m", *words] if words[0] == "savepoints" else words[1:]
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert compare("s3://lake/tables/order_totals", date(1997, 2, 15)).exact
    done = subprocess.run(
        [sys.executable, "-c", blocks("python")[0]],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert '{"orders":' in done.stdout
