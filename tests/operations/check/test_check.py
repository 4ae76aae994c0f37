"""`check`: what is wrong with store, settings and machine is seen, graded, and given advice."""

from __future__ import annotations

import dataclasses
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.config.settings import (
    QuerySettings,
    RetentionSettings,
    Settings,
    SparkSettings,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Cost, Savepoint, new_id
from savepoints.moments import rfc3339, utc_now
from savepoints.operations.check import access
from savepoints.operations.check.check import check
from savepoints.operations.inspect.findings import Seen
from savepoints.operations.maintain import expire, rebuild_catalog
from savepoints.operations.rollback import rollback
from savepoints.outputs.delta import retention
from savepoints.store import batch_log
from savepoints.store.locks import lease
from savepoints.store.locks.journal import Journal, Operation
from savepoints.store.retention_policy import RetentionPolicy
from savepoints.store.savepoint import manifest
from tests.denied import denied, unconditional
from tests.samples import lasting, query_id, savepoint, take, unpack
from tests.templates import first_of

pytestmark = pytest.mark.drawn(5)

RETAINED = "spark.sql.streaming.minBatchesToRetain"


# The batches of a sample lie milliseconds apart, so that 100 of them are soon over.
KEPT = Settings(spark=SparkSettings(conf={"spark.sql.streaming.minBatchesToRetain": "1000000000"}))


def saved(place: Location, store: Store) -> Savepoint:
    return first_of(store, place, "changelog")


def seen(store: Store, settings: Settings | None = None) -> dict[str, Seen]:
    return {one.name: one for one in check(store.with_settings(settings or Settings())).seen}


def wrong(store: Store, settings: Settings | None = None) -> list[Seen]:
    return [one for one in check(store.with_settings(settings or KEPT)).seen if one.grade != "ok"]


def test_a_healthy_store_is_ok_and_left_as_it_was(place: Location, store: Store) -> None:
    saved(place, store)
    before = lasting(store)

    health = check(store.with_settings(KEPT))

    assert (health.grade, [one for one in health.seen if one.grade != "ok"]) == ("ok", [])
    assert lasting(store) == before
    assert store.root.list("scratch") == []


def test_an_empty_store_is_healthy(local_store: Store) -> None:
    assert check(local_store).grade == "ok"


@pytest.mark.parametrize(
    ("permission", "grade"),
    [("put", "broken"), ("get", "broken"), ("copy", "broken"), ("delete", "warning")],
)
def test_a_permission_that_is_missing_is_named_with_the_verbs_that_need_it(
    permission: str,
    grade: str,
    on_s3: Location,
    s3_endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(method: str, path: str, is_copy: bool) -> bool:
        if "/scratch/" not in path and method != "POST":
            return False
        return {
            "put": method == "PUT",
            "get": method == "GET" and path.endswith("/probe"),
            "copy": method == "PUT" and is_copy,
            "delete": method in {"DELETE", "POST"},
        }[permission]

    store = Store.at(str(on_s3 / "store")).make()
    with denied(s3_endpoint, refuses) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        found = seen(store)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)

    one = found[f"permission {permission}"]
    assert one.grade == grade
    assert "the object store denies access to" in one.seen
    assert one.advice.startswith("grant it to your role: it is needed by ")
    others = {name for name, other in found.items() if other.grade == "broken"} - {one.name}
    assert others == ({"permission copy"} if permission == "put" else set()), "a copy is a PUT"


@pytest.mark.parametrize("header", ["If-None-Match", "If-Match"])
def test_a_store_without_conditional_writes_is_broken(
    header: str, on_s3: Location, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.at(str(on_s3 / "store")).make()
    with unconditional(s3_endpoint, header) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        found = seen(store)["conditional PUT"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)

    assert found.grade == "broken"
    assert f"the store ignores {header}, so" in found.seen
    assert "two processes could hold the same lease" in found.advice


@pytest.mark.parametrize(
    ("ahead", "grade", "words"),
    [
        (timedelta(), "ok", "within 5 s"),
        (timedelta(seconds=4), "ok", "within 5 s"),
        (timedelta(seconds=8), "warning", "8 s behind the store"),
        (timedelta(seconds=-12), "warning", "11 s ahead of the store"),
        (timedelta(minutes=5), "broken", "300 s behind the store"),
        (timedelta(minutes=-5), "broken", "299 s ahead of the store"),
    ],
)
def test_clocks_are_compared(ahead: timedelta, grade: str, words: str) -> None:
    now = datetime.now(UTC)

    found = access._clock(now + ahead, now, now)

    assert (found.grade, words in found.seen) == (grade, True), found


def test_rows_manifests_and_labels_are_compared_one_by_one(
    local_store: Store, on_local: Location
) -> None:
    checkpoint = unpack("changelog", on_local / "checkpoint")
    lost, damaged, other, without_row, broken = (
        take(local_store, checkpoint, batch_id=batch) for batch in (2, 3, 2, 3, 2)
    )
    root = local_store.root
    root.delete([manifest.manifest_path(lost.id)])
    root.put(manifest.manifest_path(damaged.id), b"{}")
    local_store.catalog.put([dataclasses.replace(other, generation=5)])
    local_store.catalog.remove([without_row.id])
    local_store.catalog.relabel(
        [broken.id], lambda old: dataclasses.replace(old, state="broken", state_reason="a bit")
    )
    root.put("savepoints/not-an-id/x", b"1")

    found = seen(local_store)

    expected = {
        manifest.manifest_path(lost.id): ("broken", "has no manifest"),
        manifest.manifest_path(damaged.id): ("broken", "is damaged"),
        manifest.manifest_path(other.id): ("broken", "does not match the catalog in generation"),
        without_row.id: ("warning", "has a manifest but no row in"),
        broken.id: ("warning", "is broken: a bit"),
        "savepoints/": ("warning", "'not-an-id'"),
    }
    for name, (grade, words) in expected.items():
        assert (found[name].grade, words in found[name].seen) == (grade, True), found[name]
    rebuild_catalog.execute(rebuild_catalog.plan(local_store), local_store)
    names = {one.name for one in wrong(local_store)}
    # Nobody knows which shared files the damaged manifest names.
    assert names == {manifest.manifest_path(damaged.id), broken.id, "savepoints/", "leftovers"}


def test_a_catalog_that_cannot_be_read_does_not_hide_the_rest(
    local_store: Store, on_local: Location
) -> None:
    saved(on_local, local_store)
    local_store.root.put(f"catalog/_delta_log/{1:020}.json", b"{")

    health = check(local_store)
    found = {one.name: one for one in health.seen}

    assert health.grade == "broken"
    assert found["catalog"].grade == "broken"
    assert found["catalog"].advice == "rebuild it: savepoints check --rebuild-catalog"
    assert found["generations"].grade == found["events"].grade == "ok"


def test_a_checkpoint_that_is_gone_is_a_warning(local_store: Store, on_local: Location) -> None:
    saved(on_local, local_store)
    (on_local / "checkpoint").delete(["metadata"])

    (found,) = wrong(local_store)

    assert (found.name, found.grade) == ("checkpoint of totals", "warning")
    assert str(on_local / "checkpoint") in found.seen


def test_generations_that_were_lost_are_found(local_store: Store, on_local: Location) -> None:
    saved(on_local, local_store)
    for number in (2, 3):
        checkpoint = unpack("changelog", on_local / f"checkpoint-{number}")
        local_store.generations.begin("totals", number, checkpoint, by="restore")
    assert wrong(local_store) == []
    generations = DeltaTable(str(local_store.root / "generations"))
    generations.delete("generation = 2")

    found = seen(local_store)["generations"]

    assert (found.grade, found.seen) == ("broken", "generation 2 of totals is missing")
    generations.delete("generation = 3")
    broken = [one.seen for one in wrong(local_store) if one.name == "generations"]
    assert broken == ["totals has 0 current generations instead of one"]


def test_trap_the_end_of_a_query_is_not_taken_for_a_lost_generation(
    local_store: Store, on_local: Location
) -> None:
    """Whoever restored a backup, as the check said, lost what was in order."""
    saved(on_local, local_store)

    local_store.query("totals").end(why="nobody needs it").execute()

    assert wrong(local_store) == []


def test_operations_and_leases(local_store: Store, on_local: Location) -> None:
    saved(on_local, local_store)
    operation = new_id("op", utc_now())
    begun = Operation(
        operation, "rollback", "totals", {}, "savepoints rollback x", rfc3339(utc_now())
    )
    Journal.begin(local_store.root, begun)
    local_store.root.put("operations/op-damaged.json", b"{")
    local_store.root.put("leases/files/damaged.json", b"[]")

    with lease.hold(local_store.root, "totals", "rollback"):
        found = seen(local_store)

    assert found[f"operations/{operation}.json"].advice == "finish it: savepoints rollback x"
    assert found[f"operations/{operation}.json"].grade == "warning"
    assert found["operations/op-damaged.json"].grade == "broken"
    assert found["leases/files/damaged.json"].grade == "broken"
    assert found["leases"].seen.startswith("1 held, 1 free; rollback of totals by process ")


def test_leftovers_are_named_with_what_gc_will_do(local_store: Store, on_local: Location) -> None:
    taken = saved(on_local, local_store)
    local_store.root.put(f"files/{taken.query_id}/orphan.sst", b"1")
    local_store.root.put("scratch/op-20200101-101530-k3f9ab/x", b"1")
    old = 1_600_000_000
    for path in (f"files/{taken.query_id}/orphan.sst", "scratch/op-20200101-101530-k3f9ab/x"):
        os.utime(Path(str(local_store.root)) / path, (old, old))

    found = [one for one in wrong(local_store) if "gc" in one.advice]

    assert {one.name.split("/")[0] for one in found} == {"files", "scratch"}
    assert all(one.grade == "warning" for one in found)


def test_the_environment(
    local_store: Store, on_local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = seen(local_store)
    assert [found[name].grade for name in ("Java", "Python", "deltalake", "jars")] == ["ok"] * 4
    monkeypatch.setenv("JAVA_HOME", str(on_local))

    found = seen(local_store, Settings(jars=Path(str(on_local))))

    assert (found["Java"].grade, "no working Java found" in found["Java"].seen) == ("warning", True)
    assert (found["jars"].grade, str(on_local) in found["jars"].seen) == ("broken", True)


def test_versions_are_compared_with_those_that_were_tested(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import metadata

    real = metadata.version
    other = {"pyspark": "4.3.0", "deltalake": "1.7.0"}
    monkeypatch.setattr(metadata, "version", lambda name: other.get(name) or real(name))

    found = seen(local_store)

    assert found["pyspark"].grade == found["deltalake"].grade == "warning"
    assert "4.3.0 is installed; tested versions: <4.3,>=3.5" in found["pyspark"].seen


def queries(**outputs: dict[str, str]) -> dict[str, QuerySettings]:
    return {
        name: QuerySettings(app="a:b", checkpoints="/c", outputs=tables)
        for name, tables in outputs.items()
    }


def test_the_log_store_is_explained(local_store: Store) -> None:
    one = queries(q={"t": "s3://b/t"}, p={"t": "s3a://b/u"})
    several = queries(q={"t": "s3://b/t"}, p={"x": "s3a://b/t/"})
    dynamo = {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}

    alone = seen(local_store, Settings(queries=one))["log store"]
    shared = seen(local_store, Settings(queries=several))["log store"]
    safe = seen(local_store, Settings(queries=several, spark=SparkSettings(conf=dynamo)))

    assert (alone.grade, shared.grade, safe["log store"].grade) == ("ok", "broken", "ok")
    assert "one Spark driver at a time" in alone.seen
    assert "s3://b/t is an output of several queries" in shared.seen


def paced(checkpoint: Location, gap: float) -> None:
    """Let the batches have been committed with this many seconds between two."""
    now = datetime.now(UTC).timestamp()
    for number, info in enumerate(checkpoint.list("commits")):
        at = now - 1000 + number * gap
        os.utime(Path(str(checkpoint)) / info.path, (at, at))


def test_the_pace_of_a_query_is_compared_with_what_copying_takes(
    local_store: Store, on_local: Location
) -> None:
    taken = saved(on_local, local_store)
    paced(on_local / "checkpoint", 10)
    slow = dataclasses.replace(taken, cost=Cost(pin_seconds=120))
    local_store.catalog.put([slow])

    enough = seen(local_store)["batches of totals"]
    settings = Settings(spark=SparkSettings(conf={RETAINED: "20"}))
    few = seen(local_store, settings)["batches of totals"]
    wrong = Settings(spark=SparkSettings(conf={RETAINED: "many"}))

    assert (enough.grade, few.grade) == ("ok", "warning")
    assert "one batch every 10.0 s, so each batch is kept for 1000 s" in enough.seen
    assert "so each batch is kept for 200 s; copying a batch took up to 120.0 s" in few.seen
    assert RETAINED in few.advice
    assert seen(local_store, wrong)["batches of totals"].grade == "broken"


def test_trap_a_live_checkpoint_is_deleted_with_the_old_one_it_lies_in(
    local_store: Store, on_local: Location
) -> None:
    """Nothing said so once the query had moved there, and of a merge nothing did before."""
    old = on_local / "totals"
    take(local_store, unpack("rocksdb", old))

    def said(checkpoints: Location) -> list[str]:
        bound = QuerySettings(app="a:b", checkpoints=str(checkpoints))
        settings = KEPT.model_copy(update={"queries": {"totals": bound}})
        return [one.seen for one in wrong(local_store, settings) if "inside" in one.seen]

    assert said(on_local / "next") == []
    (coming,) = said(on_local)
    assert coming.startswith(f"the next checkpoint, {old}/2, would lie inside")

    plan = rollback.plan(local_store, "latest", to=str(old / "2"), rewind_outputs=False)
    rollback.execute(plan, local_store)

    (present,) = said(on_local)
    assert present.startswith(f"{old}/2 lies inside {old} of generation 1")


def test_outputs_that_do_not_last_as_long_as_savepoints(
    local_store: Store, on_local: Location
) -> None:
    uri = str(on_local / "output")
    write_deltalake(
        uri,
        pa.table({"v": [1]}),
        commit_properties=CommitProperties(
            app_transactions=[Transaction(query_id("changelog"), 0)]
        ),
    )
    checkpoint = unpack("changelog", on_local / "checkpoint")
    take(local_store, checkpoint, outputs={"totals": uri})
    name = "output totals of totals"
    assert seen(local_store)[name].seen == "old versions stay readable for 7 days"
    month = Settings(retention=RetentionSettings(keep_within=timedelta(days=30)))

    short = seen(local_store, month)[name]
    DeltaTable(uri).alter.set_table_properties({retention.FILES_PROPERTY: "interval 1 hour"})
    over = seen(local_store)[name]

    assert (short.grade, over.grade) == ("warning", "warning")
    assert "kept for 30 days, but versions of the output for 7 days" in short.seen
    assert "interval 31 days" in short.advice
    assert retention.FILES_PROPERTY in over.seen


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        (RetentionSettings(keep_daily=7), None),
        (RetentionSettings(keep_last=6, keep_daily=7, keep_monthly=12), "for 360 days"),
        (RetentionSettings(keep_weekly=5), "for 35 days"),
        (RetentionSettings(keep_daily=-1), "for ever"),
    ],
)
def test_trap_savepoints_kept_by_count_longer_than_the_versions_of_an_output(
    rules: RetentionSettings, kept: str | None, local_store: Store, on_local: Location
) -> None:
    uri = str(on_local / "output")
    mark = CommitProperties(app_transactions=[Transaction(query_id("changelog"), 0)])
    write_deltalake(uri, pa.table({"v": [1]}), commit_properties=mark)
    checkpoint = unpack("changelog", on_local / "checkpoint")
    take(local_store, checkpoint, outputs={"totals": uri})

    found = seen(local_store, Settings(retention=rules))

    output = found["output totals of totals"]
    assert output.grade == ("ok" if kept is None else "warning")
    if kept is not None:
        assert f"savepoints are kept {kept}, but versions of the output for 7 days" in output.seen


def test_trap_versions_whose_entries_leave_the_log_were_said_to_stay_readable(
    local_store: Store, on_local: Location
) -> None:
    """Who had set what the advice named was told that all is well."""
    uri = str(on_local / "output")
    mark = CommitProperties(app_transactions=[Transaction(query_id("changelog"), 0)])
    write_deltalake(uri, pa.table({"v": [1]}), commit_properties=mark)
    take(local_store, unpack("changelog", on_local / "checkpoint"), outputs={"totals": uri})
    quarter = Settings(retention=RetentionSettings(keep_within=timedelta(days=90)))

    def checked() -> Seen:
        return seen(local_store, quarter)["output totals of totals"]

    both = f"set {retention.FILES_PROPERTY} and {retention.LOG_PROPERTY} of {uri} to "
    assert checked().advice == f"{both}'interval 91 days'"
    table = DeltaTable(uri)
    table.alter.set_table_properties({retention.FILES_PROPERTY: "interval 91 days"})
    half = checked()
    assert half.grade == "warning"
    assert "but versions of the output for 30 days" in half.seen
    assert half.advice == f"set {retention.LOG_PROPERTY} of {uri} to 'interval 91 days'"
    table.alter.set_table_properties({retention.LOG_PROPERTY: "interval 91 days"})
    assert (checked().grade, checked().seen) == ("ok", "old versions stay readable for 91 days")


@pytest.mark.parametrize("hostile", ["../../x", "x') OR ('a'='a", "/etc"])
def test_a_row_with_a_hostile_id_is_named_and_not_followed(
    hostile: str, local_store: Store, on_local: Location
) -> None:
    saved(on_local, local_store)
    local_store.catalog.add(savepoint(1, id=hostile))

    found = seen(local_store)["catalog"]

    assert found.grade == "broken"
    assert repr(hostile) in found.seen


@pytest.mark.parametrize("damage", ["{", '{"batch_id": 0, "offsets": ["{}"]}'])
def test_trap_a_damaged_batch_log_is_noticed_by_nobody(
    damage: str, local_store: Store, on_local: Location
) -> None:
    taken = saved(on_local, local_store)
    query, batch = taken.query, taken.cut.batch_id
    generation = local_store.generations.current(query)
    batch_log.copy(local_store.root, query, 1, Location.of(generation.checkpoint))
    assert f"batches/{query}/1" not in seen(local_store)
    (chunk,) = (info.path for info in local_store.root.list("batches"))

    local_store.root.put(chunk, damage.encode())
    assert seen(local_store)[f"batches/{query}/1"].grade == "broken"

    whole = batch_log.kept(Location.of(generation.checkpoint), -1)
    other = [dataclasses.replace(one, offsets=('{"logOffset":99}',)) for one in whole]
    lines = "".join(f"{json.dumps(vars(one))}\n" for one in other)
    local_store.root.put(chunk, lines.encode())
    assert f"the savepoint {taken.id} about" in seen(local_store)[f"batches/{query}/1"].seen
    assert batch in {one.batch_id for one in whole}


def test_trap_a_finished_journal_that_is_gone_is_noticed_by_nobody(
    local_store: Store, on_local: Location
) -> None:
    taken = saved(on_local, local_store)
    plan = rollback.plan(local_store, taken.id, to=str(on_local / "back"), rewind_outputs=False)
    rollback.execute(plan, local_store)
    name = f"generation 2 of {taken.query}"
    assert name not in seen(local_store)

    local_store.root.delete([f"operations/finished/{plan.operation_id}.json"])

    assert "but its journal in operations/ is missing" in seen(local_store)[name].seen


def periodic(store: Store, place: Location) -> None:
    """Let a query have taken three savepoints by itself, an hour apart."""
    checkpoint = unpack("changelog", place / "checkpoint")
    for hours in (3, 2, 1):
        one = take(store, checkpoint)
        at = utc_now() - timedelta(hours=hours)
        store.catalog.put([dataclasses.replace(one, kind="periodic", created_at=at)])


def test_trap_savepoints_that_nothing_ever_deletes_were_no_matter(
    local_store: Store, on_local: Location
) -> None:
    """A query that saves itself every ten minutes fills the bucket, and `check` said `ok`."""
    periodic(local_store, on_local)
    last = RetentionSettings(keep_last=1)

    nothing = seen(local_store)["retention of totals"]
    not_applied = seen(local_store, Settings(retention=last))["retention of totals"]
    kept = [
        seen(local_store, Settings(retention=rules))["retention of totals"]
        for rules in (
            RetentionSettings(keep_last=1, after_savepoint=True),
            RetentionSettings(keep_last=3),
            RetentionSettings(keep_last=-1),
        )
    ]
    expire.execute(expire.plan(local_store, RetentionPolicy(keep_last=1)), local_store)
    by_hand = seen(local_store)["retention of totals"]

    assert (nothing.grade, not_applied.grade) == ("warning", "warning")
    assert "none is ever deleted: 3 savepoints so far" in nothing.seen
    assert "keep_last = -1" in nothing.advice
    assert "2 of 3 savepoints are not kept by the rules (1 last)" in not_applied.seen
    assert "savepoints expire --query totals --yes" in not_applied.advice
    assert {one.grade for one in (*kept, by_hand)} == {"ok"}
    assert len(local_store.catalog.all()) == 1


def test_a_query_that_is_saved_by_hand_needs_no_rules(
    local_store: Store, on_local: Location
) -> None:
    saved(on_local, local_store)
    totals = QuerySettings(app="jobs:app", checkpoints=str(on_local), every="10m")

    assert "retention of totals" not in seen(local_store)
    assert (
        seen(local_store, Settings(queries={"totals": totals}))["retention of totals"].grade
        == "warning"
    )
