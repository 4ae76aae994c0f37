"""An export that is killed anywhere goes on when it is run again; no JVM needed.

The savepoint is of a query without state: its rows are none, and the steps are the same.
"""

from __future__ import annotations

import dataclasses
import signal

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import FORMS
from savepoints.operations.inspect.verify import verify
from savepoints.operations.savepoint import restore
from savepoints.store.savepoint.manifest import manifest_path
from tests import samples
from tests.draw import some
from tests.processes import killed_at

POINTS = ("export.exported", "export.manifest", "export.catalog")


def export(store: Store, name: str, crash_at: str = "") -> int:
    """Call the command line; returns its exit code."""
    return killed_at(crash_at, "export", name, "--store", str(store.root))


@pytest.mark.parametrize("point", some(1, POINTS, "export"))
def test_killed_and_run_again_it_is_as_if_it_had_not_been_killed(
    store: Store, place: Location, point: str
) -> None:
    checkpoint = samples.unpack("two_sources", place / "live")
    taken = samples.take(store, checkpoint, tags=("before",))
    exported = dataclasses.replace(taken, forms=FORMS)
    expected = dataclasses.replace(store.manifest(taken.id), savepoint=exported)

    assert export(store, "before", crash_at=point) == -signal.SIGKILL
    # At any moment the savepoint exists, whole, with the forms that the catalog says.
    found = store.catalog.find("before")
    assert found == (exported if point == "export.catalog" else taken)
    target = str(place / "between")
    restore.execute(restore.plan(store, taken.id, target, form="native"), store)

    grade = verify(store, taken.id, depth="checksums").grade
    assert grade == ("warning" if point == "export.manifest" else "ok")

    assert export(store, "before") == 0

    assert store.catalog.all() == [exported]
    assert store.root.get(manifest_path(taken.id)) == expected.to_bytes()
    assert export(store, "before") == 0
    assert store.catalog.all() == [exported]
