"""Taking a Delta table back: rows and transaction ids in one commit, nobody else's rows lost."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    TableFeatures,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType

from savepoints.errors import IncompatibleError, NotAlignedError, NotFoundError
from savepoints.io import Location, storage_options
from savepoints.json_values import from_json, to_json
from savepoints.model import OutputVersion
from savepoints.outputs.delta import batch_version, missing_files, snapshot
from savepoints.outputs.delta import log as delta_log
from savepoints.outputs.fork import isolated_copy
from savepoints.outputs.rewind import plan_text, rewind, rewind_commit
from savepoints.outputs.rewind.planned_rewind import Rewind
from tests.outputs import tables

pytestmark = pytest.mark.drawn(2)

OWN = "orders/totals/1"
NEXT = "orders/totals/2"
LEAVE = "leave the outputs as they are: --outputs none (rollback) or --outputs keep (reset)"


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be on a machine that has no Java."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))


def write(uri: str, batch: int, app: str | None = OWN) -> None:
    transactions = [Transaction(app, batch)] if app else None
    write_deltalake(
        uri,
        pa.table({"n": [batch], "part": [f"a b {batch % 2}"]}),
        mode="append",
        partition_by=["part"],
        storage_options=storage_options(Location.of(uri).uri),
        commit_properties=CommitProperties(app_transactions=transactions),
    )


def overwrite(uri: str) -> None:
    """Replace all rows and remove the files of those that were there."""
    rows = pa.table({"n": [9], "part": ["a b 1"]})
    write_deltalake(
        uri,
        rows,
        mode="overwrite",
        partition_by=["part"],
        commit_properties=CommitProperties(app_transactions=[Transaction(OWN, 9)]),
    )
    table(uri).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def table(uri: str) -> DeltaTable:
    return DeltaTable(uri, storage_options=storage_options(Location.of(uri).uri))


def rows(uri: str) -> list[int]:
    return sorted(row["n"] for row in table(uri).to_pyarrow_table().to_pylist())


def written(place: Location, batches: int = 4) -> str:
    uri = str(place / "totals")
    for batch in range(batches):
        write(uri, batch)
    return uri


def at_batch(uri: str, batch: int) -> OutputVersion:
    return batch_version.version_of_batch("totals", uri, (OWN,), batch)


def planned(uri: str, batch: int) -> Rewind:
    return rewind.plan(at_batch(uri, batch), "orders/", NEXT)


@pytest.mark.s3
def test_rows_and_transaction_ids_go_back_in_one_commit(place: Location) -> None:
    uri = written(place)
    plan = planned(uri, 1)
    assert plan.newest == 3
    assert plan.transactions == {OWN: 1, NEXT: 1}

    version = rewind.execute(plan, "op-1")

    assert version == table(uri).version() == 4
    assert rows(uri) == [0, 1]
    assert table(uri).transaction_version(OWN) == 1
    assert table(uri).transaction_version(NEXT) == 1
    log = Location.of(uri) / "_delta_log"
    commit = [json.loads(line) for line in log.get(f"{4:020}.json").splitlines()]
    assert {line["txn"]["appId"] for line in commit if "txn" in line} == {OWN, NEXT, "op-1"}
    assert sum("remove" in line for line in commit) == 2


def test_replayed_batches_are_written_and_found_again(on_local: Location) -> None:
    uri = written(on_local)
    rewind.execute(planned(uri, 1), "op-1")

    for batch in (2, 3):
        assert (table(uri).transaction_version(NEXT) or -1) < batch  # as Delta's sink asks
        write(uri, batch, NEXT)

    assert rows(uri) == [0, 1, 2, 3]
    found = batch_version.version_of_batch("totals", uri, (NEXT, OWN), 2)
    assert (found.version, found.app_id) == (5, NEXT)


def test_a_repetition_does_nothing(place: Location) -> None:
    uri = written(place)
    plan = planned(uri, 1)
    first = rewind.execute(plan, "op-1")

    assert rewind.execute(plan, "op-1") == first
    assert table(uri).version() == first


def test_a_later_operation_is_no_repetition(on_local: Location) -> None:
    uri = written(on_local)
    first = at_batch(uri, 1)
    rewind.execute(rewind.plan(first, "orders/", NEXT), "op-1")
    write(uri, 2, NEXT)

    rewind.execute(rewind.plan(first, "orders/", "orders/totals/3"), "op-2")

    assert rows(uri) == [0, 1]
    assert table(uri).transaction_version(NEXT) in {1, 2}
    assert table(uri).transaction_version("orders/totals/3") == 1


def test_going_back_to_the_present_changes_transaction_ids_only(place: Location) -> None:
    uri = written(place)
    files = sorted(table(uri).file_uris())

    plan = planned(uri, 3)
    version = rewind.execute(plan, "op-1")

    assert version == 4
    assert sorted(table(uri).file_uris()) == files
    assert table(uri).transaction_version(NEXT) == 3
    commit = delta_log.parse_commit(4, (Location.of(uri) / "_delta_log").get(f"{4:020}.json"))
    assert not commit.changes_data
    assert commit.transactions == {OWN: 3, NEXT: 3, "op-1": 1}
    assert rewind.execute(plan, "op-1") == 4


def test_before_the_first_batch_the_replayed_first_one_is_not_taken_for_written(
    on_local: Location,
) -> None:
    uri = str(on_local / "totals")
    schema = pa.table({"n": [0], "part": [""]}).schema
    DeltaTable.create(uri, schema, partition_by=["part"])
    empty = at_batch(uri, 0)
    assert (empty.version, empty.app_version) == (0, None)
    for batch in range(2):
        write(uri, batch)

    rewind.execute(rewind.plan(empty, "orders/", NEXT), "op-1")

    assert rows(uri) == []
    assert table(uri).transaction_version(OWN) == -1
    write(uri, 0)
    assert at_batch(uri, 0).version == 4


def test_what_others_have_written_since_is_refused_and_named(place: Location) -> None:
    uri = written(place)
    write(uri, 50, None)
    write(uri, 51, "another/app/1")

    with pytest.raises(NotAlignedError, match="first: version 4") as refused:
        planned(uri, 1)

    assert refused.value.details["versions"] == [5, 4]
    assert LEAVE in refused.value.hint
    assert table(uri).version() == 5


def test_what_others_wrote_before_is_kept(on_local: Location) -> None:
    uri = str(on_local / "totals")
    write(uri, 50, None)
    for batch in range(3):
        write(uri, batch)

    rewind.execute(planned(uri, 0), "op-1")

    assert rows(uri) == [0, 50]


def test_optimize_and_own_later_generations_are_not_foreign(on_local: Location) -> None:
    uri = written(on_local)
    first = at_batch(uri, 1)
    table(uri).optimize.compact()
    write(uri, 4, NEXT)

    rewind.execute(rewind.plan(first, "orders/", "orders/totals/3"), "op-1")

    assert rows(uri) == [0, 1]


def test_a_table_that_was_replaced_is_refused(on_local: Location) -> None:
    uri = written(on_local)
    first = at_batch(uri, 1)
    there = Location.of(uri)
    there.delete([info.path for info in there.list()])
    written(on_local, 6)

    with pytest.raises(NotAlignedError, match="has been deleted and recreated since the savepoint"):
        rewind.plan(first, "orders/", NEXT)


def test_a_table_that_is_gone_is_not_found(on_local: Location) -> None:
    uri = written(on_local)
    first = at_batch(uri, 1)
    there = Location.of(uri)
    there.delete([info.path for info in there.list()])

    with pytest.raises(NotFoundError) as refused:
        rewind.plan(first, "orders/", NEXT)
    assert "--outputs none" in refused.value.hint
    (empty,) = plan_text.kept(first, NEXT)
    assert "will have only what is written after batch 1" in empty


def test_a_version_that_never_was_is_refused(on_local: Location) -> None:
    uri = written(on_local)

    with pytest.raises(NotAlignedError, match="version 99"):
        rewind.plan(dataclasses.replace(at_batch(uri, 1), version=99), "orders/", NEXT)


def test_files_of_a_readable_version_are_all_there(place: Location) -> None:
    uri = written(place)

    assert missing_files.unreadable_files(at_batch(uri, 1)) == []


def test_files_that_vacuum_removed_are_named(on_local: Location) -> None:
    uri = written(on_local)
    first = at_batch(uri, 1)
    needed = batch_version.open_table(uri, first.version).file_uris()
    overwrite(uri)

    assert sorted(missing_files.unreadable_files(first)) == sorted(needed)


def test_a_version_whose_files_were_vacuumed_is_refused(on_local: Location) -> None:
    uri = written(on_local)
    first = at_batch(uri, 1)
    overwrite(uri)

    with pytest.raises(NotAlignedError):
        rewind.plan(first, "orders/", NEXT)


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "partitions",
        "deletion_vectors",
        "generated",
        "column_mapping",
        "change_data_feed",
        "v2_checkpoint",
    ],
)
def test_tables_of_spark_go_back_and_forth(on_local: Location, name: str) -> None:
    """Batch 4 deleted a row of batch 1: with it gone, and undone, all is as it was then."""
    uri = tables.unpack(name, on_local / "totals")
    versions = {batch: tables.rows(uri, batch + 1) for batch in (2, 4)}
    assert len(versions[4]) == len(versions[2]) + 1
    plan = planned(uri, 2)

    rewind.execute(plan, "op-1")
    assert tables.rows(uri) == versions[2]
    assert table(uri).transaction_version(OWN) == 2
    rewind.undo(plan, "op-1")
    assert tables.rows(uri) == versions[4]
    assert table(uri).transaction_version(OWN) == 4


@pytest.mark.parametrize(
    ("name", "features"),
    [
        ("row_tracking", ["domainMetadata", "rowTracking"]),
        ("in_commit_timestamps", ["inCommitTimestamp"]),
        ("type_widening", ["typeWidening"]),
        ("clustering", ["clustering", "domainMetadata"]),
        ("identity", ["identityColumns"]),
    ],
)
def test_where_no_spark_is_tables_that_only_it_can_write_are_refused_before_anything_is_touched(
    on_local: Location, name: str, features: list[str], no_java: None
) -> None:
    uri = tables.unpack(name, on_local / "totals")
    output = at_batch(uri, 2)
    before = [info.path for info in Location.of(uri).list()]

    with pytest.raises(IncompatibleError, match=", ".join(features)) as refused:
        rewind.plan(output, "orders/", NEXT)
    assert "there is no Spark here: no working Java found" in refused.value.message
    assert refused.value.details["features"] == features
    assert "savepoints rollback SAVEPOINT --outputs none" in refused.value.hint
    with pytest.raises(IncompatibleError, match=", ".join(features)):
        rewind.plan(output, "orders/", NEXT, "n > 0")
    with pytest.raises(IncompatibleError, match=", ".join(features)):
        rewind.plan_empty("totals", uri, "orders/", (), NEXT)
    assert [info.path for info in Location.of(uri).list()] == before
    with pytest.raises(DeltaError):
        table(uri).restore(2)


@pytest.mark.parametrize("name", ["row_tracking", "identity"])
def test_own_rows_of_a_table_that_only_spark_can_write_are_refused(
    on_local: Location, name: str
) -> None:
    uri = tables.unpack(name, on_local / "totals")

    with pytest.raises(IncompatibleError, match="own_rows would need a second commit"):
        rewind.plan(at_batch(uri, 2), "orders/", NEXT, "n > 0")


def test_a_type_that_was_widened_since_is_refused(on_local: Location) -> None:
    """From batch 2 on the column is wider: an older version has other columns."""
    uri = tables.unpack("type_widening", on_local / "totals")

    with pytest.raises(
        IncompatibleError, match="something else has changed since that version: columns"
    ):
        rewind.plan(at_batch(uri, 1), "orders/", NEXT)
    assert rewind.plan(at_batch(uri, 2), "orders/", NEXT).engine == "spark"


def test_a_feature_that_was_never_tried_is_refused(on_local: Location) -> None:
    uri = tables.unpack("row_tracking", on_local / "totals")
    tables.name_feature(uri, "aFeatureOfTomorrow")

    with pytest.raises(IncompatibleError, match=r"aFeatureOfTomorrow \(not tested with savepoints"):
        rewind.plan(at_batch(uri, 2), "orders/", NEXT)


def test_a_table_from_which_nothing_may_be_removed_is_refused(on_local: Location) -> None:
    """But it can be left as it is, for which only transaction ids are committed."""
    uri = written(on_local)
    table(uri).alter.set_table_properties({"delta.appendOnly": "true"})

    with pytest.raises(IncompatibleError, match="appendOnly") as refused:
        planned(uri, 1)
    assert LEAVE in refused.value.hint

    there = dataclasses.replace(batch_version.present("totals", uri, OWN), app_id=NEXT)
    rewind.execute(rewind.plan(there, "orders/", NEXT), "op-20261121-101530-aaaaaa")
    assert rows(uri) == [0, 1, 2, 3]
    assert table(uri).transaction_version(NEXT) == 3


def test_the_way_out_for_a_table_that_only_spark_can_write_is_one_for_a_reset_too(
    on_local: Location, no_java: None
) -> None:
    """Not even transaction ids can be committed there, so `reset --outputs keep` is none."""
    uri = tables.unpack("identity", on_local / "totals")
    there = dataclasses.replace(batch_version.present("totals", uri, OWN), app_id=NEXT)

    with pytest.raises(IncompatibleError, match="identityColumns") as refused:
        rewind.plan(there, "orders/", NEXT)

    assert "--outputs keep" not in refused.value.hint
    assert "[queries.NAME.outputs]" in refused.value.hint
    with pytest.raises(NotAlignedError, match="IdentityColumns") as failed:
        rewind_commit.take_back(table(uri), uri, there.version, {NEXT: 4})
    assert LEAVE in failed.value.hint


def test_the_hints_name_the_choice_of_rollback_and_that_of_reset(on_local: Location) -> None:
    """`reset` has no `--outputs none`, `rollback` no `--outputs keep`."""
    uri = written(on_local)
    another = dataclasses.replace(at_batch(uri, 1), table_id="another")
    with pytest.raises(NotAlignedError, match="has been deleted and recreated") as made_anew:
        rewind.plan(another, "orders/", NEXT)
    with pytest.raises(NotAlignedError, match=r"^own_rows is .*, but in version") as undeclared:
        rewind.plan(at_batch(uri, 1), "orders/", NEXT, "n < 0")
    plan = at_batch(uri, 1)
    overwrite(uri)
    with pytest.raises(NotAlignedError, match=r"is missing [1-9]") as removed:
        rewind.plan(plan, "orders/", NEXT)

    for refused in (made_anew, undeclared, removed):
        assert LEAVE in refused.value.hint


def test_columns_and_properties_go_back_too_and_the_plan_says_so(on_local: Location) -> None:
    uri = written(on_local)
    more = {"n": [9], "part": ["a b 1"], "extra": [1]}
    write_deltalake(
        uri,
        pa.table(more),
        mode="append",
        schema_mode="merge",
        commit_properties=CommitProperties(app_transactions=[Transaction(OWN, 4)]),
    )
    table(uri).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    table(uri).alter.set_table_description("totals by day")
    plan = planned(uri, 1)

    notes = " / ".join(plan_text.notes(plan))
    assert "revert to those of version 1; removed: extra" in notes
    assert "properties are also rewound: delta.logRetentionDuration" in notes
    assert "also rewound to that of version 1: comment" in notes
    rewind.execute(plan, "op-1")
    assert table(uri).metadata().description is None
    assert [field.name for field in table(uri).schema().fields] == ["n", "part"]
    assert table(uri).metadata().configuration == {}
    rewind.undo(plan, "op-1")
    assert [field.name for field in table(uri).schema().fields] == ["n", "part", "extra"]
    assert table(uri).metadata().description == "totals by day"
    assert rows(uri) == [0, 1, 2, 3, 9]


def test_the_partitioning_goes_back_too_and_the_plan_says_so(on_local: Location) -> None:
    """As a query in output mode `complete` may change it that may overwrite the schema."""
    uri = written(on_local)
    write_deltalake(
        uri,
        pa.table({"n": [9], "part": ["a b 1"]}),
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=["n"],
        commit_properties=CommitProperties(app_transactions=[Transaction(OWN, 4)]),
    )
    plan = planned(uri, 1)

    assert "also rewound to that of version 1: partitioning" in " / ".join(plan_text.notes(plan))
    rewind.execute(plan, "op-1")
    assert table(uri).metadata().partition_columns == ["part"]
    assert rows(uri) == [0, 1]


def test_a_protocol_that_went_up_stays_and_the_plan_says_so(on_local: Location) -> None:
    uri = written(on_local)
    table(uri).alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )
    plan = planned(uri, 1)

    assert any("protocol is kept" in one for one in plan_text.notes(plan))
    rewind.execute(plan, "op-1")
    assert table(uri).protocol().writer_features is not None


def test_the_plan_says_what_readers_see_and_when_ids_are_forgotten(on_local: Location) -> None:
    uri = tables.unpack("change_data_feed", on_local / "totals")
    plan = planned(uri, 2)
    assert plan_text.what(plan) == (
        f"rewind {uri} from version 5 to the rows and transaction ids of version 3, in one commit"
    )
    readers, feed = plan_text.notes(plan)
    assert "skipChangeCommits" in readers
    assert "deletes and inserts" in feed
    assert plan_text.notes(planned(uri, 4)) == ()

    table(uri).alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 9 days"}, raise_if_not_exists=False
    )
    assert "expire after interval 9 days" in plan_text.notes(planned(uri, 4))[-1]


def test_a_plan_is_read_from_the_journal_as_it_was(on_local: Location) -> None:
    plan = planned(written(on_local), 1)

    assert from_json(Rewind, json.loads(json.dumps(to_json(plan)))) == plan


def test_emptied_it_has_no_rows_and_the_first_batch_is_written_again(place: Location) -> None:
    uri = written(place)
    write(uri, 9, NEXT)
    plan = rewind.plan_empty("totals", uri, "orders/", ("the-query-id",), "orders/totals/3")

    version = rewind.execute(plan, "op-1")

    assert version == table(uri).version() == 5
    assert rows(uri) == []
    ids = (OWN, NEXT, "orders/totals/3", "the-query-id")
    assert {table(uri).transaction_version(app) for app in ids} == {-1}
    assert rewind.execute(plan, "op-1") == 5
    assert at_batch(uri, 0).version == 5
    assert "remove the rows" in plan_text.what(plan)


def test_emptied_and_undone_it_is_as_before(place: Location) -> None:
    uri = written(place)
    plan = rewind.plan_empty("totals", uri, "orders/", (), NEXT)
    rewind.execute(plan, "op-1")

    rewind.undo(plan, "op-1")

    assert rows(uri) == [0, 1, 2, 3]
    assert table(uri).transaction_version(OWN) == 3
    assert rewind.undo(plan, "op-1") is None


def test_an_empty_table_is_emptied_by_its_ids_alone(on_local: Location) -> None:
    uri = str(on_local / "totals")
    DeltaTable.create(uri, pa.schema([("n", pa.int64())]))
    plan = rewind.plan_empty("totals", uri, "orders/", (), NEXT)

    assert rewind.execute(plan, "op-1") == 1
    assert rewind.execute(plan, "op-1") == 1
    assert rewind.undo(plan, "op-1") == 2


@pytest.mark.parametrize("app", ["another/app/1", None])
def test_rows_of_others_are_not_removed(on_local: Location, app: str | None) -> None:
    """Also when the commits that say so are gone, and only the transaction id is left."""
    uri = written(on_local)
    write(uri, 50, app)
    write(uri, 4)

    with pytest.raises(NotAlignedError, match="rows from other writers, which would be lost"):
        rewind.plan_empty("totals", uri, "orders/", (), NEXT)
    table(uri).create_checkpoint()
    tables.clean_up(uri, 5)
    if app is not None:
        with pytest.raises(NotAlignedError, match="the transaction id another/app/1"):
            rewind.plan_empty("totals", uri, "orders/", (), NEXT)
    else:
        plan = rewind.plan_empty("totals", uri, "orders/", (), NEXT)
        assert any("log begins with version 5" in one for one in plan_text.notes(plan))


def test_going_back_to_a_version_whose_own_commit_is_gone(on_local: Location) -> None:
    """A checkpoint of the log still has it."""
    uri = written(on_local)
    table(uri).create_checkpoint()
    write(uri, 4)
    write(uri, 5)
    tables.clean_up(uri, 4)

    rewind.execute(planned(uri, 3), "op-1")

    assert rows(uri) == [0, 1, 2, 3]


def test_trap_going_back_over_commits_that_are_gone_would_lose_their_rows(
    on_local: Location,
) -> None:
    uri = written(on_local)
    target = at_batch(uri, 2)
    tables.write_checksum(uri, target.version)
    write(uri, 4)
    table(uri).create_checkpoint()
    tables.clean_up(uri, target.version)

    with pytest.raises(NotAlignedError, match=f"version {target.version} of"):
        rewind.plan(target, "orders/", NEXT)
    assert rows(uri) == [0, 1, 2, 3, 4]


def test_trap_what_stays_drops_or_doubles_the_batches_that_are_run_again(
    on_local: Location,
) -> None:
    """Under the old id Delta drops them; under a new one they are written beside the old rows."""
    uri = written(on_local)
    first, last = at_batch(uri, 1), at_batch(uri, 3)

    (dropped,) = plan_text.kept(first, OWN)
    assert "silently drop batches 2 to 3" in dropped
    (doubled,) = plan_text.kept(first, NEXT)
    assert "since version 1: rows may be duplicated" in doubled
    assert plan_text.kept(last, OWN) == plan_text.kept(last, NEXT) == ()


def test_trap_another_writer_commits_while_nothing_is_removed(on_local: Location) -> None:
    """The version is newer then, and the ids that keep batches from being dropped are not there."""
    uri = written(on_local)
    stale = table(uri)
    write_deltalake(uri, stale.to_pyarrow_table().slice(0, 1), mode="append")

    version = rewind_commit.remove_all(stale, uri, {NEXT: -1, "op-1": 1}, "n > 1000")

    assert version == table(uri).version()
    assert table(uri).transaction_version(NEXT) == -1
    assert table(uri).transaction_version("op-1") == 1


ALTERATIONS = {
    "column note": lambda there: there.alter.add_columns([Field("note", PrimitiveType("string"))]),
    "property delta.constraints.counted": lambda there: there.alter.add_constraint(
        {"counted": "n >= 0"}
    ),
    "property delta.logRetentionDuration": lambda there: there.alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 90 days"}
    ),
    "comment": lambda there: there.alter.set_table_description("totals by day"),
}


@pytest.mark.parametrize("what", ALTERATIONS)
def test_trap_a_table_that_is_altered_after_the_plan_would_lose_that_silently(
    on_local: Location, what: str
) -> None:
    uri = written(on_local)
    plan = planned(uri, 1)
    ALTERATIONS[what](table(uri))

    with pytest.raises(NotAlignedError, match="run savepoints rollback again"):
        rewind.refuse_stale(plan, "rollback")
    with pytest.raises(NotAlignedError, match="altered after version 3") as refused:
        rewind.execute(plan, "op-1")

    assert refused.value.details["altered"] == [what]
    assert "savepoints operations undo op-1" in refused.value.hint
    assert (table(uri).version(), rows(uri)) == (4, [0, 1, 2, 3])


@pytest.mark.parametrize("what", ALTERATIONS)
def test_trap_a_table_that_is_altered_after_a_rewind_would_lose_that_by_its_undo(
    on_local: Location, what: str
) -> None:
    """Until the change is taken back; a maintenance job may come meanwhile."""
    uri = written(on_local)
    plan = planned(uri, 1)
    rewind.execute(plan, "op-1")
    table(uri).optimize.compact()
    rewound = int(table(uri).version())
    ALTERATIONS[what](table(uri))

    with pytest.raises(NotAlignedError, match="altered after version 4") as refused:
        rewind.require_undoable([plan], "op-1")
    assert "savepoints operations resume op-1" in refused.value.hint
    with pytest.raises(NotAlignedError, match="RESTORE TABLE") as refused:
        rewind.undo(plan, "op-1")
    assert refused.value.details["altered"] == [what]
    assert (table(uri).version(), rows(uri)) == (rewound + 1, [0, 1])

    description = {"metaData": snapshot.read(uri, rewound).metadata}
    delta_log.log_of(uri).create(f"{rewound + 2:020}.json", json.dumps(description).encode())
    rewind.require_undoable([plan], "op-1")
    assert rewind.undo(plan, "op-1") == rewound + 3
    assert rows(uri) == [0, 1, 2, 3]


def test_trap_rows_that_maintenance_moves_while_all_are_removed_would_stay(
    on_local: Location,
) -> None:
    """Their ids would be lowered all the same, and their batches written a second time."""
    uri = written(on_local)
    stale = table(uri)
    table(uri).optimize.compact()
    assert table(uri).version() == 4

    with pytest.raises(NotAlignedError, match="was not changed") as refused:
        rewind_commit.remove_all(stale, uri, {OWN: -1, NEXT: -1, "op-1": 1})

    # deltalake's own words are "Failed to commit transaction: 0".
    assert "others wrote to it at that moment: version 4 (OPTIMIZE)" in refused.value.message
    assert "run the command again" in refused.value.hint
    assert (table(uri).version(), table(uri).transaction_version(OWN)) == (4, 3)
    rewind_commit.remove_all(table(uri), uri, {OWN: -1, NEXT: -1, "op-1": 1})
    assert (rows(uri), table(uri).transaction_version(OWN)) == ([], -1)


def test_trap_a_table_that_forgets_transaction_ids_still_knows_its_rewind(
    on_local: Location,
) -> None:
    """It forgets them at once: nothing would be undone, or all be taken back a second time."""
    uri = str(on_local / "totals")
    schema = pa.table({"n": [0], "part": [""]}).schema
    forgets = {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
    DeltaTable.create(uri, schema, partition_by=["part"], configuration=forgets)
    for batch in range(4):
        write(uri, batch)
    plan = planned(uri, 1)

    assert rewind.execute(plan, "op-1") == 5
    assert table(uri).transaction_version("op-1") is None
    assert rewind.is_done(plan, "op-1")
    assert rewind.execute(plan, "op-1") == 5
    assert rewind.undo(plan, "op-1") == 6
    assert rows(uri) == [0, 1, 2, 3]
    assert not rewind.is_done(plan, "op-1")
    assert rewind.undo(plan, "op-1") is None
    assert table(uri).version() == 6


def test_trap_a_log_that_no_longer_tells_whether_it_was_taken_back(on_local: Location) -> None:
    uri = written(on_local)
    plan = planned(uri, 1)
    rewind.execute(plan, "op-1")
    table(uri).create_checkpoint()
    write(uri, 2, NEXT)
    tables.clean_up(uri, 5)

    for ask in (rewind.execute, rewind.undo):
        with pytest.raises(NotAlignedError, match="no longer shows which query wrote"):
            ask(plan, "op-1")
    assert rows(uri) == [0, 1, 2]


def test_trap_a_repetition_names_the_commit_that_was_made_and_not_one_after_it(
    on_local: Location,
) -> None:
    """Readers of the table are set behind that commit, and would miss what came after it."""
    uri = written(on_local)
    plan = planned(uri, 1)
    first = rewind.execute(plan, "op-1")
    write(uri, 50, None)

    assert rewind.execute(plan, "op-1") == first == table(uri).version() - 1


@pytest.mark.parametrize(
    ("name", "batch"), [("plain", 2), ("deletion_vectors", 4), ("row_tracking", 2)]
)
def test_trap_files_that_vacuum_removes_between_plan_and_execution(
    on_local: Location, name: str, batch: int
) -> None:
    """The table would point at files that are gone; no engine asks for vectors, Spark for none."""
    uri = tables.unpack(name, on_local / "totals")
    plan = planned(uri, batch)
    if name == "deletion_vectors":
        tables.append(uri, {"n": [1], "part": ["even"]}, OWN, batch + 1)
    needed = snapshot.read(uri, plan.output.version).files
    place = Location.of(uri)
    vectors = [one.path for add in needed if (one := snapshot.vector_at(add, place)) is not None]
    place.delete([vectors[0] if vectors else snapshot.file_at(needed[0]["path"], place).path])
    before = table(uri).version()

    with pytest.raises(NotAlignedError, match="is missing 1 file") as refused:
        rewind.execute(plan, "op-1")

    assert (
        refused.value.hint == f"undo the operation (savepoints operations undo op-1), then {LEAVE}"
    )
    assert table(uri).version() == before


def test_trap_files_of_the_original_that_vacuum_removes_before_its_clone_is_taken_back(
    on_local: Location,
) -> None:
    original = written(on_local, 2)
    uri = str(on_local / "fork" / "totals")
    clone = isolated_copy.plan(at_batch(original, 1), uri, "clone", OWN, 1)
    isolated_copy.execute(clone, "op-1")
    write(uri, 2)
    plan = planned(uri, 1)
    place = Location.of(original)
    place.delete([one.path for one in place.list() if one.path.endswith(".parquet")])

    with pytest.raises(NotAlignedError, match="is missing 2 files"):
        rewind.execute(plan, "op-2")

    assert table(uri).version() == 1


def test_trap_files_of_the_version_before_a_rewind_are_gone_when_it_is_undone(
    on_local: Location,
) -> None:
    uri = written(on_local)
    plan = planned(uri, 1)
    rewind.execute(plan, "op-1")
    table(uri).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    with pytest.raises(NotAlignedError, match=r"version 3 of .* is missing 2 files") as refused:
        rewind.undo(plan, "op-1")

    assert "put the files back" in refused.value.hint
    assert "savepoints operations undo op-1" in refused.value.hint
    assert rows(uri) == [0, 1]
