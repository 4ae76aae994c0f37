"""The runner as a process: periodic savepoints, signals, one runner a query."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.local import LocalWorld
from savepoints.outputs.delta.batch_version import open_table
from spark_jobs.orders.cdnow import Order, orders_between, read_orders
from spark_jobs.orders.producer import produce
from tests import draw
from tests.e2e.desk import Desk
from tests.e2e.shop import QUERY, Shop, environment
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]


@pytest.mark.nightly
def test_trap_sigterm_to_the_whole_group_ends_a_run_without_a_savepoint(local_shop: Shop) -> None:
    """Periodic savepoints appear while it runs; a second runner and a rollback are refused.

    systemd and `timeout` signal the JVM, too, which ended before Python had saved the last batch.
    """
    shop, until = local_shop, date(1997, 1, 10)
    shop.sell(date(1997, 1, 1), until)
    runner = subprocess.Popen(
        [sys.executable, "-m", "savepoints", "run", QUERY, "--every", "2s", "--format", "native"],
        cwd=shop.directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(
            lambda: runner.poll() is not None or bool(shop.store.catalog.all()),
            "a periodic savepoint appears",
        )
        assert runner.poll() is None, runner.communicate()
        for words in (("run", QUERY), ("rollback", "latest", "--yes")):
            code, _, said = shop.call(*words)
            assert code == 12
            assert f"kill -TERM {runner.pid}" in said
        shop.sell(until, until + timedelta(days=1))  # So that a batch may be about to begin.
        os.killpg(runner.pid, signal.SIGTERM)
        out, err = runner.communicate(timeout=100)
    finally:
        runner.kill()
    assert runner.returncode == 0, err
    assert "Traceback" not in err
    assert "stopped by a signal" in out
    assert shop.store.catalog.all()[0].id in out
    shop.run(save=False)
    assert shop.compare(until + timedelta(days=1)).exact


@draw.taking_turns("killed run", "bounded run")
def test_a_killed_run_goes_on_and_writes_every_batch_once(
    spark: SparkSession, local_shop: Shop
) -> None:
    """kill -9 in the middle; the next run takes the dead process's lease at once."""
    shop, until = local_shop, date(1997, 1, 10)
    shop.sell(date(1997, 1, 1), until)
    runner = subprocess.Popen(
        [sys.executable, "-m", "savepoints", "run", QUERY],
        cwd=shop.directory,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    checkpoint = shop.store.root.of(f"{shop.root}/checkpoints/{QUERY}/1")
    wait_until(lambda: checkpoint.exists("offsets/0"), "the first batch has begun")
    runner.kill()
    assert "no periodic savepoints: to take them, add --every 10m" in runner.communicate()[1]
    assert shop.json("run", QUERY, "--until", "latest")["run"]["ended"] == "caught_up"
    assert shop.compare(until).exact


@pytest.mark.nightly
def test_trap_a_table_that_forgets_ids_takes_a_batch_again(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    """By its transaction id alone Delta does not know that it has the rows."""
    desk = Desk.open(world, tmp_path, "spark_jobs.medallion.bronze:app")
    orders = orders_between(read_orders(), until_date=date(1997, 1, 4))

    def sell(some: Sequence[Order]) -> None:
        servers = desk.settings.kafka.bootstrap_servers
        produce(some, bootstrap_servers=servers or "", topic=desk.topics["orders"])

    sell(orders[:20])
    desk.run(until="latest")
    open_table(str(tmp_path / "orders")).alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
    )
    sell(orders[20:])
    words = ("run", desk.query, "--until", "latest", "--config", str(desk.write_settings()))
    killed = subprocess.run(
        [sys.executable, "-m", "savepoints", *words],
        env={**environment("run.outputs_written"), "SAVEPOINTS_JARS": str(desk.settings.jars)},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -9, killed.stderr
    desk.run(until="latest")

    written = [row["order_id"] for row in desk.rows("orders")]
    assert sorted(written) == sorted(one.order_id for one in orders)
