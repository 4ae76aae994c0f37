"""A fork whose program keeps other state: it begins with the savepoint's, converted."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

import pandas as pd

from savepoints.io import Location
from spark_jobs.orders.cdnow import orders_between, read_orders
from tests.e2e.marks import NIGHTLY
from tests.e2e.shop import QUERY, RIGHT, Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY

BEGIN, FORKED = date(1997, 1, 1), date(1997, 1, 5)
UNTIL, LATER = date(1997, 1, 9), date(1997, 1, 11)
OLD, NEW = "tests.e2e.extremes:app", "tests.e2e.extremes:counting"
VARIANT = "variant"
CONVERTED = ("--app", NEW, "--migrate", "--default", "count=0")


def test_a_fork_begins_with_converted_state_and_takes_over(
    spark: SparkSession, local_shop: Shop
) -> None:
    """Extremes are those of all orders, the new count is of those since the savepoint."""
    shop = running(local_shop, OLD)
    shop.sell(BEGIN, FORKED)
    shop.json("run", QUERY, "--until", "latest")
    saved = shop.store.catalog.find("latest").id
    shop.sell(FORKED, UNTIL)
    shop.json("run", QUERY, "--until", "latest")
    asked = ("fork", saved, VARIANT, *CONVERTED, "--no-source-check")

    code, planned, error = shop.call(*asked, "--dry-run")
    assert code == 0, error
    assert f"with the state converted for {NEW}" in " ".join(planned.split())
    assert "and add orders long" in " ".join(planned.split())
    assert not shop.store.generations.all(VARIANT), "planning writes nothing"
    for place in ("restore.claimed", "restore.state", "fork.files_copied"):
        assert shop.command(*asked, "--yes", crash_at=place).returncode == -9, place
    (forked,) = shop.json(*asked, "--yes")["forked"]
    assert not shop.json(*asked, "--yes")["forked"][0]["seconds"], "the same again does nothing"

    table = forked["outputs"]["totals"]
    shop.json("run", VARIANT, "--until", "latest")
    assert rows(spark, table) == expected()

    shop.json("promote", VARIANT, "--yes")
    assert rows(spark, shop.table) == expected()
    shop.sell(UNTIL, LATER)
    shop.json("run", QUERY, "--until", "latest")
    assert rows(spark, shop.table) == expected(LATER)


def running(shop: Shop, app: str) -> Shop:
    """Return a shop whose settings have another program."""
    text = shop.directory / "savepoints.toml"
    text.write_text(text.read_text().replace(RIGHT, app))
    queries = {QUERY: shop.settings.queries[QUERY].model_copy(update={"app": app})}
    return replace(shop, settings=shop.settings.model_copy(update={"queries": queries}))


def rows(spark: SparkSession, table: str) -> set[tuple[int, ...]]:
    """Return what a table has, by customer."""
    found = spark.read.format("delta").load(Location.of(table).uri.hadoop)
    named = found.select("customer_id", "smallest", "largest", "orders")
    # The rows that the savepoint's table had have no count.
    return {tuple(row) for row in named.na.fill(0).collect()}


def expected(until: date = UNTIL) -> set[tuple[int, ...]]:
    """Return each customer's extremes of all orders, and their orders since the savepoint."""
    sold = orders_between(read_orders(), from_date=BEGIN, until_date=until)
    frame = pd.DataFrame([vars(one) for one in sold])
    frame["later"] = frame["ordered_at"].dt.date >= FORKED
    found = frame.groupby("customer_id").agg(
        smallest=("amount_cents", "min"), largest=("amount_cents", "max"), orders=("later", "sum")
    )
    return {(int(key), *(map(int, row))) for key, *row in found.itertuples()}
