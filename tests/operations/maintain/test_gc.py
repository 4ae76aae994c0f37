"""`gc`: what no row names is adopted, deleted or left, and nothing else is touched; no JVM."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from savepoints.errors import VerificationError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Labels, Savepoint, new_id
from savepoints.moments import rfc3339, utc_now
from savepoints.operations.inspect.verify import verify
from savepoints.operations.maintain import gc, rebuild_catalog
from savepoints.operations.maintain.gc import Collected
from savepoints.store.locks import lease
from savepoints.store.locks.journal import Journal, Operation
from savepoints.store.savepoint import labels
from savepoints.store.savepoint.manifest import manifest_path
from tests.leftovers import all_are_whole, left_over, stored
from tests.operations.exported import as_exported
from tests.samples import take, unpack
from tests.templates import made_once

pytestmark = pytest.mark.drawn(5)

# Less than none: S3 and the file system round the times of what was written just now.
NO_GRACE = timedelta(seconds=-1)
OLD = "sp-20260101-000000-aaaaaa"


@made_once
def two(store: Store, place: Location) -> tuple[Savepoint, Savepoint]:
    """Take two savepoints that share no files."""
    checkpoint = unpack("rocksdb", place / "live")
    return take(store, checkpoint, batch_id=0), take(store, checkpoint, batch_id=3)


def collected(store: Store, grace: timedelta = NO_GRACE) -> Collected:
    return gc.execute(gc.plan(store, grace=grace), store)


def found(store: Store, grace: timedelta = NO_GRACE) -> list[tuple[str, str, str]]:
    plan = gc.plan(store, grace=grace)
    return [(one.kind, one.action, one.place) for one in plan.orphans]


def test_a_store_in_order_has_no_orphans(place: Location, store: Store) -> None:
    two(store, place)
    before = stored(store)

    plan = gc.plan(store, grace=NO_GRACE)
    done = gc.execute(plan, store)

    assert (plan.orphans, plan.young, plan.warnings, plan.bytes) == ((), 0, (), 0)
    assert (done.adopted, done.finished, done.files, done.bytes) == ((), (), 0, 0)
    assert stored(store) == before
    assert gc.plan(Store.at(str(store.root)).make(), grace=NO_GRACE).orphans == ()


def test_an_empty_store_has_no_orphans(store: Store) -> None:
    assert found(store) == []


def test_a_whole_savepoint_without_a_row_is_adopted_with_its_labels(
    place: Location, store: Store
) -> None:
    first, _ = two(store, place)
    new = Labels(
        first.query, ("release",), "the first", pinned=True, state="broken", state_reason="looked"
    )
    store.catalog.relabel([first.id], lambda _: new)
    before, files = store.catalog.all(), stored(store)
    store.catalog.remove([first.id])

    plan = gc.plan(store, grace=NO_GRACE)
    assert store.catalog.all() == before[:1]
    done = gc.execute(plan, store)

    assert [(one.kind, one.action, one.name) for one in plan.orphans] == [
        ("savepoint", "adopt", first.id)
    ]
    assert plan.bytes == 0
    assert (done.adopted, done.files) == ((first.id,), 0)
    assert store.catalog.all() == before
    assert stored(store) == files


@pytest.mark.parametrize("way", ["gc", "rebuild"])
def test_trap_a_tag_that_was_given_since_is_not_given_twice(
    place: Location, store: Store, way: str
) -> None:
    """`create --tag` died before its last step, and was run again."""
    checkpoint = unpack("rocksdb", place / "live")
    first = take(store, checkpoint, batch_id=0, tags=("release", "first"))
    store.catalog.remove([first.id])
    second = take(store, checkpoint, batch_id=3, tags=("release",))

    if way == "gc":
        assert collected(store).adopted == (first.id,)
    else:
        assert rebuild_catalog.execute(rebuild_catalog.plan(store), store).added == (first.id,)

    assert store.catalog.find("release", query="totals").id == second.id
    assert store.catalog.find("first", query="totals").id == first.id
    assert verify(store, first.id, query="totals").grade == "ok"


def lose_manifest(store: Store, one: Savepoint) -> None:
    store.root.delete([manifest_path(one.id)])


def damage_manifest(store: Store, one: Savepoint) -> None:
    whole = store.root.get(manifest_path(one.id))
    store.root.put(manifest_path(one.id), whole.replace(b"totals", b"totalz"))


def lose_own_file(store: Store, one: Savepoint) -> None:
    store.root.delete([f"savepoints/{one.id}/checkpoint/metadata"])


def cut_own_file(store: Store, one: Savepoint) -> None:
    path = f"savepoints/{one.id}/checkpoint/metadata"
    store.root.delete([path])  # On a local file system the original has the same inode.
    store.root.put(path, b"{")


def lose_shared_file(store: Store, one: Savepoint) -> None:
    paths = [file.stored_at for file in store.manifest(one.id).files]
    store.root.delete([next(path for path in paths if path.startswith("files/"))])


def remove_halfway(store: Store, one: Savepoint) -> None:
    labels.change(store.root, one, lambda label: replace(label, state="expired"))


NOT_WHOLE: dict[str, tuple[Callable[[Store, Savepoint], None], str]] = {
    "no manifest": (lose_manifest, "has no manifest"),
    "damaged manifest": (damage_manifest, "has a manifest that cannot be read"),
    "own file missing": (lose_own_file, "is missing 1 of its files (first: savepoints/"),
    "own file cut": (cut_own_file, "is missing 1 of its files (first: savepoints/"),
    "shared file missing": (lose_shared_file, "is missing 1 of its files (first: files/"),
    "removal interrupted": (remove_halfway, "its removal was interrupted"),
}


@pytest.mark.parametrize("what", NOT_WHOLE)
def test_what_is_no_whole_savepoint_and_has_no_row_is_deleted(
    what: str, on_local: Location, local_store: Store
) -> None:
    first, second = two(local_store, on_local)
    local_store.catalog.remove([first.id])
    happens, why = NOT_WHOLE[what]
    happens(local_store, first)

    plan = gc.plan(local_store, grace=NO_GRACE)
    done = gc.execute(plan, local_store)

    assert plan.orphans[0].why.startswith(why)
    assert done.adopted == ()
    assert all_are_whole(local_store) == [second.id]
    assert left_over(local_store) == set()
    assert (done.files, done.bytes) == (sum(len(one.files) for one in plan.orphans), plan.bytes)


def test_what_is_young_is_only_counted(on_local: Location, local_store: Store) -> None:
    first, second = two(local_store, on_local)
    local_store.catalog.remove([first.id])
    local_store.root.put("scratch/op-20260101-000000-aaaaaa/metadata", b"left")
    local_store.root.put(f"files/{first.query_id}/unnamed.sst", b"left")
    local_store.root.put(f"savepoints/{second.id}/mounted/metadata", b"left")
    local_store.root.put(f"savepoints/{OLD}/checkpoint/metadata", b"left")
    before = stored(local_store)

    plan = gc.plan(local_store)
    gc.execute(plan, local_store)

    assert (plan.orphans, plan.young) == ((), 5)
    assert plan.grace_seconds == 24 * 3600
    assert stored(local_store) == before


def test_trap_hard_links_are_as_old_as_what_they_are_links_of(
    on_local: Location, local_store: Store
) -> None:
    # So the half savepoint that is being pinned now has files of last week.
    new = new_id("sp", utc_now())
    local_store.root.put(f"savepoints/{new}/checkpoint/offsets/0", b"v1")
    local_store.root.put(f"savepoints/{OLD}/checkpoint/offsets/0", b"v1")
    for name in (new, OLD):
        os.utime(Path(str(local_store.root)) / f"savepoints/{name}/checkpoint/offsets/0", (0, 0))

    assert found(local_store, timedelta(hours=1)) == [("directory", "delete", f"savepoints/{OLD}")]


def test_an_interrupted_removal_needs_no_grace(place: Location, store: Store) -> None:
    first, second = two(store, place)
    store.catalog.relabel([first.id], lambda label: replace(label, state="expired"))
    sizes = {info.path: info.size for info in store.root.list()}

    assert found(store, gc.GRACE) == [("savepoint", "finish", f"savepoints/{first.id}")]
    done = collected(store, gc.GRACE)

    assert (done.finished, done.kept) == ((first.id,), {})
    assert all_are_whole(store) == [second.id]
    assert left_over(store) == set()
    gone = {path for path in sizes if path not in {info.path for info in store.root.list()}}
    gone.discard(labels.labels_path(first.id))
    assert (done.files, done.bytes) == (len(gone), sum(sizes[path] for path in gone))


def test_an_interrupted_removal_of_what_is_being_read_is_undone(
    on_local: Location, local_store: Store
) -> None:
    first, second = two(local_store, on_local)

    with local_store.using(first.id, "restore"):
        local_store.catalog.relabel([first.id], lambda label: replace(label, state="expired"))
        done = collected(local_store)

    assert done.finished == ()
    assert "is being read: restore by" in done.kept[first.id][0]
    assert set(all_are_whole(local_store)) == {first.id, second.id}


def test_shared_files_that_no_manifest_names_are_deleted(place: Location, store: Store) -> None:
    first, second = two(store, place)
    store.root.put(f"files/{first.query_id}/unnamed.sst", b"left")
    store.root.put("files/00000000-0000-4000-8000-000000000000/unnamed.sst", b"left behind")

    assert sorted(found(store)) == [
        ("shared", "delete", f"files/{query_id}")
        for query_id in sorted([first.query_id, "00000000-0000-4000-8000-000000000000"])
    ]
    done = collected(store)

    assert (done.files, done.bytes) == (2, 15)
    assert set(all_are_whole(store)) == {first.id, second.id}
    assert left_over(store) == set()


def newer(store: Store, one: Savepoint) -> None:
    content = json.loads(store.root.get(manifest_path(one.id)))
    content["schema_version"] = 2
    store.root.put(manifest_path(one.id), json.dumps(content).encode())


@pytest.mark.parametrize("what", [lose_manifest, damage_manifest, newer])
def test_no_shared_file_is_deleted_while_a_savepoint_may_need_it_that_nobody_can_read(
    what: Callable[[Store, Savepoint], None], on_local: Location, local_store: Store
) -> None:
    first, second = two(local_store, on_local)
    whole = local_store.root.get(manifest_path(first.id))
    local_store.root.put(f"files/{first.query_id}/unnamed.sst", b"left")
    what(local_store, first)

    plan = gc.plan(local_store, grace=NO_GRACE)
    done = gc.execute(plan, local_store)

    assert plan.orphans == ()
    assert len(done.findings) == 1
    assert first.id in done.findings[0]
    local_store.root.put(manifest_path(first.id), whole)
    assert set(all_are_whole(local_store)) == {first.id, second.id}


def test_what_a_newer_version_wrote_is_left(on_local: Location, local_store: Store) -> None:
    first, second = two(local_store, on_local)
    newer(local_store, first)
    local_store.catalog.remove([first.id])
    before = stored(local_store)

    done = collected(local_store)

    assert any(first.id in text for text in done.findings)
    assert stored(local_store) == before
    assert all_are_whole(local_store) == [second.id]


def test_when_nobody_knows_whether_it_was_being_removed_it_is_left(
    on_local: Location, local_store: Store
) -> None:
    first, _ = two(local_store, on_local)
    local_store.catalog.relabel([first.id], lambda label: replace(label, tags=("release",)))
    local_store.catalog.remove([first.id])
    path = labels.labels_path(first.id)
    local_store.root.put(path, local_store.root.get(path).replace(b"release", b"relaese"))
    before = stored(local_store)

    done = collected(local_store)

    assert done.adopted == ()
    assert f"{first.id} is left as it is: {path} is damaged" in done.findings[0]
    assert stored(local_store) == before


def test_a_lost_catalog_is_refused(on_local: Location, local_store: Store) -> None:
    first, second = two(local_store, on_local)
    local_store.catalog.remove([first.id, second.id])

    with pytest.raises(
        VerificationError, match="is empty, but the store has the manifests of 2 savepoints"
    ) as caught:
        gc.plan(local_store)

    assert "savepoints check --rebuild-catalog" in caught.value.hint


def test_what_was_left_while_something_was_laid_out_is_deleted(
    place: Location, store: Store
) -> None:
    first, second = two(store, place)
    store.root.put("scratch/op-20260101-000000-aaaaaa/state/0/metadata", b"left")
    store.root.put("scratch/op-20260101-000000-aaaaaa/metadata", b"left")
    store.root.put(f"savepoints/{first.id}/mounted/metadata", b"left")
    sign = f"uses/{first.id}/op-20260101-000000-aaaaaa.json"
    lease.mark(store.root, sign, "totals", "restore").release()
    living = f"uses/{second.id}/op-20260101-000000-aaaaaa.json"
    mark = lease.mark(store.root, living, "totals", "restore")

    assert sorted(found(store)) == [
        ("mounted", "delete", f"savepoints/{first.id}/mounted"),
        ("scratch", "delete", "scratch/op-20260101-000000-aaaaaa"),
        ("sign", "delete", sign),
    ]
    assert collected(store).files == 4

    assert left_over(store) == {living}
    mark.release()
    assert set(all_are_whole(store)) == {first.id, second.id}


def test_what_an_export_lays_out_now_is_left(on_local: Location, local_store: Store) -> None:
    first, _ = two(local_store, on_local)
    path = f"savepoints/{first.id}/mounted/metadata"
    local_store.root.put(path, b"being read by Spark")

    with local_store.using(first.id, "export"):
        collected(local_store)
        assert local_store.root.exists(path)

    collected(local_store)
    assert not local_store.root.exists(path)


def rows_left(store: Store, one: Savepoint) -> str:
    """Put a file where an export would write rows."""
    path = f"savepoints/{one.id}/state/operator_id=0/store_name=default/part-0.parquet"
    store.root.put(path, b"rows")
    return path


def test_trap_rows_of_an_export_that_was_killed_stay_for_ever(
    on_local: Location, local_store: Store
) -> None:
    first, second = two(local_store, on_local)
    rows_left(local_store, first)
    as_exported(local_store, second)
    whole = rows_left(local_store, second)

    assert found(local_store) == [("rows", "delete", f"savepoints/{first.id}/state")]
    assert collected(local_store).files == 1

    assert left_over(local_store) == {whole}
    assert set(all_are_whole(local_store)) == {first.id, second.id}


def test_trap_rows_of_an_export_that_began_after_the_plan_are_left(
    on_local: Location, local_store: Store
) -> None:
    first, _ = two(local_store, on_local)
    path = rows_left(local_store, first)
    plan = gc.plan(local_store, grace=NO_GRACE)

    with lease.hold_exporting(local_store.root, first.id, first.query, "export"):
        done = gc.execute(plan, local_store)

    assert local_store.root.exists(path)
    assert done.files == 0
    assert f"the command export of {first.id} is working on" in done.locked[first.query_id]


def test_trap_rows_that_a_manifest_names_since_the_plan_are_left(
    on_local: Location, local_store: Store
) -> None:
    first, _ = two(local_store, on_local)
    path = rows_left(local_store, first)
    plan = gc.plan(local_store, grace=NO_GRACE)
    as_exported(local_store, first)

    assert gc.execute(plan, local_store).files == 0
    assert local_store.root.exists(path)


def test_trap_gc_without_grace_takes_a_scratch_directory_from_under_a_verb(
    place: Location, store: Store
) -> None:
    first, second = two(store, place)

    with store.scratch() as scratch:
        scratch.put("metadata", b"being read by Spark")
        assert collected(store).files == 0
        assert scratch.exists("metadata")

    assert left_over(store) == set()
    assert set(all_are_whole(store)) == {first.id, second.id}


def test_what_an_unfinished_operation_will_go_on_with_is_left(
    on_local: Location, local_store: Store
) -> None:
    two(local_store, on_local)
    path = f"savepoints/{OLD}/checkpoint/metadata"
    local_store.root.put(path, b"{}")
    at = rfc3339(utc_now())
    plan = {"safety_id": OLD}
    operation = Operation("op-20260101-000000-aaaaaa", "rollback", "totals", plan, "", at)
    journal = Journal.begin(local_store.root, operation)

    collected(local_store)
    assert local_store.root.exists(path)

    journal.finish()
    collected(local_store)
    assert not local_store.root.exists(path)


def test_what_is_not_ours_is_left(on_local: Location, local_store: Store) -> None:
    two(local_store, on_local)
    mine = ("savepoints/README.md", "savepoints/notes/todo.txt", "elsewhere/file", "README.md")
    for path in mine:
        local_store.root.put(path, b"mine")

    assert found(local_store) == []
    collected(local_store)

    assert all(local_store.root.exists(path) for path in mine)


def test_trap_a_store_lies_where_the_user_has_files_and_scratch_directories(
    on_local: Location, local_store: Store
) -> None:
    """At the root of a bucket, say: nothing of it has the form of what savepoints writes."""
    two(local_store, on_local)
    theirs = (
        "files/report.csv", "files/reports/2026.csv", "files/reports/2026/11.csv",
        "files/op-20260101-000000-aaaaaa", "scratch/notes.txt", "scratch/anna/op-1/notes.txt",
    )  # fmt: skip
    for path in theirs:
        local_store.root.put(path, b"theirs")

    assert found(local_store) == []
    assert collected(local_store).files == 0

    assert all(local_store.root.exists(path) for path in theirs)


def test_what_others_work_on_is_left_and_said(on_local: Location, local_store: Store) -> None:
    first, second = two(local_store, on_local)
    local_store.catalog.remove([first.id])
    local_store.root.put(f"files/{first.query_id}/unnamed.sst", b"left")
    local_store.root.put("scratch/op-20260101-000000-aaaaaa/metadata", b"left")

    with lease.hold_files(local_store.root, first.query_id, "totals", "create"):
        done = collected(local_store)

    assert done.adopted == ()
    assert done.files == 1  # In the scratch directory, which belongs to nobody's query.
    assert set(done.locked) == {first.query_id}
    assert "the command create is working on totals" in done.locked[first.query_id]
    assert all_are_whole(local_store) == [second.id]


def test_half_a_savepoint_in_the_making_is_left(on_local: Location, local_store: Store) -> None:
    # Its checkpoint says of which query it is, and the lease is held.
    first, _ = two(local_store, on_local)
    metadata = json.dumps({"id": first.query_id}).encode()
    local_store.root.put(f"savepoints/{OLD}/checkpoint/metadata", metadata)

    with lease.hold_files(local_store.root, first.query_id, "totals", "create"):
        collected(local_store)
        assert local_store.root.exists(f"savepoints/{OLD}/checkpoint/metadata")

    collected(local_store)
    assert left_over(local_store) == set()


def test_what_was_put_right_since_the_plan_is_left(on_local: Location, local_store: Store) -> None:
    first, second = two(local_store, on_local)
    local_store.catalog.remove([first.id])
    whole = local_store.root.get(manifest_path(first.id))
    lose_manifest(local_store, first)
    plan = gc.plan(local_store, grace=NO_GRACE)
    assert {one.kind for one in plan.orphans} == {"directory", "shared"}
    local_store.root.put(manifest_path(first.id), whole)
    local_store.catalog.add(first)
    local_store.root.put("scratch/op-20260101-000000-aaaaaa/metadata", b"came later")

    done = gc.execute(plan, local_store)

    assert (done.files, done.adopted) == (0, ())
    assert set(all_are_whole(local_store)) == {first.id, second.id}
    assert local_store.root.exists("scratch/op-20260101-000000-aaaaaa/metadata")


def test_it_is_recorded(on_local: Location, local_store: Store) -> None:
    first, _ = two(local_store, on_local)
    local_store.catalog.remove([first.id])
    local_store.root.put("scratch/op-20260101-000000-aaaaaa/metadata", b"left")

    collected(local_store)

    event = local_store.events.all()[0]
    assert (event.verb, event.query, event.result, event.bytes) == ("gc", None, "done", 4)
    assert event.message == f"added {first.id} to the catalog, deleted 1 file"
