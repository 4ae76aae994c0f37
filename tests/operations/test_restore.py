"""`restore` from the native form, on savepoints of checkpoints that Spark wrote."""

from __future__ import annotations

import dataclasses

import pytest

from savepoints.checkpoint.layout import read_cut
from savepoints.errors import (
    NotAlignedError,
    SavepointNotFoundError,
    TargetExistsError,
    UsageError,
    VerificationError,
)
from savepoints.io import Location
from savepoints.operations import restore
from savepoints.operations.verify import verify
from savepoints.store import manifest, native
from savepoints.store.root import Store
from tests.samples import contents, files_of, take, unpack


@pytest.mark.parametrize(
    ("sample", "batch"),
    [
        ("rocksdb", 0),
        ("rocksdb", 2),
        ("rocksdb", 3),
        ("changelog", 0),
        ("changelog", 2),
        ("changelog", 3),
        ("watermark", 4),
        ("grand_total", 1),
        ("two_sources", 2),
    ],
)
def test_a_restored_checkpoint_has_the_bytes_of_the_original(
    sample: str, batch: int, on_local: Location, local_store: Store
) -> None:
    restored_is_original(sample, batch, on_local, local_store)


def test_a_restored_checkpoint_on_s3_has_the_bytes_of_the_original(on_s3: Location) -> None:
    restored_is_original("changelog", 3, on_s3, Store.open(str(on_s3 / "store")))


def restored_is_original(sample: str, batch: int, place: Location, store: Store) -> None:
    checkpoint = unpack(sample, place / "checkpoint")
    cut = read_cut(checkpoint, batch)
    taken = take(store, checkpoint, batch_id=batch)
    target = place / "target"

    restored = restore.execute(restore.plan(store, taken.id, str(target)), store)

    original = files_of(sample)
    found = contents(target)
    assert found.pop(native.RESTORE_MARKER) == f"{taken.id} native restore".encode()
    assert found == {info.path: original[info.path] for info in cut.all}
    assert (restored.objects, restored.batch_id) == (len(found), batch)
    assert restored.bytes_written == sum(len(data) for data in found.values())
    again = read_cut(target)
    assert (again.query_id, again.operators, again.partitions) == (
        cut.query_id,
        cut.operators,
        cut.partitions,
    )
    assert dataclasses.replace(again.cut, committed_at=cut.cut.committed_at) == cut.cut


def test_planning_writes_nothing(on_local: Location, local_store: Store) -> None:
    taken = take(local_store, unpack("rocksdb", on_local / "checkpoint"))
    before = contents(on_local)

    plan = restore.plan(local_store, "latest", str(on_local / "target"))

    assert contents(on_local) == before
    assert (plan.savepoint_id, plan.form, plan.batch_id) == (taken.id, "native", 3)
    assert (plan.partitions, plan.files, plan.rows) == (2, 14, 0)


def test_a_savepoint_needs_the_original_no_more(on_local: Location, local_store: Store) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    taken = take(local_store, checkpoint)
    checkpoint.delete([info.path for info in checkpoint.list()])

    restore.execute(restore.plan(local_store, taken.id, str(on_local / "target")), local_store)

    assert read_cut(on_local / "target").cut.batch_id == 3


def test_a_copied_prefix_verifies_and_restores(place: Location, store: Store) -> None:
    checkpoint = unpack("rocksdb", place / "checkpoint")
    taken = [take(store, checkpoint, batch_id=batch) for batch in (1, 2)]
    copied = place / "somewhere" / "else"
    for info in store.root.list():
        copied.copy_from(store.root, info.path, info.path)
    for gone in (store.root, checkpoint):
        gone.delete([info.path for info in gone.list()])
    elsewhere = Store.open(str(copied))

    assert elsewhere.catalog.all() == taken[::-1]
    for one in taken:
        assert verify(elsewhere, one.id, depth="checksums").findings == ()
        target = place / f"target-{one.cut.batch_id}"
        restore.execute(restore.plan(elsewhere, one.id, str(target)), elsewhere)
        assert read_cut(target).cut.batch_id == one.cut.batch_id


def test_the_same_restore_again_does_nothing(on_local: Location, local_store: Store) -> None:
    take(local_store, unpack("rocksdb", on_local / "checkpoint"))
    plan = restore.plan(local_store, "latest", str(on_local / "target"))
    restore.execute(plan, local_store)
    before = (on_local / "target").list()

    again = restore.execute(plan, local_store)

    assert again.already_restored
    assert (on_local / "target").list() == before


def test_a_half_written_restore_goes_on(on_local: Location, local_store: Store) -> None:
    taken = take(local_store, unpack("rocksdb", on_local / "checkpoint"))
    target = on_local / "target"
    plan = restore.plan(local_store, "latest", str(target))
    stored = local_store.manifest(taken.id).native
    native.claim(target, plan.owner)
    native.mount(local_store.root, stored[:9], target)
    target.put("offsets/77", b"from a run that was killed")

    restored = restore.execute(plan, local_store)

    assert not restored.already_restored
    assert contents(target).keys() == {native.RESTORE_MARKER, *(file.path for file in stored)}


def test_a_target_whose_query_has_run_since_is_refused(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    take(local_store, checkpoint, batch_id=2)
    target = on_local / "target"
    plan = restore.plan(local_store, "latest", str(target))
    restore.execute(plan, local_store)
    unpack("rocksdb", target)  # batch 3

    with pytest.raises(TargetExistsError, match="has run since"):
        restore.execute(plan, local_store)


def test_another_restore_to_the_same_place_is_refused(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    first, second = (take(local_store, checkpoint, batch_id=batch) for batch in (1, 2))
    target = str(on_local / "target")
    restore.execute(restore.plan(local_store, first.id, target), local_store)

    with pytest.raises(TargetExistsError):
        restore.execute(restore.plan(local_store, second.id, target), local_store)


def test_the_original_checkpoint_is_never_a_target(on_local: Location, local_store: Store) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    take(local_store, checkpoint)
    before = contents(checkpoint)

    with pytest.raises(TargetExistsError):
        restore.execute(restore.plan(local_store, "latest", str(checkpoint)), local_store)

    assert contents(checkpoint) == before


def test_a_form_that_the_savepoint_has_not_is_refused(
    on_local: Location, local_store: Store
) -> None:
    take(local_store, unpack("rocksdb", on_local / "checkpoint"))

    with pytest.raises(UsageError, match="no canonical form") as refused:
        restore.plan(local_store, "latest", str(on_local / "target"), form="canonical")

    assert refused.value.hint == "restore it with --format native"


def test_an_unknown_savepoint_is_refused(on_local: Location, local_store: Store) -> None:
    with pytest.raises(SavepointNotFoundError):
        restore.plan(local_store, "latest", str(on_local / "target"))


def test_a_savepoint_with_a_missing_file_is_refused_and_the_file_named(
    on_local: Location, local_store: Store
) -> None:
    taken = take(local_store, unpack("rocksdb", on_local / "checkpoint"))
    gone = local_store.manifest(taken.id).files[-1].stored_at
    local_store.root.delete([gone])

    with pytest.raises(VerificationError) as refused:
        restore.plan(local_store, "latest", str(on_local / "target"))

    assert refused.value.details["files"] == [gone]
    assert (on_local / "target").list() == []


def test_a_file_that_is_cut_off_after_the_plan_is_noticed_before_it_is_a_checkpoint(
    on_local: Location, local_store: Store
) -> None:
    taken = take(local_store, unpack("rocksdb", on_local / "checkpoint"))
    plan = restore.plan(local_store, "latest", str(on_local / "target"))
    file = local_store.manifest(taken.id).files[-1]
    whole = local_store.root.get(file.stored_at)
    local_store.root.delete([file.stored_at])
    local_store.root.put(file.stored_at, whole[:-1])

    with pytest.raises(NotAlignedError, match=file.path):
        restore.execute(plan, local_store)

    assert not (on_local / "target").exists("metadata")


def test_a_lost_manifest_is_named(on_local: Location, local_store: Store) -> None:
    taken = take(local_store, unpack("rocksdb", on_local / "checkpoint"))
    path = manifest.manifest_path(taken.id)
    local_store.root.delete([path])

    with pytest.raises(VerificationError, match=path):
        restore.plan(local_store, "latest", str(on_local / "target"))
