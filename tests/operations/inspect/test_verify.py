"""`verify` without a JVM: what is damaged is found and named."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import product

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.errors import (
    CredentialsError,
    QueryNotFoundError,
    SavepointNotFoundError,
    SavepointsError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Labels, Savepoint
from savepoints.operations.inspect.findings import Finding
from savepoints.operations.inspect.sampling import ReadSubset
from savepoints.operations.inspect.verify import Report, verify, verify_all
from savepoints.operations.savepoint import restore
from savepoints.outputs.delta import retention
from savepoints.store.locks import lease
from savepoints.store.savepoint import labels, manifest, sealed
from tests.denied import denied
from tests.draw import chance, examples, some
from tests.faults.s3_proxy import Fault, proxy_of
from tests.operations.exported import in_manifest
from tests.outputs import vectors
from tests.samples import lasting, query_id, savepoint, take, unpack
from tests.templates import first_of, made_once

pytestmark = pytest.mark.drawn(4)

# One file of every kind that a savepoint has.
KINDS = {
    "metadata": "metadata",
    "offsets": "offsets/3",
    "offsets before": "offsets/2",
    "commit": "commits/3",
    "source log": "sources/0/1",
    "operator metadata": "state/0/_metadata/metadata",
    "schema": "state/0/0/_metadata/schema",
    "snapshot": "state/0/1/2.zip",
    "changelog": "state/0/1/4.changelog",
    "sst": ".sst",
}


@made_once
def four(store: Store, place: Location) -> list[Savepoint]:
    checkpoint = unpack("rocksdb", place / "checkpoint")
    return [take(store, checkpoint, batch_id=batch) for batch in range(4)]


def saved(place: Location, store: Store) -> Savepoint:
    return first_of(store, place, "changelog")


def stored_at(store: Store, taken: Savepoint, kind: str) -> str:
    files = store.manifest(taken.id).files
    return next(file.stored_at for file in files if file.path.endswith(KINDS[kind]))


def flip(location: Location, path: str, position: int) -> None:
    data = bytearray(location.get(path))
    data[position] ^= 0x01
    location.delete([path])  # on a local file system the original has the same inode
    location.put(path, bytes(data))


def checked(store: Store, taken: Savepoint) -> Report:
    return verify(store, taken.id, depth="checksums")


def test_a_whole_savepoint_is_ok(place: Location, store: Store) -> None:
    taken = saved(place, store)

    report = checked(store, taken)

    files = store.manifest(taken.id).files
    assert (report.grade, report.findings) == ("ok", ())
    assert (report.files, report.operators) == (len(files) + 1, 1)
    assert report.bytes_read == sum(file.size for file in files)


def test_the_structure_is_looked_at_without_reading(on_local: Location, local_store: Store) -> None:
    taken = saved(on_local, local_store)
    flip(local_store.root, stored_at(local_store, taken, "sst"), 20)

    report = verify(local_store, taken.id, depth="structure")

    assert (report.grade, report.bytes_read) == ("ok", 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_byte_is_found_and_exactly_that_file_is_named(
    kind: str, on_local: Location, local_store: Store
) -> None:
    taken = saved(on_local, local_store)
    path = stored_at(local_store, taken, kind)
    flip(local_store.root, path, local_store.root.head(path).size // 2)

    report = checked(local_store, taken)

    assert report.grade == "broken"
    assert report.findings == (
        Finding("broken", path, "its SHA-256 does not match the recorded one"),
    )


@pytest.mark.parametrize(
    ("kind", "depth"), some(5, product(KINDS, ["structure", "checksums"]), "deleted")
)
def test_a_deleted_file_is_found_and_exactly_that_file_is_named(
    kind: str, depth: str, on_local: Location, local_store: Store
) -> None:
    taken = saved(on_local, local_store)
    path = stored_at(local_store, taken, kind)
    local_store.root.delete([path])

    report = verify(local_store, taken.id, depth=depth)  # type: ignore[arg-type]

    assert report.findings == (Finding("broken", path, "is missing"),)


@pytest.mark.nightly
def test_several_damages_on_s3_are_all_named(on_s3: Location) -> None:
    store = Store.at(str(on_s3 / "store")).make()
    taken = saved(on_s3, store)
    flipped, cut, gone = (
        stored_at(store, taken, kind) for kind in ("sst", "snapshot", "operator metadata")
    )
    flip(store.root, flipped, 5)
    store.root.put(cut, store.root.get(cut)[:-1])
    store.root.delete([gone])

    report = checked(store, taken)

    assert {finding.what for finding in report.findings} == {flipped, cut, gone}
    assert report.grade == "broken"


def test_a_lost_manifest_is_a_finding(on_local: Location, local_store: Store) -> None:
    taken = saved(on_local, local_store)
    path = manifest.manifest_path(taken.id)
    local_store.root.delete([path])

    report = checked(local_store, taken)

    assert [(finding.grade, finding.what) for finding in report.findings] == [("broken", path)]


def change(
    key: str, new: Callable[[object], object], part: str = "savepoint"
) -> Callable[[bytes], bytes]:
    def damage(data: bytes) -> bytes:
        content = json.loads(data)
        target = content[part][0] if part == "native" else content[part]
        target[key] = new(target[key])
        return json.dumps(content, indent=1, sort_keys=True).encode()

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:-5], id="cut off"),
        pytest.param(lambda data: data.replace(b"native", b"nativ\xff"), id="not UTF-8"),
        pytest.param(lambda _: b"[]", id="other JSON"),
        pytest.param(
            lambda data: data.replace(b'"schema_version": 1', b'"schema_version": 2'), id="newer"
        ),
        pytest.param(lambda data: data.replace(b'"batch_id"', b'"batch_ie"'), id="unknown key"),
        pytest.param(change("query", lambda _: "other"), id="another query"),
        pytest.param(change("generation", lambda _: 7), id="another generation"),
        pytest.param(change("created_at", lambda _: "2026-11-20T10:00:00.000Z"), id="another time"),
        pytest.param(
            change("created_at", lambda _: "2026-11-20T10:00:00.000Y"),
            id="no time",
        ),
        pytest.param(
            change("created_at", lambda _: None),
            id="time is null",
        ),
    ],
)
def test_a_damaged_manifest_is_found_and_named(
    damage: Callable[[bytes], bytes], on_local: Location, local_store: Store
) -> None:
    taken = saved(on_local, local_store)
    path = manifest.manifest_path(taken.id)
    local_store.root.put(path, damage(local_store.root.get(path)))

    report = checked(local_store, taken)

    assert [(finding.grade, finding.what) for finding in report.findings] == [("broken", path)]


def test_any_flipped_byte_of_the_manifest_is_found(on_local: Location, local_store: Store) -> None:
    taken = saved(on_local, local_store)
    path = manifest.manifest_path(taken.id)
    whole = local_store.root.get(path)
    passed = []

    # All of them, in the course of time: one costs as much as a savepoint.
    count = examples(12, len(whole) // 10)
    for position in chance("manifest").sample(range(len(whole)), count):
        flipped = bytearray(whole)
        flipped[position] ^= 0x01
        local_store.root.put(path, bytes(flipped))
        report = verify(local_store, taken.id, depth="structure")
        if report.grade == "ok" and json.loads(flipped) != json.loads(whole):
            passed.append(whole[position - 20 : position + 20])

    assert passed == []


def test_a_damaged_savepoint_does_not_spoil_its_siblings(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("changelog", on_local / "checkpoint")
    first, second = (take(local_store, checkpoint, batch_id=batch) for batch in (2, 3))
    local_store.root.delete([stored_at(local_store, second, "commit")])

    assert checked(local_store, first).grade == "ok"
    assert checked(local_store, second).grade == "broken"


def test_a_damage_of_a_shared_file_is_found_in_every_savepoint_that_needs_it(
    on_local: Location, local_store: Store
) -> None:
    taken = four(local_store, on_local)
    shared = {file.stored_at: file for file in local_store.manifest(taken[0].id).files}
    (path, *_) = [stored for stored in shared if stored.endswith(".sst")]
    flip(local_store.root, path, 30)

    grades = [checked(local_store, one).grade for one in taken]

    # Batch 3 was compacted and needs the file no more.
    assert grades == ["broken", "broken", "broken", "ok"]


def with_output(place: Location, store: Store) -> tuple[Savepoint, str]:
    uri = str(place / "output")
    for batch in range(2):
        write_deltalake(
            uri,
            pa.table({"k": [f"a {batch}"], "v": [batch]}),
            mode="append",
            partition_by=["k"],
            commit_properties=CommitProperties(
                app_transactions=[Transaction(query_id("changelog"), batch)]
            ),
        )
    checkpoint = unpack("changelog", place / "checkpoint")
    return take(store, checkpoint, outputs={"totals": uri}), uri


def test_an_output_whose_version_can_be_read_is_ok(on_local: Location, local_store: Store) -> None:
    taken, _ = with_output(on_local, local_store)

    assert checked(local_store, taken).findings == ()


def test_an_output_version_that_was_vacuumed_is_a_warning(
    on_local: Location, local_store: Store
) -> None:
    taken, uri = with_output(on_local, local_store)
    write_deltalake(uri, pa.table({"k": ["b"], "v": [9]}), mode="overwrite")
    DeltaTable(uri).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    report = checked(local_store, taken)

    assert report.grade == "warning"
    assert [finding.what for finding in report.findings] == ["output totals"]
    # The savepoint itself is whole: state and offsets can still be restored.
    restore.execute(restore.plan(local_store, taken.id, str(on_local / "target")), local_store)


def test_a_deletion_vector_that_is_gone_is_a_warning(
    on_local: Location, local_store: Store
) -> None:
    uri = str(on_local / "output")
    write_deltalake(uri, pa.table({"k": ["a", "b", "c"]}))
    vector = vectors.delete_row(Location.of(uri), 1, query_id("changelog"))
    taken = take(local_store, unpack("changelog", on_local / "checkpoint"), outputs={"totals": uri})
    assert checked(local_store, taken).findings == ()
    Location.of(uri).delete([vector])

    (finding,) = checked(local_store, taken).findings

    assert (finding.grade, finding.what) == ("warning", "output totals")
    assert vector in finding.problem


def test_an_output_that_is_gone_is_a_warning(on_local: Location, local_store: Store) -> None:
    taken, uri = with_output(on_local, local_store)
    table = Location.of(uri)
    table.delete([info.path for info in table.list()])

    report = checked(local_store, taken)

    assert report.grade == "warning"
    assert [finding.what for finding in report.findings] == ["output totals"]


def test_a_query_without_state_is_restored_and_looked_at_without_spark(
    place: Location, store: Store
) -> None:
    taken = first_of(store, place, "two_sources")
    before, lines = lasting(store), list[str]()

    report = verify(store, taken.id, depth="deep", progress=lines.append)

    assert (report.grade, report.findings, report.operators) == ("ok", (), 0)
    assert "restoring the native form into a temporary directory" in lines
    assert lasting(store) == before


def test_trap_a_savepoint_that_cannot_be_restored_is_found_by_restoring_it(
    on_local: Location, local_store: Store
) -> None:
    taken = first_of(local_store, on_local, "two_sources")
    stored = local_store.manifest(taken.id)
    (file,) = [one for one in stored.native if one.path == "sources/0/0"]
    # Whole as a set of files, and yet with an entry that the batch has not used.
    more = dataclasses.replace(file, path="sources/0/7")
    edited = dataclasses.replace(stored, native=(*stored.native, more))
    local_store.root.put(manifest.manifest_path(taken.id), edited.to_bytes())
    assert checked(local_store, taken).grade == "ok"

    report = verify(local_store, taken.id, depth="deep")

    assert report.grade == "broken"
    (finding,) = report.findings
    assert (finding.grade, finding.what) == ("broken", "the restored native form")
    assert "sources/0/7 lists input that no batch in the offset log has used" in finding.problem
    assert local_store.root.list("scratch") == []
    assert local_store.root.list("uses") == []
    assert local_store.root.get(manifest.manifest_path(taken.id)) == edited.to_bytes()

    again = verify(local_store, taken.id, depth="checksums")

    assert (again.grade, again.state) == ("ok", "broken"), "checksums would not have found it"


def test_what_is_damaged_is_not_restored_too(on_local: Location, local_store: Store) -> None:
    taken, lines = saved(on_local, local_store), list[str]()
    path = stored_at(local_store, taken, "sst")
    flip(local_store.root, path, 20)

    report = verify(local_store, taken.id, depth="deep", progress=lines.append)

    assert [finding.what for finding in report.findings] == [path]
    assert not any("restoring" in line for line in lines)


@pytest.mark.parametrize("sample", ["limit", "join_4", "transform_with_state", "hdfs_snapshot"])
def test_a_savepoint_of_any_state_is_verified_without_spark(
    sample: str, on_local: Location, local_store: Store
) -> None:
    taken = first_of(local_store, on_local, sample)

    report = checked(local_store, taken)

    assert (report.grade, report.findings, report.rows) == ("ok", (), None)
    assert report.operators == len(taken.operators)


def test_trap_all_was_well_with_a_query_whose_name_was_misspelt(
    on_local: Location, local_store: Store
) -> None:
    """Nothing was verified, and the metrics said when that had last succeeded."""
    query = saved(on_local, local_store).query

    with pytest.raises(QueryNotFoundError, match="no savepoints of the query 'ordres'") as caught:
        verify_all(local_store, query="ordres")

    assert query in caught.value.hint
    assert "verify" not in {one.verb for one in local_store.events.all()}


def test_an_unknown_savepoint_is_an_error(local_store: Store) -> None:
    with pytest.raises(SavepointNotFoundError):
        verify(local_store, "latest", depth="structure")


def state(store: Store, taken: Savepoint) -> tuple[str, str | None]:
    (row,) = [one for one in store.catalog.all() if one.id == taken.id]
    assert row.labels == labels.read(store.root, taken.id)
    return row.state, row.state_reason


def test_a_broken_savepoint_is_called_so_until_it_is_whole_again(
    place: Location, store: Store
) -> None:
    checkpoint = unpack("changelog", place / "checkpoint")
    older, newer = (take(store, checkpoint, batch_id=batch) for batch in (2, 3))
    path = stored_at(store, newer, "commit")
    whole = store.root.get(path)
    store.root.delete([path])

    assert verify(store, "latest", depth="structure").state == "broken"

    reason = f"verify (structure): {path} is missing"
    assert state(store, newer) == ("broken", reason)
    assert store.catalog.find("latest").id == older.id
    store.root.put(path, whole)
    assert verify(store, newer.id, depth="structure").state == "broken", "nothing was read"
    assert verify(store, newer.id, depth="checksums", share="1/2").state == "broken"
    report = verify(store, newer.id, depth="checksums")
    assert (report.grade, report.state) == ("ok", "complete")
    assert state(store, newer) == ("complete", None)
    assert store.catalog.find("latest").id == newer.id


def test_the_reason_is_renewed_and_the_same_one_is_not_written_again(
    on_local: Location, local_store: Store
) -> None:
    taken = saved(on_local, local_store)
    first, second = (stored_at(local_store, taken, kind) for kind in ("commit", "sst"))
    local_store.root.delete([first])
    checked(local_store, taken)
    before = lasting(local_store)

    checked(local_store, taken)
    assert lasting(local_store) == before
    local_store.root.delete([second])
    checked(local_store, taken)

    found = state(local_store, taken)[1] or ""
    assert found.startswith("verify (checksums): ")
    assert found.endswith(" is missing, and 1 more")


def test_all_savepoints_are_graded_and_shared_files_are_read_once(
    place: Location, store: Store
) -> None:
    taken = four(store, place)
    other = take(store, unpack("changelog", place / "other"), query="other")
    lost = store.manifest(taken[0].id).native[0].stored_at
    store.root.delete([lost])

    reports = verify_all(store)

    assert reports.grade == "broken"
    assert {one.savepoint_id: one.grade for one in reports.reports} == {
        taken[0].id: "broken",
        **{one.id: "ok" for one in (*taken[1:], other)},
    }
    files = {file.stored_at: file.size for one in taken for file in store.manifest(one.id).files}
    del files[lost]
    assert store.events.all()[0].broken == {"totals"}
    mine = verify_all(store, query="totals")
    assert mine.bytes_read == sum(files.values())
    assert len(mine.reports) == len(taken)
    event = store.events.all()[0]
    assert (event.verb, event.query, event.result) == ("verify", "totals", "failed")
    assert event.message.startswith("broken, 4 checked, 1 broken")
    assert lost in event.message


def test_a_share_is_read_and_the_structure_of_all_is_looked_at(
    on_local: Location, local_store: Store
) -> None:
    taken = saved(on_local, local_store)
    path = stored_at(local_store, taken, "sst")
    flip(local_store.root, path, 20)
    parts = [verify(local_store, taken.id, depth="checksums", share=f"{n}/3") for n in (1, 2, 3)]

    assert sorted(one.grade for one in parts) == ["broken", "ok", "ok"]
    assert sum(one.bytes_read for one in parts) == checked(local_store, taken).bytes_read
    assert [one.share for one in parts] == ["1/3", "2/3", "3/3"]
    local_store.root.delete([path])
    for share in ("1/3", "2/3", "3/3", "1%"):
        report = verify(local_store, taken.id, depth="checksums", share=share)
        assert [one.what for one in report.findings] == [path]


def test_a_random_share_is_as_large_as_asked_for() -> None:
    paths = {f"files/{number}" for number in range(200)}

    assert len(ReadSubset.parse("10%").of(paths)) == 20
    assert len(ReadSubset.parse("0.1%").of(paths)) == 1
    assert ReadSubset.parse("100%").of(paths) == paths
    assert ReadSubset.parse("10%").of(paths) != ReadSubset.parse("10%").of(paths)
    parts = [ReadSubset.parse(f"{number}/7").of(paths) for number in range(1, 8)]
    assert frozenset().union(*parts) == paths
    assert sum(map(len, parts)) == len(paths)
    assert parts == [ReadSubset.parse(f"{number}/7").of(paths) for number in range(1, 8)]


@pytest.mark.parametrize("days", [1, 2, 7, 30])
def test_one_share_a_day_reads_each_file_once_in_as_many_days(days: int) -> None:
    paths = {f"files/{number}" for number in range(200)}
    midnight = datetime(2026, 12, 28, tzinfo=UTC)
    moments = [midnight + timedelta(days=n, minutes=17 * n) for n in range(days)]

    read = [ReadSubset.parse(f"day/{days}", now=one) for one in moments]

    assert sorted(path for one in read for path in one.of(paths)) == sorted(paths)
    assert [ReadSubset.parse(one.text) for one in read] == read, "what a report says can be typed"


@pytest.mark.parametrize(
    "text", ["", "10", "0%", "101%", "0/3", "4/3", "1/0", "day/0", "day", "-1%", "1/2/3", "x%"]
)
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a valid fraction"):
        ReadSubset.parse(text)


@pytest.mark.parametrize("depth", ["structure", "contents", "deep"])
def test_a_share_goes_with_checksums_only(depth: str, local_store: Store) -> None:
    with pytest.raises(UsageError, match=depth):
        verify_all(local_store, depth=depth, share="10%")  # type: ignore[arg-type]


def test_labels_that_are_damaged_lost_or_other_than_the_row_are_a_warning(
    on_local: Location, local_store: Store
) -> None:
    taken = saved(on_local, local_store)
    path = labels.labels_path(taken.id)
    local_store.catalog.relabel([taken.id], lambda old: dataclasses.replace(old, tags=("one",)))
    assert checked(local_store, taken).findings == ()

    whole = local_store.root.get(path)
    for damage in (
        whole[:-3],
        whole.replace(b"one", b"two"),
        sealed.encode(Labels(taken.query, ("two",))),
    ):
        local_store.root.put(path, damage)
        report = checked(local_store, taken)
        assert [(one.grade, one.what) for one in report.findings] == [("warning", path)]
    local_store.root.delete([path])
    (finding,) = checked(local_store, taken).findings
    assert (finding.grade, finding.what) == ("warning", path)
    assert "differ in tags" in finding.problem


def test_a_row_that_says_something_else_is_found(on_local: Location, local_store: Store) -> None:
    taken = saved(on_local, local_store)
    local_store.catalog.put([dataclasses.replace(taken, generation=9, parent="sp-x")])

    (finding,) = checked(local_store, taken).findings

    assert (finding.grade, finding.what) == ("broken", manifest.manifest_path(taken.id))
    assert "does not match the catalog in generation, parent" in finding.problem


def test_what_is_being_removed_meanwhile_is_left_out(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("changelog", on_local / "checkpoint")
    kept, going = (take(local_store, checkpoint, batch_id=batch) for batch in (2, 3))

    def expire(line: str) -> None:
        if line.startswith("checking"):
            local_store.catalog.relabel(
                [going.id], lambda old: dataclasses.replace(old, state="expired")
            )
            local_store.root.delete([stored_at(local_store, going, "commit")])

    reports = verify_all(local_store, progress=expire)

    assert [one.savepoint_id for one in reports.reports] == [kept.id]
    (row,) = [one for one in local_store.catalog.all() if one.id == going.id]
    assert row.state == "expired"


def test_a_store_that_does_not_answer_never_makes_a_savepoint_broken(
    on_s3: Location, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.at(str(on_s3 / "store")).make()
    taken = saved(on_s3, store)
    path = stored_at(store, taken, "sst")

    with proxy_of(s3_endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        with (
            proxy.faults(lambda one: Fault.SLOW_DOWN if one.path.endswith(path) else None),
            pytest.raises(SavepointsError, match=path) as raised,
        ):
            checked(store, taken)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)

    assert raised.value.exit_code == 1
    assert store.catalog.all() == [taken]


def test_refused_credentials_never_make_a_savepoint_broken(
    on_s3: Location, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.at(str(on_s3 / "store")).make()
    taken = saved(on_s3, store)

    with denied(s3_endpoint, lambda _, path, __: path.endswith(".sst")) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises(CredentialsError):
            checked(store, taken)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)

    assert store.catalog.all() == [taken]


def test_a_store_that_may_only_be_read_is_verified_too(
    on_s3: Location, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.at(str(on_s3 / "store")).make()
    taken = saved(on_s3, store)
    path = stored_at(store, taken, "sst")
    store.root.delete([path])

    with denied(s3_endpoint, lambda method, *_: method in {"PUT", "POST", "DELETE"}) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        report = checked(store, taken)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)

    assert (report.grade, report.state) == ("broken", "complete")
    assert [(one.grade, one.what) for one in report.findings] == [
        ("broken", path),
        ("warning", "the catalog"),
    ]
    assert store.catalog.all() == [taken]


def test_a_pinned_version_that_is_about_to_expire_is_a_warning_with_the_date(
    on_local: Location, local_store: Store
) -> None:
    taken, uri = with_output(on_local, local_store)
    assert checked(local_store, taken).outputs[0].until is None
    table = DeltaTable(uri)
    table.alter.set_table_properties({retention.FILES_PROPERTY: "interval 2 hours"})

    report = checked(local_store, taken)

    (known,) = report.outputs
    (finding,) = report.findings
    assert (report.grade, report.state) == ("warning", "complete")
    assert known.until is not None
    assert known.until.isoformat()[:19] in finding.problem
    assert retention.FILES_PROPERTY in finding.problem


def test_nothing_to_verify_is_ok(local_store: Store) -> None:
    reports = verify_all(local_store)

    assert (reports.grade, reports.reports, reports.bytes_read) == ("ok", (), 0)


@pytest.mark.parametrize("hostile", ["../../outside", "/etc", "%2e%2e/outside", "a\\..\\b"])
def test_a_row_with_a_hostile_id_leads_nowhere(
    hostile: str, on_local: Location, local_store: Store
) -> None:
    outside = on_local / "outside"
    outside.put("manifest.json", b"secret")
    local_store.catalog.add(savepoint(1, id=hostile))

    try:
        reports = verify_all(local_store)
    except SavepointsError as error:
        assert repr(hostile)[1:-1] in error.message or hostile in error.message  # noqa: PT017
    else:
        (report,) = reports.reports
        assert report.grade == "broken"
        assert hostile in report.findings[0].what
    assert outside.get("manifest.json") == b"secret"
    assert [info.path for info in outside.list()] == ["manifest.json"]


def test_trap_an_export_at_work_is_said_to_be_unfinished(
    local_store: Store, on_local: Location
) -> None:
    """The manifest has the rows a moment before the catalog; with rows in the background, often."""
    taken = take(local_store, unpack("rocksdb", on_local / "live"))
    exported = in_manifest(local_store, taken)

    with lease.hold_exporting(local_store.root, taken.id, taken.query, "export"):
        assert verify(local_store, taken.id, depth="checksums").findings == ()
    (left,) = verify(local_store, taken.id, depth="checksums").findings
    assert "has an unfinished export" in left.problem

    def finish(_: str) -> None:
        local_store.catalog.exported(exported)

    assert verify(local_store, taken.id, depth="checksums", progress=finish).findings == ()
