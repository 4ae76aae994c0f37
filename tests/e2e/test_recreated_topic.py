"""The topic of a query that stands still is deleted, and filled again beyond where it had read."""

from __future__ import annotations

import pytest

from savepoints.local import LocalWorld
from savepoints.sources.combined import availability
from spark_jobs.orders.cdnow import orders_between, read_orders
from tests.e2e.late_shop import Standing, day, differing, ids, late_orders, written
from tests.e2e.shop import QUERY, Shop
from tests.sources.broker import Broker

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.nightly,
    pytest.mark.timeout(1200),
]


def recreate(shop: Shop, world: LocalWorld) -> None:
    """Make the topic anew with orders of other days, more in each partition than it had."""
    broker = Broker.of(world)
    before = availability.ranges([shop.topic], broker.settings)[shop.topic]
    broker.remove(shop.topic)
    shop.sell(day(3), day(9))
    after = availability.ranges([shop.topic], broker.settings)[shop.topic]
    assert all(after[part].end > one.end for part, one in before.items())


def test_trap_new_records_at_old_offsets_are_not_taken_for_those_that_were_read(
    local_shop: Shop, world: LocalWorld
) -> None:
    """Spark goes on without the first of them, and a replay makes the state of others' orders."""
    shop, held = local_shop, late_orders(0, 2)
    shop.sell(day(0), day(2), without=ids(held))
    shop.run()
    recreate(shop, world)
    before = Standing.of(shop)
    batch = ("merge", QUERY, "--batch", str(written(shop, held)), "--yes")

    for words in (
        ("run", QUERY, "--until", "latest"),
        ("run", QUERY, "--max-duration", "20s"),
        (*batch, "--policy", "replay-all"),
        (*batch, "--controls", "0"),
    ):
        code, _, said = shop.call(*words)
        assert (code, "deleted and recreated" in said) == (14, True), said
    assert Standing.of(shop) == before

    shop.json("reset", QUERY, "--to-earliest", "--state", "keep", "--allow-data-loss", "--yes")
    shop.run()
    known = orders_between(read_orders(), from_date=day(2), until_date=day(3))
    assert differing(shop, day(9), without=ids(held) | ids(known)) == 0
