"""Taking a Delta table back: rows and transaction ids in one commit, nobody else's rows lost."""

from __future__ import annotations

import dataclasses
import json

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.errors import NotAlignedError, NotFoundError
from savepoints.io import Location, storage_options
from savepoints.model import OutputVersion
from savepoints.outputs import align, rewind

OWN = "orders/totals/1"
NEXT = "orders/totals/2"


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
    return align.version_of_batch("totals", uri, (OWN,), batch)


def planned(uri: str, batch: int) -> rewind.Rewind:
    return rewind.plan(at_batch(uri, batch), "orders/", NEXT)


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
    found = align.version_of_batch("totals", uri, (NEXT, OWN), 2)
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

    version = rewind.execute(planned(uri, 3), "op-1")

    assert version == 4
    assert sorted(table(uri).file_uris()) == files
    assert table(uri).transaction_version(NEXT) == 3
    commit = align.parse_commit(4, (Location.of(uri) / "_delta_log").get(f"{4:020}.json"))
    assert not commit.changes_data
    assert commit.transactions == {OWN: 3, NEXT: 3, "op-1": 1}
    assert rewind.execute(planned(uri, 3), "op-1") == 4


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

    with pytest.raises(NotAlignedError, match="the first is version 4") as refused:
        planned(uri, 1)

    assert refused.value.details["versions"] == [5, 4]
    assert "--outputs none" in refused.value.hint
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

    with pytest.raises(NotAlignedError, match="not the table that the savepoint knows"):
        rewind.plan(first, "orders/", NEXT)


def test_a_table_that_is_gone_is_not_found(on_local: Location) -> None:
    uri = written(on_local)
    first = at_batch(uri, 1)
    there = Location.of(uri)
    there.delete([info.path for info in there.list()])

    with pytest.raises(NotFoundError):
        rewind.plan(first, "orders/", NEXT)


def test_a_version_that_never_was_is_refused(on_local: Location) -> None:
    uri = written(on_local)

    with pytest.raises(NotAlignedError, match="version 99"):
        rewind.plan(dataclasses.replace(at_batch(uri, 1), version=99), "orders/", NEXT)


def test_files_of_a_readable_version_are_all_there(place: Location) -> None:
    uri = written(place)

    assert rewind.unreadable_files(at_batch(uri, 1)) == []


def test_files_that_vacuum_removed_are_named(on_local: Location) -> None:
    uri = written(on_local)
    first = at_batch(uri, 1)
    needed = align.open_table(uri, first.version).file_uris()
    overwrite(uri)

    assert sorted(rewind.unreadable_files(first)) == sorted(needed)


def test_a_version_whose_files_were_vacuumed_is_refused(on_local: Location) -> None:
    uri = written(on_local)
    first = at_batch(uri, 1)
    overwrite(uri)

    with pytest.raises(NotAlignedError):
        rewind.plan(first, "orders/", NEXT)
