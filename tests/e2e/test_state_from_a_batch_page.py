"""Every command of docs/how-to/state-from-a-batch.md runs; results are compared with pandas."""

from __future__ import annotations

import datetime as dt
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from savepoints.local import LocalWorld
from savepoints.outputs.delta.batch_version import open_table
from tests.e2e.desk import Desk
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

PAGE = "how-to/state-from-a-batch.md"
DAY = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
# The last order before the batch ends is of 11:59, and the watermark is ten minutes behind.
FIRST, NOON, LAST = 9, 12, 14


def orders(begin: int, end: int) -> list[dict[str, Any]]:
    """Return orders of some hours of the day, in order; the last of an hour is of its end."""
    return [
        {
            "order_id": f"{hour}-{minute}-{who}",
            "customer_id": who,
            "cents": hour * 10 + minute,
            "at": DAY + dt.timedelta(hours=hour, minutes=minute),
        }
        for hour in range(begin, end)
        for minute in (5, 25, 59)
        for who in "abc"
    ]


def _value(order: dict[str, Any]) -> bytes:
    fields = {key: value for key, value in order.items() if key != "at"}
    return json.dumps({**fields, "at_ms": int(order["at"].timestamp() * 1000)}).encode()


@dataclass(frozen=True)
class Page:
    """A place where the page is followed."""

    desk: Desk

    @property
    def config(self) -> Path:
        return self.desk.directory / "savepoints.toml"

    def write_settings(self) -> None:
        (block,) = blocks(PAGE, "toml")
        self.desk.write_page_settings(block, ("hourly_totals", "seeded_totals"))

    def arrive(self, found: Sequence[dict[str, Any]]) -> None:
        self.desk.produce("orders", map(_value, found))

    def call(self, *words: str) -> str:
        code, out, err = called(*words, "--config", str(self.config))
        assert code == 0, f"{words}\n{out}\n{err}"
        return out + err

    def lines(self, word: str) -> list[str]:
        """Run the commands of the page that begin with a verb; returns what each printed."""
        found = [
            line.removeprefix("$ savepoints ").replace("s3://lake", str(self.desk.directory))
            for block in blocks(PAGE, "console")
            for line in block.splitlines()
        ]
        return [self.call(*shlex.split(one)) for one in found if one.split()[0] == word]

    def rows(self, table: str) -> list[tuple[str, int, int, int]]:
        found = open_table(str(self.desk.directory / "tables" / table)).to_pyarrow_table()
        return sorted(
            (one["customer_id"], one["hour"].hour, one["orders"], one["cents"])
            for one in found.to_pylist()
        )


def truth(begin: int, end: int) -> list[tuple[str, int, int, int]]:
    frame = pd.DataFrame(orders(FIRST, LAST))
    frame["hour"] = frame["at"].dt.hour
    frame = frame[frame["hour"].between(begin, end - 1)]
    sums = frame.groupby(["customer_id", "hour"], as_index=False).agg(
        orders=("cents", "size"), cents=("cents", "sum")
    )
    return sorted(
        (str(one.customer_id), int(one.hour), int(one.orders), int(one.cents))
        for one in sums.itertuples()
    )


def test_the_page_is_followed(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    del world_environment
    page = Page(Desk.open(world, tmp_path, "spark_jobs.hourly_totals:app"))
    page.write_settings()
    before = orders(FIRST, NOON)
    page.arrive(before)
    spark.createDataFrame(pd.DataFrame(before)).createOrReplaceTempView("orders")
    (query,) = blocks(PAGE, "sql")
    spark.sql(query).write.format("delta").save(str(tmp_path / "open_hours"))

    planned, done = page.lines("bootstrap")
    assert "27 records" in planned
    assert "bootstrapped" in done
    assert page.rows("hourly_totals") == truth(FIRST, NOON - 1)
    planned, done = page.lines("seed")
    assert "value.count" in planned
    assert "3 state rows" in done

    page.arrive(orders(NOON, LAST))
    for name in ("hourly_totals", "seeded_totals"):
        page.call("run", name, "--until", "latest")
    assert page.rows("hourly_totals") == truth(FIRST, LAST - 1)
    assert page.rows("seeded_totals") == truth(NOON - 1, LAST - 1)
