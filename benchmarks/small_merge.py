"""`small-merge`: ten late orders merged into a running query of some 4,000, on the local S3 server.

Everything here is constant cost. What counts is what a person waits: from the command to the
prompt, and in a process that has Spark already. The peer is what there would be without merges, a
run of all orders from a cold process. In the end the table is compared with the orders themselves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from benchmarks import state
from benchmarks.result import Result, Sample, seconds, timed
from savepoints.checkpoint.cut import committed_batches
from savepoints.config.settings import QuerySettings, Settings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.outputs.delta.batch_version import open_table
from spark_jobs.orders import late
from spark_jobs.orders.cdnow import Order, orders_between, read_orders
from spark_jobs.orders.producer import produce

QUERY, BUCKET = "order_totals", "small-merge"
ORDERS, LATE, LAST = 4_000, 10, 200
_DEADLINE_SECONDS = 300
_FILE = "savepoints.toml"


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Run the query once, cold, then merge into it, from the command line and from one process.

    Args:
        directory: Where settings and late batches lie.
        keys: Most orders.
        rounds: Merges from a warm process that count; two before them do not.
    """
    known = orders_between(read_orders(), from_date=date(1997, 1, 1), until_date=date(1998, 7, 1))
    orders = known[: min(keys, ORDERS)]
    with LocalWorld.start() as world:
        os.environ.update(world.environment)
        world.create_bucket(BUCKET)
        settings = _settings(world)
        state.write(settings, directory / _FILE)
        return _Story(directory, settings, _Split.of(orders, rounds + 3)).run()


def _settings(world: LocalWorld) -> Settings:
    root, known = f"s3://{BUCKET}", state.settings()
    conf = {**known.spark.conf, "spark.sql.shuffle.partitions": str(state.PARTITIONS)}
    query = QuerySettings(
        app="spark_jobs.order_totals:app",
        checkpoints=f"{root}/live",
        outputs={"totals": f"{root}/totals"},
        archives={"orders": f"{root}/archive"},
    )
    return known.model_copy(
        update={
            "store": f"{root}/store",
            "spark": known.spark.model_copy(update={"conf": conf}),
            "kafka": known.kafka.model_copy(update={"bootstrap_servers": world.bootstrap_servers}),
            "queries": {QUERY: query},
        }
    )


@dataclass(frozen=True)
class _Split:
    """Orders in time, and late batches of ten orders of ten customers each."""

    in_time: list[Order]
    batches: list[list[Order]]

    @classmethod
    def of(cls, orders: tuple[Order, ...], batches: int) -> _Split:
        firsts = {one.customer_id: one for one in reversed(orders[: len(orders) // 2])}
        held = list(firsts.values())[: LATE * batches]
        ids = {one.order_id for one in held}
        return cls(
            [one for one in orders if one.order_id not in ids],
            [held[begin : begin + LATE] for begin in range(0, len(held), LATE)],
        )


@dataclass
class _Story:
    """One run of everything."""

    directory: Path
    settings: Settings
    split: _Split
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def run(self) -> Result:
        self._produce(self.split.in_time[:-LAST])
        self._sample("a cold run of all orders", self._command("run", QUERY, "--until", "latest"))
        self._produce(self.split.in_time[-LAST:])
        first, *others = [self._written(number) for number in range(len(self.split.batches))]
        with self._running():
            words = ("merge", QUERY, "--batch", first, "--yes")
            self._sample("merge, from command to prompt", self._command(*words))
            for number, batch in enumerate(others):
                self._merge(batch, counts=number > 1)
        self._compare()
        replay, ours, warm = (seconds(one) for one in list(self.samples.values())[:3])
        notes = (f"from a warm process: {replay / warm:.2f} merges in the time of the run",)
        return Result(self.samples, replay / ours, notes)

    def _merge(self, batch: str, *, counts: bool) -> None:
        begun = time.monotonic()
        store = Store.at(self.settings.store, settings=self.settings)
        merged = store.query(QUERY).merge(batch).execute()
        took = time.monotonic() - begun
        assert merged.pause_seconds is not None
        if counts:
            self._sample("merge, in a warm process", took)
            self._sample("the pause of the query", merged.pause_seconds)

    def _command(self, *words: str) -> float:
        took, _ = timed(self._words(*words))
        return took

    def _words(self, *words: str) -> list[str]:
        config = ("--config", str(self.directory / _FILE))
        return ["-m", "savepoints", *words, "--progress", "plain", *config]

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Run the query in a process of its own, which has read all orders."""
        with (self.directory / "run.log").open("w") as said:
            child = subprocess.Popen(
                [sys.executable, *self._words("run", QUERY)], stdout=said, stderr=said
            )
            try:
                end = time.monotonic() + _DEADLINE_SECONDS
                while self._newest_batch() < 1:
                    if child.poll() is not None or time.monotonic() > end:
                        raise RuntimeError((self.directory / "run.log").read_text())
                    time.sleep(0.5)
                yield
                child.send_signal(signal.SIGTERM)
                child.wait(_DEADLINE_SECONDS)
            finally:
                child.kill()

    def _newest_batch(self) -> int:
        live = Store.at(self.settings.store).generations.current(QUERY)
        return committed_batches(Location.of(live.checkpoint).list())[-1]

    def _compare(self) -> None:
        """Compare the table with the orders."""
        merged = [one for batch in self.split.batches for one in batch]
        truth = Counter(one.customer_id for one in [*self.split.in_time, *merged])
        amounts: Counter[int] = Counter()
        for one in [*self.split.in_time, *merged]:
            amounts[one.customer_id] += one.amount_cents
        rows = open_table(self.settings.queries[QUERY].outputs["totals"]).to_pyarrow_table()
        found = {
            row["customer_id"]: (row["orders"], row["amount_cents"]) for row in rows.to_pylist()
        }
        if found != {customer: (n, amounts[customer]) for customer, n in truth.items()}:
            raise RuntimeError("the table is not that of all orders")

    def _produce(self, orders: list[Order]) -> None:
        produce(
            orders, bootstrap_servers=self.settings.kafka.bootstrap_servers or "", topic="orders"
        )

    def _written(self, number: int) -> str:
        file = self.directory / f"late-{number}.parquet"
        late.write(self.split.batches[number], file)
        return str(file)

    def _sample(self, what: str, took: float) -> None:
        self.samples.setdefault(what, []).append(Sample(took, 0, 0))
