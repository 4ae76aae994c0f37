"""Every command of docs/how-to/late-rows.md runs, and prints what the page shows."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from savepoints.local import LocalWorld
from savepoints.outputs.delta.batch_version import open_table
from savepoints.store.tables.merge_ledger import Ledger
from tests.e2e.desk import Desk
from tests.e2e.pages import blocks
from tests.e2e.shop import called, environment

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(1200),
]

PAGE = "how-to/late-rows.md"
DAY = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
HOURS = range(8, 13)


@dataclass(frozen=True)
class Order:
    """An order, and when it happened, in minutes of the day."""

    id: str
    customer: str
    cents: int
    minute: int

    @property
    def value(self) -> bytes:
        at = DAY + dt.timedelta(minutes=self.minute)
        fields = {"order_id": self.id, "customer_id": self.customer, "cents": self.cents}
        return json.dumps({**fields, "at_ms": int(at.timestamp() * 1000)}).encode()


# By the hour in which they arrive; the last one counted when it came for the first time.
LATE = {
    11: [Order("late-1", "a", 1_000, 8 * 60 + 10)],
    12: [
        Order("late-2", "b", 2_000, 9 * 60 + 30),
        Order("late-3", "c", 4_000, 8 * 60 + 45),
        Order("9-a", "a", 9, 9 * 60),
    ],
}


def in_time(hour: int) -> list[Order]:
    found = [Order(f"{hour}-{who}", who, hour, hour * 60 + 20 * at) for at, who in enumerate("abc")]
    return [*found, Order(f"{hour}-last", "last", 1, hour * 60 + 59)]


@dataclass(frozen=True)
class Page:
    """A place where the page is followed."""

    desk: Desk

    @property
    def config(self) -> Path:
        return self.desk.directory / "savepoints.toml"

    def write_settings(self) -> None:
        block = blocks(PAGE, "toml")[0]  # Not the schedule: the page merges by hand.
        self.desk.write_page_settings(block, ("hourly_totals",))

    def arrive(self, orders: Sequence[Order]) -> None:
        self.desk.produce("orders", (one.value for one in orders))

    def line(self, word: str, *more: str) -> str:
        """Run the commands of the page that have a word."""
        lines = [
            line.removeprefix("$ savepoints ")
            for block in blocks(PAGE, "console")
            for line in block.splitlines()
        ]
        said = ""
        for one in dict.fromkeys(each for each in lines if word in each):
            code, out, err = called(*shlex.split(one), *more, "--config", str(self.config))
            assert code == 0, f"{one}\n{out}\n{err}"
            said += out
        return said

    def rows(self) -> list[dict[str, Any]]:
        table = open_table(str(self.desk.directory / "tables/hourly_totals")).to_pyarrow_table()
        rows: list[dict[str, Any]] = table.to_pylist()
        return sorted(rows, key=str)


@pytest.fixture
def followed(world: LocalWorld, world_environment: dict[str, str], tmp_path: Path) -> Page:
    """Give a query of the page that has dropped orders."""
    page = Page(Desk.open(world, tmp_path, "spark_jobs.hourly_totals:app"))
    page.write_settings()
    for hour in HOURS:
        if hour == HOURS[1]:
            assert "0 events of 0 entities" in page.line("late hourly_totals"), "no watermark yet"
        page.arrive([*in_time(hour), *LATE.get(hour, [])])
        page.line("run hourly_totals")
    return page


def truth(last: int) -> list[dict[str, Any]]:
    """Return the hours that are over by the watermark, of all orders once."""
    orders = [one for hour in range(8, last + 1) for one in [*in_time(hour), *LATE.get(hour, [])]]
    frame = pd.DataFrame([vars(one) for one in {one.id: one for one in orders}.values()])
    frame["hour"] = [DAY + dt.timedelta(hours=int(one) // 60) for one in frame["minute"]]
    over = frame[frame["minute"] // 60 < last]
    sums = over.groupby(["customer", "hour"], as_index=False).agg(
        orders=("id", "size"), cents=("cents", "sum")
    )
    rows = sums.rename(columns={"customer": "customer_id"}).to_dict("records")
    return sorted(({str(k): v for k, v in row.items()} for row in rows), key=str)


def plain(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str, int, int]]:
    return sorted(
        (one["customer_id"], f"{one['hour']:%H}", int(one["orders"]), int(one["cents"]))
        for one in rows
    )


def test_the_page_is_followed(followed: Page) -> None:
    page = followed
    assert plain(page.rows()) != plain(truth(HOURS[-1]))

    said = page.line("late hourly_totals").replace(str(page.desk.directory), "s3://lake")

    shown = next(one for one in blocks(PAGE, "text") if "delivered" in one)
    assert [line.split() for line in said.splitlines()] == [
        line.split() for line in shown.splitlines()
    ]
    page.line("--dropped")
    assert plain(page.rows()) == plain(truth(HOURS[-1]))
    page.line("--dropped --yes")
    assert len(Ledger(page.desk.store.root).all()) == 1
    page.line("--undo")
    assert plain(page.rows()) != plain(truth(HOURS[-1]))
    page.line("--dropped --yes")
    page.arrive(in_time(13))
    page.line("run hourly_totals")
    assert plain(page.rows()) == plain(truth(13))


def test_killed_and_run_again_it_is_merged(followed: Page) -> None:
    """With another `--since` than before, as an age is."""
    page = followed
    command = ["merge", "hourly_totals", "--dropped", "--yes", "--config", str(page.config)]
    done = subprocess.run(
        [sys.executable, "-m", "savepoints", *command, "--since", "30d"],
        env=environment("merge.corrected_totals"),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr

    code, _, said = called(*command, "--since", "29d")

    assert code == 0, said
    assert plain(page.rows()) == plain(truth(HOURS[-1]))
    page.arrive(in_time(13))
    page.line("run hourly_totals")
    assert plain(page.rows()) == plain(truth(13))
