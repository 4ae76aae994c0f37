"""`merge --policy`: what cannot be merged exactly is merged with less, which the plan says."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from savepoints.errors import IncompatibleError, NotFoundError
from savepoints.local import LocalWorld
from savepoints.operations.rollback import last_operation
from savepoints.store.locks import journal
from savepoints.store.tables.merge_ledger import Ledger
from tests.e2e.late_apps import WINDOW_S
from tests.e2e.late_desk import Event, LateDesk
from tests.e2e.late_shop import day, differing, ids, late_orders, merge, written
from tests.e2e.marks import NIGHTLY
from tests.e2e.shop import QUERY, Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY


def totals(desk: LateDesk, events: list[Event]) -> list[dict[str, Any]]:
    """Return the windows that are over, whenever their events came."""
    sums: Counter[int] = Counter()
    for one in events:
        sums[int(one.s // WINDOW_S) * WINDOW_S] += one.n
    over = desk.batches[-1].watermark_ms / 1000
    found = [
        {"start_ms": start * 1000, "total": total}
        for start, total in sums.items()
        if start + WINDOW_S <= over
    ]
    return sorted(found, key=str)


def test_what_is_nobodys_is_replayed_as_a_whole(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """What live had dropped as late counts then, and so do events after the merge."""
    desk = LateDesk.open(world, spark, tmp_path, "nobodys")
    desk.arrive([Event("1", "a", 1, 3), Event("2", "b", 2, 15), Event("3", "a", 4, 31)])
    desk.archive()
    dropped = Event("dropped", "b", 8, 4)
    desk.arrive([dropped, Event("4", "b", 16, 52)])
    arrived = [one for chunk in desk.chunks for one in chunk]
    assert desk.desk.rows() == totals(desk, [one for one in arrived if one is not dropped])
    late = [Event("late-1", "a", 32, 5), Event("late-2", "c", 64, 49)]
    batch = desk.write(late)
    with pytest.raises(IncompatibleError, match="has no column 'k'") as refused:
        desk.prepare(batch)
    assert "--policy replay-all" in refused.value.hint

    prepared = desk.prepare(batch, policy="replay-all")
    done = desk.merge(prepared)

    assert prepared.plan.events == len(arrived) + len(late)
    assert "in order of event time" in prepared.plan.warnings[0]
    assert (done.policy, done.way, done.rows) == ("replay-all", None, 2)
    assert desk.desk.rows() == totals(desk, [*arrived, *late])
    desk.arrive([Event("5", "a", 128, 48), Event("6", "b", 256, 80)])
    assert desk.desk.rows() == totals(desk, [*late, *(e for c in desk.chunks for e in c)])
    (noted,) = Ledger(desk.desk.store.root).all()
    assert (noted.policy, noted.way, noted.controls) == ("replay-all", None, 0)


def test_appended_events_are_in_the_topic_once_though_it_was_killed(local_shop: Shop) -> None:
    """First a part of the batch; the sums of this program do not depend on when orders come."""
    shop, held = local_shop, late_orders(0, 3)
    shop.sell(day(0), day(4), without=ids(held))
    shop.run()
    file = str(written(shop, held))
    words = ("merge", QUERY, "--batch", file, "--policy", "append", "--yes")
    early = [one for one in held if one.ordered_at.date() < day(1)]
    part = shop.json(*words, "--until", f"{day(1)}T00:00:00Z")["merged"]
    assert (part["rows"], part["known"]) == (len(early), 0)
    killed = shop.command(*words, crash_at="append.produced")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(Ledger(shop.store.root).all()) == 1

    done = shop.json(*words)["merged"]

    assert (done["policy"], done["checkpoint"]) == ("append", None)
    assert (done["rows"], done["known"]) == (len(held) - len(early), len(early))
    assert journal.unfinished(shop.store.root, QUERY) is None
    assert shop.run().input_rows == len(held)
    assert differing(shop, day(4)) == 0
    assert shop.json(*words)["merged"]["rows"] == 0, "all are known"
    assert [one.policy for one in Ledger(shop.store.root).all()] == ["append", "append"]
    with pytest.raises(NotFoundError, match=r"was op-.* \(append\)"):
        last_operation.require(shop.store, QUERY, "merge")
    # And an exact merge goes on from there.
    assert merge(shop, Path(file))["rows"] == 0
