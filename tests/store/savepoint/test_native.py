"""The native form: files pinned, shared, mounted, sealed and claimed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.small_files import Skeleton
from savepoints.errors import TargetExistsError
from savepoints.io import Location, ObjectInfo
from savepoints.store.savepoint import native
from savepoints.store.savepoint.manifest import StoredFile
from savepoints.uri import Uri
from tests.kms import encrypted
from tests.samples import contents, files_of, unpack


def pinned(checkpoint: Location, root: Location, number: int, batch: int) -> native.Pinned:
    return native.pin(checkpoint, read_cut(checkpoint, batch), root, f"sp-{number}")


@pytest.mark.s3
def test_a_pin_copies_every_file_of_the_cut_and_nothing_else(place: Location) -> None:
    checkpoint, root = unpack("changelog", place / "checkpoint"), place / "store"
    files = read_cut(checkpoint, 3)

    found = native.pin(checkpoint, files, root, "sp-1")

    original = files_of("changelog")
    assert {path for path, *_ in found.files} == {info.path for info in files.all}
    assert contents(root) == {stored: original[path] for path, stored, *_ in found.files}
    assert all(size == len(original[path]) for path, _, size, _ in found.files)
    assert found.copied == {stored for _, stored, *_ in found.files}


def test_state_may_be_shared_and_the_rest_belongs_to_the_savepoint(on_local: Location) -> None:
    checkpoint, root = unpack("rocksdb", on_local / "checkpoint"), on_local / "store"
    query_id = read_cut(checkpoint).query_id

    found = pinned(checkpoint, root, 1, 2)

    for path, stored, *_ in found.files:
        expected = f"savepoints/sp-1/checkpoint/{path}"
        if path.endswith(".sst"):
            expected = f"files/{query_id}/{path.rpartition('/')[2]}"
        elif path.endswith(".zip"):
            expected = f"files/{query_id}/sp-1/{path}"
        assert stored == expected


def further(
    sample: str, place: Location, changed: dict[str, bytes] | None = None
) -> tuple[Location, native.Pinned, native.Pinned]:
    """Pin a batch and the next, between which files of the checkpoint may change."""
    checkpoint, root = unpack(sample, place / "checkpoint"), place / "store"
    first = pinned(checkpoint, root, 1, 2)
    assert first.copied == {file.stored_at for file in first.files}
    for path, data in (changed or {}).items():
        checkpoint.put(path, data)
    earlier = native.checksummed(root, first, {})
    second = native.pin(checkpoint, read_cut(checkpoint, 3), root, "sp-2", earlier)
    return root, first, second


def state(found: native.Pinned, paths: frozenset[str] | None = None) -> set[str]:
    """Return the paths of state in the checkpoint, of all or of those at these places."""
    return {
        path
        for path, stored, *_ in found.files
        if stored.startswith("files/") and (paths is None or stored in paths)
    }


@pytest.mark.parametrize("sample", ["hdfs", "hdfs_snapshot", "changelog"])
def test_deltas_and_changelogs_that_the_savepoint_before_has_are_not_copied_again(
    sample: str, place: Location
) -> None:
    root, first, second = further(sample, place)

    assert state(second) & state(first)
    assert state(second, second.copied) == state(second) - state(first) != set()
    original = files_of(sample)
    assert {path: root.get(stored) for path, stored, *_ in second.files} == {
        path: original[path] for path, *_ in second.files
    }


@pytest.mark.parametrize(
    ("sample", "path"), [("hdfs", "state/0/1/2.delta"), ("changelog", "state/0/1/3.changelog")]
)
def test_trap_a_delta_of_the_same_name_and_size_is_another_one(
    sample: str, path: str, place: Location
) -> None:
    """As a batch that ran again writes it."""
    other = bytes(reversed(files_of(sample)[path]))

    root, first, second = further(sample, place, {path: other})

    before, after = ({one.path: one.stored_at for one in pin.files} for pin in (first, second))
    assert root.get(before[path]) == files_of(sample)[path]
    assert root.get(after[path]) == other
    assert state(second, second.copied) & state(first) == {path}


def test_trap_what_an_attempt_left_is_not_taken_for_a_copy(place: Location) -> None:
    """It has the name and the size, and may be of another attempt of the batch."""
    checkpoint, root = unpack("hdfs", place / "checkpoint"), place / "store"
    (path, stored, *_), *_ = (
        file for file in pinned(checkpoint, root, 1, 2).files if file.path.endswith(".delta")
    )
    other = bytes(reversed(checkpoint.get(path)))
    checkpoint.put(path, other)

    pinned(checkpoint, root, 1, 2)

    assert root.get(stored) == other


def ssts(root: Location) -> dict[str, ObjectInfo]:
    return {info.path: info for info in root.list("files") if info.path.endswith(".sst")}


def test_shared_ssts_are_not_copied_again(place: Location) -> None:
    checkpoint, root = unpack("rocksdb", place / "checkpoint"), place / "store"
    first = pinned(checkpoint, root, 1, 1)
    before = ssts(root)

    second = pinned(checkpoint, root, 2, 2)

    after = ssts(root)
    assert (len(before), len(after)) == (4, 6)
    assert before.items() <= after.items()  # same time and entity tag, so not written again
    assert {path for path in second.copied if path.endswith(".sst")} == after.keys() - before
    assert not {path for path in first.copied if path.startswith("files")} & second.copied


@pytest.fixture
def on_kms(
    on_s3: Location, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Location]:
    """Give a directory in a bucket that encrypts by KMS, where no tag is an MD5."""
    with encrypted(s3_endpoint) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        on_s3.put("same", b"1")
        on_s3.copy_from(on_s3, "same", "copy")
        tags = {on_s3.head(name).etag.strip('"') for name in ("same", "copy")}
        assert [len(one) for one in tags] == [32, 32]
        yield on_s3


@pytest.mark.parametrize("sample", ["hdfs", "changelog"])
def test_trap_with_kms_tags_look_like_md5s_and_deltas_are_copied_again(
    sample: str, on_kms: Location
) -> None:
    root, first, second = further(sample, on_kms)

    assert state(second) & state(first)
    assert state(second, second.copied) == state(second) - state(first) != set()
    original = files_of(sample)
    assert {path: root.get(stored) for path, stored, *_ in second.files} == {
        path: original[path] for path, *_ in second.files
    }


def test_trap_with_kms_tags_look_like_md5s_and_ssts_are_copied_again(on_kms: Location) -> None:
    checkpoint, root = unpack("rocksdb", on_kms / "checkpoint"), on_kms / "store"
    pinned(checkpoint, root, 1, 1)
    before = ssts(root)

    second = pinned(checkpoint, root, 2, 2)

    assert {path for path in second.copied if path.endswith(".sst")} == ssts(root).keys() - before


@pytest.mark.nightly
def test_a_corrupted_shared_sst_is_healed_by_the_next_pin(on_s3: Location) -> None:
    checkpoint, root = unpack("rocksdb", on_s3 / "checkpoint"), on_s3 / "store"
    first = pinned(checkpoint, root, 1, 1)
    path, stored, size, _ = next(file for file in first.files if file[0].endswith(".sst"))
    root.put(stored, b"\0" * size)

    second = pinned(checkpoint, root, 2, 1)

    assert {file for file in second.copied if file.endswith(".sst")} == {stored}
    assert root.get(stored) == checkpoint.get(path)


def test_a_cut_off_shared_sst_is_healed_by_the_next_pin(place: Location) -> None:
    checkpoint, root = unpack("rocksdb", place / "checkpoint"), place / "store"
    first = pinned(checkpoint, root, 1, 1)
    path, stored, *_ = next(file for file in first.files if file[0].endswith(".sst"))
    whole = root.get(stored)
    root.delete([stored])
    root.put(stored, whole[:-1])

    pinned(checkpoint, root, 2, 1)

    assert root.get(stored) == checkpoint.get(path) == whole


def test_what_an_earlier_attempt_left_is_removed(place: Location) -> None:
    checkpoint, root = unpack("rocksdb", place / "checkpoint"), place / "store"
    pinned(checkpoint, root, 1, 0)

    second = pinned(checkpoint, root, 1, 2)

    own = {path for path in contents(root) if "/sp-1/" in path}
    assert own == {stored for _, stored, *_ in second.files if "/sp-1/" in stored}
    assert "savepoints/sp-1/checkpoint/commits/0" not in own


@pytest.mark.s3
def test_trap_maintenance_removes_a_file_during_the_pin(place: Location) -> None:
    checkpoint, root = unpack("rocksdb", place / "checkpoint"), place / "store"
    files = read_cut(checkpoint, 2)
    checkpoint.delete([files.ssts[-1].path])

    with pytest.raises(FileNotFoundError, match=files.ssts[-1].path):
        native.pin(checkpoint, files, root, "sp-1")


def test_trap_nobody_knows_whose_savepoint_is_in_the_making(place: Location) -> None:
    """`gc` deletes half a savepoint unless it finds `metadata` in it, and the lease."""
    checkpoint, root = unpack("rocksdb", place / "checkpoint"), place / "store"
    files = read_cut(checkpoint, 2)
    stored = [StoredFile(info.path, f"from/{info.path}", info.size, "") for info in files.small]
    checkpoint.delete(["metadata"])

    with pytest.raises(FileNotFoundError, match="metadata"):
        native.pin(checkpoint, files, root, "sp-1")
    with pytest.raises(FileNotFoundError, match="metadata"):
        native.bring(lambda file: root.copy_from(checkpoint, file.path, file.stored_at), stored)

    assert not contents(root)


def test_checkpoint_and_store_may_lie_on_different_systems(
    on_local: Location, on_s3: Location
) -> None:
    for checkpoint, root in (
        (unpack("rocksdb", on_local / "checkpoint"), on_s3 / "store"),
        (unpack("rocksdb", on_s3 / "checkpoint"), on_local / "store"),
    ):
        found = pinned(checkpoint, root, 1, 2)

        original = files_of("rocksdb")
        assert contents(root) == {stored: original[path] for path, stored, *_ in found.files}


def test_checksums_are_those_of_the_bytes(place: Location) -> None:
    checkpoint, root = unpack("rocksdb", place / "checkpoint"), place / "store"

    stored = native.checksummed(root, pinned(checkpoint, root, 1, 2), {})

    original = files_of("rocksdb")
    assert [(file.path, file.size, file.sha256) for file in stored] == [
        (
            file.path,
            len(original[file.path]),
            hashlib.sha256(original[file.path]).hexdigest(),
        )
        for file in stored
    ]


def test_only_shared_files_take_the_checksum_that_is_known(on_local: Location) -> None:
    checkpoint, root = unpack("rocksdb", on_local / "checkpoint"), on_local / "store"
    first = pinned(checkpoint, root, 1, 1)
    second = pinned(checkpoint, root, 2, 2)
    known = {stored: "known" for pin in (first, second) for _, stored, *_ in pin.files}

    stored = native.checksummed(root, second, known)

    from_before = {file.stored_at for file in stored if file.sha256 == "known"}
    assert from_before == {path for _, path, *_ in second.files if path not in second.copied}
    assert len(from_before) == 4


# With the two partitions that all samples have, nothing of this one changes.
AS_IT_WAS = Skeleton(Uri.parse("/elsewhere"), 2, {})


def stored_files(root: Location, checkpoint: Location) -> tuple[StoredFile, ...]:
    return native.checksummed(root, pinned(checkpoint, root, 1, 2), {})


def test_a_mounted_directory_has_no_metadata_until_it_is_sealed(place: Location) -> None:
    checkpoint, root = unpack("rocksdb", place / "checkpoint"), place / "store"
    stored, target = stored_files(root, checkpoint), place / "target"
    original = files_of("rocksdb")
    expected = {file.path: original[file.path] for file in stored}

    native.mount(root, stored, target, AS_IT_WAS)

    assert contents(target) == {k: v for k, v in expected.items() if k != "metadata"}

    native.seal(root, stored, target)

    assert contents(target) == expected


def test_only_the_files_that_must_change_are_read_and_written(place: Location) -> None:
    checkpoint, root = unpack("join_3", place / "checkpoint"), place / "store"
    files = read_cut(checkpoint)
    stored = native.checksummed(root, native.pin(checkpoint, files, root, "sp-1"), {})
    target = place / "target"
    skeleton = Skeleton(target.uri, 7, {})

    native.mount(root, stored, target, skeleton)

    original, found = files_of("join_3"), contents(target)
    changed = {path for path, data in found.items() if data != original[path]}
    assert changed == {"offsets/1", "offsets/2", "state/0/_metadata/v2/0"}
    assert {path: found[path] for path in changed} == {
        path: skeleton.changed(path, original[path]) for path in changed
    }
    # The savepoint itself stays as it is, also where files are hard links.
    assert all(root.get(file.stored_at) == original[file.path] for file in stored)


@pytest.mark.parametrize("sample", ["hdfs_snapshot", "format_2_changelog", "limit"])
def test_files_of_every_format_are_pinned(sample: str, place: Location) -> None:
    checkpoint, root = unpack(sample, place / "checkpoint"), place / "store"
    files = read_cut(checkpoint)

    found = native.pin(checkpoint, files, root, "sp-1")

    original = files_of(sample)
    assert contents(root) == {stored: original[path] for path, stored, *_ in found.files}
    assert {stored for path, stored, *_ in found.files if path.endswith(".sst")} == {
        f"files/{files.query_id}/{info.path.rpartition('/')[2]}" for info in files.ssts
    }
    assert {path for path, *_ in found.files} == {info.path for info in files.all}


@pytest.mark.s3
def test_an_empty_directory_can_be_claimed_once(place: Location) -> None:
    target = place / "target"

    first = "sp-20261121-101530-k3f9ab"
    assert native.claim(target, f"{first} native restore")

    assert target.get(native.RESTORE_MARKER).startswith(f"{first} native restore\n".encode())
    assert native.restored_by(target) == first
    with pytest.raises(TargetExistsError) as refused:
        native.claim(target, "sp-2 native restore")
    assert refused.value.exit_code == 15
    assert refused.value.details == {"target": str(target)}


def test_the_same_owner_goes_on_and_leftovers_are_removed(place: Location) -> None:
    checkpoint, root = unpack("rocksdb", place / "checkpoint"), place / "store"
    stored, target = stored_files(root, checkpoint), place / "target"
    native.claim(target, "sp-1 native restore")
    native.mount(root, stored, target, AS_IT_WAS)
    target.put("state/0/0/99.zip", b"half")

    assert native.claim(target, "sp-1 native restore")

    assert contents(target).keys() == {native.RESTORE_MARKER}


@pytest.mark.s3
def test_trap_the_same_restore_begun_twice_seals_no_directory_that_the_other_has_emptied(
    place: Location,
) -> None:
    """A scheduler's second attempt cannot tell one that lives from one that was killed."""
    checkpoint, root = unpack("rocksdb", place / "checkpoint"), place / "store"
    stored, target = stored_files(root, checkpoint), place / "target"
    first = native.claim(target, "sp-1 native restore")
    assert first is not None
    native.mount(root, stored, target, AS_IT_WAS)
    first.require()

    second = native.claim(target, "sp-1 native restore")

    assert second is not None
    second.require()
    with pytest.raises(TargetExistsError, match="begun again"):
        first.require()


def test_a_finished_restore_is_left_as_it_is(place: Location) -> None:
    checkpoint, root = unpack("rocksdb", place / "checkpoint"), place / "store"
    stored, target = stored_files(root, checkpoint), place / "target"
    native.claim(target, "sp-1 native restore")
    native.mount(root, stored, target, AS_IT_WAS)
    native.seal(root, stored, target)
    before = contents(target)

    assert not native.claim(target, "sp-1 native restore")

    assert contents(target) == before


@pytest.mark.parametrize("there", ["metadata", "some/file", "_savepoints_restored_by"])
def test_a_foreign_directory_is_refused_and_left_alone(there: str, place: Location) -> None:
    target = place / "target"
    target.put(there, b"precious")

    with pytest.raises(TargetExistsError):
        native.claim(target, "sp-1 native restore")

    assert contents(target) == {there: b"precious"}


def test_a_fresh_checkpoint_was_restored_by_nothing(on_local: Location) -> None:
    assert native.restored_by(unpack("rocksdb", on_local)) is None
