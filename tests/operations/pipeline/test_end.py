"""A query is over: nobody starts it again, what it held is free, and nothing is deleted."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from savepoints.errors import QueryNotFoundError, QueryRunningError, StalePlanError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import OutputVersion, Savepoint
from savepoints.operations.maintain import expire
from savepoints.operations.pipeline import end
from savepoints.operations.rollback import rollback
from savepoints.store.locks import lease
from savepoints.store.retention_policy import RetentionPolicy
from tests.processes import killed_at
from tests.samples import lasting, savepoint, take, unpack

BATCHES = (1, 2, 3)


def forked(store: Store, place: Location) -> tuple[list[Savepoint], Savepoint]:
    """Save a query three times, and a fork that began from the first of them."""
    checkpoint = unpack("rocksdb", place / "live")
    taken = [take(store, checkpoint, batch_id=batch, query="totals") for batch in BATCHES]
    other = unpack("session", place / "fork")
    store.generations.begin("variant", 1, other, by="fork", begun_from=taken[0].id)
    return taken, take(store, other, query="variant")


def test_trap_a_fork_that_nobody_needs_keeps_the_savepoint_that_it_began_from(
    on_local: Location, local_store: Store
) -> None:
    taken, mine = forked(local_store, on_local)
    one = RetentionPolicy(keep_last=1)
    before = {it.savepoint_id: it for it in expire.plan(local_store, one).savepoints}
    assert before[taken[0].id].kept

    plan = end.plan(local_store, "variant", why="A was better")
    assert (plan.generation, plan.released) == (1, taken[0].id)
    end.execute(plan, local_store)

    after = {it.savepoint_id: it for it in expire.plan(local_store, one).savepoints}
    assert [it.kept for it in map(after.get, before) if it] == [
        name not in {taken[0].id, taken[1].id} for name in before
    ]
    assert after[mine.id].kept, "its own newest one stays"


def test_only_what_has_a_savepoint_can_be_continued_from_it(
    on_local: Location, local_store: Store
) -> None:
    """A fork that was never run has none: the plan must not name a command that is refused."""
    forked(local_store, on_local)
    other = unpack("session", on_local / "untried")
    local_store.generations.begin("untried", 1, other, by="fork")

    saved, unsaved = (str(end.plan(local_store, query)) for query in ("variant", "untried"))

    assert "savepoints fork latest NEW --query variant" in saved
    assert "savepoints fork latest NEW" not in unsaved


def test_trap_latest_is_not_named_where_nothing_that_counts_is_saved(
    on_local: Location, local_store: Store
) -> None:
    """A reset has left what is saved: `fork latest` would find nothing."""
    saved = take(local_store, unpack("rocksdb", on_local / "live"), query="totals")
    anew = unpack("session", on_local / "anew")
    local_store.generations.begin("totals", 2, anew, by="reset")

    named = re.search(r"savepoints fork (\S+) NEW", str(end.plan(local_store, "totals")))

    assert named is not None
    assert local_store.catalog.find(named[1], query="totals") == saved


def test_whoever_needs_a_query_that_has_ended_is_told_why(
    on_local: Location, local_store: Store
) -> None:
    _, mine = forked(local_store, on_local)
    end.execute(end.plan(local_store, "variant", why="A was better"), local_store)

    for refused in (
        lambda: rollback.plan(local_store, mine.id, query="variant"),
        lambda: local_store.generations.current("variant"),
    ):
        with pytest.raises(QueryNotFoundError, match="variant has ended: A was better") as said:
            refused()
        assert "savepoints fork ID NAME" in said.value.hint
    again = end.plan(local_store, "variant", why="another reason")
    assert (again.steps, again.idle) == ((), "it has already ended: A was better")
    end.execute(again, local_store)
    assert local_store.generations.all("variant")[0].ended_why == "A was better"
    assert local_store.generations.current("totals").generation == 1


def test_its_tables_are_named_unless_another_query_writes_them(
    on_local: Location, local_store: Store
) -> None:
    forked(local_store, on_local)
    newest = local_store.catalog.find("latest", query="variant")
    shared, own = (
        OutputVersion("a", "/t/a", "1", 1, "", 1),
        OutputVersion("b", "/t/b", "2", 1, "", 1),
    )
    later = replace(newest.cut, batch_id=9)
    for number, query, outputs in ((8, "variant", (shared, own)), (9, "totals", (shared,))):
        local_store.catalog.add(
            replace(savepoint(number, query=query, outputs=outputs), generation=1, cut=later)
        )

    plan = end.plan(local_store, "variant")

    assert plan.tables == ("/t/b",)
    assert f"{plan.checkpoint}, /t/b" in "\n".join(plan.warnings)


def test_trap_the_checkpoint_to_delete_was_named_as_only_spark_knows_it(on_s3: Location) -> None:
    """`aws s3 rm s3a://…` is refused."""
    store = Store.at(str(on_s3 / "store")).make()
    forked(store, on_s3)

    plan = end.plan(store, "variant")

    assert plan.checkpoint == str(on_s3 / "fork")
    assert "s3a://" not in str(plan)


def test_what_is_refused_changes_nothing(on_local: Location, local_store: Store) -> None:
    forked(local_store, on_local)
    plan = end.plan(local_store, "variant")
    before = lasting(local_store)

    with lease.hold(local_store.root, "variant", lease.ATTACH), pytest.raises(QueryRunningError):
        end.execute(plan, local_store)
    with pytest.raises(QueryNotFoundError, match="has no query 'none'"):
        end.plan(local_store, "none")
    assert lasting(local_store) == before
    local_store.generations.begin("variant", 2, on_local / "other", by="rollback")
    with pytest.raises(StalePlanError, match="it was in generation 1 and is now in 2"):
        end.execute(plan, local_store)
    assert local_store.generations.current("variant").generation == 2


def test_the_command_run_twice_ends_it_once(on_local: Location, local_store: Store) -> None:
    forked(local_store, on_local)
    words = ("end", "variant", "--why", "A was better", "--yes", "--store", str(local_store.root))

    assert killed_at("", *words) == 0
    ended = local_store.generations.all("variant")
    assert killed_at("", *words) == 0

    assert local_store.generations.all("variant") == ended
    assert [it.status for it in ended] == ["ended"]
