"""Merges that begin from savepoints, as they do where an archive and periodic savepoints are."""

from __future__ import annotations

from pathlib import Path

import pytest

from savepoints.model import Form
from savepoints.operations.merge import merge as merging
from tests.e2e.late_shop import archive, day, differing, ids, late_orders, prepared, written
from tests.e2e.shop import Shop

# The oracle begins from savepoints each time; here a shop with its archive does.
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(1800),
]


def merge(shop: Shop, file: Path) -> dict[str | None, int]:
    """Merge; return how many entities were replayed from which savepoint, None is from nothing."""
    plan = prepared(shop, file)
    merging.execute(plan, shop.store)
    return {one.savepoint_id: one.entities for one in plan.plan.bases}


def test_each_customer_begins_from_the_newest_savepoint_before_their_late_orders(
    local_shop: Shop,
) -> None:
    """The first from nothing, the others from a native and from a canonical savepoint.

    Then once more: savepoints from before the first merge lack what it brought, and are bases for
    other customers only.
    """
    shop = local_shop
    groups = [late_orders(0, 20, of=0), late_orders(20, 40, of=1), late_orders(40, 59, of=2)]
    later = [*late_orders(40, 59, of=1), *late_orders(40, 59, of=3)]
    held = [one for group in groups for one in group]
    missing = ids(held) | ids(later)
    forms: tuple[tuple[Form, ...], ...] = (("native",), ("native", "canonical"), ("native",))
    saved = []
    for number, form in enumerate(forms):
        shop.sell(day(20 * number), day(20 * number + 20), without=missing)
        archive(shop)
        shop.run(forms=form)
        saved.append(shop.store.catalog.find("latest").id)
    customers = [len({one.customer_id for one in group}) for group in groups]

    bases = merge(shop, written(shop, held))

    assert bases == dict(zip((None, saved[0], saved[1]), customers, strict=True))
    assert differing(shop, day(60), without=ids(later)) == 0

    file = written(shop, later, "later.parquet")
    again = {one.customer_id for one in later} & {one.customer_id for one in held}
    others = {one.customer_id for one in later} - again
    assert again, "savepoints before the first merge are no bases for them"
    bases = merge(shop, file)
    assert bases == {saved[0]: len(again), saved[1]: len(others)}
    assert differing(shop, day(60)) == 0
    shop.sell(day(60), day(65))
    archive(shop)
    shop.run()
    assert differing(shop, day(65)) == 0, "the state is right, too"
