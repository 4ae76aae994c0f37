"""Real orders through bronze, silver and gold, each level against pandas over the raw file."""

from __future__ import annotations

from pathlib import Path

import pytest

from savepoints.local import LocalWorld
from spark_jobs.orders.cdnow import orders_between, read_orders
from tests.e2e.late_shop import day
from tests.e2e.medallion_shop import RIGHT, MedallionShop

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(1200),
]


@pytest.fixture
def shop(world: LocalWorld, world_environment: dict[str, str], tmp_path: Path) -> MedallionShop:
    return MedallionShop.open(world, tmp_path)


def test_each_level_is_what_pandas_computes(shop: MedallionShop) -> None:
    """Also when the levels run at different times, and orders come twice."""
    shop.sell(day(0), day(4))
    shop.run()
    assert shop.differing(day(4)) == RIGHT
    # Sent again by the producer: bronze keeps each once.
    known = orders_between(read_orders(), from_date=day(2), until_date=day(4))
    shop.produce(list(known))
    shop.sell(day(4), day(8))
    shop.run("bronze")
    shop.sell(day(8), day(40))
    shop.run("bronze", "silver")
    shop.run()
    assert shop.differing(day(40)) == RIGHT

    shown = shop.json("pipeline", "show", "gold")["pipeline"]

    assert [one["name"] for one in shown["queries"]] == ["bronze", "silver", "gold"]
    assert [one["behind"] for one in shown["edges"]] == [0, 0]
    assert shown["findings"] == []
