"""`merge`: late orders have the effect that they would have had in time, and no other."""

from __future__ import annotations

from collections import Counter

import pytest

from savepoints.store.locks import lease
from savepoints.store.tables.merge_ledger import Ledger
from spark_jobs.orders.cdnow import orders_between, read_orders
from tests.e2e.late_shop import archive, day, differing, ids, late_orders, merge, written
from tests.e2e.shop import QUERY, Shop, called
from tests.e2e.test_promote import running
from tests.spark_session import PARTITIONS, wait_until
from tests.state_files import by_partition

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1200)]


@pytest.mark.nightly
def test_late_orders_count_as_if_they_had_come_in_time(local_shop: Shop) -> None:
    """And so do those that come after them; the same batch again changes nothing."""
    shop, held = local_shop, late_orders(0, 3)
    for begin, end in ((0, 2), (2, 4)):
        shop.sell(day(begin), day(end), without=ids(held))
        shop.run()
    assert differing(shop, day(4), without=ids(held)) == 0

    done = merge(shop, written(shop, held))

    assert (done["rows"], done["known"]) == (len(held), 0)
    assert differing(shop, day(4)) == 0
    shop.sell(day(4), day(5))
    shop.run()
    assert differing(shop, day(5)) == 0, "the state is right, too"
    again = merge(shop, written(shop, reversed(held), "again.parquet"))
    assert (again["checkpoint"], again["merged_by"]) == (None, done["operation_id"])
    assert [one.id for one in Ledger(shop.store.root).all()] == [done["operation_id"]]


@pytest.mark.nightly
def test_batches_that_overlap_are_merged_one_after_the_other(local_shop: Shop) -> None:
    shop, held = local_shop, late_orders(0, 5)
    first = [one for one in held if one.ordered_at.date() >= day(3)]
    for begin, end in ((0, 2), (2, 4), (4, 6)):
        shop.sell(day(begin), day(end), without=ids(held))
        shop.run()
    assert differing(shop, day(6), without=ids(held)) == 0

    done = merge(shop, written(shop, first))

    assert (done["rows"], done["known"]) == (len(first), 0)
    assert differing(shop, day(6), without=ids(held) - ids(first)) == 0
    rest = merge(shop, written(shop, held, "all.parquet"))
    assert (rest["rows"], rest["known"]) == (len(held) - len(first), len(first))
    assert differing(shop, day(6)) == 0
    shop.sell(day(6), day(8))
    shop.run()
    assert differing(shop, day(8)) == 0, "the state is right, too"
    again = merge(shop, written(shop, reversed(held), "again.parquet"))
    assert (again["checkpoint"], again["merged_by"]) == (None, rest["operation_id"])
    noted = Ledger(shop.store.root).all()
    assert [one.id for one in noted] == [rest["operation_id"], done["operation_id"]]


@pytest.mark.nightly
def test_a_running_query_stands_still_for_the_last_steps_and_is_taken_back(
    local_shop: Shop,
) -> None:
    """Orders arrive while the batch is merged, also of its customers."""
    shop, held = local_shop, late_orders(1, 4)
    for begin, end in ((0, 2), (2, 4)):
        shop.sell(day(begin), day(end), without=ids(held))
        shop.run()
    file = written(shop, held)
    with running(shop) as require_alive:
        shop.sell(day(4), day(6), without=ids(held))
        wait_until(lambda: differing(shop, day(6), without=ids(held)) == 0, "it has read them")
        done = merge(shop, file)
        assert done["pause_seconds"] is not None
        shop.sell(day(6), day(7))

        def is_exact() -> bool:
            require_alive()
            return differing(shop, day(7)) == 0

        wait_until(is_exact, "late and new orders count")

    shop.json("merge", QUERY, "--undo", "--yes")

    shop.run()
    assert differing(shop, day(7), without=ids(held)) == 0, "as if it had never been merged"
    assert merge(shop, file)["rows"] == len(held), "and it can be merged again"
    assert differing(shop, day(7)) == 0


@pytest.mark.nightly
def test_a_merge_of_one_customer_writes_one_state_partition(local_shop: Shop) -> None:
    """The files of the others are copied; what is read and written after it is exact."""
    shop = local_shop
    before, after = (
        orders_between(read_orders(), from_date=day(begin), until_date=day(end))
        for begin, end in ((0, 3), (3, 6))
    )
    known = Counter(one.customer_id for one in (*before, *after))
    earlier = {one.customer_id for one in before}
    # Replayed from a savepoint that has state of theirs, and from nothing.
    often = next(one for one in after if one.customer_id in earlier)
    once = next(one for one in before if known[one.customer_id] == 1)
    held = [often, once]
    for begin, end in ((0, 3), (3, 6)):
        shop.sell(day(begin), day(end), without=ids(held))
        archive(shop)
        shop.run()

    for number, order in enumerate(held):
        was = by_partition(shop.checkpoint)
        merge(shop, written(shop, [order], f"{number}.parquet"), "--controls", str(number))
        now = by_partition(shop.checkpoint)
        assert len(was) == PARTITIONS
        assert sum(was[one] != now[one] for one in was) == 1
        assert differing(shop, day(6), without=ids(held[number + 1 :])) == 0

    shop.sell(day(6), day(60))
    shop.run()
    assert differing(shop, day(60)) == 0, "the state is right, too"


def test_another_merge_of_the_query_is_refused(local_shop: Shop) -> None:
    with lease.hold_merging(local_shop.store.root, QUERY):
        code, _, said = called(
            "merge", QUERY, "--batch", "late.parquet", "--yes", "--store", local_shop.settings.store
        )
    assert code == 11
    assert f"the command merge is working on {QUERY}" in said
