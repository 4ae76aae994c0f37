"""Late events from before a fork took over: its program replays them, and the controls judge it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from savepoints.errors import CheckFailedError, IncompatibleError, UsageError
from savepoints.local import LocalWorld
from savepoints.outputs.delta.batch_version import open_table
from savepoints.runtime.app import App
from savepoints.store.tables.merge_ledger import MergePolicy
from tests.e2e import late_apps
from tests.e2e.late_desk import Event, LateDesk
from tests.e2e.marks import NIGHTLY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

pytestmark = NIGHTLY

BEFORE = (Event("1", "a", 1, 3), Event("2", "b", 2, 4), Event("3", "c", 4, 5))
OF_BOTH = (Event("4", "a", 8, 13), Event("5", "b", 16, 14), Event("6", "d", 32, 15))
AFTER = (Event("7", "a", 64, 23), Event("8", "c", 128, 24))
LATE = (Event("late", "a", 1000, 3.5), Event("late, of nobody", "e", 2000, 1))


def doubled(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Count each event twice."""
    events = inputs["events"]
    return late_apps.totals({"events": events.withColumn("n", events["n"] * 2)})


changed = App("running", {"events": late_apps.read()}, doubled, late_apps.running.outputs)


def totals(events: Sequence[Event]) -> list[dict[str, Any]]:
    count: Counter[str] = Counter(one.k for one in events)
    total: Counter[str] = Counter()
    for one in events:
        total[one.k] += one.n
    return [
        {"k": k, "count": n, "total": total[k], "newest": max(e.s for e in events if e.k == k)}
        for k, n in sorted(count.items())
    ]


def promoted(desk: LateDesk, app: str | None = None) -> None:
    """Let a fork take over after a few events that both have read."""
    store, query = desk.desk.store, desk.desk.query
    desk.arrive(BEFORE)
    store.savepoint("latest").fork("second", app=app).execute()
    desk.arrive(OF_BOTH)
    store.query("second").promote().execute()
    desk.archive()
    desk.arrive(AFTER)
    assert store.generations.current(query).begun_by == "promote"


@pytest.fixture
def desk(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession, tmp_path: Path
) -> LateDesk:
    return LateDesk.open(world, spark, tmp_path, "running")


@pytest.mark.parametrize("policy", ["exact", "replay-all"])
def test_trap_after_a_promotion_no_older_late_event_could_be_merged(
    desk: LateDesk, policy: MergePolicy
) -> None:
    promoted(desk)
    batch = desk.write(LATE)
    query = desk.desk.store.query(desk.desk.query)
    with pytest.raises(IncompatibleError, match="generation 2 was begun by promote") as refused:
        query.merge(batch, policy=policy)
    assert "--across-promotions" in refused.value.hint

    merge = query.merge(batch, policy=policy, across_promotions=True)
    merge.execute()

    assert "generation 2 was begun by promote" in " ".join(merge.plan.warnings)
    assert "--across-promotions" in merge.plan.command
    desk.arrive([Event("9", "e", 256, 33)])
    assert desk.desk.rows() == totals([*BEFORE, *OF_BOTH, *AFTER, *LATE, Event("9", "e", 256, 33)])


def test_a_fork_takes_late_events_from_before_it_began(desk: LateDesk) -> None:
    desk.arrive(BEFORE)
    store = desk.desk.store
    store.savepoint("latest").fork("second").execute()
    desk.arrive(OF_BOTH)
    fork = store.query("second")
    fork.run(until="latest")

    fork.merge(desk.write(LATE), across_promotions=True).execute()

    rows = open_table(fork.locate().outputs["out"]).to_pyarrow_table().to_pylist()
    assert sorted(rows, key=str) == totals([*BEFORE, *OF_BOTH, *LATE])
    assert desk.desk.rows() == totals([*BEFORE, *OF_BOTH])


def test_a_program_that_gives_something_else_is_refused_by_its_controls(desk: LateDesk) -> None:
    promoted(desk, f"{__name__}:changed")
    batch = desk.write(LATE)
    query = desk.desk.store.query(desk.desk.query)
    before = desk.desk.rows()

    with pytest.raises(CheckFailedError, match="The program may have changed"):
        query.merge(batch, across_promotions=True).execute()

    assert desk.desk.rows() == before
    newer = desk.write([Event("late, but newer", "a", 4000, 23.5)], "newer.parquet")
    merge = query.merge(newer, across_promotions=True)
    assert not any("promote" in one for one in merge.plan.warnings)
    merge.execute()
    total = {row["k"]: row["total"] for row in before} | {"a": before[0]["total"] + 2 * 4000}
    assert {row["k"]: row["total"] for row in desk.desk.rows()} == total
    for policy in ("append", "merge-function"):
        with pytest.raises(UsageError, match=f"cannot be combined with --policy {policy}"):
            query.merge(batch, policy=policy, across_promotions=True)
