"""An expire that is killed anywhere leaves savepoints whole or absent, and can be run again."""

from __future__ import annotations

import signal

import pytest

from savepoints.errors import SavepointNotFoundError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from tests.draw import some
from tests.leftovers import all_are_whole, left_over, restored
from tests.processes import killed_at
from tests.samples import files_of, take, unpack

pytestmark = pytest.mark.drawn(3)

POINTS = ("expire.marked", "expire.files", "expire.row", "expire.manifest")
PLACES = [
    *some(1, (("local", point) for point in POINTS), "expire"),
    # Processes against an S3 server take a while, and the steps are the same there.
    *some(0, [("s3", "expire.files"), ("s3", "expire.row")]),
]


def expire(store: Store, crash_at: str = "") -> int:
    """Call the command line; returns its exit code."""
    return killed_at(crash_at, "expire", "--keep-last", "2", "--yes", "--store", str(store.root))


def gc(store: Store) -> int:
    return killed_at("", "gc", "--grace", "1ms", "--yes", "--store", str(store.root))


def killed(store: Store, place: Location, point: str) -> list[Savepoint]:
    """Take four savepoints, expire the first two, and be killed; returns the four."""
    checkpoint = unpack("rocksdb", place / "live")
    taken = [take(store, checkpoint, batch_id=batch) for batch in range(4)]
    assert expire(store, crash_at=point) == -signal.SIGKILL
    # At any moment what can be named is whole, and what is being removed cannot be named.
    assert set(all_are_whole(store)) == {one.id for one in taken[2:]}
    for one in taken[:2]:
        with pytest.raises(SavepointNotFoundError):
            store.catalog.find(one.id)
    return taken


def assert_the_rest_is_as_if_nothing_had_happened(
    store: Store, place: Location, taken: list[Savepoint]
) -> None:
    assert store.catalog.all() == [taken[3], taken[2]]
    assert set(all_are_whole(store)) == {one.id for one in taken[2:]}
    original = files_of("rocksdb")
    for one in taken[2:]:
        found = restored(store, one.id, place / f"restored-{one.id}")
        assert found == {path: original[path] for path in found}
        assert len(found) == len(store.manifest(one.id).native)


@pytest.mark.parametrize(("place", "point"), PLACES, indirect=["place"])
def test_killed_and_run_again_it_is_as_if_it_had_not_been_killed(
    store: Store, place: Location, point: str
) -> None:
    taken = killed(store, place, point)

    assert expire(store) == 0

    # After the row is gone only `gc` finds the rest.
    assert bool(left_over(store)) == (point in {"expire.row", "expire.manifest"})
    assert gc(store) == 0
    assert left_over(store) == set()
    assert_the_rest_is_as_if_nothing_had_happened(store, place, taken)


@pytest.mark.parametrize("point", some(1, POINTS, "expire, gc"))
def test_killed_it_is_finished_by_gc(local_store: Store, on_local: Location, point: str) -> None:
    taken = killed(local_store, on_local, point)

    assert gc(local_store) == 0

    assert left_over(local_store) == set()
    assert_the_rest_is_as_if_nothing_had_happened(local_store, on_local, taken)


@pytest.mark.parametrize("point", some(1, POINTS, "expire, create"))
def test_the_next_savepoint_can_be_taken_right_after(
    local_store: Store, on_local: Location, point: str
) -> None:
    taken = killed(local_store, on_local, point)

    again = take(local_store, on_local / "live", batch_id=0)

    assert gc(local_store) == 0
    assert set(all_are_whole(local_store)) == {taken[2].id, taken[3].id, again.id}
    assert left_over(local_store) == set()
