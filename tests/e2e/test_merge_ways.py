"""`merge` batch by batch, where a replay in few slices cannot give what the query would have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from savepoints.errors import IncompatibleError
from savepoints.local import LocalWorld
from savepoints.store.tables.merge_ledger import Ledger
from tests.e2e.desk import PARTITIONS
from tests.e2e.late_apps import LATENESS_S, WINDOW_S
from tests.e2e.late_desk import Event, LateDesk
from tests.e2e.marks import NIGHTLY
from tests.sources.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY

SECONDS = 20
# One of them is as late as can be, and dropped: it arrives after its window was written.
DROPPED = Event("dropped", "a", 1000, 3)
LATE = (
    Event("late-1", "a", 1, 24),
    Event("late-2", "b", 2, 38),
    # The archive has the third and the fourth batch as one; by itself this is of the fourth.
    Event("late-3", "a", 4, 68),
    Event("late-4", "new", 8, 45),
)


def chunk(number: int) -> list[Event]:
    """Return what comes in a batch: not everybody has an event in each."""
    keys = [("a", "b", "c", "d"), ("b", "c"), ("a", "d"), ("c", "b", "d"), ("a", "c")][number % 5]
    begin = number * SECONDS
    found = [Event(f"{number}-{k}", k, 10 + at, begin + 4 * at) for at, k in enumerate(keys)]
    return [*found, Event(f"{number}-last", "last", 1, begin + SECONDS - 1)]


def model_of_ticks(desk: LateDesk, late: Sequence[Event]) -> list[dict[str, Any]]:
    counts: Counter[str] = Counter()
    rows = []
    for events in desk.by_batch(late):
        mine = Counter(one.k for one in events)
        rows += [{"k": k, "count": n} for k, n in counts.items() if k not in mine]
        counts = Counter({k: n + counts[k] for k, n in mine.items()})
    return rows


def model_of_windows(desk: LateDesk, late: Sequence[Event]) -> list[dict[str, Any]]:
    totals: Counter[tuple[int, str]] = Counter()
    watermarks = [0, *(one.watermark_ms / 1000 for one in desk.batches)]
    for before, events in zip(watermarks, desk.by_batch(late), strict=False):
        for one in events:
            start = int(one.s // WINDOW_S) * WINDOW_S
            if start + WINDOW_S > before:
                totals[start, one.k] += one.n
    newest = max(one.s for events in desk.by_batch(late) for one in events)
    assert watermarks[-1] == newest - LATENESS_S, "the last batch has written what was over"
    return [
        {"start_ms": start * 1000, "k": k, "total": total}
        for (start, k), total in totals.items()
        if start + WINDOW_S <= watermarks[-1]
    ]


def in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=str)


@pytest.fixture
def begun(
    world: LocalWorld,
    world_environment: dict[str, str],
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> LateDesk:
    """Give a query that has run, from some of whose events there is an archive."""
    desk = LateDesk.open(world, spark, tmp_path, request.param)
    for number in range(5):
        more = [DROPPED] if number == 2 and request.param == "windowed" else []
        desk.arrive([*chunk(number), *more])
        if number in (0, 3):
            desk.archive()
    return desk


@pytest.mark.parametrize("begun", ["ticking"], indirect=True)
def test_trap_timers_that_go_by_the_clock_are_replayed_batch_by_batch(begun: LateDesk) -> None:
    """In few slices the controls differ, which nothing says before."""
    desk = begun
    assert in_order(desk.desk.rows()) == in_order(model_of_ticks(desk, []))
    prepared = desk.prepare(desk.write(LATE))
    assert (prepared.plan.way, prepared.plan.bases[0].savepoint_id is not None) == ("short", True)

    done = desk.merge(prepared)

    assert (done.way, done.rows) == ("faithful", len(LATE))
    assert in_order(desk.desk.rows()) == in_order(model_of_ticks(desk, LATE))
    assert [one.way for one in Ledger(desk.desk.store.root).all()] == ["faithful"]
    desk.arrive(chunk(5))
    assert in_order(desk.desk.rows()) == in_order(model_of_ticks(desk, LATE))


def test_trap_batch_by_batch_no_records_are_needed_from_before_the_query_began(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """Kafka removed them, as in every topic with a retention, and nothing is archived."""
    desk = LateDesk.open(world, spark, tmp_path, "windowed")
    desk.produce([Event("gone", "a", 1, 999), Event("gone, too", "b", 2, 999)])
    for partition in range(PARTITIONS):
        Broker.of(world).forget(desk.desk.topics["events"], partition, 1)
    for number in range(5):
        desk.arrive([*chunk(number), *([DROPPED] if number == 2 else [])])
    prepared = desk.prepare(desk.write(LATE))
    assert (prepared.plan.way, prepared.plan.bases[0].savepoint_id) == ("faithful", None)

    desk.merge(prepared)

    assert in_order(desk.desk.rows()) == in_order(model_of_windows(desk, LATE))


@pytest.mark.parametrize("begun", ["windowed"], indirect=True)
def test_trap_what_the_query_dropped_as_late_stays_dropped(begun: LateDesk) -> None:
    """Read in few slices it would count; that is known before anything is replayed."""
    desk = begun
    assert in_order(desk.desk.rows()) == in_order(model_of_windows(desk, []))
    prepared = desk.prepare(desk.write(LATE))
    assert prepared.plan.way == "faithful"
    assert prepared.plan.expected is None
    assert prepared.plan.against_short == (
        "1 other event came behind the watermark, so the live query may have dropped them",
    )

    done = desk.merge(prepared)

    assert done.way == "faithful"
    assert in_order(desk.desk.rows()) == in_order(model_of_windows(desk, LATE))
    desk.arrive(chunk(5))
    assert in_order(desk.desk.rows()) == in_order(model_of_windows(desk, LATE))
    # Without the batch log nobody knows what was dropped, nor what each batch was.
    log = desk.desk.store.root / f"batches/{desk.desk.query}/1"
    log.delete(one.path for one in log.list())
    with pytest.raises(IncompatibleError, match="the batch log lacks") as refused:
        desk.prepare(desk.write([Event("late-5", "d", 1, 30)], "more.parquet"))
    assert "--policy replay-all" in refused.value.hint
