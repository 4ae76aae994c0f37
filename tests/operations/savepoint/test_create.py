"""`create` in the native form, on checkpoints that Spark wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from savepoints.checkpoint.state.operators import HDFS_PROVIDER, ROCKSDB_PROVIDER
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import (
    CheckpointNotFoundError,
    NativeOnlyError,
    NoCommittedBatchError,
    PartitionCountError,
    QueryNotFoundError,
    TargetExistsError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location, ObjectInfo
from savepoints.model import FORMS, Edit, Form, OperatorState, Savepoint
from savepoints.moments import utc_now
from savepoints.operations.inspect.verify import verify
from savepoints.operations.maintain import tag
from savepoints.operations.savepoint import create, pin, restore
from savepoints.store.locks import lease
from savepoints.store.retention_policy import RetentionPolicy, decide
from savepoints.store.tables.catalog import Catalog
from tests.samples import contents, files_of, lasting, take, unpack, write

pytestmark = pytest.mark.drawn(4)


@pytest.mark.s3
def test_a_savepoint_is_a_copy_of_the_cut(place: Location, store: Store) -> None:
    checkpoint = unpack("rocksdb", place / "checkpoint")

    taken = take(store, checkpoint, tags=("before",))

    assert store.catalog.all() == [taken]
    assert (taken.cut.batch_id, taken.cut.offsets) == (3, ('{"logOffset":3}',))
    assert (taken.query, taken.generation, taken.forms) == ("totals", 1, ("native",))
    assert (taken.parent, taken.tags, taken.state) == (None, ("before",), "complete")
    assert [(one.name, one.partitions, one.rows) for one in taken.operators] == [
        ("stateStoreSave", 2, None)
    ]
    original = files_of("rocksdb")
    manifest = store.manifest(taken.id)
    assert manifest.savepoint == taken
    assert len(manifest.files) == 14
    for file in manifest.files:
        assert store.root.get(file.stored_at) == original[file.path]


def test_the_checkpoint_is_not_touched(on_local: Location, local_store: Store) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    before = checkpoint.list()

    take(local_store, checkpoint)

    assert [(info.path, info.etag) for info in checkpoint.list()] == [
        (info.path, info.etag) for info in before
    ]


def test_planning_writes_nothing(on_local: Location, local_store: Store) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")

    plan = create.plan(local_store, query="totals", checkpoint=str(checkpoint), forms=("native",))

    assert [info.path for info in local_store.root.list()] == ["store.json"]
    assert (plan.newest_batch, plan.files, plan.generation) == (3, 14, None)
    assert [step.name for step in plan.steps] == ["pinned", "manifest", "catalog"]


@pytest.mark.parametrize("days", [-2, 2])
def test_trap_machines_that_take_savepoints_do_not_agree_on_the_time(
    days: int, place: Location, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = unpack("rocksdb", place / "checkpoint")
    first = take(store, checkpoint, batch_id=1)
    with monkeypatch.context() as elsewhere:
        wrong = utc_now() + timedelta(days=days)
        elsewhere.setattr(create, "utc_now", lambda: wrong)
        elsewhere.setattr(lease, "utc_now", lambda: wrong)
        second = take(store, checkpoint, batch_id=2)

    assert (second.id > first.id) == (days > 0), "only its name goes by the machine's clock"
    assert abs(second.created_at - first.created_at) < timedelta(minutes=1)
    assert [one.id for one in store.catalog.all()] == [second.id, first.id]
    assert store.catalog.find("latest") == second
    decided = decide([first, second], RetentionPolicy(keep_last=1), {}, now=utc_now())
    assert {one.savepoint.id: one.kept for one in decided} == {first.id: False, second.id: True}


def test_the_next_savepoint_shares_files_and_knows_its_parent(
    place: Location, store: Store
) -> None:
    checkpoint = unpack("rocksdb", place / "checkpoint")
    first = take(store, checkpoint, batch_id=1)

    second = take(store, checkpoint, batch_id=2)

    assert (first.cost.objects_shared, second.cost.objects_shared) == (0, 4)
    assert second.cost.bytes_shared == sum(
        file.size for file in store.manifest(first.id).files if file.path.endswith(".sst")
    )
    assert (second.parent, second.generation) == (first.id, 1)
    hashes = {file.stored_at: file.sha256 for file in store.manifest(first.id).files}
    again = [file for file in store.manifest(second.id).files if file.stored_at in hashes]
    assert len(again) == 4
    assert all(file.sha256 == hashes[file.stored_at] for file in again)


def test_what_was_edited_by_hand_is_no_parent_since_it_has_no_files_to_share(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    first = take(local_store, checkpoint, batch_id=1)
    edit = Edit("me", "a try", 0)
    local_store.catalog.add(
        replace(first, id=f"{first.id}-edited", created_at=utc_now(), parent=first.id, edit=edit)
    )

    assert take(local_store, checkpoint, batch_id=2).parent == first.id


def test_executing_a_plan_again_returns_the_same_savepoint(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    plan = create.plan(local_store, query="totals", checkpoint=str(checkpoint), forms=("native",))
    first = create.execute(plan, local_store)
    before = lasting(local_store)

    assert create.execute(plan, local_store) == first
    assert lasting(local_store) == before


def test_a_savepoint_with_manifest_and_without_row_is_added(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    plan = create.plan(local_store, query="totals", checkpoint=str(checkpoint), forms=("native",))
    first = create.execute(plan, local_store)
    local_store.root.delete(info.path for info in local_store.root.list("catalog"))
    assert local_store.catalog.all() == []

    assert create.execute(plan, local_store) == first
    assert local_store.catalog.all() == [first]


def removing(checkpoint: Location, sample: dict[str, bytes], version: int) -> Callable[[str], None]:
    """Return a progress that does, between reading the cut and the pin, what a query does.

    It commits the next batch, and its maintenance deletes what only the one before needed.
    """
    files = set(sample)
    newer = {path for path in files if path.startswith(f"state/0/0/{version + 1}")}

    def progress(line: str) -> None:
        if not line.startswith("copying"):
            return
        write(checkpoint, {path: sample[path] for path in files})
        checkpoint.delete(
            path
            for path in files - newer
            if path.startswith("state/0/0/")
            and path.endswith((".sst", ".zip"))
            and path not in kept(sample, version + 1)
        )

    return progress


def kept(sample: dict[str, bytes], version: int) -> set[str]:
    from savepoints.checkpoint.state.files import listed_ssts

    snapshot = f"state/0/0/{version}.zip"
    ssts = listed_ssts(sample[snapshot], snapshot)
    return {snapshot, *(f"state/0/0/{path}" for path in ssts)}


def without_last_batch(sample: dict[str, bytes]) -> dict[str, bytes]:
    newest = {"offsets/3", "commits/3", "sources/0/3"}
    return {
        path: data
        for path, data in sample.items()
        if path not in newest and not path.endswith("/4.zip") and "000012-" not in path
    }


def test_trap_maintenance_removes_a_file_during_the_pin_and_a_newer_batch_is_taken(
    place: Location, store: Store
) -> None:
    sample, checkpoint = files_of("rocksdb"), place / "checkpoint"
    write(checkpoint, without_last_batch(sample))

    taken = take(store, checkpoint, progress=removing(checkpoint, sample, 3))

    assert (taken.cut.batch_id, taken.cost.attempts) == (3, 2)
    stored = store.manifest(taken.id).files
    assert {store.root.get(file.stored_at) == sample[file.path] for file in stored} == {True}
    own = {info.path for info in store.root.list(f"savepoints/{taken.id}/checkpoint")}
    assert own == {file.stored_at for file in stored if file.stored_at.startswith("savepoints")}


def test_trap_maintenance_removes_a_chosen_batch_during_the_pin(
    on_local: Location, local_store: Store
) -> None:
    sample, checkpoint = files_of("rocksdb"), on_local / "checkpoint"
    write(checkpoint, without_last_batch(sample))

    with pytest.raises(NoCommittedBatchError):
        take(local_store, checkpoint, batch_id=2, progress=removing(checkpoint, sample, 3))

    assert local_store.catalog.all() == []
    assert not any("manifest" in info.path for info in local_store.root.list())


def test_trap_a_disk_lists_a_commit_and_not_the_state_before_it(
    on_local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists in no order, and the batch was committed in between."""
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    whole, torn = Location.list, iter([True])

    def listed(self: Location, prefix: str = "", *, after: str = "") -> list[ObjectInfo]:
        found = whole(self, prefix, after=after)
        is_torn = self == checkpoint and not prefix and next(torn, False)
        return [one for one in found if not (is_torn and one.path.endswith("/4.zip"))]

    monkeypatch.setattr(Location, "list", listed)

    assert pin.read(checkpoint, None).cut.batch_id == 3


def test_a_checkpoint_whose_sst_is_gone_for_good_is_refused(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    checkpoint.delete(
        [info.path for info in checkpoint.list("state/0/0/SSTs") if "000012" in info.path]
    )

    with pytest.raises(NoCommittedBatchError, match=r"is missing from .*000012-"):
        take(local_store, checkpoint)

    assert [info.path for info in local_store.root.list()] == ["store.json"]


@pytest.mark.parametrize(
    ("sample", "error"),
    [("uncommitted", NoCommittedBatchError), (None, CheckpointNotFoundError)],
)
def test_what_cannot_be_saved_is_refused_before_anything_is_written(
    sample: str | None, error: type[Exception], on_local: Location, local_store: Store
) -> None:
    checkpoint = on_local / "checkpoint"
    if sample:
        unpack(sample, checkpoint)

    with pytest.raises(error):
        take(local_store, checkpoint)

    assert [info.path for info in local_store.root.list()] == ["store.json"]


def test_trap_the_first_batch_of_a_running_query_is_waited_for(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("uncommitted", on_local / "checkpoint")
    local_store.generations.begin("totals", 1, checkpoint, by="run")
    complete = files_of("rocksdb")

    def progress(line: str) -> None:
        assert line == "waiting for totals to commit its first batch"
        write(checkpoint, complete)

    with pytest.raises(NoCommittedBatchError, match="totals has not finished its first") as idle:
        create.plan(local_store, query="totals", wait=timedelta(hours=1))
    assert "savepoints run totals --until latest" in idle.value.hint
    with lease.hold(local_store.root, "totals", lease.RUN):
        with pytest.raises(NoCommittedBatchError) as busy:
            create.plan(local_store, query="totals")
        assert "savepoints create totals --wait 1h" in busy.value.hint
        plan = create.plan(local_store, query="totals", wait=timedelta(hours=1), progress=progress)

    assert plan.newest_batch == 3


def test_trap_a_damaged_checkpoint_is_refused_when_it_is_saved_not_when_it_is_restored(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("join", on_local / "checkpoint")
    lost = checkpoint.list("state/0/1/left-keyToNumValues")
    checkpoint.delete([info.path for info in lost])

    with pytest.raises(PartitionCountError):
        take(local_store, checkpoint)

    assert [info.path for info in local_store.root.list()] == ["store.json"]


LIMIT = "Spark cannot read the state rows of globalLimit"
JOIN_4 = "Spark cannot write the state rows of a join of format 4"
JOIN = tuple(
    f"{side}-{kind}"
    for side in ("left", "right")
    for kind in ("keyToNumValues", "keyWithIndexToValue")
)


def operator(
    name: str,
    number: int = 0,
    stores: tuple[str, ...] = ("default",),
    partitions: int = 2,
    **more: object,
) -> OperatorState:
    return OperatorState(number, name, stores, partitions, **more)  # type: ignore[arg-type]


OPERATORS: dict[str, tuple[OperatorState, ...]] = {
    "rocksdb": (operator("stateStoreSave"),),
    "changelog": (operator("stateStoreSave"),),
    "hdfs": (operator("stateStoreSave"),),
    "hdfs_snapshot": (operator("stateStoreSave"),),
    "format_2": (operator("stateStoreSave"),),
    "format_2_changelog": (operator("stateStoreSave"),),
    "offset_log_2": (operator("stateStoreSave"),),
    "offset_log_2_restarted": (operator("stateStoreSave"),),
    "watermark": (operator("dedupe"),),
    "session": (operator("sessionWindowStateStoreSaveExec"),),
    "grand_total": (operator("stateStoreSave", partitions=1, keyless=True),),
    "two_sources": (),
    "join": (operator("symmetricHashJoin", stores=JOIN),),
    "join_3": (operator("symmetricHashJoin", column_families=True),),
    "join_4": (operator("symmetricHashJoin", column_families=True, native_only=JOIN_4),),
    "transform_with_state": (operator("transformWithStateInPySparkExec", column_families=True),),
    "limit": (
        operator("globalLimit", partitions=1, keyless=True, native_only=LIMIT),
        operator("dedupe", 1),
    ),
}


@pytest.mark.parametrize("sample", OPERATORS)
def test_every_operator_and_provider_is_saved_natively(
    sample: str, on_local: Location, local_store: Store
) -> None:
    taken = take(local_store, unpack(sample, on_local / "checkpoint"))

    assert taken.operators == OPERATORS[sample]
    assert taken.forms == ("native",)
    assert taken.cut.checkpoint_format == (2 if sample.startswith("format_2") else 1)
    hdfs = sample.startswith("hdfs")
    assert taken.cut.provider == (HDFS_PROVIDER if hdfs else ROCKSDB_PROVIDER)
    assert taken.cut.partitions == 2
    # What is known of the operators is in both places, so that either can be made from the other.
    assert local_store.catalog.all() == [taken]
    assert local_store.manifest(taken.id).savepoint == taken


@pytest.mark.parametrize("wanted", [FORMS, ("native",), ("canonical",)])
@pytest.mark.parametrize("sample", OPERATORS)
def test_trap_native_only_operators_are_found_out_when_the_savepoint_is_planned(
    sample: str, wanted: tuple[Form, ...], on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack(sample, on_local / "checkpoint")
    reasons = {one.name: one.native_only for one in OPERATORS[sample] if one.native_only}

    def plan() -> create.CreatePlan:
        return create.plan(local_store, query="q", checkpoint=str(checkpoint), forms=wanted)

    if reasons and wanted == ("canonical",):
        with pytest.raises(
            NativeOnlyError, match="cannot be saved in the canonical form"
        ) as refused:
            plan()
        (name, why), *_ = reasons.items()
        assert why in refused.value.message
        assert "--format native" in refused.value.hint
        assert refused.value.details == {"operators": [f"operator 0 ({name})"]}
        return
    found = plan()
    nothing = len(reasons) == len(OPERATORS[sample]) > 0
    assert found.forms == (("native",) if nothing else wanted)
    assert [step.name for step in found.steps] == [
        "pinned",
        *(["exported"] if "canonical" in found.forms else []),
        "manifest",
        "catalog",
    ]
    if OPERATORS[sample]:
        *own, of_tables = found.warnings
        assert own == [
            f"operator 0 ({name}) is saved in the native form only, because {why}"
            for name, why in reasons.items()
        ]
        assert of_tables.startswith("the output tables of q are unknown")


def test_trap_state_of_format_2_is_pinned_by_the_ids_of_the_commit(
    place: Location, store: Store
) -> None:
    checkpoint = unpack("format_2_changelog", place / "checkpoint")
    right = {path for path in files_of("format_2_changelog") if path.startswith("state/0/0/4_")}
    checkpoint.put("state/0/0/4_00000000-1111-2222-3333-444444444444.zip", b"failed attempt")

    taken = take(store, checkpoint)

    stored = {file.path for file in store.manifest(taken.id).native}
    assert {path for path in stored if path.startswith("state/0/0/4_")} == right


def test_trap_another_query_in_the_same_directory_shares_nothing_with_the_one_before(
    on_local: Location, local_store: Store
) -> None:
    """Files that look the same would be looked for where the other's lie, again and again."""
    checkpoint = unpack("hdfs", on_local / "checkpoint")
    take(local_store, checkpoint)
    other = json.dumps({"id": "6f1c2f0e-0000-4000-8000-000000000000"}).encode()
    checkpoint.delete(["metadata"])
    checkpoint.put("metadata", other)

    taken = take(local_store, checkpoint)

    assert taken.query_id in other.decode()
    assert taken.cost.objects_shared == 0
    assert verify(local_store, taken.id, depth="checksums").grade == "ok"


def test_a_query_is_found_again_by_its_name(on_local: Location, local_store: Store) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    take(local_store, checkpoint, batch_id=1)

    plan = create.plan(local_store, query="totals", forms=("native",))

    assert (plan.checkpoint, plan.generation) == (str(checkpoint), 1)


def test_a_query_without_name_is_called_by_its_id(on_local: Location, local_store: Store) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")

    plan = create.plan(local_store, checkpoint=str(checkpoint), forms=("native",))

    assert plan.query in checkpoint.get("metadata").decode()


def test_an_unknown_query_is_refused_and_the_known_ones_are_named(
    on_local: Location, local_store: Store
) -> None:
    take(local_store, unpack("rocksdb", on_local / "checkpoint"))

    with pytest.raises(QueryNotFoundError) as refused:
        create.plan(local_store, query="clicks")

    assert refused.value.hint == "name one of its queries: totals"


def test_a_query_that_has_not_run_since_its_generation_began_has_nothing_to_save(
    on_local: Location, local_store: Store
) -> None:
    """As after a reset to an empty state; a lost checkpoint looks the same."""
    local_store.generations.begin("totals", 1, on_local / "next", by="reset")

    with pytest.raises(CheckpointNotFoundError, match="totals has not run since generation 1") as e:
        create.plan(local_store, query="totals")

    assert e.value.details["checkpoint"] == str(on_local / "next")
    assert "start its driver first" in e.value.hint
    assert "rollback latest --query totals --no-safety-savepoint" in e.value.hint
    bound = QuerySettings(app="unused:app", checkpoints=str(on_local))
    known = local_store.with_settings(Settings(queries={"totals": bound}))
    with pytest.raises(CheckpointNotFoundError) as e:
        create.plan(known, query="totals")
    assert "savepoints run totals --until latest" in e.value.hint


def test_neither_query_nor_checkpoint_is_a_usage_error(local_store: Store) -> None:
    with pytest.raises(UsageError):
        create.plan(local_store)


@pytest.mark.parametrize("tag", ["", "../up", "a/b", "a b", "-x", "latest~1", "@now", "x" * 101])
def test_a_tag_must_be_a_name(tag: str, on_local: Location, local_store: Store) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")

    with pytest.raises(UsageError, match="tag"):
        take(local_store, checkpoint, tags=(tag,))


def test_trap_a_tag_that_another_savepoint_has_is_refused(
    on_local: Location, local_store: Store
) -> None:
    """Both had it, so that `rollback before` was ambiguous."""
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    planned = create.plan(
        local_store, query="totals", checkpoint=str(checkpoint), forms=("native",), tags=("before",)
    )
    first = take(local_store, checkpoint, tags=("before",))
    files = contents(local_store.root)

    with pytest.raises(TargetExistsError, match=f"{first.id} of totals already has the tag"):
        take(local_store, checkpoint, tags=("after", "before"))
    with pytest.raises(TargetExistsError, match=f"{first.id} of totals already has the tag"):
        create.execute(planned, local_store)

    left = {path for path in contents(local_store.root) if not path.startswith("leases/")}
    assert {path for path in left if not path.startswith("events/")} <= files.keys()
    assert create.execute(replace(planned, tags=()), local_store).tags == ()
    assert take(local_store, checkpoint, query="totals", tags=("after",)).tags == ("after",)


def test_trap_a_tag_that_is_given_away_while_a_savepoint_is_taken(
    on_local: Location, local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    first = take(local_store, checkpoint)
    add = Catalog.add

    def late(catalog: Catalog, savepoint: Savepoint) -> None:
        tag.execute(tag.plan(local_store, first.id, add=("before",)), local_store)
        add(catalog, savepoint)

    monkeypatch.setattr(Catalog, "add", late)

    with pytest.raises(TargetExistsError, match="was taken without tags"):
        take(local_store, checkpoint, tags=("before",))

    taken = local_store.catalog.find("latest", query="totals")
    assert local_store.catalog.find("before", query="totals").id == first.id
    assert (taken.parent, taken.tags) == (first.id, ())


def test_a_stray_checkpoint_does_not_become_that_of_a_query_that_run_manages(
    on_local: Location, local_store: Store
) -> None:
    mine, stray = on_local / "mine", unpack("rocksdb", on_local / "stray")
    local_store.generations.begin("totals", 1, mine, by="run")

    with pytest.raises(UsageError, match="the checkpoint of the query"):
        take(local_store, stray)


def test_trap_two_queries_of_one_name_become_generations_of_each_other_without_a_word(
    on_local: Location, local_store: Store
) -> None:
    """A driver may begin another checkpoint: the plan says so, for it may be another query."""
    first, second = (unpack("rocksdb", on_local / name) for name in ("first", "second"))
    take(local_store, first)

    said, again = (
        create.plan(local_store, query="totals", checkpoint=str(one), forms=("native",)).warnings
        for one in (second, first)
    )

    assert any(f"{first} was the checkpoint of totals until now" in one for one in said)
    assert not any("until now" in one for one in again)


def test_a_query_without_state_is_saved_with_a_warning(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("two_sources", on_local / "checkpoint")

    plan = create.plan(local_store, query="both", checkpoint=str(checkpoint), forms=("native",))
    taken = create.execute(plan, local_store)

    assert "no state" in plan.warnings[0]
    assert taken.operators == ()
    assert taken.cut.offsets == ('{"logOffset":1}', '{"logOffset":1}')


def test_other_savepoints_survive_a_savepoint(on_local: Location, local_store: Store) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    taken: list[Savepoint] = []
    for batch in range(4):
        before = lasting(local_store)
        taken.append(take(local_store, checkpoint, batch_id=batch))
        after = lasting(local_store)
        assert {path: after[path] for path in before if "_delta_log" not in path}.items() <= (
            before.items()
        )

    assert local_store.catalog.all() == taken[::-1]


def test_a_restored_cut_keeps_the_time_of_its_commit(
    local_store: Store, on_local: Location
) -> None:
    original = take(local_store, unpack("rocksdb", on_local / "live"), batch_id=1)
    copy = on_local / "copy"
    restore.execute(restore.plan(local_store, original.id, str(copy)), local_store)
    younger = copy.head("commits/1").last_modified
    write(copy, {"commits/1": copy.get("commits/1")})
    assert copy.head("commits/1").last_modified > younger

    again = take(local_store, copy, query="copy")

    assert again.cut.committed_at == original.cut.committed_at
