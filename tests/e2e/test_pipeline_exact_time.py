"""Queries that read each other's tables go back to an exact time together; pandas as truth."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.errors import SavepointNotFoundError, UsageError
from savepoints.moments import rfc3339
from tests.e2e.tables_shop import BEGIN, RIGHT, TablesShop
from tests.killed import killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]


def test_all_are_run_on_to_exactly_the_time_though_killed_on_the_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group is from before the time, and gold had not read all of silver then."""
    shop = TablesShop(tmp_path)
    shop.sell(9)
    shop.run()
    shop.sell(4)
    shop.run("silver")
    shop.store.query("silver").create_group(name="before").execute()
    shop.sell(6)
    shop.sell(8)
    shop.run()
    between = rfc3339(shop.committed(2) + timedelta(seconds=30))

    def back() -> None:
        query = shop.store.query("silver")
        query.rollback_pipeline(f"@{between}", exact=True).execute()

    for point in ("silver.advanced", "gold.advanced", "gold.generation_begun"):
        killed_at(monkeypatch, f"pipeline rollback.{point}", back)
    back()

    assert shop.differing(shop.truth(count=19)) == RIGHT
    shop.run()
    assert shop.differing(shop.truth()) == RIGHT
    with pytest.raises(UsageError, match="--exact needs a time, but 'before' is not one"):
        shop.store.query("silver").rollback_pipeline("before", exact=True)
    earliest = rfc3339(BEGIN + timedelta(seconds=30))
    with pytest.raises(SavepointNotFoundError, match="no savepoint of silver"):
        shop.store.query("silver").rollback_pipeline(f"@{earliest}", exact=True)
