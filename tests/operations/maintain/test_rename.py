"""A query of a driver of its own gets another name: all that is of it, and nothing else."""

from __future__ import annotations

import signal

import pytest

from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import (
    QueryNotFoundError,
    QueryRunningError,
    SavepointsError,
    TargetExistsError,
    UnfinishedOperationError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import OutputVersion, new_id
from savepoints.moments import rfc3339, utc_now
from savepoints.operations.maintain import rebuild_catalog, rename
from savepoints.operations.rollback import rollback
from savepoints.operations.savepoint import create
from savepoints.store.locks import lease
from savepoints.store.locks.journal import Journal, Operation
from tests.processes import killed_at
from tests.samples import lasting, query_id, savepoint, take, unpack

pytestmark = pytest.mark.drawn(3)


def test_trap_a_checkpoint_has_two_names_and_a_rollback_knows_one(
    on_local: Location, local_store: Store
) -> None:
    """First saved under Spark's id, later called something: one name, whatever is said later."""
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    good = take(local_store, checkpoint, batch_id=1, query=None, tags=("good",))
    assert good.query == query_id("rocksdb")

    with pytest.raises(UsageError, match=f"is already named {good.query}, not clicks") as refused:
        take(local_store, checkpoint, query="clicks")
    assert f"savepoints rename {good.query} clicks" in refused.value.hint
    rename.execute(rename.plan(local_store, good.query, "clicks"), local_store)

    later = take(local_store, checkpoint, query=None)
    assert {one.query for one in local_store.catalog.all()} == {"clicks"}
    assert later.query == "clicks"
    plan = rollback.plan(
        local_store, "good", query="clicks", to=str(on_local / "fixed"), rewind_outputs=False
    )
    done = rollback.execute(plan, local_store)
    assert (done.query, done.batch_id, done.generation) == ("clicks", 1, 2)
    # It is in the savepoints themselves, not in the catalog alone.
    before = {one.id: one for one in local_store.catalog.all()}
    rebuild_catalog.execute(rebuild_catalog.plan(local_store), local_store)
    assert {one.id: one for one in local_store.catalog.all()} == before


def test_killed_in_the_middle_and_run_again_it_is_done(
    on_local: Location, local_store: Store
) -> None:
    take(local_store, unpack("rocksdb", on_local / "checkpoint"), query="totals")
    words = ("rename", "totals", "sums", "--yes", "--store", str(local_store.root))

    assert killed_at("rename.savepoints", *words) == -signal.SIGKILL
    assert killed_at("", *words) == 0

    assert {one.query for one in local_store.catalog.all()} == {"sums"}
    assert {one.query for one in local_store.generations.all()} == {"sums"}


def test_trap_an_operation_that_began_after_the_plan_is_of_no_query_any_more(
    on_local: Location, local_store: Store
) -> None:
    """A rollback that was killed since: under the new name the query would run as if none was."""
    take(local_store, unpack("rocksdb", on_local / "checkpoint"), query="totals")
    plan = rename.plan(local_store, "totals", "sums")
    begun = Operation(new_id("op", utc_now()), "rollback", "totals", {}, "x", rfc3339(utc_now()))
    Journal.begin(local_store.root, begun)

    with pytest.raises(UnfinishedOperationError, match=begun.id):
        rename.execute(plan, local_store)

    assert {one.query for one in local_store.catalog.all()} == {"totals"}
    assert {one.query for one in local_store.generations.all()} == {"totals"}


def test_other_queries_keep_their_names(on_local: Location, local_store: Store) -> None:
    take(local_store, unpack("rocksdb", on_local / "checkpoint"), query="totals")
    other = take(local_store, unpack("session", on_local / "session"), query="sessions")

    rename.execute(rename.plan(local_store, "totals", "sums"), local_store)

    assert local_store.catalog.find(other.id) == other
    assert [one.query for one in local_store.generations.all("sessions")] == ["sessions"]
    with pytest.raises(QueryNotFoundError):
        local_store.generations.current("totals")


def test_what_is_refused_changes_nothing(on_local: Location, local_store: Store) -> None:
    take(local_store, unpack("rocksdb", on_local / "checkpoint"), query="totals")
    take(local_store, unpack("session", on_local / "session"), query="sessions")
    bound = QuerySettings(app="jobs:app", checkpoints="/c")
    before = lasting(local_store)
    cases: list[tuple[str, str, Settings, type[SavepointsError], str]] = [
        ("totals", "sessions", Settings(), TargetExistsError, "already has a query named sessions"),
        ("totals", "../x", Settings(), UsageError, "invalid query name"),
        ("none", "x", Settings(), QueryNotFoundError, "has no query 'none'"),
        (
            "totals",
            "x",
            Settings(queries={"totals": bound}),
            UsageError,
            "the settings use its name",
        ),
    ]
    for query, to, settings, error, message in cases:
        with pytest.raises(error, match=message):
            rename.plan(local_store.with_settings(settings), query, to)
    plan = rename.plan(local_store, "totals", "sums")
    for name in ("totals", "sums"):
        with (
            lease.hold(local_store.root, name, lease.ATTACH),
            pytest.raises(QueryRunningError),
        ):
            rename.execute(plan, local_store)
    assert lasting(local_store) == before


def test_a_query_whose_tables_know_its_name_keeps_it(
    on_local: Location, local_store: Store
) -> None:
    output = OutputVersion("totals", "/t", "id", 3, "totals/totals/1", 3)
    local_store.catalog.add(savepoint(1, query="totals", outputs=(output,)))
    local_store.generations.begin("totals", 1, on_local / "checkpoint", by="run")

    with pytest.raises(UsageError, match="its tables have transactions under that name"):
        rename.plan(local_store, "totals", "sums")


def test_a_batch_that_begins_meanwhile_is_saved_under_the_new_name(
    on_local: Location, local_store: Store
) -> None:
    """A plan of before the rename is of a query that is no longer there."""
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    take(local_store, checkpoint, batch_id=1, query="totals")
    old = create.plan(local_store, checkpoint=str(checkpoint), batch_id=2, forms=("native",))
    rename.execute(rename.plan(local_store, "totals", "sums"), local_store)

    taken = create.execute(old, local_store)

    assert taken.query == "sums"
