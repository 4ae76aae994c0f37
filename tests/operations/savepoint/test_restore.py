"""`restore` from the native form, on savepoints of checkpoints that Spark wrote."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs.offset_log import CODEC_KEY, PARTITIONS_KEY, PROVIDER_KEY
from savepoints.checkpoint.small_files import Skeleton
from savepoints.checkpoint.state.operators import HDFS_PROVIDER, ROCKSDB_PROVIDER
from savepoints.errors import (
    NativeOnlyError,
    NotAlignedError,
    PartitionCountError,
    ProviderError,
    RescaleError,
    SavepointNotFoundError,
    SavepointsError,
    SchemaPathError,
    SourceLogError,
    StateIdsError,
    TargetExistsError,
    UsageError,
    VerificationError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations.inspect.verify import verify
from savepoints.operations.savepoint import restore, restore_checks
from savepoints.store.savepoint import manifest, native
from tests.operations.exported import ROWS, as_exported
from tests.samples import CHECKPOINTS, contents, files_of, take, unpack
from tests.templates import first_of

pytestmark = pytest.mark.drawn(5)

SAMPLES = sorted(path.stem for path in CHECKPOINTS.glob("*.zip") if path.stem != "uncommitted")
# As Spark writes it: an absolute path for each schema file of an operator.
SCHEMA_PATH = re.compile(rb'"file:/[^"]*/(state/\d+/_stateSchema/[^"]+)"')


def expected(sample: str, place: str) -> dict[str, bytes]:
    """Return the files of a sample as they must be at another place, and why.

    Nothing else may differ: the number of state partitions, where offset log 2 left it out, and
    the place of schema files.
    """
    files = files_of(sample)
    for path, data in files.items():
        if sample.startswith("offset_log_2") and path == "offsets/0":
            end = b'},"sourceMetadataInfo"'
            assert PARTITIONS_KEY.encode() not in data
            files[path] = data.replace(end, f',"{PARTITIONS_KEY}":"2"'.encode() + end)
        elif SCHEMA_PATH.search(data):
            files[path] = SCHEMA_PATH.sub(b'"%b/\\1"' % place.encode(), data)
    return files


def restored_is_original(sample: str, batch: int | None, place: Location, store: Store) -> None:
    checkpoint = unpack(sample, place / "checkpoint")
    cut = read_cut(checkpoint, batch)
    taken = take(store, checkpoint, batch_id=batch)
    checkpoint.delete([info.path for info in checkpoint.list()])
    target = place / "target"
    assert verify(store, taken.id, depth="checksums").findings == ()

    restored = restore.execute(restore.plan(store, taken.id, str(target)), store)

    found = contents(target)
    assert found.pop(native.RESTORE_MARKER).startswith(f"{taken.id} native restore\n".encode())
    original = expected(sample, target.uri.hadoop)
    assert found == {info.path: original[info.path] for info in cut.all}
    assert (restored.objects, restored.batch_id) == (len(found), cut.cut.batch_id)
    assert restored.bytes_written == sum(len(data) for data in found.values())
    again = read_cut(target)
    assert (again.query_id, again.partitions, again.keyless) == (
        cut.query_id,
        cut.partitions,
        cut.keyless,
    )
    assert [one.schema_files for one in again.operators] == [
        one.schema_files for one in cut.operators
    ]
    assert dataclasses.replace(again.cut, committed_at=cut.cut.committed_at) == cut.cut


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_checkpoint_is_restored_as_it_was(sample: str, place: Location, store: Store) -> None:
    restored_is_original(sample, None, place, store)


@pytest.mark.parametrize(
    ("sample", "batch"),
    [
        ("rocksdb", 0),
        ("rocksdb", 2),
        ("changelog", 0),
        ("changelog", 2),
        ("watermark", 4),
        ("hdfs", 0),
        ("hdfs_snapshot", 2),
        ("format_2_changelog", 0),
        ("format_2_changelog", 1),
        ("offset_log_2_restarted", 0),
        ("transform_with_state", 0),
        ("join_3", 1),
    ],
)
def test_an_older_batch_is_restored_as_it_was(
    sample: str, batch: int, on_local: Location, local_store: Store
) -> None:
    restored_is_original(sample, batch, on_local, local_store)


@pytest.mark.parametrize("sample", ["transform_with_state", "join_3", "join_4"])
def test_trap_a_restored_query_does_not_need_the_schema_files_of_the_original(
    sample: str, place: Location, store: Store
) -> None:
    checkpoint = unpack(sample, place / "checkpoint")
    take(store, checkpoint)
    checkpoint.delete([info.path for info in checkpoint.list()])
    target = place / "target"

    restore.execute(restore.plan(store, "latest", str(target)), store)

    metadata = target.get("state/0/_metadata/v2/0").decode().split("\n")[1]
    (paths,) = [one["stateSchemaFilePaths"] for one in json.loads(metadata)["stateStoreInfo"]]
    assert paths
    for path in paths:
        assert path.startswith(("file:/", "s3a://"))
        assert target.exists(path.removeprefix(f"{target.uri.hadoop}/"))
        assert not path.startswith(checkpoint.uri.hadoop)


@pytest.mark.parametrize("sample", ["offset_log_2", "offset_log_2_restarted"])
def test_trap_offset_log_2_gets_the_number_of_partitions_that_it_lacks(
    sample: str, on_local: Location, local_store: Store
) -> None:
    first_of(local_store, on_local, sample)
    target = on_local / "target"

    restore.execute(restore.plan(local_store, "latest", str(target)), local_store)

    files = [info.path for info in target.list("offsets")]
    assert len(files) == (1 if sample == "offset_log_2" else 2)
    for path in files:
        conf = json.loads(target.get(path).decode().split("\n")[1])["conf"]
        assert conf[PARTITIONS_KEY] == "2"


def test_trap_the_provider_is_written_down_where_it_was_sparks_default(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("hdfs", on_local / "checkpoint")
    key = f'"{PROVIDER_KEY}":"{HDFS_PROVIDER}",'.encode()
    for info in checkpoint.list("offsets"):
        checkpoint.put(info.path, checkpoint.get(info.path).replace(key, b""))
    take(local_store, checkpoint)
    target = on_local / "target"

    restore.execute(restore.plan(local_store, "latest", str(target)), local_store)

    # A session with RocksDB as its setting would look for other files otherwise.
    for batch in (2, 3):
        conf = json.loads(target.get(f"offsets/{batch}").decode().split("\n")[1])["conf"]
        assert conf[PROVIDER_KEY] == HDFS_PROVIDER


def test_trap_state_of_format_2_needs_a_setting_and_the_plan_says_so(
    on_local: Location, local_store: Store
) -> None:
    take(local_store, unpack("format_2", on_local / "format_2"), query="two")
    take(local_store, unpack("rocksdb", on_local / "rocksdb"), query="one")

    notes = {
        query: restore.plan(
            local_store, "latest", str(on_local / "x"), query=query, check_outputs=False
        ).warnings
        for query in ("one", "two")
    }

    setting = "spark.sql.streaming.stateStore.checkpointFormatVersion=2"
    assert notes == {"one": (), "two": (f"start the query with {setting}",)}


def edit_stored(
    store: Store, taken: Savepoint, path: str, change: Callable[[bytes], bytes]
) -> None:
    """Change a stored file, and the manifest so that it fits: as a faulty writer would leave it."""
    stored = store.manifest(taken.id)
    (file,) = [one for one in stored.native if one.path == path]
    data = change(store.root.get(file.stored_at))
    store.root.delete([file.stored_at])
    store.root.put(file.stored_at, data)
    edited = dataclasses.replace(file, size=len(data), sha256=hashlib.sha256(data).hexdigest())
    native_files = tuple(edited if one == file else one for one in stored.native)
    where = manifest.manifest_path(taken.id)
    store.root.put(where, dataclasses.replace(stored, native=native_files).to_bytes())


def with_source_entry(store: Store, taken: Savepoint) -> None:
    """Add an entry of the source's log that the batch has not used."""
    stored = store.manifest(taken.id)
    (file,) = [one for one in stored.native if one.path == "sources/0/0"]
    more = dataclasses.replace(file, path="sources/0/7")
    where = manifest.manifest_path(taken.id)
    edited = dataclasses.replace(stored, native=(*stored.native, more))
    store.root.put(where, edited.to_bytes())


def without_source_entry(store: Store, taken: Savepoint) -> None:
    """Leave out what the source has read, as earlier versions saved it of a damaged checkpoint."""
    stored = store.manifest(taken.id)
    kept = tuple(one for one in stored.native if one.path != "sources/0/0")
    where = manifest.manifest_path(taken.id)
    store.root.put(where, dataclasses.replace(stored, native=kept).to_bytes())


def without_partition(store: Store, taken: Savepoint) -> None:
    """Leave a state partition out."""
    stored = store.manifest(taken.id)
    kept = tuple(one for one in stored.native if not one.path.startswith("state/0/1/"))
    where = manifest.manifest_path(taken.id)
    store.root.put(where, dataclasses.replace(stored, native=kept).to_bytes())


def without_schema(store: Store, taken: Savepoint) -> None:
    """Leave the schema file out that the operator metadata refers to."""
    stored = store.manifest(taken.id)
    kept = tuple(one for one in stored.native if "_stateSchema" not in one.path)
    where = manifest.manifest_path(taken.id)
    store.root.put(where, dataclasses.replace(stored, native=kept).to_bytes())


def with_other_ids(store: Store, taken: Savepoint) -> None:
    """Let the commit log name state that is not there."""
    edit_stored(
        store, taken, "commits/0", lambda data: re.sub(rb'\["[0-9a-f]{8}', b'["00000000', data)
    )


@pytest.mark.parametrize(
    ("sample", "damage", "error"),
    [
        ("rocksdb", with_source_entry, SourceLogError),
        ("rocksdb", without_source_entry, SourceLogError),
        ("rocksdb", without_partition, PartitionCountError),
        ("hdfs", without_partition, PartitionCountError),
        ("two_sources", with_source_entry, SourceLogError),
        ("format_2", with_other_ids, StateIdsError),
        ("transform_with_state", without_schema, SchemaPathError),
    ],
)
def test_trap_what_would_go_on_wrongly_never_becomes_a_checkpoint(
    sample: str,
    damage: Callable[[Store, Savepoint], None],
    error: type[NotAlignedError],
    on_local: Location,
    local_store: Store,
) -> None:
    taken = first_of(local_store, on_local, sample)
    damage(local_store, taken)
    assert verify(local_store, taken.id, depth="checksums").findings == ()
    target = on_local / "target"

    with pytest.raises(error) as refused:
        restore.execute(restore.plan(local_store, taken.id, str(target)), local_store)

    assert refused.value.hint
    assert str(target) in refused.value.message
    assert not target.exists("metadata")


def test_planning_writes_nothing(on_local: Location, local_store: Store) -> None:
    taken = first_of(local_store, on_local, "rocksdb")
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


@pytest.mark.s3
def test_a_copied_prefix_verifies_and_restores(place: Location, store: Store) -> None:
    checkpoint = unpack("rocksdb", place / "checkpoint")
    taken = [take(store, checkpoint, batch_id=batch) for batch in (1, 2)]
    copied = place / "somewhere" / "else"
    for info in store.root.list():
        copied.copy_from(store.root, info.path, info.path)
    for gone in (store.root, checkpoint):
        gone.delete([info.path for info in gone.list()])
    elsewhere = Store.at(str(copied)).make()

    assert elsewhere.catalog.all() == taken[::-1]
    for one in taken:
        assert verify(elsewhere, one.id, depth="checksums").findings == ()
        target = place / f"target-{one.cut.batch_id}"
        restore.execute(restore.plan(elsewhere, one.id, str(target)), elsewhere)
        assert read_cut(target).cut.batch_id == one.cut.batch_id


def test_the_same_restore_again_does_nothing(on_local: Location, local_store: Store) -> None:
    first_of(local_store, on_local, "rocksdb")
    plan = restore.plan(local_store, "latest", str(on_local / "target"))
    restore.execute(plan, local_store)
    before = (on_local / "target").list()

    again = restore.execute(plan, local_store)

    assert again.already_restored
    assert (on_local / "target").list() == before


def test_a_half_written_restore_goes_on(on_local: Location, local_store: Store) -> None:
    taken = first_of(local_store, on_local, "rocksdb")
    target = on_local / "target"
    plan = restore.plan(local_store, "latest", str(target))
    stored = local_store.manifest(taken.id).native
    native.claim(target, plan.owner)
    native.mount(local_store.root, stored[:9], target, Skeleton(target.uri, 2, plan.conf))
    target.put("offsets/77", b"from a run that was killed")

    restored = restore.execute(plan, local_store)

    assert not restored.already_restored
    assert contents(target).keys() == {native.RESTORE_MARKER, *(file.path for file in stored)}


def test_trap_what_is_left_of_a_restore_of_latest_did_not_say_how_to_finish_it(
    on_local: Location, local_store: Store
) -> None:
    """By then `latest` was another savepoint, and the hint was to name another directory."""
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    first, target = take(local_store, checkpoint, batch_id=1), on_local / "target"
    native.claim(target, restore.plan(local_store, "latest", str(target)).owner)
    take(local_store, checkpoint, batch_id=2)

    with pytest.raises(TargetExistsError, match=f"a restore of {first.id} to") as refused:
        restore.plan(local_store, "latest", str(target))

    finish = f"finish it: savepoints restore {first.id} --to {target}, with the options"
    assert refused.value.hint.startswith(finish)
    restore.execute(restore.plan(local_store, first.id, str(target)), local_store)
    assert read_cut(target).cut.batch_id == 1


def test_a_target_whose_query_has_run_since_is_refused(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    take(local_store, checkpoint, batch_id=2)
    target = on_local / "target"
    plan = restore.plan(local_store, "latest", str(target))
    restore.execute(plan, local_store)
    unpack("rocksdb", target)  # batch 3

    with pytest.raises(TargetExistsError, match="has run there since"):
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


# Of which sample what is asked for, whether its rows are there, and what is said.
REFUSALS: dict[str, tuple[str, dict[str, Any], bool, type[SavepointsError], str, str]] = {
    "no rows": (
        "rocksdb", {"form": "canonical"}, False,
        UsageError, "has no canonical form, only native", "savepoints export {id}",
    ),
    "native with other partitions": (
        "rocksdb", {"form": "native", "partitions": 7}, True,
        UsageError, "can be restored only with its own partitions", "omit --format",
    ),
    "native with the other provider": (
        "hdfs", {"form": "native", "provider": "rocksdb"}, True,
        UsageError, "not with provider=rocksdb", "omit --format",
    ),
    "no partitions": (
        "rocksdb", {"partitions": 0}, True, UsageError, "--partitions is 0", "1 or more",
    ),
    "fewer than no partitions": (
        "rocksdb", {"partitions": -3}, True, UsageError, "--partitions is -3", "1 or more",
    ),
    "no partitions of a query without state": (
        "two_sources", {"partitions": 0}, True, UsageError, "--partitions is 0", "1 or more",
    ),
    "rescale without keys": (
        "grand_total", {"partitions": 7}, True,
        RescaleError, "has no keys, so it", "omit --partitions",
    ),
    "rescale without state": (
        "two_sources", {"partitions": 7}, True,
        RescaleError, "has no state", "omit --partitions",
    ),
    "rescale a join of format 4": (
        "join_4", {"partitions": 7}, False,
        NativeOnlyError, "a join of format 4", "omit --partitions and --provider",
    ),
    "the other provider for a join of format 4": (
        "join_4", {"provider": "hdfs"}, False,
        NativeOnlyError, "a join of format 4", "omit --partitions and --provider",
    ),
    "rows of a join of format 4": (
        "join_4", {"form": "canonical"}, False,
        NativeOnlyError, "a join of format 4", "--format native",
    ),
    "the other provider for a limit": (
        "limit", {"provider": "hdfs"}, True,
        NativeOnlyError, "globalLimit", "omit --partitions and --provider",
    ),
    "both for a limit": (
        "limit", {"partitions": 3, "provider": "hdfs"}, True,
        NativeOnlyError, "globalLimit", "omit --partitions and --provider",
    ),
    "HDFS for state variables": (
        "transform_with_state", {"provider": "hdfs"}, True,
        ProviderError, "column families", "omit --provider",
    ),
    "HDFS for a join of format 3": (
        "join_3", {"provider": "hdfs"}, True,
        ProviderError, "column families", "omit --provider",
    ),
    "HDFS for checkpoint format 2": (
        "format_2", {"provider": "hdfs"}, True,
        ProviderError, "checkpoint format 2", "omit --provider",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_restored_is_refused_before_anything_is_written(
    case: str, on_local: Location, local_store: Store
) -> None:
    sample, wanted, has_rows, error, says, hint = REFUSALS[case]
    taken = first_of(local_store, on_local, sample)
    if has_rows:
        as_exported(local_store, taken)
    before = contents(on_local)

    with pytest.raises(error) as refused:
        restore.plan(local_store, "latest", str(on_local / "target"), **wanted)

    assert type(refused.value) is error
    assert says in refused.value.message
    assert hint.format(id=taken.id) in refused.value.hint
    assert contents(on_local) == before


@pytest.mark.parametrize(
    ("sample", "wanted", "partitions", "provider"),
    [
        ("rocksdb", {"partitions": 7}, 7, ROCKSDB_PROVIDER),
        ("rocksdb", {"partitions": 1}, 1, ROCKSDB_PROVIDER),
        ("rocksdb", {"provider": "hdfs"}, 2, HDFS_PROVIDER),
        ("rocksdb", {"provider": "hdfs", "partitions": 7}, 7, HDFS_PROVIDER),
        ("hdfs", {"provider": "rocksdb"}, 2, ROCKSDB_PROVIDER),
        ("hdfs", {"partitions": 5}, 5, HDFS_PROVIDER),
        ("grand_total", {"provider": "hdfs"}, 2, HDFS_PROVIDER),
        ("format_2_changelog", {"partitions": 3}, 3, ROCKSDB_PROVIDER),
        ("transform_with_state", {"partitions": 3}, 3, ROCKSDB_PROVIDER),
        ("join", {"provider": "hdfs"}, 2, HDFS_PROVIDER),
        ("limit", {"partitions": 3}, 3, ROCKSDB_PROVIDER),
        ("limit", {"form": "canonical"}, 2, ROCKSDB_PROVIDER),
    ],
)
def test_what_is_to_change_is_planned_from_the_rows(
    sample: str,
    wanted: dict[str, Any],
    partitions: int,
    provider: str,
    on_local: Location,
    local_store: Store,
) -> None:
    as_exported(local_store, first_of(local_store, on_local, sample))
    before = contents(on_local)

    plan = restore.plan(local_store, "latest", str(on_local / "target"), **wanted)

    assert contents(on_local) == before
    assert (plan.form, plan.partitions, plan.provider) == ("canonical", partitions, provider)
    assert plan.conf[PROVIDER_KEY] == provider
    assert CODEC_KEY not in plan.conf, "state files that are copied may lie beside"
    assert [step.name for step in plan.steps] == ["files", "state", "metadata"]
    assert plan.rows == ROWS
    # The rows of one operator are written anew; the files of one that is native only are copied.
    operator = "state/0/" if sample == "limit" else "none"
    cut = read_cut(on_local / "checkpoint")
    files = [info for info in (*cut.state, *cut.ssts) if info.path.startswith(operator)]
    assert bool(files) == (sample == "limit")
    assert (plan.files, plan.files_bytes) == (
        len(cut.small) + len(files),
        sum(info.size for info in (*cut.small, *files)),
    )


@pytest.mark.parametrize(
    ("sample", "wanted"),
    [
        ("rocksdb", {"partitions": 2}),
        ("rocksdb", {"provider": "rocksdb"}),
        ("hdfs", {"provider": "hdfs", "partitions": 2}),
        ("join_4", {"partitions": 2, "provider": "rocksdb"}),
        ("grand_total", {"partitions": 2}),
        ("two_sources", {"partitions": 2}),
    ],
)
def test_to_ask_for_what_is_there_already_changes_nothing(
    sample: str, wanted: dict[str, Any], on_local: Location, local_store: Store
) -> None:
    first_of(local_store, on_local, sample)
    target = str(on_local / "target")

    plan = restore.plan(local_store, "latest", target, **wanted)

    assert plan == restore.plan(local_store, "latest", target)
    assert plan.form == "native"


def test_another_number_of_partitions_is_another_restore(
    on_local: Location, local_store: Store
) -> None:
    as_exported(local_store, first_of(local_store, on_local, "rocksdb"))
    target = on_local / "target"
    claimed = restore.plan(local_store, "latest", str(target), partitions=3)
    native.claim(target, claimed.owner)

    assert restore.plan(local_store, "latest", str(target), partitions=3) == claimed
    for other in ({"partitions": 4}, {"partitions": 3, "provider": "hdfs"}, {}):
        with pytest.raises(TargetExistsError):
            restore.plan(local_store, "latest", str(target), **other)


def test_an_unknown_savepoint_is_refused(on_local: Location, local_store: Store) -> None:
    with pytest.raises(SavepointNotFoundError):
        restore.plan(local_store, "latest", str(on_local / "target"))


def test_a_savepoint_with_a_missing_file_is_refused_and_the_file_named(
    on_local: Location, local_store: Store
) -> None:
    taken = first_of(local_store, on_local, "rocksdb")
    gone = local_store.manifest(taken.id).files[-1].stored_at
    local_store.root.delete([gone])

    with pytest.raises(VerificationError) as refused:
        restore.plan(local_store, "latest", str(on_local / "target"))

    assert refused.value.details["files"] == [gone]
    assert (on_local / "target").list() == []


def test_a_file_that_is_cut_off_after_the_plan_is_noticed_before_it_is_a_checkpoint(
    on_local: Location, local_store: Store
) -> None:
    taken = first_of(local_store, on_local, "rocksdb")
    plan = restore.plan(local_store, "latest", str(on_local / "target"))
    file = local_store.manifest(taken.id).files[-1]
    whole = local_store.root.get(file.stored_at)
    local_store.root.delete([file.stored_at])
    local_store.root.put(file.stored_at, whole[:-1])

    with pytest.raises(VerificationError, match=file.stored_at):
        restore.execute(plan, local_store)

    assert not (on_local / "target").exists("metadata")


@pytest.mark.parametrize("ending", ["offsets/3", "metadata", ".sst"])
def test_trap_a_file_that_is_gone_since_the_plan_is_an_unexpected_error(
    on_local: Location, local_store: Store, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """It was `unexpected FileNotFoundError`, and a large one is noticed by the copy alone."""
    taken = first_of(local_store, on_local, "rocksdb")
    plan = restore.plan(local_store, "latest", str(on_local / "target"))
    stored = local_store.manifest(taken.id).native
    gone = next(one.stored_at for one in stored if one.path.endswith(ending))
    local_store.root.delete([gone])

    for always_read in (1 << 20, 0):
        monkeypatch.setattr(restore_checks, "_ALWAYS_READ", always_read)
        with pytest.raises(VerificationError, match=f"{gone} is missing") as refused:
            restore.execute(plan, local_store)
        assert f"savepoints verify {taken.id}" in refused.value.hint
    assert not (on_local / "target").exists("metadata")


def test_trap_a_restore_of_lost_offsets_is_an_unexpected_error(
    on_local: Location, local_store: Store
) -> None:
    taken = first_of(local_store, on_local, "rocksdb")
    local_store.root.delete([f"savepoints/{taken.id}/checkpoint/offsets/3"])

    with pytest.raises(VerificationError, match=r"offsets/3 is missing"):
        restore.plan(local_store, "latest", str(on_local / "target"))
    with pytest.raises(VerificationError, match=r"first: .*offsets/3"):
        restore.plan(
            local_store, "latest", str(on_local / "target"),
            sources=("keep:0",), accept_unreplayable=True,
        )  # fmt: skip


def test_a_savepoint_that_is_removed_since_the_plan_is_named(
    on_local: Location, local_store: Store
) -> None:
    taken = first_of(local_store, on_local, "rocksdb")
    plan = restore.plan(local_store, "latest", str(on_local / "target"))
    local_store.catalog.remove([taken.id])

    with pytest.raises(SavepointNotFoundError, match=taken.id) as refused:
        restore.execute(plan, local_store)

    assert "savepoints list" in refused.value.hint


def test_a_lost_manifest_is_named(on_local: Location, local_store: Store) -> None:
    taken = first_of(local_store, on_local, "rocksdb")
    path = manifest.manifest_path(taken.id)
    local_store.root.delete([path])

    with pytest.raises(VerificationError, match=path):
        restore.plan(local_store, "latest", str(on_local / "target"))


def test_trap_a_new_query_begins_a_file_sink_in_the_midst(
    local_store: Store, on_local: Location
) -> None:
    """Spark neither reads such a directory nor goes on writing it for long."""
    checkpoint, sink = unpack("rocksdb", on_local / "live"), on_local / "clicks"
    for batch in range(4):
        sink.put(f"_spark_metadata/{batch}", b"v1")
    saved = take(local_store, checkpoint, outputs={"clicks": str(sink)})

    plan = restore.plan(local_store, saved.id, str(on_local / "second"), query_id=str(uuid.uuid4()))

    assert any(f"{sink} is written by Spark's file sink" in one for one in plan.warnings)
    assert any("with batch 4" in one for one in plan.warnings)
