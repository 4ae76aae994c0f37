"""A create that is killed anywhere leaves a whole savepoint or none, and works again; no JVM."""

from __future__ import annotations

import signal
from datetime import timedelta

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.inspect.verify import verify_all
from savepoints.operations.maintain import gc
from savepoints.operations.savepoint import create as verb
from tests import samples
from tests.draw import some
from tests.processes import at_once, killed_at

# Where it is killed, and whether the savepoint exists then.
POINTS = {"create.pinned": False, "create.manifest": False, "create.catalog": True}


def create(store: Store, live: Location, crash_at: str = "") -> int:
    """Call the command line; returns its exit code."""
    where = ("--checkpoint", str(live), "--name", "totals", "--store", str(store.root))
    return killed_at(crash_at, "create", *where, "--format", "native")


def require_whole(store: Store, count: int) -> list[str]:
    """Require so many savepoints, each of which is whole; returns their ids."""
    found = [one.id for one in store.catalog.all()]
    assert len(found) == count
    assert verify_all(store, depth="checksums").grade == "ok"
    return found


def directories(store: Store) -> set[str]:
    return {info.path.split("/")[1] for info in store.root.list("savepoints")}


@pytest.mark.parametrize(("point", "exists"), some(2, POINTS.items(), "create"))
def test_killed_it_leaves_a_whole_savepoint_or_none_and_works_again(
    store: Store, place: Location, point: str, exists: bool
) -> None:
    live = samples.unpack("rocksdb", place / "live")

    assert create(store, live, crash_at=point) == -signal.SIGKILL
    require_whole(store, 1 if exists else 0)

    # The lease of the killed one is no hindrance on the same machine.
    assert create(store, live) == 0
    found = require_whole(store, 2 if exists else 1)
    assert len(store.generations.all("totals")) == 1

    gc.execute(gc.plan(store, grace=timedelta(0)), store)

    # A manifest without a row is of a savepoint that is whole: it is not thrown away.
    kept = require_whole(store, 2 if point == "create.manifest" else len(found))
    assert directories(store) == set(kept)
    assert gc.plan(store, grace=timedelta(0)).orphans == ()


@pytest.mark.parametrize("point", some(1, POINTS, "create again"))
def test_the_plan_of_a_killed_one_can_be_run_again(
    local_store: Store, on_local: Location, point: str
) -> None:
    """`rollback` does: its savepoint has an id beforehand."""
    samples.unpack("rocksdb", on_local / "live")
    with at_once(EXECUTE.format(point=point), str(on_local), 1) as processes:
        # Killed: what ends by an error says so.
        assert processes.end() == (1, "")

    plan = verb.plan(
        local_store,
        query="totals",
        checkpoint=str(on_local / "live"),
        forms=("native",),
        savepoint_id=SAVEPOINT_ID,
    )
    verb.execute(plan, local_store)

    assert require_whole(local_store, 1) == [SAVEPOINT_ID]
    assert directories(local_store) == {SAVEPOINT_ID}


SAVEPOINT_ID = "sp-20261121-101530-k3f9ab"
EXECUTE = f"""
from savepoints.operations.savepoint import create
os.environ["SAVEPOINTS_CRASH_AT"] = "{{point}}"
store = Store.at(uri + "/store").make()
plan = create.plan(
    store, query="totals", checkpoint=uri + "/live", forms=("native",),
    savepoint_id="{SAVEPOINT_ID}",
)
create.execute(plan, store)
"""
