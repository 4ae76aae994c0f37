"""Every command of docs/how-to/medallion.md runs, and each level is what pandas computes."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.local import LocalWorld
from spark_jobs.medallion.truth import LEVELS, differing, truth
from spark_jobs.orders.__main__ import main as orders
from spark_jobs.orders.cdnow import read_orders
from spark_jobs.orders.late import held_back
from tests.e2e.pages import blocks
from tests.e2e.shop import called

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(1200),
]

UNTIL = date(1997, 1, 5)
PAGE = "how-to/medallion.md"


def test_every_command_of_the_page_runs(
    spark: SparkSession,
    world: LocalWorld,
    world_environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    # A topic and a bucket of its own: other pages use the ones that this page names.
    topic = f"medallion-{tmp_path.name}"
    lake = f"lake-{uuid.uuid4().hex}"
    world.create_bucket(lake)
    settings = blocks(PAGE, "toml")[0].replace("s3://lake", f"s3://{lake}")
    place = f'[queries.bronze.topics]\norders = "{topic}"\n'
    Path("savepoints.toml").write_text(f"{settings}\n{place}")
    commands = [line[2:] for block in blocks(PAGE, "console") for line in block.splitlines()]
    assert len(commands) >= 13
    back = commands.index("savepoints pipeline rollback gold before-late --all --yes")
    run(commands[:back], topic)
    wanted = truth(UNTIL)
    assert [differing(one, f"s3://{lake}/{one}", wanted[one]) for one in LEVELS] == [0, 0, 0]
    run(commands[back:], topic)
    without = truth(UNTIL, without=[one.order_id for one in held_back(read_orders(), 20)[1]])
    assert [differing(one, f"s3://{lake}/{one}", without[one]) for one in LEVELS] == [0, 0, 0]


def run(lines: Sequence[str], topic: str) -> None:
    """Run commands of the page in this process, where Spark runs already."""
    for line in lines:
        words = shlex.split(line.replace("--topic orders", f"--topic {topic}"))
        if words[0] == "savepoints":
            code, out, err = called(*words[1:])
            assert code == 0, f"{line}\n{out}\n{err}"
        else:
            assert orders(words[3:]) == 0, line
