"""A shop whose feed was broken: late orders, how they are merged, and what must come of it."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from savepoints.checkpoint.cut import committed_batches
from savepoints.io import Location
from savepoints.jobs import archive as archive_job
from savepoints.operations.merge import merge as merging
from savepoints.operations.merge.prepare import MergeRequest, Prepared
from savepoints.outputs.delta.batch_version import open_table
from savepoints.sources.archive import table as archive_table
from savepoints.store.tables.merge_ledger import Ledger
from spark_jobs.orders import late
from spark_jobs.orders.cdnow import Order, orders_between, read_orders
from tests.e2e.shop import QUERY, Shop

BEGIN = date(1997, 1, 1)
_COLUMNS = ["customer_id", "orders", "amount_cents", "last_ordered_at"]


def day(number: int) -> date:
    return BEGIN + timedelta(days=number)


def late_orders(first: int, last: int, *, of: int = 0) -> list[Order]:
    """Return the orders of some days of every seventh customer."""
    known = orders_between(read_orders(), from_date=day(first), until_date=day(last))
    return [one for one in known if one.customer_id % 7 == of]


def ids(orders: Iterable[Order]) -> set[str]:
    return {one.order_id for one in orders}


def written(shop: Shop, orders: Iterable[Order], name: str = "late.parquet") -> Path:
    file = shop.directory / name
    late.write(orders, file)
    return file


def archive(shop: Shop) -> None:
    """Archive what has arrived, as the job does that runs beside the query."""
    config = str(shop.directory / "savepoints.toml")
    words = [QUERY, "orders", "--until", "latest", "--config", config]
    assert archive_job.main(words, io.StringIO()) == 0


@dataclass(frozen=True)
class Standing:
    """Everything that a merge changes, to be seen that one that was refused changed nothing."""

    generation: int
    generations: int
    merged: tuple[str, ...]
    table: int
    archive: int | None
    batches: tuple[int, ...]
    scratch: tuple[str, ...]

    @classmethod
    def of(cls, shop: Shop) -> Standing:
        store = shop.store
        now = store.generations.current(QUERY)
        archived = archive_table.open_if_exists(Location.of(f"{shop.root}/archive"))
        return cls(
            now.generation,
            len(store.generations.all(QUERY)),
            tuple(one.id for one in Ledger(store.root).all()),
            open_table(shop.table).version(),
            None if archived is None else archived.version(),
            tuple(committed_batches(Location.of(now.checkpoint).list())),
            tuple(one.path for one in store.root.list("scratch")),
        )


def prepared(shop: Shop, file: Path) -> Prepared:
    """Plan a merge, as `merge` does before it asks whether it shall be done."""
    found = merging.prepare(shop.store, MergeRequest(QUERY, str(file)))
    assert isinstance(found, Prepared)
    return found


def merge(shop: Shop, file: Path, *more: str) -> Any:
    """Merge in this process; it must succeed."""
    return shop.json("merge", QUERY, "--batch", str(file), "--yes", *more)["merged"]


def differing(shop: Shop, until: date, *, without: Collection[str] = ()) -> int:
    """Count the customers whose totals are not those of the orders before a day, without some."""
    orders = [
        (one.customer_id, one.amount_cents, pd.Timestamp(one.ordered_at))
        for one in orders_between(read_orders(), until_date=until)
        if one.order_id not in without
    ]
    frame = pd.DataFrame(orders, columns=["customer_id", "amount_cents", "last_ordered_at"])
    truth = frame.groupby("customer_id", as_index=False).agg(
        orders=("customer_id", "size"),
        amount_cents=("amount_cents", "sum"),
        last_ordered_at=("last_ordered_at", "max"),
    )
    found: pd.DataFrame = open_table(shop.table).to_pandas()
    truth["last_ordered_at"] = truth["last_ordered_at"].astype(found["last_ordered_at"].dtype)
    both = truth[_COLUMNS].merge(found[_COLUMNS], how="outer", indicator="where")
    return int(both.loc[both["where"] != "both", "customer_id"].nunique())
