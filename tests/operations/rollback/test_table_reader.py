"""A query that reads a Delta table whose log has been cleaned up, as each is after a month."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from savepoints.checkpoint.logs import offset_log, table_position
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import (
    IncompatibleError,
    SavepointsError,
    SourceDataGoneError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.rollback import reset, rollback
from savepoints.outputs.delta import unreadable_versions
from savepoints.sources import delta_versions
from savepoints.sources.kafka.reset_targets import Target
from tests.outputs import tables
from tests.samples import contents, take, unpack

QUERY = "totals"


@dataclass(frozen=True)
class Reader:
    """A query whose batches 1 to 3 have read up to versions 1 to 3, with a savepoint of batch 1."""

    store: Store
    place: Location
    uri: str
    saved: str

    def back(self, *, check: bool = True) -> rollback.RollbackPlan:
        return rollback.plan(
            self.store, self.saved, query=QUERY, rewind_outputs=False, check_source=check
        )

    def clean_up(self, below: int) -> None:
        tables.opened(self.uri).create_checkpoint()
        tables.clean_up(self.uri, below)


@pytest.fixture
def reader(on_local: Location, local_store: Store) -> Reader:
    uri = str(on_local / "events")
    for number in range(6):
        write_deltalake(uri, pa.table({"k": [number]}), mode="append")
    table_id = str(tables.opened(uri).metadata().id)
    live = unpack("rocksdb", on_local / "live")
    live.delete([info.path for info in live.list("sources")])
    for batch in range(4):
        path = f"offsets/{batch}"
        if live.exists(path):
            read = table_position.after(table_id, batch).text
            live.put(path, offset_log.with_batch(live.get(path), path, positions=[read]))
    saved = take(local_store, live, batch_id=1).id
    bound = QuerySettings(app="m:a", checkpoints=str(on_local / "next"), tables={"events": uri})
    settings = Settings(queries={QUERY: bound})
    return Reader(local_store.with_settings(settings), on_local, uri, saved)


def test_trap_a_rollback_leads_to_versions_that_the_log_no_longer_has(reader: Reader) -> None:
    """The outputs would go back, and then the query could not be started."""
    reader.clean_up(2)
    assert reader.back().batch_id == 1
    reader.clean_up(3)

    with pytest.raises(SourceDataGoneError, match=r"read version 2 of .*before 3") as refused:
        reader.back()

    assert "savepoints reset totals --to-earliest" in refused.value.hint
    assert reader.back(check=False).batch_id == 1


def test_what_is_left_of_the_first_rows_needs_no_commit(reader: Reader) -> None:
    """And tables at other places, and other sources, are not looked at."""
    reader.clean_up(3)
    at = table_position.after(str(tables.opened(reader.uri).metadata().id), 1)

    delta_versions.require_commits([replace(at, in_snapshot=True).text], [reader.uri], query=QUERY)
    delta_versions.require_commits([at.text], [], query=QUERY)
    delta_versions.require_commits([None, '{"orders":{"0":1}}'], ["/nowhere"], query=QUERY)
    with pytest.raises(SourceDataGoneError):
        delta_versions.require_commits([at.text], [reader.uri], query=QUERY)


def test_trap_a_query_that_begins_anew_needs_no_commit_of_its_table(reader: Reader) -> None:
    """It reads the table as it is; that commits were gone was called a loss of data."""
    reader.clean_up(3)

    plan = reset.plan(reader.store, QUERY, Target("earliest"))

    assert plan.sources == ()
    assert any("startingVersion" in one for one in plan.warnings)
    with pytest.raises(SourceDataGoneError, match="before 3"):
        reset.plan(reader.store, QUERY, Target("earliest"), state="keep")


def test_trap_state_that_is_damaged_cannot_be_given_up_by_a_reset(reader: Reader) -> None:
    """The only way on without a whole savepoint was refused, as its state could not be saved."""
    left = Location.of(reader.store.generations.current(QUERY).checkpoint)
    left.delete([info.path for info in left.list("state") if info.path.endswith(".zip")])
    whole = contents(left)
    with pytest.raises(SavepointsError) as refused:
        reset.plan(reader.store, QUERY, Target("earliest"))
    assert "savepoints reset QUERY --to-current --no-safety-savepoint" in refused.value.hint
    with pytest.raises(UsageError, match="no safety savepoint to keep the state from"):
        reset.plan(reader.store, QUERY, Target("latest"), state="keep", save_present=False)

    plan = reset.plan(reader.store, QUERY, Target("earliest"), save_present=False)
    done = reset.execute(plan, reader.store)

    assert "without a safety savepoint, this reset cannot be undone" in plan.warnings
    assert (done.safety_id, done.generation) == (None, 2)
    assert reader.store.generations.current(QUERY).checkpoint == done.checkpoint
    assert contents(left) == whole


def test_trap_a_reader_is_rolled_back_to_before_a_rewind_or_a_correction(reader: Reader) -> None:
    """Its outputs would go back, and then it could not run: Spark fails at such a commit."""
    table = tables.opened(reader.uri)
    assert reader.back().batch_id == 1
    table.optimize.compact()
    assert reader.back().batch_id == 1, "files that are only rewritten take nothing out"
    table.delete()
    at = table.version()

    with pytest.raises(IncompatibleError, match=rf"read version {at} of .* \(DELETE\)") as refused:
        reader.back()

    assert "savepoints pipeline rollback totals TAG --all" in refused.value.hint
    assert reader.back(check=False).batch_id == 1
    # With its writer it goes back to before that.
    table_id = str(table.metadata().id)
    position = table_position.after(table_id, 1).text
    ends = {str(Location.of(reader.uri)): at - 1}
    versions = delta_versions.require_commits([position], [reader.uri], query=QUERY, ends=ends)
    assert versions == {reader.uri: range(2, at)}
    unreadable_versions.refuse(versions, QUERY)
    # Nobody knows whether the reader reads its changes, in which all can be told.
    table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    assert reader.back().batch_id == 1
