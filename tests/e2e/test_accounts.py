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
from savepoints.operations.merge import merge
from savepoints.operations.merge.merge import Merged
from savepoints.operations.merge.prepare import MergeRequest, Prepared
from tests.e2e import late_desk, seeds
from tests.e2e.desk import Desk
from tests.e2e.marks import NIGHTLY
from tests.e2e.seeds import History
from tests.spark_jobs import account_tables, samples, truths
from tests.spark_jobs.test_applications import send, with_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY

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


def some_that_matter(commands: pd.DataFrame) -> pd.DataFrame:
    """Return commands of an account without which other commands of it are decided otherwise."""
    truth = decided(commands)
    early = commands.iloc[SIZE // 4 : SIZE // 2]
    for _, one in early.groupby("account_id"):
        without = {row[1]: row[-1] for row in decided(commands.drop(one.index[::2]))}
        if any(without.get(row[1], row[-1]) != row[-1] for row in truth):
            return one.iloc[::2]
    raise AssertionError("no other decision depends on them")


@pytest.mark.parametrize("seed", seeds.seeds("late commands"))
def test_late_commands_that_are_merged_leave_versions_and_events_as_the_ledger_has_them(
    seed: int,
    spark: SparkSession,
    world: LocalWorld,
    world_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    """A late command may be accepted, and then later ones conflict that were accepted before.

    With every other seed the late ones come by themselves, and the watermark drops them.
    """
    dropped = seed % 2 == 1
    desk = Desk.open(world, tmp_path, APP, archived=True)
    commands = with_records(samples.commands(seed, SIZE), "account_id").sort_values("at_ms")
    late = some_that_matter(commands)
    arrived = commands.drop(late.index)
    for part in (arrived.iloc[: SIZE // 2], arrived.iloc[SIZE // 2 :]):
        send(desk, part)
        desk.run(until="latest")
    if dropped:
        send(desk, late)
        desk.run(until="latest")
    late_desk.archive(spark, desk.settings, desk.query, "commands")
    before = account_tables.decided(*tables(desk))
    assert before == decided(arrived)

    file = tmp_path / "late.parquet"
    late[["key", "value"]].to_parquet(file)
    asked = MergeRequest(desk.query, None if dropped else str(file))
    prepared = merge.prepare(desk.store, asked)
    assert isinstance(prepared, Prepared)
    done = merge.execute(prepared, desk.store)

    assert isinstance(done, Merged)
    assert done.rows == len(late)
    found = account_tables.decided(*tables(desk))
    account_tables.require_consistent(*tables(desk))
    assert found == decided(commands)
    desk.run(until="latest")
    assert account_tables.decided(*tables(desk)) == found
