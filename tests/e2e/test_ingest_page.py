"""docs/how-to/ingest.md is followed: each of its commands, its settings, its answer and its SQL."""

from __future__ import annotations

import json
import random
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.local import LocalWorld
from savepoints.outputs.delta.batch_version import open_table
from spark_jobs.ingest import __main__ as ingest
from spark_jobs.ingest import memory
from tests.e2e.desk import Desk
from tests.e2e.marks import NIGHTLY
from tests.e2e.pages import DOCS, blocks
from tests.e2e.shop import called
from tests.spark_jobs import feed_model
from tests.spark_jobs.feed_model import BEGIN_MS, DAY_MS
from tests.spark_jobs.feed_server import Feed, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY

PAGE = "how-to/ingest.md"
DAYS = 12


def test_the_page_is_followed(
    spark: SparkSession,
    world: LocalWorld,
    world_environment: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    desk = Desk.open(world, tmp_path, "spark_jobs.ingest.events_once:app")
    (block,) = blocks(PAGE, "toml")
    config = desk.write_page_settings(block, ("events_once",))
    (loads,), (run,), going_back = (
        [line.removeprefix("$ ") for line in block.splitlines()]
        for block in blocks(PAGE, "console")
    )
    (answer,) = map(json.loads, blocks(PAGE, "json"))
    chance = random.Random(5)
    feed = Feed(chance, answered_ms=BEGIN_MS + 3 * DAYS * DAY_MS)
    assert json.loads(Feed(pages=[[]])._page(0)).keys() == answer.keys()

    def type_in(line: str) -> None:
        code, out, err = called(*shlex.split(line)[1:], "--config", str(config))
        assert code == 0, f"{line}\n{out}\n{err}"

    def load() -> None:
        words = loads.replace("$FEED", feed.url).replace("s3://lake", str(tmp_path))
        words = words.replace("--topic feed", f"--topic {desk.topics['records']}")
        _, _, module, *rest = shlex.split(words)
        assert module == "spark_jobs.ingest"
        assert ingest.main([*rest, "--bootstrap-servers", world.bootstrap_servers]) == 0
        assert "loaded" in capsys.readouterr().out

    with serving(feed):
        feed.pages += [answer["events"], *feed_model.drawn(chance, DAYS, 8)]
        load()
        type_in(run)
    before = {name: len(desk_rows(tmp_path, name)) for name in ("events", "refused")}
    for line in going_back:
        type_in(line)

    assert {name: len(desk_rows(tmp_path, name)) for name in before} == before
    assert "e-1" in {row["event_id"] for row in desk_rows(tmp_path, "events")}
    spark.read.format("delta").load(str(tmp_path / "tables/refused")).createOrReplaceTempView(
        "refused"
    )
    (sql,) = blocks(PAGE, "sql")
    shown = {row["reason"]: row["records"] for row in spark.sql(sql).collect()}
    said = re.findall(r"^\| `(\w+)` \|", (DOCS / PAGE).read_text(), re.MULTILINE)
    assert set(said) == {memory.EXPIRED, memory.CHANGED, memory.AHEAD, memory.UNREADABLE}
    assert shown.keys() <= set(said)
    assert sum(shown.values()) == before["refused"]
    (state,) = re.findall("`(savepoints state .*?)`", (DOCS / PAGE).read_text())
    code, out, _ = called(*shlex.split(state)[1:], "-o", "json", "--config", str(config))
    assert code == 0
    found = json.loads(out)
    values = [one["value"]["groupState"] for one in found["rows"]]
    counted = {name: sum(one[name] for one in values) for name in ("records", "copies")}
    assert counted["records"] == sum(before.values()) + counted["copies"]


def desk_rows(place: Path, name: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = (
        open_table(str(place / "tables" / name)).to_pyarrow_table().to_pylist()
    )
    return rows
