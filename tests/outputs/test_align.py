"""Which version of a Delta table belongs to a batch, on tables that deltalake wrote."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.errors import FileSinkError, NotAlignedError, NotFoundError
from savepoints.io import Location, storage_options
from savepoints.outputs import align

APP = "orders/totals/1"
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

    def version_of(self, batch: int, *apps: str) -> tuple[int, str, int | None]:
        """Return version, application id and its recorded batch for a batch."""
        found = align.version_of_batch("totals", self.uri, apps or (APP,), batch)
        assert (found.name, found.uri) == ("totals", self.uri)
        assert found.table_id == str(self.table.metadata().id)
        return found.version, found.app_id, found.app_version

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.uri, storage_options=self.options)


@pytest.fixture
def output(on_local: Location) -> Output:
    return Output(on_local / "totals")


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


def test_a_table_that_does_not_exist_is_not_found(place: Location) -> None:
    with pytest.raises(NotFoundError) as refused:
        align.open_table(str(place / "nothing"))

    assert refused.value.exit_code == 10
    assert refused.value.details == {"uri": str(place / "nothing")}


def test_a_version_that_does_not_exist_is_not_aligned(output: Output) -> None:
    with pytest.raises(NotAlignedError, match="version 9"):
        align.open_table(output.uri, 9)


def test_foreign_commits_are_those_that_changed_rows_and_are_not_ours(output: Output) -> None:
    output.write(0)
    output.write(1)
    output.write(0, "orders/totals/2")
    output.table.optimize.compact()
    output.write(7, OTHER)
    output.write(8, None)
    output.write(2)

    found = align.foreign_commits(output.uri, 1, ("orders/",))

    assert [commit.version for commit in found] == [6, 5]
    assert align.foreign_commits(output.uri, 6, ("orders/",)) == []


def test_who_wrote_is_unknown_when_the_log_was_cleaned_up(output: Output) -> None:
    for batch in range(5):
        output.write(batch)
    output.table.create_checkpoint()
    log = Location.of(output.uri) / "_delta_log"
    log.delete([f"{version:020}.json" for version in range(4)])

    with pytest.raises(NotAlignedError, match="who wrote versions 2 to 5"):
        align.foreign_commits(output.uri, 1, ("orders/",))
    assert align.foreign_commits(output.uri, 3, ("orders/",)) == []


def test_a_change_of_the_tables_settings_changes_no_rows(output: Output) -> None:
    output.write(0)
    output.table.alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})

    assert align.foreign_commits(output.uri, 1, ("orders/",)) == []


def test_trap_a_file_sink_drops_batches_that_it_has_seen(place: Location) -> None:
    """Its directory has a log of batch ids; a restored query would write nothing, silently."""
    sink = place / "clicks"
    sink.put("_spark_metadata/0", b"v1\n")
    sink.put("part-0.json", b"{}\n")

    with pytest.raises(FileSinkError, match="silently drops") as refused:
        align.open_table(str(sink))

    assert "new directory" in refused.value.hint
