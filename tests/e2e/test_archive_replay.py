"""Verbs that read the archive where Kafka has forgotten, against pandas over all orders."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.checkpoint.logs.kafka_position import lowest_offsets
from savepoints.errors import SourceDataGoneError
from savepoints.jobs import archive as archive_job
from savepoints.local import LocalWorld
from savepoints.model import Savepoint
from savepoints.operations.inspect import availability as inspect_availability
from savepoints.operations.inspect import drill
from savepoints.runtime.runner import Ran
from savepoints.sources.archive import archive
from savepoints.sources.combined import availability as combined_availability
from savepoints.sources.events.events import Decoding, events
from savepoints.store.tables.merge_ledger import Ledger
from spark_jobs import order_totals
from spark_jobs.orders.cdnow import Order
from spark_jobs.orders.comparison import compare
from tests.e2e.late_shop import day, differing, ids, late_orders, written
from tests.e2e.shop import QUERY, Shop, called
from tests.sources.broker import Broker
from tests.sources.json_input import add_late
from tests.spark_session import wait_until
from tests.store.tables.test_merge_ledger import merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.nightly, pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka]


def archive_all(shop: Shop) -> None:
    """Bring the archive up to date."""
    words = [QUERY, "orders", "--until", "latest"]
    file = str(shop.directory / "savepoints.toml")
    assert archive_job.main([*words, "--config", file], io.StringIO()) == 0


def has(shop: Shop) -> dict[int, tuple[int, int]]:
    """Return from where to where Kafka has each partition."""
    found = combined_availability.ranges([shop.topic], shop.settings.kafka)[shop.topic]
    return {part: (one.earliest, one.end) for part, one in found.items()}


def forget(world: LocalWorld, shop: Shop, *, keep: int) -> dict[int, int]:
    """Remove all but some of the records of each partition, as retention does; say up to where."""
    broker = Broker.of(world)
    before = {part: end - keep for part, (_, end) in has(shop).items()}
    for part, offset in before.items():
        broker.forget(shop.topic, part, offset)
    return before


def read_by(savepoint: Savepoint, shop: Shop) -> dict[int, int]:
    return lowest_offsets(savepoint.cut.offsets)[shop.topic]


def exact(shop: Shop, orders: int, days: int, table: str | None = None) -> bool:
    """Say whether a table is what pandas makes of the orders before a day, row for row."""
    found = compare(table or shop.table, day(days))
    assert found.orders_true == orders
    return found.exact


def run_until(shop: Shop, condition: Callable[[], bool]) -> Ran:
    """Run the query without an end, and stop it by a signal when a condition holds."""

    def stop() -> None:
        try:
            wait_until(condition, "it has read everything")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    ran, _ = shop.store.query(QUERY).run(final_savepoint=False)
    thread.join()
    assert condition()
    return ran


def lacking(before: Mapping[int, int], position: Mapping[int, int]) -> int:
    return sum(before[part] - offset for part, offset in position.items())


def test_what_kafka_forgot_is_read_from_the_archive(world: LocalWorld, local_shop: Shop) -> None:
    """Drill, fork and rollback of a savepoint whose offsets Kafka no longer has."""
    shop = local_shop
    sold = shop.sell(day(0), day(3))
    shop.run()
    (first,) = shop.store.catalog.all()
    sold += shop.sell(day(3), day(6))
    shop.run(save=False)
    archive_all(shop)
    before = forget(world, shop, keep=10)
    sold += shop.sell(day(6), day(8))  # These are in Kafka alone.
    lost = lacking(before, read_by(first, shop))
    assert lost > 0

    without = inspect_availability.check_savepoint(first, shop.settings.kafka)
    assert without.restorable == "no"
    (listed,) = shop.json("list", "--check-sources")["availability"]
    assert listed["restorable"] == "yes"
    shown = shop.json("show", first.id)["availability"]
    assert f"only in the archive: {lost}" in shown["reason"]
    assert sum(one["archived"] for one in shown["partitions"]) == lost

    drilled = drill.drill(shop.store, first.id)
    assert (drilled.verdict, drilled.differences) == ("same", ())
    assert drilled.live_batch is not None
    assert drilled.live_batch > drilled.batch_id

    said = f"Kafka no longer has {lost}"
    forked = shop.json("fork", first.id, "variant", "--dry-run")["plan"]
    assert any(said in note for note in forked["warnings"])
    (done,) = shop.json("fork", first.id, "variant", "--yes")["forked"]
    shop.json("run", "variant", "--until", "latest", "--no-final-savepoint")
    assert exact(shop, sold, 8, done["outputs"]["totals"])

    rolled = shop.json("rollback", first.id, "--dry-run")["plan"]
    assert any(said in note for note in rolled["warnings"])
    assert shop.json("rollback", first.id, "--yes")["rolled_back"]["generation"] == 2
    # Without an end: the archive first, then Spark goes on by itself.
    ran = run_until(shop, lambda: exact(shop, sold, 8))
    assert ran.input_rows == sold - sum(read_by(first, shop).values())


def test_killed_at_the_seam_nothing_is_lost_or_doubled(world: LocalWorld, local_shop: Shop) -> None:
    """A reset to the first record of all; the batch with both sides of the seam dies written."""
    shop = local_shop
    sold = shop.sell(day(0), day(4))
    shop.run()
    archive_all(shop)
    before = forget(world, shop, keep=10)
    sold += shop.sell(day(4), day(6))
    ends = {part: end for part, (_, end) in has(shop).items()}

    words = ("reset", QUERY, "--to-earliest", "--outputs", "truncate")
    plan = shop.json(*words, "--dry-run")["plan"]
    assert [(one["earliest"], one["to"]) for one in plan["moves"]] == [(0, 0)] * len(before)
    assert {one["partition"]: one["from_archive"] for one in plan["moves"]} == before
    assert any(f"of the next {sold} records" in one for one in plan["warnings"])
    shop.json(*words, "--yes")
    shop.json("run", QUERY, "--max-records", str(sum(before.values()) - 20), "--no-final-savepoint")
    run = ("run", QUERY, "--until", "latest", "--no-final-savepoint")
    killed = shop.command(*run, crash_at="run.outputs_written")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert exact(shop, sold, 6), "the outputs have it, and the checkpoint does not"

    ran = shop.json(*run)["run"]

    assert exact(shop, sold, 6)
    assert ran["offsets"][shop.topic] == {str(part): end for part, end in ends.items()}
    sold += shop.sell(day(6), day(7))
    shop.run(save=False)
    assert exact(shop, sold, 7), "the state is right, too"

    # What lies between the archive and Kafka is in neither, and nothing begins before it.
    beyond = forget(world, shop, keep=1)
    code, _, said = called(*words, "--config", str(shop.directory / "savepoints.toml"))
    assert code == SourceDataGoneError.exit_code
    part = max(beyond, key=lambda one: beyond[one] - before[one])
    archived = archive.end(f"{shop.root}/archive")[shop.topic][part]
    hole = f"{archived} to {beyond[part]} are in neither"
    assert hole in " ".join(said.split())


def put_merged(spark: SparkSession, shop: Shop, held: Collection[Order]) -> None:
    """Leave archive and ledger as a merge of some orders into the first generation does."""
    uri, one = f"{shop.root}/archive", order_totals.app.inputs["orders"]
    records = spark.read.parquet(str(written(shop, held))).selectExpr(
        "key",
        "value",
        f"'{shop.topic}' as topic",
        "-1 as partition",
        "monotonically_increasing_id() as offset",
        "timestamp",
        "0 as timestampType",
        "cast(null as array<struct<key: string, value: binary>>) as headers",
    )
    decoding = Decoding(one.decode, one.entity_key, one.event_time, one.event_id)
    add_late(spark, uri, events(records, decoding), "op-merged")
    at = archive.end(uri)
    rows = len(held)
    Ledger(shop.store.root).add(
        merge(1, QUERY, id="op-merged", input="orders", offsets=at, rows=rows, descent=())
    )


def test_trap_a_reset_forgets_what_was_merged(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    """Late orders were merged; read from the first record on, they are there once, not twice."""
    shop = Shop.open(world, tmp_path, max_offsets=300, on_s3=False)
    held = late_orders(0, 3)
    shop.sell(day(0), day(4), without=ids(held))
    shop.run(save=False)
    archive_all(shop)
    put_merged(spark, shop, held)
    forget(world, shop, keep=10)
    shop.sell(day(4), day(5))

    words = ("reset", QUERY, "--to-earliest", "--outputs", "truncate")
    told = shop.json(*words, "--dry-run")["plan"]["warnings"]
    assert any(f"{len(held):,} events from 1 merge (op-merged)" in one for one in told)
    shop.json(*words, "--yes")
    ran = shop.run(save=False)

    assert ran.batches > 3
    assert differing(shop, day(5)) == 0
    assert differing(shop, day(5), without=ids(held)) > 0
