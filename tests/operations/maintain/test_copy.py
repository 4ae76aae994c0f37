"""`copy`: what arrives is complete, compared, and independent of where it came from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from savepoints.errors import (
    LockedError,
    SavepointNotFoundError,
    TargetExistsError,
    UsageError,
    VerificationError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations.inspect.verify import verify, verify_all
from savepoints.operations.maintain import copy
from savepoints.operations.maintain.copy import Copied
from savepoints.operations.savepoint import export, restore
from savepoints.store.locks import lease
from savepoints.store.savepoint import manifest
from savepoints.store.savepoint.labels import labels_path
from tests.draw import some
from tests.samples import contents, lasting, take, unpack
from tests.templates import first_of

pytestmark = pytest.mark.drawn(5)


def other_store(place: Location, name: str = "elsewhere") -> Store:
    root = place / name
    if root.uri.scheme == "file":
        Path(str(root)).mkdir(exist_ok=True)
    return Store.at(str(root)).make()


def copied(store: Store, name: str, to: Store) -> Copied:
    return copy.execute(copy.plan(store, name, str(to.root)), store)


def flip(root: Location, path: str) -> None:
    data = bytearray(root.get(path))
    data[len(data) // 2] ^= 0x01
    root.delete([path])  # on a local file system the original has the same inode
    root.put(path, bytes(data))


def whole(store: Store, taken: Savepoint, place: Location) -> None:
    """Require that a savepoint can be verified and restored, byte by byte as it was."""
    assert verify(store, taken.id, depth="checksums").grade == "ok"
    target = place / f"restored-{store.root.uri.path.rpartition('/')[2]}"
    restore.execute(restore.plan(store, taken.id, str(target)), store)
    expected = contents(place / "checkpoint")
    found = contents(target)
    assert all(found[path] == data for path, data in expected.items() if path in found)
    assert {file.path for file in store.manifest(taken.id).native} <= set(found)


def test_a_copy_is_complete_and_independent(place: Location, store: Store) -> None:
    checkpoint = unpack("rocksdb", place / "checkpoint")
    for batch in range(3):
        take(store, checkpoint, batch_id=batch)
    taken = take(store, checkpoint, tags=("born",))
    store.catalog.relabel([taken.id], lambda old: dataclasses.replace(old, description="later"))
    (taken,) = [one for one in store.catalog.all() if one.id == taken.id]
    target = other_store(place)

    done = copied(store, taken.id, target)

    files = store.manifest(taken.id).files
    assert (done.objects_copied, done.objects_there) == (len(files), 0)
    assert done.bytes_written == sum(file.size for file in files)
    assert target.catalog.all() == [taken]
    store.root.delete([info.path for info in store.root.list()])
    whole(target, taken, place)


@pytest.mark.parametrize("back", some(1, [False, True], "back"))
def test_between_s3_and_a_local_disk(back: bool, on_s3: Location, on_local: Location) -> None:
    source, place = (on_local, on_s3) if back else (on_s3, on_local)
    store, target = other_store(source, "store"), other_store(place)
    taken = first_of(store, source, "changelog")

    copied(store, "latest", target)

    assert target.catalog.all() == [taken]
    assert verify(target, taken.id, depth="checksums").grade == "ok"


def test_trap_checkpoint_store_and_backup_on_different_mounts(
    on_local: Location, on_other_mount: Location
) -> None:
    """A savepoint of a checkpoint on another disk, its copy on a third place, and back again."""
    live = unpack("changelog", on_local / "live")
    store, backup = other_store(on_other_mount, "store"), other_store(on_local, "backup")
    taken = take(store, live)

    copied(store, "latest", backup)

    assert verify(backup, taken.id, depth="checksums").grade == "ok"
    for nth, (origin, place) in enumerate([(store, on_local), (backup, on_other_mount)]):
        target = place / f"restored-{nth}"
        restore.execute(restore.plan(origin, taken.id, str(target)), origin)
        assert contents(target)["metadata"] == live.get("metadata")


def test_what_is_there_already_is_not_copied_again(place: Location, store: Store) -> None:
    checkpoint = unpack("rocksdb", place / "checkpoint")
    first, second = (take(store, checkpoint, batch_id=batch) for batch in (0, 1))
    target = other_store(place)
    copied(store, first.id, target)

    plan = copy.plan(store, second.id, str(target.root))
    done = copy.execute(plan, store)

    shared = {file.stored_at for file in store.manifest(first.id).files}
    shared &= {file.stored_at for file in store.manifest(second.id).files}
    assert shared
    assert plan.objects_there == done.objects_there == len(shared)
    assert done.objects_copied == plan.files - len(shared)
    assert verify_all(target).grade == "ok"


def test_copied_already_is_nothing_to_do(local_store: Store, on_local: Location) -> None:
    taken = first_of(local_store, on_local, "changelog")
    target = other_store(on_local)
    copied(local_store, taken.id, target)
    before = lasting(target)

    plan = copy.plan(local_store, taken.id, str(target.root))
    done = copy.execute(plan, local_store)

    assert (plan.done, plan.steps, done.already_copied) == (True, (), True)
    assert lasting(target) == before


@pytest.mark.parametrize("how", ["flip", "delete"])
def test_trap_a_copy_that_is_not_whole_is_said_to_be_there(
    how: str, local_store: Store, on_local: Location
) -> None:
    """Copied again it was `already there`, with all its files, and stayed broken."""
    taken = first_of(local_store, on_local, "changelog", tags=("one",))
    target = other_store(on_local)
    copied(local_store, taken.id, target)
    target.catalog.relabel([taken.id], lambda old: dataclasses.replace(old, tags=("two",)))
    path = local_store.manifest(taken.id).files[-1].stored_at
    if how == "flip":
        flip(target.root, path)
        assert verify(target, taken.id, depth="checksums").grade == "broken"
    else:
        target.root.delete([path])

    plan = copy.plan(local_store, taken.id, str(target.root))
    done = copy.execute(plan, local_store)

    assert (plan.done, done.already_copied, done.objects_copied) == (False, False, 1)
    assert target.root.sha256(path) == local_store.root.sha256(path)
    assert verify(target, taken.id, depth="checksums").state == "complete"
    assert target.catalog.all()[0].tags == ("two",)
    assert copied(local_store, taken.id, target).already_copied


def test_labels_of_the_copy_are_its_own(local_store: Store, on_local: Location) -> None:
    taken = first_of(local_store, on_local, "changelog", tags=("one",))
    target = other_store(on_local)
    copied(local_store, taken.id, target)
    target.catalog.relabel([taken.id], lambda old: dataclasses.replace(old, tags=("two",)))

    assert copied(local_store, taken.id, target).already_copied
    assert target.catalog.all()[0].tags == ("two",)
    assert local_store.catalog.all()[0].tags == ("one",)


def test_a_tag_that_names_another_one_there_is_left_out(
    local_store: Store, on_local: Location
) -> None:
    checkpoint = unpack("changelog", on_local / "checkpoint")
    first = take(local_store, checkpoint, batch_id=2, tags=("golden",))
    target = other_store(on_local)
    copied(local_store, first.id, target)
    local_store.catalog.relabel([first.id], lambda old: dataclasses.replace(old, tags=()))
    second = take(local_store, checkpoint, tags=("golden", "new"))

    plan = copy.plan(local_store, second.id, str(target.root))
    copy.execute(plan, local_store)

    assert (
        f"the tag golden is not copied, because it already names {first.id} there" in plan.warnings
    )
    assert {one.id: one.tags for one in target.catalog.all()} == {
        first.id: ("golden",),
        second.id: ("new",),
    }
    assert verify_all(target).grade == "ok"


@pytest.mark.parametrize("kind", ["offsets/3", "state/0/1/4.changelog", ".sst"])
@pytest.mark.parametrize("how", ["flip", "cut", "delete"])
def test_a_damaged_source_is_refused_and_named(
    kind: str, how: str, local_store: Store, on_local: Location
) -> None:
    taken = first_of(local_store, on_local, "changelog")
    target = other_store(on_local)
    files = local_store.manifest(taken.id).files
    path = next(file.stored_at for file in files if file.path.endswith(kind))
    if how == "flip":
        flip(local_store.root, path)
    else:
        data = local_store.root.get(path)
        local_store.root.delete([path])
        if how == "cut":
            local_store.root.put(path, data[:-1])

    with pytest.raises(VerificationError) as raised:
        copied(local_store, taken.id, target)

    assert raised.value.details["files"] == [path]
    assert path in raised.value.message
    assert target.catalog.all() == []
    assert not target.root.exists(manifest.manifest_path(taken.id))
    assert not target.root.exists(path)


def test_a_broken_savepoint_is_refused(local_store: Store, on_local: Location) -> None:
    taken = first_of(local_store, on_local, "changelog")
    path = local_store.manifest(taken.id).files[0].stored_at
    flip(local_store.root, path)
    verify(local_store, taken.id, depth="checksums")

    with pytest.raises(VerificationError, match=path):
        copy.plan(local_store, taken.id, str(other_store(on_local).root))


def test_a_damaged_file_at_the_destination_is_mended_by_a_whole_one(
    local_store: Store, on_local: Location
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    first, second = (take(local_store, checkpoint, batch_id=batch) for batch in (0, 1))
    target = other_store(on_local)
    copied(local_store, first.id, target)
    shared = next(
        file.stored_at
        for file in local_store.manifest(second.id).files
        if target.root.exists(file.stored_at)
    )
    flip(target.root, shared)
    assert verify(target, first.id, depth="checksums").grade == "broken"

    copied(local_store, second.id, target)

    assert verify_all(target).grade == "ok"
    assert [one.state for one in target.catalog.all()] == ["complete", "complete"]


def test_a_whole_file_at_the_destination_survives_a_damaged_source(
    local_store: Store, on_local: Location
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    first, second = (take(local_store, checkpoint, batch_id=batch) for batch in (0, 1))
    target = other_store(on_local)
    copied(local_store, first.id, target)
    shared = next(
        file.stored_at
        for file in local_store.manifest(second.id).files
        if target.root.exists(file.stored_at)
    )
    flip(local_store.root, shared)

    copied(local_store, second.id, target)

    assert verify_all(target).grade == "ok", "it was there, and it was right"


def test_what_is_damaged_there_is_not_replaced_by_what_is_damaged_here(
    local_store: Store, on_local: Location
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    first, second = (take(local_store, checkpoint, batch_id=batch) for batch in (0, 1))
    target = other_store(on_local)
    copied(local_store, first.id, target)
    shared = next(
        file.stored_at
        for file in local_store.manifest(second.id).files
        if target.root.exists(file.stored_at)
    )
    flip(local_store.root, shared)
    whole = target.root.get(shared)
    target.root.delete([shared])
    target.root.put(shared, whole[:-1])

    with pytest.raises(VerificationError, match=shared):
        copied(local_store, second.id, target)

    assert target.root.get(shared) == whole[:-1], "somebody may still mend it"


def test_the_same_id_with_another_content_is_refused(
    local_store: Store, on_local: Location
) -> None:
    taken = first_of(local_store, on_local, "changelog")
    target = other_store(on_local)
    copied(local_store, taken.id, target)
    stored = local_store.manifest(taken.id)
    changed = dataclasses.replace(stored, savepoint=dataclasses.replace(taken, generation=9))
    local_store.root.put(manifest.manifest_path(taken.id), changed.to_bytes())
    before = lasting(target)

    with pytest.raises(TargetExistsError, match=taken.id):
        copy.plan(local_store, taken.id, str(target.root))
    target.catalog.remove([taken.id])
    with pytest.raises(TargetExistsError, match=taken.id):
        copied(local_store, taken.id, target)

    assert target.catalog.all() == []
    assert (
        target.root.get(manifest.manifest_path(taken.id))
        == before[manifest.manifest_path(taken.id)]
    )


def test_labels_of_an_interrupted_copy_do_not_stay(local_store: Store, on_local: Location) -> None:
    taken = first_of(local_store, on_local, "changelog")
    target = other_store(on_local)
    target.root.put(labels_path(taken.id), b"of an earlier attempt")

    copied(local_store, taken.id, target)

    assert target.catalog.all() == [taken]
    assert verify(target, taken.id, depth="checksums").findings == ()


def test_savepoints_of_the_query_are_left_alone_meanwhile(
    local_store: Store, on_local: Location
) -> None:
    taken = first_of(local_store, on_local, "changelog")
    target = other_store(on_local)

    with (
        lease.hold_files(target.root, taken.query_id, taken.query, "gc"),
        pytest.raises(LockedError, match="the command gc is working on totals"),
    ):
        copied(local_store, taken.id, target)

    assert target.catalog.all() == []


def test_trap_rows_that_are_written_meanwhile_are_not_promised_by_the_copy(
    local_store: Store, on_local: Location
) -> None:
    taken = take(local_store, unpack("two_sources", on_local / "checkpoint"))
    target = other_store(on_local)
    plan = copy.plan(local_store, taken.id, str(target.root))

    def rows_written(line: str) -> None:
        if line.startswith("copying"):
            export.execute(export.plan(local_store, taken.id), local_store)

    copy.execute(plan, local_store, progress=rows_written)

    assert target.manifest(taken.id).savepoint.forms == ("native",)
    assert verify(target, taken.id, depth="checksums").grade == "ok"


def test_what_is_being_removed_there_is_refused(local_store: Store, on_local: Location) -> None:
    taken = first_of(local_store, on_local, "changelog")
    target = other_store(on_local)
    copied(local_store, taken.id, target)
    target.catalog.relabel([taken.id], lambda old: dataclasses.replace(old, state="expired"))

    with pytest.raises(TargetExistsError, match="is being removed"):
        copy.plan(local_store, taken.id, str(target.root))


@pytest.mark.parametrize("where", ["store", "store/within", "."])
def test_a_store_within_the_other_is_refused(
    where: str, local_store: Store, on_local: Location
) -> None:
    first_of(local_store, on_local, "changelog")
    directory = Path(str(on_local)) / where
    directory.mkdir(exist_ok=True)

    with pytest.raises(UsageError, match="or one is inside the other"):
        copy.plan(local_store, "latest", str(directory))


def test_a_destination_that_is_no_store_is_made_one_and_said_so(
    local_store: Store, on_local: Location
) -> None:
    first_of(local_store, on_local, "changelog")
    nowhere = str(on_local / "nowhere")
    said: list[str] = []

    plan = copy.plan(local_store, "latest", nowhere)
    assert any("there is no store at" in one for one in plan.warnings)
    assert not Store.at(nowhere).exists()
    copy.execute(plan, local_store, progress=said.append)

    assert f"created a store at {nowhere}" in said
    assert [one.id for one in Store.open(nowhere).catalog.all()] == [plan.savepoint_id]
    with pytest.raises(SavepointNotFoundError):
        copy.plan(local_store, "nobody", str(other_store(on_local).root))
