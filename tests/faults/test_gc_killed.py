"""A gc that is killed anywhere can be run again, and loses nothing."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.store.locks import lease
from tests.draw import some
from tests.leftovers import all_are_whole, left_over, restored
from tests.processes import killed_at
from tests.samples import files_of, take, unpack

pytestmark = pytest.mark.drawn(3)

POINTS = (
    "gc.adopted",
    "expire.files",
    "expire.row",
    "expire.manifest",
    "gc.files",
    "gc.manifest",
    "gc.labels",
)
PLACES = [
    *some(2, (("local", point) for point in POINTS), "gc"),
    # Processes against an S3 server take a while, and the steps are the same there.
    pytest.param("s3", "gc.adopted", marks=pytest.mark.nightly),
]


def gc(store: Store, crash_at: str = "", grace: str = "1ms") -> int:
    """Call the command line; returns its exit code."""
    return killed_at(crash_at, "gc", "--grace", grace, "--yes", "--store", str(store.root))


def create(store: Store, checkpoint: Location, crash_at: str) -> str:
    """Be killed while a savepoint is taken; returns its id."""
    before = ids(store)
    code = killed_at(
        crash_at, "create", "--checkpoint", str(checkpoint), "--name", "totals",
        "--format", "native", "--store", str(store.root),
    )  # fmt: skip
    assert code == -signal.SIGKILL
    (new,) = ids(store) - before
    return new


def ids(store: Store) -> set[str]:
    return {info.path.split("/")[1] for info in store.root.list("savepoints")}


@pytest.mark.parametrize(("place", "point"), PLACES, indirect=["place"])
def test_killed_and_run_again_nothing_is_orphaned_and_nothing_is_lost(
    store: Store, place: Location, point: str
) -> None:
    checkpoint = unpack("rocksdb", place / "live")
    kept = take(store, checkpoint, batch_id=0)
    removed = take(store, checkpoint, batch_id=1)
    store.catalog.relabel([removed.id], lambda labels: replace(labels, state="expired"))
    half = create(store, checkpoint, "create.pinned")
    rowless = create(store, checkpoint, "create.manifest")
    store.root.put("scratch/op-20261120-100000-aaaaaa/metadata", b"left")
    store.root.put(f"savepoints/{kept.id}/mounted/metadata", b"left")
    sign = f"uses/{kept.id}/op-20261120-100000-aaaaaa.json"
    lease.mark(store.root, sign, "totals", "restore").release()

    assert gc(store, crash_at=point) == -signal.SIGKILL

    found = set(all_are_whole(store))
    assert {kept.id} <= found <= {kept.id, rowless}
    assert gc(store) == 0
    assert set(all_are_whole(store)) == {kept.id, rowless}
    assert half not in ids(store)
    assert {one.id for one in store.catalog.all()} == {kept.id, rowless}
    assert left_over(store) == set()
    original = files_of("rocksdb")
    for name in (kept.id, rowless):
        files = restored(store, name, place / f"restored-{name}")
        assert files == {path: original[path] for path in files}


@pytest.mark.parametrize(
    "point", some(1, ["create.pinned", "create.manifest", "create.catalog"], "gc after create")
)
def test_after_a_create_that_was_killed_there_is_a_whole_savepoint_or_nothing(
    local_store: Store, on_local: Location, point: str
) -> None:
    checkpoint = unpack("rocksdb", on_local / "live")
    kept = take(local_store, checkpoint, batch_id=0)

    name = create(local_store, checkpoint, point)
    before = {info.path for info in local_store.root.list("savepoints")}
    # Within the grace time nothing is touched.
    assert gc(local_store, grace="24h") == 0
    assert {info.path for info in local_store.root.list("savepoints")} == before

    assert gc(local_store) == 0

    whole = set() if point == "create.pinned" else {name}
    assert set(all_are_whole(local_store)) == {kept.id} | whole
    assert left_over(local_store) == set()
