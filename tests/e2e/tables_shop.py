"""Orders in a table, and behind it silver and gold of the medallion: no Kafka, pandas as truth.

Silver has a bug: it writes amounts a thousand times too high. What a version of it without the bug
writes is known by which orders it read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from savepoints.config.settings import CompareSettings, QuerySettings, Settings
from savepoints.handle import Store
from spark_jobs.medallion import truth
from tests import spark_session

BEGIN = datetime(2026, 11, 2, tzinfo=UTC)
BUGGY, FIXED = "tests.e2e.medallion_buggy:app", "spark_jobs.medallion.silver:app"
TOO_HIGH = 1000


@dataclass
class TablesShop:
    """A table of orders, silver and gold.

    Attributes:
        orders: All that came so far, in the order in which they came.
    """

    directory: Path
    orders: list[dict[str, object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.directory / "store").mkdir()

    def uri(self, name: str) -> str:
        return str(self.directory / name)

    @property
    def settings(self) -> Settings:
        queries = {
            "silver": QuerySettings(
                app=BUGGY,
                checkpoints=self.uri("checkpoints"),
                outputs={"lines": self.uri("silver")},
                tables={"orders": self.uri("orders")},
            ),
            "gold": QuerySettings(
                app="spark_jobs.medallion.gold:app",
                checkpoints=self.uri("checkpoints"),
                outputs={"days": self.uri("gold")},
                tables={"lines": self.uri("silver")},
            ),
        }
        return spark_session.settings(store=self.uri("store"), queries=queries)

    @property
    def store(self) -> Store:
        return Store.at(self.uri("store"), settings=self.settings).make()

    def measuring(self, metrics: dict[str, str], **more: object) -> Store:
        """Return the store with settings that have metrics."""
        changed = {"compare": CompareSettings(metrics=metrics), **more}
        return self.store.with_settings(self.settings.model_copy(update=changed))

    def sell(self, count: int) -> int:
        """Let orders come, in one commit; return how many there were before."""
        before = len(self.orders)
        new = [
            {
                "customer_id": number % 5,
                "order_id": f"o-{number:06}",
                "ordered_at": BEGIN + timedelta(hours=5 * number),
                "quantity": 1 + number % 3,
                "amount_cents": 1900 + 37 * (number * number % 101),
            }
            for number in range(before, before + count)
        ]
        self.orders += new
        columns: list[pa.Field[Any]] = [
            pa.field("customer_id", pa.int64()),
            pa.field("order_id", pa.string()),
            pa.field("ordered_at", pa.timestamp("us", "UTC")),
            pa.field("quantity", pa.int32()),
            pa.field("amount_cents", pa.int64()),
        ]
        rows = pa.Table.from_pylist(new, pa.schema(columns))
        write_deltalake(self.uri("orders"), rows, mode="append")
        version = DeltaTable(self.uri("orders")).version()
        log = self.directory / "orders" / "_delta_log" / f"{version:020}.json"
        os.utime(log, (self.committed(version).timestamp(),) * 2)
        return before

    def committed(self, version: int) -> datetime:
        """Return when orders came, as the times of their table's log say."""
        return BEGIN + timedelta(minutes=version)

    def run(self, *queries: str) -> None:
        """Run queries, one after the other, each until it has caught up."""
        for query in queries or ("silver", "gold"):
            self.store.query(query).run(until="latest", forms=("native",), final_savepoint=False)

    def truth(
        self, *, count: int | None = None, fixed: Sequence[int] = ()
    ) -> dict[str, pd.DataFrame]:
        """Compute what silver and gold must hold.

        Args:
            count: Of the first so many orders; None for all.
            fixed: Numbers of the orders that the version without the bug has read.
        """
        lines = pd.DataFrame(self.orders[:count])
        mine = lines.groupby("customer_id")["amount_cents"]
        lines = lines.assign(number=mine.cumcount() + 1, total_cents=mine.cumsum())
        tier = pd.cut(
            lines["total_cents"],
            bins=[0, 10_000, 50_000, float("inf")],
            right=False,
            labels=["bronze", "silver", "gold"],
        )
        wrong = ~lines.index.isin(list(fixed))
        lines = lines.assign(tier=tier.astype(str), day=lines["ordered_at"].dt.floor("1D"))
        lines.loc[wrong, "amount_cents"] *= TOO_HIGH
        days = lines.groupby(["day", "tier"], as_index=False).agg(
            orders=("order_id", "size"), amount_cents=("amount_cents", "sum")
        )
        return {"silver": lines[list(truth.SILVER)], "gold": days[list(truth.GOLD)]}

    def differing(
        self, wanted: dict[str, pd.DataFrame], tables: dict[str, str] | None = None
    ) -> dict[str, int]:
        """Count the rows of each level that are not as pandas has them.

        Args:
            tables: By level its table; None for the live ones.
        """
        there = tables or {level: self.uri(level) for level in wanted}
        return {level: truth.differing(level, there[level], wanted[level]) for level in wanted}


RIGHT = {"silver": 0, "gold": 0}
