"""docs/how-to/expected-version.md is followed: its settings, each of its commands, and its SQL."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from confluent_kafka import Producer

from savepoints.local import LocalWorld
from savepoints.outputs.delta.batch_version import open_table
from tests.e2e.desk import PARTITIONS, Desk
from tests.e2e.shop import called
from tests.spark_jobs import samples, truths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(900),
]

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "expected-version.md").read_text()
LATENESS = pd.Timedelta(seconds=30)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def write_settings(desk: Desk) -> Path:
    """Write the settings of the page, for this place."""
    file = desk.directory / "savepoints.toml"
    conf = "".join(f'"{k}" = "{v}"\n' for k, v in desk.settings.spark.conf.items())
    (block,) = blocks("toml")
    file.write_text(
        f'store = "{desk.settings.store}"\n[spark]\nmaster = "local[2]"\n[spark.conf]\n{conf}'
        + block.replace("s3://lake", str(desk.directory))
        + f'[queries.accounts.topics]\ncommands = "{desk.topics["commands"]}"\n'
    )
    return file


def send(desk: Desk, commands: pd.DataFrame) -> None:
    """Send commands as the page has them, those of one account to any partition."""
    producer = Producer({"bootstrap.servers": desk.settings.kafka.bootstrap_servers})
    (example,) = blocks("json")
    for number, one in enumerate(commands.drop(columns="at").to_dict("records")):
        assert one.keys() == json.loads(example).keys()
        producer.produce(
            desk.topics["commands"], json.dumps(one).encode(), partition=number % PARTITIONS
        )
    assert producer.flush(30) == 0


def decided(desk: Desk) -> truths.Rows:
    rows = open_table(str(desk.directory / "tables/decisions")).to_pyarrow_table().to_pylist()
    return sorted((tuple(map(_in_utc, row.values())) for row in rows), key=str)


def _in_utc(value: Any) -> Any:
    return pd.Timestamp(value).tz_convert("UTC") if hasattr(value, "tzinfo") else value


def test_the_page_is_followed(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    desk = Desk.open(world, tmp_path, "spark_jobs.accounts:app")
    config = write_settings(desk)
    commands = samples.commands(11, 90)
    arrived = samples.arriving(commands, LATENESS.to_pytimedelta(), 11)
    (run,), (create, rollback, again) = (
        [line.removeprefix("$ savepoints ") for line in block.splitlines()]
        for block in blocks("console")
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

    spark.read.format("delta").load(str(tmp_path / "tables/decisions")).createOrReplaceTempView(
        "decisions"
    )
    (views,) = blocks("sql")
    for one in views.split(";"):
        spark.sql(one)
    events, rejected = spark.table("account_events"), spark.table("rejected_commands")
    assert events.count() + rejected.count() == len(truth)
    versions: dict[str, list[int]] = {}
    for row in events.collect():
        versions.setdefault(row["account_id"], []).append(row["version"])
    assert all(sorted(one) == list(range(1, len(one) + 1)) for one in versions.values())
