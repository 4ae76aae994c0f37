"""`undo`: what was done last to a query, whatever it was, or what was interrupted."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from savepoints import faults
from savepoints.checkpoint.cut import read_cut
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.rollback import rollback
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Journal, Operation
from tests.cli.conftest import Call
from tests.samples import contents, take, unpack


@pytest.fixture
def rolled_back(local_store: Store, on_local: Location) -> Store:
    """Give a store with a query that was rolled back from batch 3 to batch 1."""
    first = take(local_store, unpack("rocksdb", on_local / "live"), batch_id=1)
    plan = rollback.plan(local_store, first.id, to=str(on_local / "next"), rewind_outputs=False)
    rollback.execute(plan, local_store)
    return local_store


def test_a_rollback_is_undone_once(call: Call, rolled_back: Store) -> None:
    at = ("--outputs", "none", "--store", str(rolled_back.root))

    to = str(rolled_back.root) + "-checkpoint-"

    planned = call("undo", "totals", "--dry-run", "--to", f"{to}3", *at)
    assert (planned.code, "the last operation is the rollback op-" in planned.err) == (0, True)
    assert rolled_back.generations.current("totals").generation == 2

    done = call("undo", "totals", "--to", f"{to}3", "--yes", "-o", "json", *at)
    assert done.document["rolled_back"]["generation"] == 3
    now = rolled_back.generations.current("totals")
    assert read_cut(Location.of(now.checkpoint)).cut.batch_id == 3
    lineage = call("lineage", "--query", "totals", "--store", str(rolled_back.root)).out
    assert sorted(re.findall(r"totals/(\d), .*begun by (\w+)", lineage)) == [
        ("1", "create"), ("2", "rollback"), ("3", "undo"),
    ]  # fmt: skip
    newest = rolled_back.events.all()[0]
    assert (newest.verb, newest.message) == ("rollback", "undo of the last operation")

    again = call("undo", "totals", "--to", f"{to}4", "--yes", *at)
    assert again.code == 2
    assert "has already been undone, by op-" in again.err


def test_what_was_interrupted_is_taken_back(
    call: Call, local_store: Store, on_local: Location
) -> None:
    taken = take(local_store, unpack("rocksdb", on_local / "live"), batch_id=1)
    plan = rollback.plan(local_store, taken.id, to=str(on_local / "next"), rewind_outputs=False)
    Journal.begin(
        local_store.root,
        Operation(
            plan.operation_id, "rollback", plan.query, plan.to_json(),
            f"savepoints rollback {taken.id} --yes", "2026-11-21T10:00:00.000Z",
        ),
    )  # fmt: skip

    undone = call("undo", "totals", "--yes", "-o", "json", "--store", str(local_store.root))

    assert undone.document["operation"]["id"] == plan.operation_id
    assert undone.document["operation"]["undone"] is True
    assert local_store.generations.current("totals").generation == 1


def interrupted(monkeypatch: pytest.MonkeyPatch, point: str, command: Callable[[], object]) -> None:
    """Press Ctrl-C where a command reaches a point."""

    def reach(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(faults, "reach", reach)
        command()


def test_trap_an_undo_that_was_interrupted_is_finished(
    call: Call, local_store: Store, on_local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was undone itself, so that who ran the command again had what was to be undone."""
    taken = take(local_store, unpack("rocksdb", on_local / "live"), batch_id=1)
    at = ("--outputs", "none", "--yes", "--store", str(local_store.root))
    assert call("rollback", taken.id, "--to", str(on_local / "2"), *at).code == 0
    undo = ("undo", "totals", "--to", str(on_local / "3"), *at)

    interrupted(monkeypatch, "rollback.checkpoint_written", lambda: call(*undo))
    assert journal.unfinished(local_store.root, "totals") is not None

    assert call(*undo).code == 0

    assert journal.unfinished(local_store.root, "totals") is None
    now = local_store.generations.current("totals")
    assert (now.generation, now.checkpoint) == (3, str(on_local / "3"))


def test_trap_an_undo_that_has_begun_its_generation_was_to_be_undone_when_it_is_finished(
    call: Call, rolled_back: Store, on_local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is refused: no undo can be undone."""
    at = ("--yes", "--store", str(rolled_back.root))
    undo = ("undo", "totals", "--to", str(on_local / "3"), "--outputs", "none", *at)

    interrupted(monkeypatch, "rollback.generation_begun", lambda: call(*undo))
    begun = journal.unfinished(rolled_back.root, "totals")
    assert begun is not None

    refused = call("operations", "undo", begun.id, *at)

    assert (refused.code, "has already begun" in refused.err) == (2, True)
    assert "savepoints undo" not in refused.err
    assert f"savepoints rollback {begun.plan['safety_id']}" in refused.err
    assert call("operations", "resume", begun.id, *at).code == 0
    back = ("rollback", begun.plan["safety_id"], "--to", str(on_local / "4"), "--outputs", "none")
    assert call(*back, *at).code == 0


def test_where_nothing_was_done_it_says_so(
    call: Call, local_store: Store, on_local: Location
) -> None:
    take(local_store, unpack("rocksdb", on_local / "live"), batch_id=1)
    before = contents(on_local)

    refused = call("undo", "totals", "--yes", "--store", str(local_store.root))

    assert refused.code == 10
    assert "cannot undo the last operation on totals: no operation has finished" in refused.err
    assert "savepoints operations list --query totals" in refused.err
    assert contents(on_local) == before


def test_trap_a_misspelt_query_is_said_to_have_nothing_to_undo(
    call: Call, local_store: Store, on_local: Location
) -> None:
    """And to have no savepoint, with a list of all of them as the way out."""
    take(local_store, unpack("rocksdb", on_local / "live"), query="totals")

    undo = call("undo", "total", "--yes", "--store", str(local_store.root))
    back = call("rollback", "latest", "--query", "total", "--store", str(local_store.root))

    assert (undo.code, back.code) == (10, 10)
    assert "has no query 'total'" in undo.err
    assert "no savepoint of query total matches 'latest'" in back.err
    # `create total` alone is refused for a query that the store does not know.
    assert "savepoints create --checkpoint URI --name total" in back.err
    for refused in (undo, back):
        assert ": totals" in refused.err
