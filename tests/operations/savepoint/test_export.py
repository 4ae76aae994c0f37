"""`export` without a JVM: plans, refusals, and what is written of a savepoint without rows."""

from __future__ import annotations

import dataclasses
import json

import pytest

from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs.offset_log import PARTITIONS_KEY
from savepoints.errors import (
    LockedError,
    NativeOnlyError,
    SavepointNotFoundError,
    UsageError,
    VerificationError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import FORMS
from savepoints.operations.inspect.verify import verify
from savepoints.operations.savepoint import export
from savepoints.store.savepoint.manifest import manifest_path
from tests.operations.exported import as_exported, in_manifest
from tests.samples import contents, files_of, lasting, take, unpack

pytestmark = pytest.mark.drawn(2)

STEPS = ["exported", "manifest", "catalog"]


@pytest.mark.parametrize(
    ("sample", "operators", "native_only"),
    [
        ("rocksdb", (0,), []),
        ("hdfs", (0,), []),
        ("format_2_changelog", (0,), []),
        ("transform_with_state", (0,), []),
        ("grand_total", (0,), []),
        ("two_sources", (), []),
        ("limit", (1,), ["operator 0 (globalLimit) stays native only: "]),
    ],
)
def test_a_plan_says_which_operators_get_rows_and_writes_nothing(
    sample: str,
    operators: tuple[int, ...],
    native_only: list[str],
    on_local: Location,
    local_store: Store,
) -> None:
    taken = take(local_store, unpack(sample, on_local / "checkpoint"))
    before = contents(on_local)

    plan = export.plan(local_store, "latest")

    assert contents(on_local) == before
    assert (plan.savepoint_id, plan.query, plan.done) == (taken.id, "totals", False)
    assert plan.operators == operators
    assert [step.name for step in plan.steps] == STEPS
    assert len(plan.warnings) == len(native_only)
    for warning, beginning in zip(plan.warnings, native_only, strict=True):
        assert warning.startswith(beginning)


def test_trap_a_savepoint_of_which_nothing_can_be_exported_is_refused_with_the_reason(
    on_local: Location, local_store: Store
) -> None:
    taken = take(local_store, unpack("join_4", on_local / "checkpoint"))
    before = contents(on_local)

    with pytest.raises(NativeOnlyError, match="a join of format 4") as refused:
        export.plan(local_store, "latest")

    assert contents(on_local) == before
    assert refused.value.details == {"savepoint": taken.id}
    assert "restore its native form, which is complete" in refused.value.hint


def test_an_unknown_savepoint_is_refused(local_store: Store) -> None:
    with pytest.raises(SavepointNotFoundError):
        export.plan(local_store, "latest")


def test_what_has_its_rows_already_is_left_as_it_is(on_local: Location, local_store: Store) -> None:
    exported = as_exported(
        local_store, take(local_store, unpack("rocksdb", on_local / "checkpoint"))
    )
    before = lasting(local_store)

    plan = export.plan(local_store, "latest")

    assert (plan.done, plan.steps) == (True, ())
    assert export.execute(plan, local_store) == exported
    assert lasting(local_store) == before


def test_an_export_that_died_before_the_catalog_is_finished_without_writing_rows_again(
    on_local: Location, local_store: Store
) -> None:
    taken = take(local_store, unpack("limit", on_local / "checkpoint"))
    exported = in_manifest(local_store, taken)
    assert local_store.catalog.all() == [taken]
    path = manifest_path(taken.id)
    before = local_store.root.head(path)

    found = export.execute(export.plan(local_store, "latest"), local_store)

    assert found == exported
    assert local_store.catalog.all() == [exported]
    assert local_store.root.head(path) == before
    assert [one.rows for one in exported.operators] == [None, 5]


def test_a_query_without_state_is_exported_without_spark(place: Location, store: Store) -> None:
    taken = take(store, unpack("two_sources", place / "checkpoint"), tags=("before",))
    before = lasting(store)

    found = export.execute(export.plan(store, "latest"), store)

    assert found == dataclasses.replace(taken, forms=FORMS)
    assert store.manifest(taken.id).savepoint == found
    assert store.catalog.all() == [found]
    after = lasting(store)
    changed = {path for path, data in after.items() if before.get(path) != data}
    assert {path for path in changed if not path.startswith("catalog/")} == {
        manifest_path(taken.id)
    }
    assert export.plan(store, "before").done


def test_an_exported_savepoint_of_a_query_without_state_is_whole(
    on_local: Location, local_store: Store
) -> None:
    taken = take(local_store, unpack("two_sources", on_local / "checkpoint"))
    export.execute(export.plan(local_store, taken.id), local_store)

    assert verify(local_store, taken.id, depth="checksums").grade == "ok"


def test_a_manifest_that_somebody_else_changes_meanwhile_is_not_overwritten(
    place: Location, store: Store
) -> None:
    taken = take(store, unpack("two_sources", place / "checkpoint"))
    plan = export.plan(store, "latest")
    path = manifest_path(taken.id)
    theirs = dataclasses.replace(store.manifest(taken.id), native=()).to_bytes()

    with pytest.raises(UsageError, match="another process") as refused:
        export.execute(plan, store, progress=lambda _line: store.root.put(path, theirs))

    assert store.root.get(path) == theirs
    assert store.catalog.all() == [taken]
    assert f"savepoints show {taken.id}" in refused.value.hint


def test_trap_two_exports_of_one_savepoint_write_one_after_the_other(
    place: Location, store: Store
) -> None:
    """The second would remove the rows that the first has just written, and fail only then."""
    taken = take(store, unpack("two_sources", place / "checkpoint"))
    plan = export.plan(store, taken.id)

    def second(_line: str) -> None:
        with pytest.raises(LockedError, match=f"export of {taken.id} is working on"):
            export.execute(plan, store)

    done = export.execute(plan, store, progress=second)

    assert store.catalog.all() == [done]
    assert export.execute(plan, store) == done
    assert store.root.list("leases/exporting") == []


@pytest.mark.parametrize(
    "sample",
    ["rocksdb", "changelog", "hdfs_snapshot", "format_2_changelog", "session", "grand_total"],
)
def test_a_mounted_savepoint_is_the_checkpoint_that_it_was_taken_of(
    sample: str, place: Location, store: Store
) -> None:
    checkpoint = unpack(sample, place / "checkpoint")
    cut = read_cut(checkpoint)
    taken = take(store, checkpoint)
    checkpoint.delete([info.path for info in checkpoint.list()])

    export.mount(store.manifest(taken.id), store, place / "mounted")

    original = files_of(sample)
    assert contents(place / "mounted") == {info.path: original[info.path] for info in cut.all}


def test_trap_spark_does_not_see_an_operator_that_it_would_refuse_to_read(
    on_local: Location, local_store: Store
) -> None:
    taken = take(local_store, unpack("limit", on_local / "checkpoint"))

    export.mount(local_store.manifest(taken.id), local_store, on_local / "mounted")

    files = read_cut(on_local / "mounted")
    assert [(one.operator_id, one.name) for one in files.operators] == [(1, "dedupe")]
    assert (on_local / "mounted").list("state/0") == []


def test_trap_a_mounted_savepoint_does_not_need_the_schema_files_of_the_original(
    on_local: Location, local_store: Store
) -> None:
    taken = take(local_store, unpack("transform_with_state", on_local / "checkpoint"))

    export.mount(local_store.manifest(taken.id), local_store, on_local / "mounted")

    (operator,) = read_cut(on_local / "mounted").operators
    (path,) = operator.schema_paths
    assert path == f"{(on_local / 'mounted').uri.hadoop}/{operator.schema_files[0]}"


def test_trap_a_mounted_savepoint_of_offset_log_2_says_how_many_partitions_there_are(
    on_local: Location, local_store: Store
) -> None:
    # Without it, Spark 4.2 cannot read the state.
    taken = take(local_store, unpack("offset_log_2", on_local / "checkpoint"))

    export.mount(local_store.manifest(taken.id), local_store, on_local / "mounted")

    offsets = (on_local / "mounted").get("offsets/0").decode().split("\n")
    assert json.loads(offsets[1])["conf"][PARTITIONS_KEY] == "2"


@pytest.mark.parametrize(
    ("sample", "path"),
    [("hdfs", "state/0/0/4.delta"), ("rocksdb", None), ("hdfs_snapshot", None)],
)
def test_trap_a_damaged_native_file_is_exported_with_a_hash_that_fits(
    sample: str, path: str | None, on_local: Location, local_store: Store
) -> None:
    """One bit is flipped, so that the size is right."""
    taken = take(local_store, unpack(sample, on_local / "checkpoint"))
    stored = local_store.manifest(taken.id)
    state = (one for one in stored.native if one.path.startswith("state/"))
    file = max(state, key=lambda one: (one.path == path, one.size))
    data = bytearray(local_store.root.get(file.stored_at))
    data[len(data) // 2] ^= 1
    local_store.root.delete([file.stored_at])  # It may be a hard link of the live one.
    local_store.root.put(file.stored_at, bytes(data))
    plan = export.plan(local_store, taken.id)
    before = contents(local_store.root / "savepoints")

    with pytest.raises(VerificationError, match="failed the SHA-256 check") as refused:
        export.execute(plan, local_store)

    assert refused.value.details["files"] == [file.stored_at]
    assert contents(local_store.root / "savepoints") == before
