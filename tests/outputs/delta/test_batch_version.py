"""Which version of a Delta table belongs to a batch, on tables that deltalake wrote."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyarrow import parquet

from savepoints.errors import NotAlignedError, NotFoundError
from savepoints.io import Location, storage_options
from savepoints.moments import epoch_ms, utc_now
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta.write import is_later_generation
from savepoints.outputs.rewind import rewind
from savepoints.outputs.rewind.planned_rewind import Rewind
from tests.outputs import tables
from tests.outputs.tables import opened

pytestmark = pytest.mark.drawn(3)

APP = "orders/totals/1"
SECOND, THIRD, FOURTH = (f"orders/totals/{number}" for number in (2, 3, 4))
OTHER = "another/table/1"


class Output:
    """A Delta table that a query writes batch by batch."""

    def __init__(self, at: Location) -> None:
        """Begin with an empty table, as the library makes it before the first batch."""
        self.uri = str(at)
        self.options = storage_options(at.uri)
        DeltaTable.create(self.uri, pa.schema([("n", pa.int64())]), storage_options=self.options)

    def write(self, batch: int, app: str | None = APP) -> int:
        """Write a row in one commit and return its version."""
        transactions = [Transaction(app, batch)] if app else None
        write_deltalake(
            self.uri,
            pa.table({"n": [batch]}),
            mode="append",
            storage_options=self.options,
            commit_properties=CommitProperties(app_transactions=transactions),
        )
        return self.table.version()

    def merge(self, batch: int) -> int:
        """Write a row with MERGE and return the version."""
        row = pa.table({"n": [batch]})
        properties = CommitProperties(app_transactions=[Transaction(APP, batch)])
        merging = self.table.merge(
            row, "t.n = s.n", source_alias="s", target_alias="t", commit_properties=properties
        )
        merging.when_matched_update_all().when_not_matched_insert_all().execute()
        return self.table.version()

    def version_of(self, batch: int, *apps: str) -> tuple[int, str, int | None]:
        """Return version, application id and its recorded batch for a batch."""
        found = batch_version.version_of_batch("totals", self.uri, apps or (APP,), batch)
        assert (found.name, found.uri) == ("totals", self.uri)
        assert found.table_id == str(self.table.metadata().id)
        return found.version, found.app_id, found.app_version

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.uri, storage_options=self.options)


@pytest.fixture
def output(on_local: Location) -> Output:
    return Output(on_local / "totals")


@pytest.mark.s3
def test_each_batch_has_the_version_that_it_wrote(place: Location) -> None:
    output = Output(place / "totals")
    versions = [output.write(batch) for batch in range(3)]

    assert versions == [1, 2, 3]
    assert [output.version_of(batch) for batch in range(3)] == [
        (1, APP, 0),
        (2, APP, 1),
        (3, APP, 2),
    ]


def test_a_batch_that_wrote_nothing_has_the_version_of_the_one_before(output: Output) -> None:
    for batch in (0, 1, 5):
        output.write(batch)

    assert [output.version_of(batch)[0] for batch in (1, 2, 4, 5, 9)] == [2, 2, 2, 3, 3]


def test_before_the_first_write_it_is_the_empty_table(output: Output) -> None:
    assert output.version_of(3) == (0, APP, None)

    output.write(5)

    assert output.version_of(4) == (0, APP, None)


def test_trap_a_table_that_is_altered_before_its_first_row_would_go_back_behind_that(
    output: Output,
) -> None:
    """A first batch without rows for it had the version in which the table was made."""
    output.table.alter.add_constraint({"counted": "n >= 0"})
    before = output.version_of(3)
    output.write(5)

    assert before == output.version_of(4) == (1, APP, None)


def test_trap_a_table_of_rejected_rows_that_never_had_any_has_lost_its_first_commits(
    output: Output,
) -> None:
    """Jobs commit to it, so its log is cleaned up; it was taken for a table with others' rows."""
    for hours in range(100, 104):
        output.table.alter.set_table_properties(
            {"delta.deletedFileRetentionDuration": f"interval {hours} hours"}
        )
    output.table.create_checkpoint()
    tables.clean_up(output.uri, 3)

    assert output.version_of(3) == (4, APP, None)
    output.table.alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 9 days"}
    )
    with pytest.raises(NotAlignedError, match="it is unknown which batch they belong to"):
        output.version_of(3)


def test_optimize_between_batches_belongs_to_none(output: Output) -> None:
    for batch in (0, 1):
        output.write(batch)
    output.table.optimize.compact()
    assert output.table.version() == 3
    output.write(2)

    assert [output.version_of(batch)[0] for batch in (0, 1, 2)] == [1, 2, 4]


def test_what_others_append_between_batches_belongs_to_none(output: Output) -> None:
    output.write(0)
    output.write(77, OTHER)
    output.write(78, None)
    output.write(1)
    output.write(79, None)

    assert [output.version_of(batch)[0] for batch in (0, 1)] == [1, 4]


def test_a_table_whose_rows_have_no_known_transaction_id_is_refused(output: Output) -> None:
    for batch in range(3):
        output.write(batch, None)

    with pytest.raises(NotAlignedError):
        output.version_of(2)


def test_the_first_application_id_that_the_table_knows_is_the_one(output: Output) -> None:
    output.write(0, "the-query-id")

    assert output.version_of(0, APP, "the-query-id") == (1, "the-query-id", 0)
    with pytest.raises(NotAlignedError, match=APP):
        output.version_of(0, APP, "unknown")

    output.write(0, APP)
    assert output.version_of(0, APP, "the-query-id") == (2, APP, 0)


def test_transaction_ids_survive_a_checkpoint_of_the_log(output: Output) -> None:
    for batch in range(3):
        output.write(batch)
    output.table.create_checkpoint()

    assert output.version_of(1) == (2, APP, 1)


def test_a_log_that_was_cleaned_up_too_far_is_refused(output: Output) -> None:
    for batch in range(5):
        output.write(batch)
    output.table.create_checkpoint()
    log = Location.of(output.uri) / "_delta_log"
    log.delete([f"{version:020}.json" for version in range(3)])

    assert output.version_of(2) == (3, APP, 2)
    with pytest.raises(NotAlignedError, match="no longer shows") as refused:
        output.version_of(1)
    assert refused.value.details["batch_id"] == 1
    assert "delta.logRetentionDuration" in refused.value.hint


def test_after_a_rewind_the_newest_lineage_counts(output: Output) -> None:
    for batch in range(4):
        output.write(batch)
    output.table.restore(
        2, commit_properties=CommitProperties(app_transactions=[Transaction(APP, 1)])
    )
    assert output.version_of(1) == (5, APP, 1)

    output.write(2)
    assert output.version_of(1) == (5, APP, 1)
    assert output.version_of(2) == (6, APP, 2)


@pytest.mark.s3
def test_a_table_that_does_not_exist_is_not_found(place: Location) -> None:
    with pytest.raises(NotFoundError) as refused:
        batch_version.open_table(str(place / "nothing"))

    assert refused.value.exit_code == 10
    assert refused.value.details == {"uri": str(place / "nothing")}


def test_a_version_that_does_not_exist_is_not_aligned(output: Output) -> None:
    with pytest.raises(NotAlignedError, match="version 9"):
        batch_version.open_table(output.uri, 9)


@pytest.mark.s3
def test_trap_a_version_that_the_log_has_lost_is_no_missing_table(place: Location) -> None:
    output = Output(place / "totals")
    for batch in range(3):
        output.write(batch)
    output.table.create_checkpoint()
    tables.clean_up(output.uri, 3)

    with pytest.raises(NotAlignedError, match=r"version 1 of .* its log, now at version 3"):
        batch_version.open_table(output.uri, 1)
    assert batch_version.open_table(output.uri, 3).version() == 3


@pytest.mark.s3
def test_trap_commits_without_those_before_them_are_no_version(place: Location) -> None:
    """Delta removes commits one by one; deltalake reads the rest as if it were all rows."""
    output = Output(place / "totals")
    for batch in range(5):
        output.write(batch)
    tables.write_checksum(output.uri, 4)
    output.table.create_checkpoint()
    assert batch_version.open_table(output.uri, 4).to_pyarrow_table().num_rows == 4
    tables.clean_up(output.uri, 3)

    assert opened(output.uri, 4).to_pyarrow_table().num_rows == 2, "deltalake tells by itself now"
    with pytest.raises(NotAlignedError, match=r"version 4 of .* does not go back so far"):
        batch_version.open_table(output.uri, 4)
    assert batch_version.open_table(output.uri, 5).to_pyarrow_table().num_rows == 5


def test_foreign_commits_are_those_that_changed_rows_and_are_not_ours(output: Output) -> None:
    output.write(0)
    output.write(1)
    output.write(0, "orders/totals/2")
    output.table.optimize.compact()
    output.write(7, OTHER)
    output.write(8, None)
    output.write(2)

    found = batch_version.foreign_commits(output.uri, 1, "orders/", ())

    assert [commit.version for commit in found] == [6, 5]
    assert batch_version.foreign_commits(output.uri, 6, "orders/", ()) == []


def test_who_wrote_is_unknown_when_the_log_was_cleaned_up(output: Output) -> None:
    for batch in range(5):
        output.write(batch)
    output.table.create_checkpoint()
    log = Location.of(output.uri) / "_delta_log"
    log.delete([f"{version:020}.json" for version in range(4)])

    with pytest.raises(NotAlignedError, match="which query wrote versions 2 to 5"):
        batch_version.foreign_commits(output.uri, 1, "orders/", ())
    assert batch_version.foreign_commits(output.uri, 3, "orders/", ()) == []


def test_a_change_of_the_tables_settings_changes_no_rows(output: Output) -> None:
    output.write(0)
    output.table.alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})

    assert batch_version.foreign_commits(output.uri, 1, "orders/", ()) == []


def test_trap_every_kind_of_commit_lies_between_the_batches(place: Location) -> None:
    """OPTIMIZE, VACUUM, MERGE, UPDATE and other queries; each version as deltalake itself says."""
    output = Output(place / "totals")
    expected = [output.write(0)]
    output.write(40, OTHER)
    output.table.optimize.compact()
    output.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    expected.append(output.write(1))
    output.table.update({"n": "n + 0"}, predicate="n = 40")
    expected.append(output.merge(2))
    output.write(78, None)
    output.table.delete("n = 78")
    output.write(41, OTHER)
    expected.append(output.write(3))
    output.table.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})

    assert [output.version_of(batch) for batch in range(4)] == [
        (version, APP, batch) for batch, version in enumerate(expected)
    ]
    for batch, version in enumerate(expected):
        before = DeltaTable(output.uri, version - 1, storage_options=output.options)
        at = DeltaTable(output.uri, version, storage_options=output.options)
        assert at.transaction_version(APP) == batch
        assert before.transaction_version(APP) == (batch - 1 if batch else None)


def test_where_commits_are_gone_a_checkpoint_of_the_log_says_it(place: Location) -> None:
    """Each checkpoint stands for what was committed up to it, whoever did."""
    output = Output(place / "totals")
    for batch in range(2):
        output.write(batch)
    output.write(40, OTHER)
    output.table.create_checkpoint()  # of version 3, at batch 1
    for batch in range(2, 5):
        output.write(batch)
    output.table.create_checkpoint()  # of version 6, at batch 4
    output.write(5)
    tables.clean_up(output.uri, 7)

    at = {version: opened(output.uri, version).transaction_version(APP) for version in (3, 6, 7)}
    assert at == {3: 1, 6: 4, 7: 5}
    assert [output.version_of(batch) for batch in (1, 4, 5)] == [
        (3, APP, 1),
        (6, APP, 4),
        (7, APP, 5),
    ]
    for lost in (0, 2, 3):
        with pytest.raises(NotAlignedError, match="commits before version 7 were removed"):
            output.version_of(lost)


def test_a_checkpoint_right_before_the_commits_says_it_for_a_batch_without_rows(
    output: Output,
) -> None:
    """Batch 2 wrote nothing, and nothing lies between the checkpoint and batch 5."""
    for batch in (0, 1):
        output.write(batch)
    output.table.create_checkpoint()
    output.write(40, OTHER)
    output.write(5)
    tables.clean_up(output.uri, 3)

    assert output.version_of(3) == (2, APP, 1)


def test_a_checkpoint_from_before_the_first_batch_says_it(output: Output) -> None:
    output.write(40, OTHER)
    output.table.create_checkpoint()
    output.write(5)
    tables.clean_up(output.uri, 2)

    assert output.version_of(4) == (1, APP, None)


def test_trap_a_batch_counts_that_a_driver_has_written_since_it_was_begun(
    on_local: Location,
) -> None:
    """`run` wrote it once more. What an earlier generation wrote under the id does not count."""
    output = Output(on_local / "totals")
    output.write(7)
    now = epoch_ms(utc_now())

    def are_written(begun_ms: int) -> list[bool]:
        return [
            batch_version.was_written(output.uri, OTHER, one, begun_ms, drivers=[APP])
            for one in (7, 8)
        ]

    assert are_written(now - 60_000) == [True, False]
    assert are_written(now + 60_000) == [False, False]


def test_trap_an_id_that_delta_has_forgotten_is_looked_for_in_the_log(on_local: Location) -> None:
    """A batch that died after its write counted as unwritten: its records were read again."""
    output = Output(on_local / "totals")
    output.write(40, OTHER)
    output.table.alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
    )
    for batch in (3, 4):
        long_ago = CommitProperties(app_transactions=[Transaction(APP, batch, 0)])
        write_deltalake(
            output.uri, pa.table({"n": [batch]}), mode="append", commit_properties=long_ago
        )
    output.write(41, OTHER)
    assert output.table.transaction_version(APP) is None

    def are_written(app: str, begun_ms: int) -> list[bool]:
        return [batch_version.was_written(output.uri, app, one, begun_ms) for one in (3, 4, 5)]

    assert [output.version_of(one) for one in (3, 4)] == [(3, APP, 3), (4, APP, 4)]
    now = epoch_ms(utc_now())
    assert are_written(APP, now) == [True, True, False]
    assert are_written("nobody/totals/1", now) == [False, False, False]

    output.table.create_checkpoint()
    output.write(42, OTHER)
    tables.clean_up(output.uri, output.table.version())
    with pytest.raises(NotAlignedError, match="no longer shows what was written under"):
        are_written(APP, now)
    # What is in the log is from before: so is what it lacks.
    in_two_days = now + 2 * 24 * 3600 * 1000
    assert are_written(APP, in_two_days) == [False, False, False]


def test_an_id_that_delta_forgets_is_not_taken_for_one_that_never_was(output: Output) -> None:
    output.table.alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 9 days"}
    )
    output.write(40, OTHER)
    output.table.create_checkpoint()
    output.write(5)
    tables.clean_up(output.uri, 3)

    with pytest.raises(NotAlignedError, match="no longer shows"):
        output.version_of(4)


def test_a_checkpoint_of_a_lineage_that_was_rewound_is_not_believed(output: Output) -> None:
    """It has a batch 2, but that was taken back and written again since."""
    for batch in range(3):
        output.write(batch)
    output.table.create_checkpoint()  # of version 3, at the old batch 2
    plan = rewind.plan(
        batch_version.version_of_batch("totals", output.uri, (APP,), 0), "orders/", APP
    )
    rewind.execute(plan, "op-20261121-101530-aaaaaa")
    for batch in range(1, 5):
        output.write(batch)
    output.table.create_checkpoint()
    output.write(5)
    tables.clean_up(output.uri, 9)

    with pytest.raises(NotAlignedError, match="no longer shows"):
        output.version_of(2)
    assert output.version_of(4) == (8, APP, 4)


def test_checkpoints_in_several_parts_say_it_too(output: Output) -> None:
    """Made by hand, by the protocol: deltalake makes none, and Spark only very large ones."""
    for batch in range(3):
        output.write(batch)
    output.table.create_checkpoint()
    log = Location.of(output.uri) / "_delta_log"
    whole = parquet.read_table(pa.BufferReader(log.get(f"{3:020}.checkpoint.parquet")))
    for part in (1, 2):
        sink = pa.BufferOutputStream()
        parquet.write_table(whole.slice(0 if part == 1 else 4, 4 if part == 1 else None), sink)
        log.put(f"{3:020}.checkpoint.{part:010}.{2:010}.parquet", sink.getvalue().to_pybytes())
    log.delete([f"{3:020}.checkpoint.parquet", "_last_checkpoint"])
    output.write(3)
    tables.clean_up(output.uri, 4)

    assert opened(output.uri, 3).transaction_version(APP) == 2
    assert output.version_of(2) == (3, APP, 2)
    log.delete([f"{3:020}.checkpoint.{1:010}.{2:010}.parquet"])
    with pytest.raises(NotAlignedError):
        output.version_of(2)


def test_checkpoints_of_the_second_version_say_it_too(on_local: Location) -> None:
    """Which Spark writes, with the files in sidecars; the batch's own commit is gone."""
    uri = tables.unpack("v2_checkpoint", on_local / "totals")
    tables.clean_up(uri, 4)

    assert opened(uri, 3).transaction_version(APP) == 2
    found = batch_version.version_of_batch("totals", uri, (APP,), 2)
    assert (found.version, found.app_version) == (3, 2)
    with pytest.raises(NotAlignedError):
        batch_version.version_of_batch("totals", uri, (APP,), 1)
    rewind.execute(rewind.plan(found, "orders/", "orders/totals/2"), "op-1")
    assert sorted(row["n"] for row in tables.rows(uri)) == [0, 1, 2, 100, 101, 102]


def test_what_lies_between_a_rewind_and_its_undo_does_not_count(output: Output) -> None:
    """Trap: the commit of the rewind has the lower batch, the rows of the batch asked for not."""
    versions = [output.write(batch) for batch in range(5)]
    plan = rewind.plan(
        batch_version.version_of_batch("totals", output.uri, (APP,), 1), "orders/", APP
    )
    rewind.execute(plan, "op-20261121-101530-aaaaaa")
    assert output.version_of(3) == (6, APP, 1)
    rewind.undo(plan, "op-20261121-101530-aaaaaa")
    output.write(5)

    assert [output.version_of(batch)[0] for batch in range(6)] == [*versions[:4], 7, 8]


def test_after_going_back_to_what_was_rolled_back_its_lineage_counts(output: Output) -> None:
    """As `rollback --undo` does: the batches that were written anew in between do not count."""
    versions = [output.write(batch) for batch in range(5)]
    safety = batch_version.version_of_batch("totals", output.uri, (APP,), 4)
    first = rewind.plan(
        batch_version.version_of_batch("totals", output.uri, (APP,), 1), "orders/", APP
    )
    rewind.execute(first, "op-20261121-101530-aaaaaa")
    again = [output.write(batch) for batch in range(2, 4)]
    assert [output.version_of(batch)[0] for batch in (1, 2, 3)] == [6, *again]

    rewind.execute(rewind.plan(safety, "orders/", APP), "op-20261121-101531-bbbbbb")

    assert [output.version_of(batch)[0] for batch in range(5)] == [*versions[:4], 9]


def test_an_id_of_the_users_own_is_found_when_it_is_named(output: Output) -> None:
    """In `foreachBatch` people choose `txnAppId` themselves; the error lists what the table has."""
    output.write(0, "shop-totals")
    output.write(41, OTHER)
    output.write(1, "shop-totals")

    with pytest.raises(NotAlignedError, match=r"shop-totals \(at 1\)") as refused:
        output.version_of(0, APP, "the-query-id")
    assert "app_ids" in refused.value.hint
    assert refused.value.details["transactions"] == {OTHER: 41, "shop-totals": 1}
    assert output.version_of(0, "shop-totals", APP) == (1, "shop-totals", 0)


def test_a_table_that_a_later_batch_made_has_no_version_before(on_local: Location) -> None:
    uri = str(on_local / "totals")
    tables.append(uri, {"n": [5]}, APP, 5)

    assert batch_version.version_of_batch("totals", uri, (APP,), 5).version == 0
    with pytest.raises(NotAlignedError, match="so it has no version for that batch"):
        batch_version.version_of_batch("totals", uri, (APP,), 4)


def test_an_id_that_begins_like_ours_is_another(output: Output) -> None:
    """`shop` is not `shop2`: an id of the user's own is compared whole."""
    output.write(0, "shop")
    output.write(1, "shop2")

    assert [
        one.version for one in batch_version.foreign_commits(output.uri, 0, "orders/", ("shop",))
    ] == [2]


def test_the_present_of_an_output_is_its_newest_version(output: Output) -> None:
    output.write(0)
    output.write(77, OTHER)

    found = batch_version.present("totals", output.uri, APP)

    assert (found.version, found.app_id, found.app_version) == (2, APP, 0)


def rewound(output: Output, batch: int, app: str, following: str, number: int) -> Rewind:
    """Take an output back to a batch of one generation, for another to go on; return the plan."""
    plan = rewind.plan(
        batch_version.version_of_batch("totals", output.uri, (app,), batch), "orders/", following
    )
    rewind.execute(plan, f"op-20261121-10153{number}-aaaaaa")
    return plan


def test_trap_a_batch_that_a_rewind_took_back_is_looked_for_before_it(output: Output) -> None:
    """The rewind records batch 1 for the ended generation: not what its batch 3 had."""
    versions = [output.write(batch) for batch in range(4)]
    rewound(output, 1, APP, SECOND, 0)
    again = [output.write(batch, SECOND) for batch in (2, 3)]

    assert [output.version_of(batch) for batch in range(6)] == [
        *((version, APP, batch) for batch, version in enumerate(versions)),
        *[(versions[-1], APP, 3)] * 2,
    ]
    assert [output.version_of(batch, SECOND)[0] for batch in (1, 2, 3)] == [5, *again]
    at = [sorted(row["n"] for row in tables.rows(output.uri, one)) for one in versions]
    assert at == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


def test_each_of_three_generations_has_the_versions_of_its_own_batches(output: Output) -> None:
    """To the first and back, as `rollback --undo` does: the second ended as well."""
    first = [output.write(batch) for batch in range(4)]
    safety = batch_version.version_of_batch("totals", output.uri, (APP,), 3)
    rewound(output, 1, APP, SECOND, 0)
    second = [output.write(batch, SECOND) for batch in (2, 3)]
    back = rewind.plan(safety, "orders/", THIRD)
    rewind.execute(back, "op-20261121-101531-aaaaaa")
    rewound(output, 3, SECOND, FOURTH, 2)

    assert [output.version_of(batch)[0] for batch in range(5)] == [*first, first[-1]]
    assert [output.version_of(batch, SECOND)[0] for batch in (1, 2, 3, 4)] == [
        5,
        *second,
        second[-1],
    ]
    assert output.version_of(5, THIRD)[:1] == (8,)
    assert output.version_of(3, FOURTH)[:1] == (9,)


def test_a_generation_that_an_undone_rewind_ended_goes_on(output: Output) -> None:
    versions = [output.write(batch) for batch in range(4)]
    plan = rewound(output, 1, APP, SECOND, 0)
    rewind.undo(plan, "op-20261121-101530-aaaaaa")
    versions.append(output.write(4))

    assert [output.version_of(batch)[0] for batch in range(5)] == [*versions[:3], 6, 7]


def test_an_ended_generation_without_rows_has_the_version_before_the_rewind(
    output: Output,
) -> None:
    rewound(output, 3, APP, SECOND, 0)
    output.write(4, SECOND)

    assert output.version_of(5) == (0, APP, None)
    assert output.version_of(3, SECOND) == (1, SECOND, -1)


def test_a_checkpoint_of_a_later_generation_is_not_believed_for_an_ended_one(
    output: Output,
) -> None:
    """It records batch 1 of the first, and has the rows of the second."""
    for batch in range(4):
        output.write(batch)
    rewound(output, 1, APP, SECOND, 0)
    output.write(2, SECOND)
    output.table.create_checkpoint()
    output.write(3, SECOND)
    tables.clean_up(output.uri, 7)

    with pytest.raises(NotAlignedError, match="no longer shows"):
        output.version_of(3)
    assert output.version_of(2, SECOND) == (6, SECOND, 2)


def test_a_checkpoint_with_rows_of_a_generation_that_kept_the_outputs_is_not_believed(
    output: Output,
) -> None:
    """No rewind lies between them, and the first has written nothing since the checkpoint."""
    for batch in range(4):
        output.write(batch)
    output.write(2, SECOND)
    output.table.create_checkpoint()
    output.write(3, SECOND)
    assert output.version_of(3) == (4, APP, 3)
    tables.clean_up(output.uri, 6)

    with pytest.raises(NotAlignedError, match="no longer shows"):
        output.version_of(3)


def test_the_undo_of_a_truncation_is_not_the_end_of_a_generation_that_was_over(
    output: Output,
) -> None:
    """It records the batches of all of them, for whoever they are."""
    versions = [output.write(batch) for batch in range(4)]
    rewound(output, 1, APP, SECOND, 0)
    output.write(2, SECOND)
    plan = rewind.plan_empty("totals", output.uri, "orders/", (), THIRD)
    rewind.execute(plan, "op-20261121-101531-aaaaaa")
    rewind.undo(plan, "op-20261121-101531-aaaaaa")
    output.write(3, SECOND)

    assert [output.version_of(batch)[0] for batch in range(5)] == [*versions, versions[-1]]
    assert [output.version_of(batch, SECOND)[0] for batch in (1, 2, 3)] == [5, 8, 9]


def test_trap_an_undone_way_back_to_an_ended_generation_does_not_begin_it_again(
    output: Output,
) -> None:
    """It records batch 1 of the first, and has the rows of the second, which it does not name."""
    first = [output.write(batch) for batch in range(4)]
    safety = batch_version.version_of_batch("totals", output.uri, (APP,), 3)
    rewound(output, 1, APP, SECOND, 0)
    second = [output.write(batch, SECOND) for batch in (2, 3)]
    back = rewind.plan(safety, "orders/", THIRD)
    rewind.execute(back, "op-20261121-101531-aaaaaa")
    rewind.undo(back, "op-20261121-101531-aaaaaa")

    assert [output.version_of(batch)[0] for batch in range(5)] == [*first, first[-1]]
    assert [output.version_of(batch, SECOND)[0] for batch in (1, 2, 3)] == [5, *second]


def test_the_checkpoint_right_before_a_rewind_says_it_for_the_ended_generation(
    output: Output,
) -> None:
    for batch in range(4):
        output.write(batch)
    output.table.create_checkpoint()
    plan = rewind.plan(
        dataclasses.replace(
            batch_version.present("totals", output.uri, APP), version=2, app_version=1
        ),
        "orders/",
        SECOND,
    )
    rewind.execute(plan, "op-20261121-101530-aaaaaa")
    tables.clean_up(output.uri, 5)

    assert output.version_of(3) == (4, APP, 3)


def test_trap_a_query_that_run_took_over_has_batches_under_two_ids(output: Output) -> None:
    """Batches 0 to 3 were written under Spark's id: they do not come before the first of ours."""
    spark = "6a4c1d8e-8f0e-4a43-9d3c-3a3b8bb3ce3f"
    versions = [output.write(batch, spark) for batch in range(4)]
    versions += [output.write(batch) for batch in range(4, 7)]

    found = [output.version_of(batch, APP, spark) for batch in range(7)]
    assert found == [(version, APP, batch) for batch, version in enumerate(versions)]

    early = batch_version.version_of_batch("totals", output.uri, (APP, spark), 2)
    rewind.execute(
        rewind.plan(early, "orders/", SECOND, own_ids=(spark,)), "op-20261121-101530-aaaaaa"
    )
    assert sorted(row["n"] for row in tables.rows(output.uri)) == [0, 1, 2]
    assert [output.table.transaction_version(one) for one in (spark, APP, SECOND)] == [2, 2, 2]
    assert [output.version_of(batch, APP, spark)[0] for batch in range(7)] == versions
    assert output.version_of(2, SECOND, spark) == (8, SECOND, 2)


def test_trap_a_driver_that_calls_the_output_otherwise_has_the_commits_of_its_generation(
    output: Output,
) -> None:
    """A savepoint of a driver had the rows of before a merge, with the state of after it."""
    spark = "6a4c1d8e-8f0e-4a43-9d3c-3a3b8bb3ce3f"
    output.write(0, "orders/out/1")
    assert output.version_of(0, APP, spark) == (1, "orders/out/1", 0)
    assert output.write(1, spark) == 2
    corrected = output.write(1, "orders/out/2")

    assert output.version_of(1, SECOND, spark) == (corrected, spark, 1)
    assert output.version_of(1, APP, spark)[0] == 2
    assert output.version_of(1, OTHER, spark)[0] == 2


@pytest.mark.parametrize(
    ("app", "than", "later"),
    [
        ("orders/totals/10", "orders/totals/9", True),
        ("orders/totals/2", "orders/totals/2", False),
        ("orders/totals/1", "orders/totals/2", False),
        ("orders/audit/2", "orders/totals/1", True),
        ("returns/totals/2", "orders/totals/1", False),
        ("shop-2", "shop-1", False),
        ("2", "1", False),
        ("orders/totals/next", "orders/totals/1", False),
    ],
)
def test_a_later_generation_is_one_of_the_same_query(app: str, than: str, later: bool) -> None:
    assert is_later_generation(app, than) == later


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_trap_a_value_may_have_what_python_takes_for_the_end_of_a_line(
    separator: str, on_local: Location
) -> None:
    """The log has the least and the greatest value of each file, and these as they are."""
    uri = str(on_local / "texts")
    for batch in range(2):
        write_deltalake(
            uri,
            pa.table({"text": [f"a{separator}b{batch}"]}),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(APP, batch)]),
        )

    found = batch_version.version_of_batch("texts", uri, [APP], 0)

    assert found.version == 0
    assert batch_version.foreign_commits(uri, 0, "orders/", ()) == []
