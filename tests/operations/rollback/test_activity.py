"""Whether a query runs that nobody holds: by the times of its commits."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from savepoints.checkpoint import position
from savepoints.config.settings import Settings
from savepoints.errors import QueryRunningError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.rollback import activity, rollback
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.operations.run import final_savepoint
from savepoints.operations.savepoint.create import Saved
from savepoints.plan import silent
from tests.samples import take, unpack

MINUTE, HOUR, DAY = 60, 3600, 86400


def committed(checkpoint: Location, *ages: float) -> None:
    """Make the commits of a checkpoint so many seconds old."""
    for batch, age in enumerate(ages):
        at = time.time() - age
        os.utime(Path(f"{checkpoint}/commits/{batch}"), (at, at))


@pytest.fixture
def checkpoint(on_local: Location, local_store: Store) -> Location:
    found = unpack("rocksdb", on_local / "checkpoint")
    take(local_store, found)
    return found


def look(store: Store, *, stopped: bool = False) -> tuple[str, ...]:
    return activity.refuse_active(QueryContext.open(store, "totals"), stopped=stopped)


def test_a_query_that_commits_each_hour_cannot_be_watched(
    checkpoint: Location, local_store: Store
) -> None:
    committed(checkpoint, 4 * HOUR, 3 * HOUR, 2 * HOUR, HOUR / 2)

    with pytest.raises(
        QueryRunningError, match=r"batches were 1h apart, and the last was committed 30m ago"
    ) as error:
        look(local_store)
    assert "--stopped" in error.value.hint

    assert look(local_store, stopped=True) == ()


def test_what_has_been_silent_for_long_is_taken_to_be_stopped(
    checkpoint: Location, local_store: Store
) -> None:
    committed(checkpoint, 3 * DAY + 30, 3 * DAY + 20, 3 * DAY + 10, 3 * DAY)

    (note,) = look(local_store)

    assert note.endswith("its last batch was committed 3d ago")


def test_what_is_assumed_is_in_the_plan(checkpoint: Location, local_store: Store) -> None:
    committed(checkpoint, 0.3, 0.2, 0.1, 0)
    first = local_store.catalog.all()[0]

    plan = rollback.plan(local_store, first.id, to=f"{checkpoint}-2", rewind_outputs=False)

    assert "is stopped: no process holds its lease, and nothing was committed " in plan.warnings[0]


def test_whoever_took_a_last_savepoint_has_stopped(
    checkpoint: Location, local_store: Store
) -> None:
    committed(checkpoint, 4 * HOUR, 3 * HOUR, 2 * HOUR, HOUR)
    final_savepoint.savepoint(
        local_store.with_settings(Settings()),
        local_store.generations.current("totals"),
        Saved(forms=("native",)),
        moved=True,
        progress=silent,
    )

    assert look(local_store) == ()


def begin_next_batch(checkpoint: Location) -> None:
    """Write what a driver writes before it runs a batch."""
    newest = position.newest_in(checkpoint, "offsets")
    checkpoint.put(f"offsets/{newest + 1}", checkpoint.get(f"offsets/{newest}"))


def test_trap_a_driver_in_the_batch_after_its_last_savepoint_is_taken_to_rest(
    checkpoint: Location, local_store: Store
) -> None:
    """It was stopped with a savepoint and started again, and its first batch takes long."""
    committed(checkpoint, 4 * HOUR, 3 * HOUR, 2 * HOUR, HOUR)
    generation = local_store.generations.current("totals")
    final_savepoint.savepoint(
        local_store, generation, Saved(forms=("native",)), moved=True, progress=silent
    )
    begin_next_batch(checkpoint)

    with pytest.raises(QueryRunningError, match="batches were 1h apart"):
        look(local_store)


def test_trap_a_driver_in_its_first_batch_after_a_rollback_is_taken_to_rest(
    checkpoint: Location, local_store: Store
) -> None:
    good = local_store.catalog.all()[0]
    plan = rollback.plan(local_store, good.id, rewind_outputs=False, stopped=True)
    new = Location.of(rollback.execute(plan, local_store).checkpoint)
    assert look(local_store) == (), "no driver has begun anything"

    begin_next_batch(new)

    with pytest.raises(QueryRunningError, match="with only one committed batch"):
        look(local_store)
