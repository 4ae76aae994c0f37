"""`expire`: what is removed, what stays, and that nothing else is touched; no JVM needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from savepoints.config.settings import Settings
from savepoints.errors import (
    LockedError,
    QueryNotFoundError,
    SavepointNotFoundError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Labels, Savepoint
from savepoints.moments import rfc3339, utc_now
from savepoints.operations.maintain import expire, removal
from savepoints.operations.maintain.expire import Expired, ExpirePlan
from savepoints.store.locks import lease
from savepoints.store.locks.journal import Journal, Operation
from savepoints.store.retention_policy import RetentionPolicy
from savepoints.store.savepoint import labels
from savepoints.store.savepoint.manifest import manifest_path
from tests.leftovers import all_are_whole, left_over, restored, stored
from tests.samples import files_of, savepoint, take, unpack
from tests.templates import made_once

pytestmark = pytest.mark.drawn(6)

ONE = RetentionPolicy(keep_last=1)
# Of the sample; the first three share SSTs and the last shares none with them.
BATCHES = (0, 1, 2, 3)


@made_once
def four(store: Store, place: Location, query: str = "totals") -> list[Savepoint]:
    checkpoint = unpack("rocksdb", place / f"live-{query}")
    return [take(store, checkpoint, batch_id=batch, query=query) for batch in BATCHES]


def expired(store: Store, policy: RetentionPolicy = ONE, **how: Any) -> Expired:
    return expire.execute(expire.plan(store, policy, **how), store)


def names(savepoints: list[Savepoint]) -> set[str]:
    return {one.id for one in savepoints}


def test_what_goes_is_planned_with_its_bytes_and_nothing_is_done(
    on_local: Location, local_store: Store
) -> None:
    taken = four(local_store, on_local)
    before = {info.path: info.size for info in local_store.root.list()}

    plan = expire.plan(local_store, RetentionPolicy(keep_last=2))

    assert {info.path: info.size for info in local_store.root.list()} == before
    assert {one.savepoint_id for one in plan.removed} == names(taken[:2])
    reasons = {one.savepoint_id: one.reasons for one in plan.savepoints}
    assert reasons == {
        taken[3].id: ("the last good one", "the newest of generation 1", "last"),
        taken[2].id: ("last",),
        taken[1].id: (),
        taken[0].id: (),
    }
    own = {
        one.id: sum(
            size for path, size in before.items() if path.startswith(f"savepoints/{one.id}")
        )
        for one in taken
    }
    assert [(one.savepoint_id, one.bytes) for one in plan.savepoints] == [
        (taken[3].id, 0),
        (taken[2].id, 0),
        (taken[1].id, own[taken[1].id]),
        (taken[0].id, own[taken[0].id]),
    ]
    # What the first two share with the third stays: all SST files; their snapshots go.
    snapshots = {
        path: size
        for path, size in before.items()
        if path.startswith("files/") and any(f"/{one.id}/" in path for one in taken[:2])
    }
    assert (plan.shared_files, plan.shared_bytes) == (4, sum(snapshots.values()))
    assert len(snapshots) == 4
    assert all(path.endswith(".zip") for path in snapshots)
    assert plan.to_json()["policies"]["totals"]["keep_last"] == 2


@pytest.mark.s3
def test_what_was_planned_is_removed_and_the_rest_stays_whole(
    place: Location, store: Store
) -> None:
    taken = four(store, place)
    plan = expire.plan(store, ONE)
    before = {info.path: info.size for info in store.root.list()}

    done = expire.execute(plan, store)

    assert set(done.removed) == names(taken[:3])
    assert (done.kept, done.locked, done.findings) == ({}, {}, ())
    assert all_are_whole(store) == [taken[3].id]
    assert left_over(store) == set()
    gone = before.keys() - {info.path for info in store.root.list()}
    assert (done.files, done.bytes) == (len(gone), sum(before[path] for path in gone))
    labelled = [labels.labels_path(one.id) for one in taken]
    assert done.bytes == plan.bytes
    assert not any(store.root.exists(path) for path in labelled)


def test_two_that_share_files_expiring_one_leaves_the_other_whole(
    place: Location, store: Store
) -> None:
    checkpoint = unpack("rocksdb", place / "live")
    first = take(store, checkpoint, batch_id=0)
    second = take(store, checkpoint, batch_id=1)
    shared = {file.stored_at for file in store.manifest(first.id).files} & {
        file.stored_at for file in store.manifest(second.id).files
    }
    assert shared

    assert expired(store).removed == (first.id,)

    assert all_are_whole(store) == [second.id]
    assert left_over(store) == set()
    original = files_of("rocksdb")
    found = restored(store, second.id, place / "restored")
    assert found == {path: original[path] for path in found}

    third = take(store, checkpoint, batch_id=3)
    done = expired(store)

    assert done.removed == (second.id,)
    assert shared.isdisjoint(stored(store))
    assert all_are_whole(store) == [third.id]
    assert left_over(store) == set()


def test_files_that_a_savepoint_of_another_query_shares_stay(
    on_local: Location, local_store: Store
) -> None:
    # A fork's checkpoint is a restored one: it has the same id of Spark's.
    mine = four(local_store, on_local)
    fork = take(local_store, unpack("rocksdb", on_local / "fork"), batch_id=1, query="fork")

    done = expired(local_store, query="totals")

    assert set(done.removed) == names(mine[:3])
    assert set(all_are_whole(local_store)) == {mine[3].id, fork.id}
    assert left_over(local_store) == set()


def test_a_savepoint_without_a_row_yet_keeps_its_files(
    on_local: Location, local_store: Store
) -> None:
    # Its `create` was killed before its last step and will go on.
    taken = four(local_store, on_local)
    local_store.catalog.remove([taken[1].id])

    expired(local_store)

    local_store.catalog.add(taken[1])
    assert set(all_are_whole(local_store)) == {taken[1].id, taken[3].id}


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_when_a_manifest_cannot_be_read_no_shared_file_is_deleted(
    damage: str, on_local: Location, local_store: Store
) -> None:
    taken = four(local_store, on_local)
    local_store.catalog.relabel([taken[2].id], lambda label: replace(label, pinned=True))
    path = manifest_path(taken[2].id)
    whole = local_store.root.get(path)
    local_store.root.delete([path])
    if damage == "flipped":
        local_store.root.put(path, whole.replace(b"totals", b"totalz"))
    plan = expire.plan(local_store, ONE)

    done = expire.execute(plan, local_store)

    assert set(done.removed) == names(taken[:2])
    assert len(done.findings) == len(plan.warnings) == 1
    assert taken[2].id in done.findings[0]
    local_store.root.put(path, whole)
    assert set(all_are_whole(local_store)) == names(taken[2:])


def pin(store: Store, one: Savepoint) -> None:
    store.catalog.relabel([one.id], lambda label: replace(label, pinned=True))


def tag(store: Store, one: Savepoint) -> None:
    store.catalog.relabel([one.id], lambda label: replace(label, tags=("release",)))


def begin_from(store: Store, one: Savepoint) -> None:
    store.generations.begin("fork", 1, store.root / "x", by="restore", begun_from=one.id)


def begin_operation(store: Store, one: Savepoint) -> None:
    plan = {"outputs": [{"from": [one.id]}]}
    at = rfc3339(utc_now())
    Journal.begin(
        store.root, Operation("op-20261120-100000-aaaaaa", "rollback", "totals", plan, "", at)
    )


def read(store: Store, one: Savepoint) -> None:
    lease.mark(store.root, f"uses/{one.id}/op-20261120-100000-aaaaaa.json", "totals", "restore")


NEEDS: dict[str, tuple[Callable[[Store, Savepoint], None], str]] = {
    "pinned": (pin, "pinned"),
    "tagged": (tag, "tagged release"),
    "begun from": (begin_from, "generation 1 of fork began from this savepoint"),
    "operation": (
        begin_operation,
        "rollback op-20261120-100000-aaaaaa of totals is unfinished",
    ),
    "read": (read, "is being read: restore by process"),
}


@pytest.mark.parametrize("need", NEEDS)
def test_what_comes_to_be_needed_after_the_plan_stays(
    need: str, on_local: Location, local_store: Store
) -> None:
    taken = four(local_store, on_local)
    plan = expire.plan(local_store, ONE)
    happens, reason = NEEDS[need]
    happens(local_store, taken[1])

    done = expire.execute(plan, local_store)

    assert set(done.removed) == {taken[0].id, taken[2].id}
    assert set(done.kept) == {taken[1].id}
    assert any(one.startswith(reason) for one in done.kept[taken[1].id])
    assert set(all_are_whole(local_store)) == {taken[1].id, taken[3].id}
    again = {one.savepoint_id: one for one in expire.plan(local_store, ONE).savepoints}
    assert again[taken[1].id].kept


@pytest.mark.parametrize("need", ["begun from", "operation", "read"])
def test_what_comes_to_be_needed_while_it_is_marked_gets_its_state_back(
    need: str, on_local: Location, local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = four(local_store, on_local)
    why = "somebody looked"
    local_store.catalog.relabel(
        [taken[0].id], lambda label: replace(label, state="broken", state_reason=why)
    )
    happens, reason = NEEDS[need]
    seen: list[str] = []

    def happen(point: str) -> None:
        if point == "expire.marked":
            seen.extend(one.id for one in local_store.catalog.all() if one.state == "expired")
            happens(local_store, taken[0])
            if need == "read":
                happens(local_store, taken[1])

    monkeypatch.setattr("savepoints.faults.reach", happen)

    done = expired(local_store)

    assert set(seen) == names(taken[:3])
    spared = {taken[0].id, taken[1].id} if need == "read" else {taken[0].id}
    assert set(done.kept) == spared
    assert any(one.startswith(reason) for one in done.kept[taken[0].id])
    assert set(done.removed) == names(taken[:3]) - spared
    found = {one.id: one.labels for one in local_store.catalog.all()}
    assert found[taken[0].id] == Labels(taken[0].query, state="broken", state_reason=why)
    assert labels.read(local_store.root, taken[0].id) == found[taken[0].id]
    if need == "read":
        assert found[taken[1].id] == Labels(taken[1].query)
    assert all_are_whole_but_marked_broken(local_store)


def all_are_whole_but_marked_broken(store: Store) -> bool:
    """Say whether the files of all are there, also of one that is said to be broken."""
    sizes = {info.path: info.size for info in store.root.list()}
    return all(
        sizes.get(file.stored_at) == file.size
        for one in store.catalog.all()
        for file in store.manifest(one.id).files
    )


def test_a_tag_given_at_the_very_moment_protects(on_local: Location, local_store: Store) -> None:
    # Another process has written the labels and not the row yet.
    taken = four(local_store, on_local)
    plan = expire.plan(local_store, ONE)
    labels.change(local_store.root, taken[0], lambda label: replace(label, tags=("release",)))

    done = expire.execute(plan, local_store)

    assert set(done.removed) == names(taken[1:3])
    assert done.kept == {taken[0].id: ("tagged release",)}
    assert set(all_are_whole(local_store)) == {taken[0].id, taken[3].id}


def test_a_reader_either_keeps_the_savepoint_or_is_told_that_it_goes(
    place: Location, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = four(store, place)
    refused = []

    def happen(point: str) -> None:
        if point == "expire.files":
            with pytest.raises(SavepointNotFoundError), store.using(taken[0].id, "restore"):
                pass
            refused.append(point)

    monkeypatch.setattr("savepoints.faults.reach", happen)
    plan = expire.plan(store, ONE)

    with store.using(taken[1].id, "restore"):
        done = expire.execute(plan, store)
        assert taken[1].id in all_are_whole(store)

    assert refused
    assert set(done.removed) == {taken[0].id, taken[2].id}


def test_never_more_goes_than_was_planned(on_local: Location, local_store: Store) -> None:
    checkpoint = unpack("rocksdb", on_local / "live")
    first, second = (take(local_store, checkpoint, batch_id=batch) for batch in (0, 1))
    plan = expire.plan(local_store, ONE)
    third = take(local_store, checkpoint, batch_id=2)

    done = expire.execute(plan, local_store)

    assert done.removed == (first.id,)
    assert set(all_are_whole(local_store)) == {second.id, third.id}


def test_what_is_gone_by_then_is_no_error(on_local: Location, local_store: Store) -> None:
    taken = four(local_store, on_local)
    plan = expire.plan(local_store, ONE)
    expire.execute(plan, local_store)

    done = expire.execute(plan, local_store)

    assert (done.removed, done.files, done.bytes) == ((), 0, 0)
    assert all_are_whole(local_store) == [taken[3].id]


def test_it_waits_for_nobody(on_local: Location, local_store: Store) -> None:
    taken = four(local_store, on_local)
    plan = expire.plan(local_store, ONE)

    with (
        lease.hold_files(local_store.root, taken[0].query_id, "totals", "create"),
        pytest.raises(LockedError, match="the command create is working on totals"),
    ):
        expire.execute(plan, local_store)

    assert set(all_are_whole(local_store)) == names(taken)
    event = next(one for one in local_store.events.all() if one.verb == "expire")
    assert event.result == "skipped"


def test_a_query_that_is_locked_does_not_keep_others_from_being_expired(
    on_local: Location, local_store: Store
) -> None:
    taken = four(local_store, on_local)
    checkpoint = unpack("watermark", on_local / "other")
    others = [take(local_store, checkpoint, batch_id=batch, query="other") for batch in (1, 2)]

    with lease.hold_files(local_store.root, taken[0].query_id, "totals", "create"):
        done = expired(local_store)

    assert done.removed == (others[0].id,)
    assert set(done.locked) == {"totals"}
    assert set(all_are_whole(local_store)) == {*names(taken), others[1].id}


def test_the_next_savepoint_does_not_need_its_parent(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("rocksdb", on_local / "live")
    first, second = (take(local_store, checkpoint, batch_id=batch) for batch in (0, 1))
    expired(local_store)

    third = take(local_store, checkpoint, batch_id=2)

    assert (second.parent, third.parent) == (first.id, second.id)
    assert set(all_are_whole(local_store)) == {second.id, third.id}


def test_an_interrupted_removal_is_finished_unless_somebody_reads(
    place: Location, store: Store
) -> None:
    taken = four(store, place)
    gone = (taken[0], taken[1])
    store.catalog.relabel([one.id for one in gone], lambda label: replace(label, state="expired"))
    mark = lease.mark(store.root, f"uses/{taken[0].id}/op-20261120-100000-aaaaaa.json", "q", "copy")

    plan = expire.plan(store, RetentionPolicy(keep_last=10))
    assert {one.savepoint_id: one.reasons for one in plan.removed} == {
        one.id: ("its removal was interrupted",) for one in gone
    }
    done = expire.execute(plan, store)

    # One of which nothing was deleted yet becomes what it was.
    assert done.removed == (taken[1].id,)
    assert set(done.kept) == {taken[0].id}
    assert set(all_are_whole(store)) == {taken[0].id, taken[2].id, taken[3].id}
    mark.release()


def test_one_of_which_files_are_deleted_never_gets_its_name_back(
    on_local: Location, local_store: Store
) -> None:
    taken = four(local_store, on_local)
    local_store.catalog.relabel([taken[0].id], lambda label: replace(label, state="expired"))
    own = f"savepoints/{taken[0].id}/checkpoint/metadata"
    local_store.root.delete([own])
    mark = lease.mark(
        local_store.root, f"uses/{taken[0].id}/op-20261120-100000-aaaaaa.json", "q", "copy"
    )

    done = expired(local_store, RetentionPolicy(keep_last=10))

    assert (done.removed, set(done.kept)) == ((), {taken[0].id})
    assert set(all_are_whole(local_store)) == names(taken[1:])
    mark.release()
    assert expired(local_store, RetentionPolicy(keep_last=10)).removed == (taken[0].id,)
    assert left_over(local_store) == {info.path for info in local_store.root.list("uses")}


def test_it_is_recorded(on_local: Location, local_store: Store) -> None:
    taken = four(local_store, on_local)

    done = expired(local_store, RetentionPolicy(keep_last=3))

    event = local_store.events.all()[0]
    assert (event.verb, event.query, event.result) == ("expire", "totals", "done")
    assert (event.message, event.bytes) == (f"removed {taken[0].id}", done.bytes)
    assert event.parameters == {"totals": "3 last"}


def test_without_a_word_about_what_to_keep_it_refuses(local_store: Store) -> None:
    local_store.catalog.add(savepoint(1))

    for policy in (None, RetentionPolicy(), RetentionPolicy(keep_tags=())):
        with pytest.raises(
            UsageError, match="no retention rule was given, or only ones of 0"
        ) as caught:
            expire.plan(local_store, policy)
        assert "--keep-last" in caught.value.hint


def test_a_query_without_savepoints_is_an_error_that_names_those_there_are(
    local_store: Store,
) -> None:
    local_store.catalog.add(savepoint(1))

    with pytest.raises(QueryNotFoundError, match="'ordres'") as caught:
        expire.plan(local_store, ONE, query="ordres")

    assert "orders" in caught.value.hint


def settings(**retention: Any) -> Settings:
    own = {"app": "a:b", "checkpoints": "s3://b/c", "retention": {"keep_last": 2}}
    return Settings.model_validate({"queries": {"mine": own}, "retention": retention})


def planned(store: Store, settings: Settings) -> set[str]:
    plan: ExpirePlan = expire.plan(store.with_settings(settings))
    return {one.savepoint_id for one in plan.removed}


def test_each_query_has_the_policy_that_the_settings_give_it(local_store: Store) -> None:
    for query in ("mine", "other"):
        for number in range(4):
            stamp = f"sp-20261120-{100000 + number}-{query:a<6}"
            local_store.catalog.add(savepoint(number, query=query, id=stamp))
    mine = {f"sp-20261120-{100000 + number}-mineaa" for number in range(2)}
    others = {f"sp-20261120-{100000 + number}-othera" for number in range(3)}

    assert planned(local_store, settings(keep_daily=1)) == mine | others
    assert planned(local_store, settings(keep_within=timedelta(hours=9))) == mine
    # A query about which nothing is said keeps all.
    assert planned(local_store, settings()) == mine
    with pytest.raises(UsageError):
        expire.plan(local_store.with_settings(settings()), query="other")


def test_the_settings_section_becomes_a_policy() -> None:
    section = settings(
        keep_last=1, keep_hourly=2, keep_daily=3, keep_weekly=4, keep_monthly=5,
        keep_within="36h", keep_tags=["release"], after_savepoint=True,
    ).retention  # fmt: skip

    assert RetentionPolicy.of(section) == RetentionPolicy(
        1, 2, 3, 4, 5, timedelta(hours=36), ("release",)
    )


def test_after_a_savepoint_only_if_the_settings_say_so(
    on_local: Location, local_store: Store
) -> None:
    taken = four(local_store, on_local)

    assert (
        expire.after_savepoint(local_store.with_settings(settings(keep_last=3)), "totals") is None
    )
    wanted = settings(keep_last=3, after_savepoint=True)
    with lease.hold_files(local_store.root, taken[0].query_id, "totals", "create"):
        assert expire.after_savepoint(local_store.with_settings(wanted), "totals") is None
    assert set(all_are_whole(local_store)) == names(taken)

    done = expire.after_savepoint(local_store.with_settings(wanted), "totals")

    assert done
    assert done.removed == (taken[0].id,)
    # Nothing to do, so no event either.
    events = len(local_store.events.all())
    assert expire.after_savepoint(local_store.with_settings(wanted), "totals") is None
    assert len(local_store.events.all()) == events


def test_what_is_needed_by_something_that_is_over_may_go(
    on_local: Location, local_store: Store
) -> None:
    taken = four(local_store, on_local)
    begin_from(local_store, taken[0])
    local_store.generations.begin(
        "fork", 2, local_store.root / "y", by="restore", begun_from=taken[3].id
    )
    with local_store.using(taken[1].id, "restore"):
        pass

    assert set(removal.needed(local_store)) == {taken[3].id}
    assert set(expired(local_store).removed) == names(taken[:3])


@pytest.mark.parametrize("sample", ["hdfs", "changelog"])
def test_trap_deltas_that_a_later_savepoint_shares_stay(
    sample: str, place: Location, store: Store
) -> None:
    checkpoint = unpack(sample, place / "live")
    first, second = (take(store, checkpoint, batch_id=batch) for batch in (2, 3))
    ours, theirs = (
        {file.stored_at for file in store.manifest(one.id).native if file.etag}
        for one in (first, second)
    )
    assert ours & theirs

    expired(store)

    assert names(store.catalog.all()) == {second.id}
    all_are_whole(store)
