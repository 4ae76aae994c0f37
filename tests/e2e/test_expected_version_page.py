"""docs/how-to/expected-version.md is followed: its settings, commands and Python."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from savepoints.local import LocalWorld
from savepoints.runtime.app import Output
from spark_jobs import accounts
from tests.e2e.desk import Desk
from tests.e2e.marks import NIGHTLY
from tests.e2e.pages import blocks
from tests.e2e.shop import called
from tests.spark_jobs import account_tables, samples, truths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY

PAGE = "how-to/expected-version.md"
LATENESS = pd.Timedelta(seconds=30)


def send(desk: Desk, commands: pd.DataFrame) -> None:
    """Send commands as the page has them, those of one account to any partition."""
    (example,) = blocks(PAGE, "json")
    found = commands.drop(columns="at").to_dict("records")
    assert all(one.keys() == json.loads(example).keys() for one in found)
    desk.produce("commands", (json.dumps(one).encode() for one in found))


def decided(desk: Desk) -> truths.Rows:
    return account_tables.decided(*tables(desk))


def tables(desk: Desk) -> tuple[str, str]:
    place = desk.directory / "tables"
    return str(place / "account_events"), str(place / "rejected_commands")


def test_the_page_is_followed(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    desk = Desk.open(world, tmp_path, "spark_jobs.accounts:app")
    (block,) = blocks(PAGE, "toml")
    config = desk.write_page_settings(block, ("accounts",))
    commands = samples.commands(11, 90)
    arrived = samples.arriving(commands, LATENESS.to_pytimedelta(), 11)
    (run,), (create, rollback, again) = (
        [line.removeprefix("$ savepoints ") for line in block.splitlines()]
        for block in blocks(PAGE, "console")
    )

    def type_in(line: str) -> None:
        code, out, err = called(*shlex.split(line), "--config", str(config))
        assert code == 0, f"{line}\n{out}\n{err}"

    send(desk, arrived.iloc[:60])
    type_in(run)
    type_in(create)
    before = decided(desk)
    assert before == truths.accounts(arrived.iloc[:60], arrived["at"].iloc[:60].max() - LATENESS)
    send(desk, arrived.iloc[60:])
    type_in(run)
    truth = truths.accounts(commands, commands["at"].max() - LATENESS)
    assert decided(desk) == truth

    type_in(rollback)
    assert decided(desk) == before
    type_in(again)
    assert decided(desk) == truth

    account_tables.require_consistent(*tables(desk))
    (said,) = blocks(PAGE, "python")
    shown: dict[str, dict[str, Output]] = {}
    exec(said, {"Output": Output}, shown)
    assert shown["outputs"] == accounts.app.outputs
