"""`merge`: late orders have the effect that they would have had in time, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from savepoints.store.ledger import Ledger
from spark_jobs.orders import late
from spark_jobs.orders.cdnow import Order, orders_between, read_orders
from spark_jobs.orders.comparison import compare
from tests.e2e.shop import QUERY, Shop

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

BEGIN = date(1997, 1, 1)


def day(number: int) -> date:
    return BEGIN + timedelta(days=number)


def late_orders(first: int, last: int) -> list[Order]:
    """Return the orders of some days of every seventh customer."""
    known = orders_between(read_orders(), from_date=day(first), until_date=day(last))
    return [one for one in known if one.customer_id % 7 == 0]


def written(shop: Shop, orders: Sequence[Order], name: str = "late.parquet") -> Path:
    file = shop.directory / name
    late.write(orders, file)
    return file


def merge(shop: Shop, file: Path, *more: str) -> Any:
    return shop.json("merge", QUERY, "--batch", str(file), "--yes", *more)["merged"]


def test_late_orders_count_as_if_they_had_come_in_time(local_shop: Shop) -> None:
    """Some customers have a base, others begin with nothing; then it is undone and done again."""
    shop, held = local_shop, late_orders(0, 5)
    ids = {one.order_id for one in held}
    for begin, end in ((0, 2), (2, 4), (4, 6)):
        shop.sell(day(begin), day(end), without=ids)
        shop.run()
    assert not compare(shop.table, day(6)).exact
    file = written(shop, held)

    done = merge(shop, file)

    assert (done["rows"], done["known"]) == (len(held), 0)
    assert done["entities"] == len({one.customer_id for one in held})
    assert compare(shop.table, day(6)).exact
    shop.sell(day(6), day(8))
    shop.run()
    assert compare(shop.table, day(8)).exact, "the state is right, too"

    again = merge(shop, file)
    assert (again["checkpoint"], again["merged_by"]) == (None, done["operation_id"])
    (noted,) = Ledger(shop.store.root).all()
    assert (noted.id, noted.rows, noted.controls_differing) == (done["operation_id"], len(held), 0)
