"""Commands with an expected version, killed, rolled back and merged, against a ledger.

The ledger (`truths.accounts`) sees all commands at once and knows nothing of batches.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from savepoints.local import LocalWorld
from tests.e2e import seeds
from tests.e2e.desk import Desk
from tests.e2e.seeds import History
from tests.spark_jobs import account_tables, samples, truths
from tests.spark_jobs.test_applications import send, with_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = seeds.NIGHTLY

APP = "spark_jobs.accounts:app"
LATENESS = pd.Timedelta(seconds=30)
SIZE = 100
POINTS = ("run.written_events", "run.written_rejected", "run.outputs_written")


def tables(desk: Desk) -> tuple[str, str]:
    return str(desk.directory / "events"), str(desk.directory / "rejected")


def decided(commands: pd.DataFrame) -> truths.Rows:
    """Return what must be decided when these have come."""
    return truths.accounts(commands, commands["at"].max() - LATENESS)


@pytest.mark.parametrize("seed", seeds.seeds("accounts"))
def test_killed_and_rolled_back_the_tables_have_what_the_ledger_says(
    seed: int,
    spark: SparkSession,
    world: LocalWorld,
    world_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    chance = random.Random(seed)
    desk = Desk.open(world, tmp_path, APP, most=chance.randrange(SIZE // 4, SIZE))
    arrived = samples.arriving(samples.commands(seed, SIZE), LATENESS.to_pytimedelta(), seed)
    arrived = with_records(arrived, "account_id")
    history = History(desk, chance, POINTS, lambda: account_tables.decided(*tables(desk)))
    ends = [SIZE // 3, SIZE * 2 // 3, SIZE]

    for begin, end in zip([0, *ends], ends, strict=False):
        send(desk, arrived.iloc[begin:end])
        if chance.random() < 0.5 or (end == SIZE and not history.deaths):
            history.die()
        found = history.run()
        assert found == decided(arrived.iloc[:end])
        account_tables.require_consistent(*tables(desk))
    history.back()
    account_tables.require_consistent(*tables(desk))

    assert history.run() == decided(arrived)
    assert history.deaths
