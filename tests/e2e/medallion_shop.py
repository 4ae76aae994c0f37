"""Three queries behind one topic, and the command line that they are called with."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from savepoints.config.settings import QuerySettings, Settings
from savepoints.handle import Store
from savepoints.local import LocalWorld
from spark_jobs.medallion import truth
from spark_jobs.orders.cdnow import Order, orders_between, read_orders
from spark_jobs.orders.codec import encode_order, order_key
from spark_jobs.orders.producer import produce
from tests import spark_session
from tests.e2e.shop import called, environment, run_apart

OUTPUTS = {"bronze": "orders", "silver": "lines", "gold": "days"}
INPUTS = {"silver": ("orders", "bronze"), "gold": ("lines", "silver")}


@dataclass(frozen=True)
class MedallionShop:
    """A shop whose orders go through bronze, silver and gold, on the local file system.

    Attributes:
        topic: Of the orders.
        settings: All of it as settings; `savepoints.toml` in the directory has the same.
    """

    directory: Path
    topic: str
    settings: Settings

    @classmethod
    def open(cls, world: LocalWorld, directory: Path) -> MedallionShop:
        topic = f"medallion-{uuid.uuid4().hex[:10]}"
        (directory / "store").mkdir()
        bound = {
            level: QuerySettings(
                app=f"spark_jobs.medallion.{level}:app",
                checkpoints=str(directory / "checkpoints"),
                outputs={OUTPUTS[level]: str(directory / level)},
                topics={"orders": topic} if level == "bronze" else {},
                archives={"orders": str(directory / "archive")} if level == "bronze" else {},
                tables={name: str(directory / above) for name, above in [INPUTS[level]]}
                if level in INPUTS
                else {},
            )
            for level in truth.LEVELS
        }
        settings = spark_session.settings(
            store=str(directory / "store"),
            kafka={"bootstrap_servers": world.bootstrap_servers},
            queries=bound,
        )
        shop = cls(directory, topic, settings)
        (directory / "savepoints.toml").write_text(shop._toml(world))
        return shop

    def _toml(self, world: LocalWorld) -> str:
        conf = "".join(f'"{k}" = "{v}"\n' for k, v in self.settings.spark.conf.items())
        lines = [
            f'store = "{self.settings.store}"',
            f'[spark]\nmaster = "local[2]"\n[spark.conf]\n{conf}',
            f'[kafka]\nbootstrap_servers = "{world.bootstrap_servers}"',
        ]
        for name, one in self.settings.queries.items():
            lines.append(f'[queries.{name}]\napp = "{one.app}"\ncheckpoints = "{one.checkpoints}"')
            for table in ("outputs", "topics", "tables", "archives"):
                values: dict[str, str] = getattr(one, table)
                lines += [f"[queries.{name}.{table}]"] if values else []
                lines += [f'{key} = "{value}"' for key, value in values.items()]
        return "\n".join(lines)

    @property
    def store(self) -> Store:
        return Store.at(self.settings.store, settings=self.settings).make()

    def table(self, level: str) -> str:
        """URI of what a level writes."""
        return self.settings.queries[level].outputs[OUTPUTS[level]]

    def sell(self, begin: date, end: date, *, without: Collection[str] = ()) -> None:
        """Produce the real orders of some days, but for some by their ids."""
        known = orders_between(read_orders(), from_date=begin, until_date=end)
        self.produce([one for one in known if one.order_id not in without])

    def produce(self, orders: list[Order]) -> None:
        servers = self.settings.kafka.bootstrap_servers
        produce(orders, bootstrap_servers=servers, topic=self.topic, partitions=2)

    def write_late(
        self, late: Sequence[Order], wrong: Sequence[Order] = (), name: str = "late.parquet"
    ) -> str:
        """Write a batch of orders to add and of orders to remove; returns where."""
        rows = [
            {"key": order_key(one.customer_id), "value": encode_order(one), "op": op}
            for orders, op in ((late, "insert"), (wrong, "remove"))
            for one in orders
        ]
        columns: list[pa.Field[Any]] = [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("op", pa.string()),
        ]
        path = self.directory / name
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(columns)), path)
        return str(path)

    def run(self, *levels: str, save: bool = False) -> None:
        """Run the queries, one after the other, each until it has caught up."""
        for level in levels or truth.LEVELS:
            query = self.store.query(level)
            query.run(until="latest", forms=("native",), final_savepoint=save)

    def differing(self, until: date, *, without: Collection[str] = ()) -> dict[str, int]:
        """Count the rows of each level that are not as pandas has them."""
        wanted = truth.truth(until, without=list(without))
        return {
            level: truth.differing(level, self.table(level), wanted[level])
            for level in truth.LEVELS
        }

    def call(self, *arguments: str) -> tuple[int, str, str]:
        """Call the command line in this process."""
        return called(*arguments, "--config", str(self.directory / "savepoints.toml"))

    def command(self, *arguments: str, crash_at: str = "") -> subprocess.CompletedProcess[str]:
        """Call the command line in a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "savepoints", *arguments],
            cwd=self.directory,
            env=environment(crash_at),
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    def running(self, level: str) -> AbstractContextManager[Callable[[], None]]:
        """Run a query in a process of its own; gives what fails when that has ended."""
        return run_apart(self.directory, self.store.root, level)

    def json(self, *arguments: str) -> Any:
        """Call the command line in this process; it must succeed; returns its JSON document."""
        code, out, err = self.call(*arguments, "-o", "json")
        assert code == 0, err
        return json.loads(out)


RIGHT = dict.fromkeys(truth.LEVELS, 0)
