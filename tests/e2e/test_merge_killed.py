"""A merge that is killed anywhere is done by the same command again, or taken back."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from savepoints.operations import unfinished
from savepoints.store.locks import journal
from savepoints.store.tables.merge_ledger import Ledger
from tests import draw
from tests.e2e.late_shop import day, differing, ids, late_orders, merge, written
from tests.e2e.shop import QUERY, Shop

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1800)]

# Before its journal begins, and in it.
BEFORE = ("merge.replayed", "merge.compared", "merge.paused", "merge.followed")
STEPS = (
    "merge.begun",
    "merge.safety_savepoint",
    "merge.checkpoint_written",
    "merge.corrected_totals",
    "merge.outputs_corrected",
    "merge.generation_begun",
    "merge.archived",
    "merge.in_ledger",
    "merge.settled",
    "merge.finished",
)
BEGUN = STEPS.index("merge.generation_begun")
HELD = late_orders(0, 3)


@pytest.fixture
def stopped(local_shop: Shop) -> Shop:
    """Give a shop with late orders, whose query does not run."""
    local_shop.sell(day(0), day(4), without=ids(HELD))
    local_shop.run()
    return local_shop


def kill(shop: Shop, point: str) -> None:
    file = written(shop, HELD)
    done = shop.command("merge", QUERY, "--batch", str(file), "--yes", crash_at=point)
    assert done.returncode == -signal.SIGKILL, done.stderr
    # The ledger never claims what is not in the outputs.
    claimed = bool(Ledger(shop.store.root).all())
    assert not claimed or differing(shop, day(4)) == 0


@draw.taking_turns("killed merge", "killed rollback")
@pytest.mark.parametrize(
    "point",
    [
        name if name == "merge.corrected_totals" else pytest.param(name, marks=pytest.mark.nightly)
        for name in (*BEFORE, *STEPS)
    ],
)
def test_killed_and_run_again_it_is_done(stopped: Shop, point: str) -> None:
    shop = stopped
    kill(shop, point)

    merge(shop, shop.directory / "late.parquet")

    assert journal.unfinished(shop.store.root, QUERY) is None
    assert differing(shop, day(4)) == 0
    assert len(Ledger(shop.store.root).all()) == 1
    if point in STEPS:
        assert not shop.store.root.list("scratch")
    shop.sell(day(4), day(5))
    shop.run()
    assert differing(shop, day(5)) == 0


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["merge.followed", "merge.begun", "merge.outputs_corrected"])
def test_killed_on_s3_it_is_done_without_the_disk_that_it_worked_on(
    shop: Shop, point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.sell(day(0), day(4), without=ids(HELD))
    shop.run()
    # Of its own: what others work on at the same time is not to go with it.
    disk = tmp_path / "disk"
    disk.mkdir()
    with monkeypatch.context() as patch:
        patch.setenv("TMPDIR", str(disk))
        kill(shop, point)
    worked_on = list(disk.glob("savepoints-op-*/*"))
    shutil.rmtree(disk)

    merge(shop, shop.directory / "late.parquet")

    assert worked_on
    assert differing(shop, day(4)) == 0
    assert len(Ledger(shop.store.root).all()) == 1
    assert not shop.store.root.list("scratch") or point in BEFORE


@pytest.mark.nightly
def test_killed_run_again_and_once_more_all_is_known(stopped: Shop) -> None:
    shop = stopped
    kill(shop, "merge.in_ledger")
    merge(shop, shop.directory / "late.parquet")

    assert merge(shop, shop.directory / "late.parquet")["checkpoint"] is None


@pytest.mark.nightly
@pytest.mark.parametrize("point", STEPS[:BEGUN])
def test_killed_and_taken_back_it_is_as_before(stopped: Shop, point: str) -> None:
    shop = stopped
    kill(shop, point)
    operation = journal.unfinished(shop.store.root, QUERY)
    assert operation is not None

    unfinished.undo(shop.store, operation.id)

    assert differing(shop, day(4), without=ids(HELD)) == 0
    assert Ledger(shop.store.root).all() == []
    shop.sell(day(4), day(5))
    shop.run()
    assert differing(shop, day(5), without=ids(HELD)) == 0
