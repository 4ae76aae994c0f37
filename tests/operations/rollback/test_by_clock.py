"""What goes by the time at which batches run: they run later when they run again."""

from __future__ import annotations

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.rollback import rollback
from savepoints.operations.rollback.target import AtBatch
from savepoints.operations.savepoint import restore
from tests.samples import take, unpack

SAID = "operator 0 (transformWithStateInPySparkExec) has timers and TTLs by processing time"


def checkpoint_of(place: Location, mode: str) -> Location:
    """Give a checkpoint of a processor with this mode, as Spark writes it into the metadata."""
    checkpoint = unpack("transform_with_state", place / "live")
    path = "state/0/_metadata/v2/0"
    was = checkpoint.get(path)
    assert was.count(b"EventTime") == 1
    checkpoint.put(path, was.replace(b"EventTime", mode.encode()))
    return checkpoint


@pytest.mark.parametrize("mode", ["ProcessingTime", "EventTime", "None"])
def test_the_plans_say_which_operators_go_by_the_clock(
    on_local: Location, local_store: Store, mode: str
) -> None:
    checkpoint = checkpoint_of(on_local, mode)
    taken = take(local_store, checkpoint, outputs={})
    before = taken.cut.batch_id - 1

    plans = [
        rollback.plan(local_store, "latest", query="totals", rewind_outputs=False),
        rollback.plan(local_store, AtBatch(before), query="totals", rewind_outputs=False),
        restore.plan(local_store, "latest", str(on_local / "other")),
    ]

    said = [any(one.startswith(SAID) for one in plan.warnings) for plan in plans]
    assert said == [mode == "ProcessingTime"] * 3
