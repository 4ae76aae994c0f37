"""A changed program that goes on with the state of a savepoint."""

from __future__ import annotations

from datetime import date

import pytest

import savepoints
from savepoints.errors import LayoutChangedError
from savepoints.io import Location
from tests.e2e.shop import QUERY, Shop

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

RIGHT, SWAPPED = "tests.e2e.extremes:app", "tests.e2e.extremes:swapped"


def test_trap_the_schema_check_ignores_column_names(shop: Shop) -> None:
    """Spark goes on with each aggregate's state in the other; we refuse before the first batch."""
    shop.sell(date(1997, 1, 1), date(1997, 1, 6))
    shop.run(RIGHT, save=True)
    shop.sell(date(1997, 1, 6), date(1997, 1, 8))
    savepoints.rollback(shop.store, "latest", query=QUERY, settings=shop.settings)
    generation = shop.store.generations.current(QUERY)
    checkpoint = Location.of(generation.checkpoint)
    before = [info.path for info in checkpoint.list()]

    with pytest.raises(LayoutChangedError, match=r"value field 0 was 'min long' and is 'max long'"):
        shop.run(SWAPPED)

    assert [info.path for info in checkpoint.list()] == before, "no batch was run"
    assert not shop.store.root.list("scratch"), "nothing is left of the comparison"
    assert shop.run(RIGHT).batches == 1
