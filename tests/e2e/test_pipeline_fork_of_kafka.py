"""Another version of three queries over Kafka takes over while they run, and is undone."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pandas as pd
import pytest

from savepoints.local import LocalWorld
from spark_jobs.medallion import truth
from tests.e2e.late_shop import day
from tests.e2e.medallion_shop import RIGHT, MedallionShop
from tests.spark_session import wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(1200),
]

OTHER = "tests.e2e.medallion_buggy:app"


@pytest.fixture
def shop(world: LocalWorld, world_environment: dict[str, str], tmp_path: Path) -> MedallionShop:
    return MedallionShop.open(world, tmp_path)


def differing(shop: MedallionShop, until: date, since: date) -> dict[str, int]:
    """Count the rows that are not as if the other version had begun with the orders of a day."""
    wanted = truth.truth(until)
    lines = wanted["silver"]
    lines.loc[lines["ordered_at"] >= pd.Timestamp(since, tz="UTC"), "amount_cents"] *= 1000
    days = lines.assign(day=lines["ordered_at"].dt.floor("1D"))
    wanted["gold"] = days.groupby(["day", "tier"], as_index=False).agg(
        orders=("order_id", "size"), amount_cents=("amount_cents", "sum")
    )
    return {
        level: truth.differing(level, shop.table(level), wanted[level]) for level in truth.LEVELS
    }


def test_another_version_of_all_three_takes_over_while_two_of_them_run(shop: MedallionShop) -> None:
    shop.sell(day(0), day(4))
    shop.run()
    shop.sell(day(4), day(8))
    shop.run("bronze", "silver")
    shop.json("pipeline", "create", "silver", "--tag", "before")
    shop.sell(day(8), day(12))
    shop.run()
    forking = ("pipeline", "fork", "bronze", "before", "b", "--app", f"silver={OTHER}", "--yes")

    made = shop.json(*forking)["pipeline_forked"]

    assert [one["query"] for one in made["forks"]] == ["bronze_b", "silver_b", "gold_b"]
    code, out, err = shop.call("pipeline", "compare", "gold", "b", "--yes", "-o", "json")
    assert code == 3, err
    found = json.loads(out)["pipeline_comparison"]
    assert [one["verdict"] for one in found["levels"]] == ["same", "different", "different"]
    with shop.running("silver") as silver_lives, shop.running("gold") as gold_lives:
        done = shop.json("pipeline", "promote", "silver", "b", "--yes")["pipeline_promoted"]
        assert [one["generation"] for one in done["members"]] == [2, 2, 2]
        shop.sell(day(12), day(14))
        shop.run("bronze")

        def is_right() -> bool:
            silver_lives()
            gold_lives()
            return differing(shop, day(14), day(8)) == RIGHT

        wait_until(is_right, "silver and gold go on as the other version")

    shop.json("undo", "gold", "--yes")

    shop.run()
    assert shop.differing(day(14)) == RIGHT
