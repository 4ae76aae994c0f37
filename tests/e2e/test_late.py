"""`late` lists what the watermark dropped, and `merge --dropped` works just that in."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.local import LocalWorld
from savepoints.operations.merge import late
from savepoints.store.tables.merge_ledger import DROPPED, Ledger
from tests.e2e.late_desk import Event, LateDesk
from tests.e2e.marks import NIGHTLY
from tests.e2e.test_merge_ways import chunk, in_order, model_of_windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY

# What comes too late, by the batch that it comes in: its window was written long ago.
LATE = {
    2: [Event("late-1", "a", 1000, 3), Event("late-2", "new", 2000, 12)],
    3: [Event("late-3", "b", 4000, 24)],
    # It counted when it came for the first time.
    4: [Event("1-c", "c", 11, 24), Event("late-1", "a", 1000, 3)],
}
DROPPED_EVENTS = [*LATE[2], *LATE[3]]
# Behind the watermark, and yet not dropped: its window was open.
OPEN = Event("open", "d", 8000, 54.5)


@pytest.fixture
def begun(
    world: LocalWorld,
    world_environment: dict[str, str],
    spark: SparkSession,
    tmp_path: Path,
) -> LateDesk:
    """Give a query that has run, and dropped some of what it has read."""
    desk = LateDesk.open(world, spark, tmp_path, "windowed")
    for number in range(5):
        more = [OPEN] if number == 3 else []
        desk.arrive([*chunk(number), *more, *LATE.get(number, [])])
        if number in (0, 3):
            desk.archive()
    return desk


def in_time(desk: LateDesk) -> list[dict[str, object]]:
    """Return what the query would have given if the dropped events had come in time."""
    known = desk.chunks
    desk.chunks = [
        [*chunk(number), *([OPEN] if number == 3 else [])] for number in range(len(known))
    ]
    try:
        return in_order(model_of_windows(desk, DROPPED_EVENTS))
    finally:
        desk.chunks = known


def test_dropped_events_are_listed_and_merged_once(begun: LateDesk) -> None:
    """Those that counted before are not; later batches go on as if all had come in time."""
    desk = begun
    store, query = desk.desk.store, desk.desk.query
    assert in_order(desk.desk.rows()) == in_order(model_of_windows(desk, []))
    lacking = in_order(desk.desk.rows()) != in_time(desk)
    assert lacking

    found = late.late(store, query)

    assert (found.events, found.entities, found.again) == (3, 3, 1)
    assert [(one.events, one.entities) for one in found.hours] == [(3, 3)]
    assert [(one.event_id, one.entity) for one in found.newest] == [
        ("late-3", "b"),
        ("late-2", "new"),
        ("late-1", "a"),
    ]
    (operator,) = found.operators
    assert (operator.events, operator.rows, operator.results) == (3, 3, 3)

    prepared = desk.prepare(None)
    assert (prepared.plan.rows, prepared.plan.known) == (3, 1)
    done = desk.merge(prepared)

    assert (done.rows, done.known, done.entities) == (3, 1, 3)
    assert in_order(desk.desk.rows()) == in_time(desk)
    assert [one.batch for one in Ledger(store.root).all()] == [DROPPED]
    assert late.late(store, query).events == 0
    again = desk.merge(desk.prepare(None))
    assert (again.rows, again.checkpoint) == (0, None)
    desk.arrive(chunk(5))
    assert in_order(desk.desk.rows()) == in_time(desk)


def test_trap_what_another_program_dropped_was_told_by_the_present_one_without_a_word(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    desk = LateDesk.open(world, spark, tmp_path, "windowed")
    for number in range(3):
        desk.arrive([*chunk(number), *LATE.get(number, [])])
    store, query = desk.desk.store, desk.desk.query
    before = late.late(store, query)
    assert (before.events, before.notes) == (2, ())
    newest = len(desk.batches) - 1

    desk.bind(app="tests.e2e.late_apps:windowed_by_minute")
    desk.arrive(chunk(3))
    store = desk.desk.store
    found = late.late(store, query)

    assert found.events != 2, "by the program of now"
    (note,) = found.notes
    assert f"batches up to {newest} of generation 1 were read by another version" in note
    assert note in desk.prepare(None).plan.warnings
    since = datetime.fromisoformat(note.rpartition(" --since ")[2])
    later = late.late(store, query, since=since)
    assert (later.batches, later.notes) == (len(desk.batches) - 1 - newest, ())
