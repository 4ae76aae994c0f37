"""To any point and back on real parts: a time between savepoints, undo, a retained batch, reset."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import savepoints
from savepoints.io import Location
from savepoints.operations.rollback import reset, restore_point, rollback
from savepoints.operations.rollback.rollback import RolledBack
from savepoints.operations.rollback.target import (
    AtBatch,
    AtTime,
    BeforeLast,
    Point,
)
from savepoints.sources.kafka.reset_targets import Target
from spark_jobs.orders.truth import order_totals_truth
from tests.e2e.shop import QUERY, Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]

BEGIN = date(1997, 1, 1)
DAY = timedelta(days=1)


def at(day: date) -> AtTime:
    """The beginning of a day: the shop's records have the times of their orders."""
    return AtTime(datetime.combine(day, datetime.min.time(), UTC))


def go(shop: Shop, where: Point) -> RolledBack:
    plan = rollback.plan(shop.store, where, query=QUERY)
    return rollback.execute(plan, shop.store)


@pytest.mark.nightly
def test_there_and_back_again(spark: SparkSession, local_shop: Shop) -> None:
    shop = local_shop
    shop.sell(BEGIN, BEGIN + 3 * DAY)
    shop.run()
    shop.sell(BEGIN + 3 * DAY, BEGIN + 9 * DAY)
    ran = shop.run()
    newest = ran.last_batch
    assert newest is not None

    # A moment that no savepoint is of: as if nothing later had ever been read.
    moved = go(shop, at(BEGIN + 5 * DAY))
    assert moved.batch_id > 0
    assert shop.compare(BEGIN + 5 * DAY).exact

    # Undone, it is the present again; a second undo would be no undo.
    go(shop, BeforeLast())
    assert shop.compare(BEGIN + 9 * DAY).exact
    with pytest.raises(savepoints.SavepointsError, match="has already been undone, by"):
        go(shop, BeforeLast())

    # From the point in time it goes on with the very next record.
    go(shop, at(BEGIN + 7 * DAY))
    assert shop.compare(BEGIN + 7 * DAY).exact
    shop.sell(BEGIN + 9 * DAY, BEGIN + 10 * DAY)
    shop.run()
    assert shop.compare(BEGIN + 10 * DAY).exact

    # All over again, and the same comes of it.
    again = reset.plan(shop.store, QUERY, Target("earliest"), outputs="truncate")
    done = reset.execute(again, shop.store)
    assert shop.compare(BEGIN).rows == 0
    begins = Location.of(done.checkpoint).get("sources/0/0")
    shop.run()
    assert shop.compare(BEGIN + 10 * DAY).exact
    assert Location.of(done.checkpoint).get("sources/0/0") == begins, "Spark has taken it up"

    # A batch that was never saved.
    shop.sell(BEGIN + 10 * DAY, BEGIN + 11 * DAY)
    shop.run(save=False)
    shop.sell(BEGIN + 11 * DAY, BEGIN + 12 * DAY)
    ran = shop.run(save=False)
    assert ran.last_batch is not None
    back = go(shop, AtBatch(ran.last_batch - 1))
    assert back.batch_id == ran.last_batch - 1
    assert shop.compare(BEGIN + 11 * DAY).exact
    shop.run()
    assert shop.compare(BEGIN + 12 * DAY).exact


@pytest.mark.nightly
def test_what_is_restored_for_a_time_is_what_a_run_from_scratch_over_the_records_makes(
    spark: SparkSession, local_shop: Shop
) -> None:
    shop, day = local_shop, BEGIN + 4 * DAY
    shop.sell(BEGIN, BEGIN + 2 * DAY)
    shop.run()
    shop.sell(BEGIN + 2 * DAY, BEGIN + 6 * DAY)
    shop.run()
    target = f"{shop.root}/elsewhere"

    plan = restore_point.plan(shop.store, at(day), target, query=QUERY)
    done = restore_point.execute(plan, shop.store)

    assert shop.compare(BEGIN + 6 * DAY).exact, "no output was touched"
    taken = shop.store.create(query="elsewhere", checkpoint=target).execute()
    assert done.batch_id == taken.cut.batch_id
    with shop.store.savepoint(taken.id).read_state() as rows:
        found = {row["key"][0]: tuple(row["value"])[:2] for row in rows.collect()}
    truth = order_totals_truth(day)
    assert found == {one.customer_id: (one.orders, one.amount_cents) for one in truth.itertuples()}
    again = restore_point.execute(
        restore_point.plan(shop.store, at(day), target, query=QUERY),
        shop.store,
    )
    assert again.batch_id == done.batch_id, "the same command again changes nothing"
