"""A copy that is killed anywhere is invisible or whole, and goes on when it is run again."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.check.check import check
from savepoints.operations.inspect.verify import verify, verify_all
from tests.draw import some
from tests.processes import killed_at
from tests.samples import lasting, take, unpack

POINTS = ("copy.files", "copy.manifest", "copy.catalog")


def copy(store: Store, name: str, to: Store, crash_at: str = "") -> int:
    """Call the command line; returns its exit code."""
    words = ("copy", name, str(to.root), "--yes", "--store", str(store.root))
    return killed_at(crash_at, *words)


@pytest.mark.parametrize("point", some(1, POINTS, "copy"))
def test_killed_and_run_again_it_is_as_if_it_had_not_been_killed(
    store: Store, place: Location, point: str
) -> None:
    taken = take(store, unpack("rocksdb", place / "live"), tags=("before",))
    store.catalog.relabel([taken.id], lambda old: dataclasses.replace(old, pinned=True))
    (taken,) = store.catalog.all()
    root = place / "elsewhere"
    if root.uri.scheme == "file":
        Path(str(root)).mkdir()
    target = Store.at(str(root)).make()
    source = lasting(store)

    assert copy(store, "before", target, crash_at=point) == -signal.SIGKILL
    # At any moment it exists whole or not at all.
    assert target.catalog.all() == ([taken] if point == "copy.catalog" else [])
    assert verify_all(target).grade == "ok"

    assert copy(store, "before", target) == 0
    assert target.catalog.all() == [taken]
    assert verify(target, taken.id, depth="checksums").findings == ()
    health = check(target)
    assert [one for one in health.seen if one.grade == "broken"] == []
    left = {path: data for path, data in lasting(store).items() if not path.startswith("uses/")}
    assert left == source

    before = lasting(target)
    assert copy(store, "before", target) == 0
    assert lasting(target) == before
