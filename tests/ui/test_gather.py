"""What a page is drawn from, read from real stores."""

from __future__ import annotations

from functools import partial

import pytest

from savepoints.errors import QueryNotFoundError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Generation
from savepoints.operations.maintain import expire
from savepoints.operations.rollback import rollback
from savepoints.store.locks import lease
from savepoints.store.locks.journal import Journal, Operation
from savepoints.store.retention_policy import RetentionPolicy
from savepoints.ui import page
from savepoints.ui.answers import answers
from savepoints.ui.gather import gather
from tests.samples import BEGINNING, contents, saved, savepoint, take, unpack


def begin(store: Store, query: str, begun_from: str | None = None) -> Generation:
    return store.generations.begin(
        query, 1, Location.of(f"{store.root}-{query}"), by="fork", begun_from=begun_from
    )


def test_everything_of_a_store_is_read_and_nothing_is_written(local_store: Store) -> None:
    """Also the checkpoint: `topology` says which batch it has come to."""
    taken = saved(local_store, "rocksdb")
    before = contents(local_store.root)

    facts = gather(local_store)

    assert [one.id for one in facts.savepoints] == [taken.id]
    assert {one.verb for one in facts.events} == {"create"}
    place = facts.sources[taken.query].topology
    assert place is not None
    assert place.batch_id == taken.cut.batch_id
    assert facts.busy == {}
    assert contents(local_store.root) == before


def test_trap_two_rollbacks_and_a_retention_leave_no_page(
    local_store: Store, on_local: Location
) -> None:
    """The first one's savepoint is needed by nothing any more, and its generation ended."""
    checkpoint = unpack("rocksdb", on_local / "totals")
    first, _ = (take(local_store, checkpoint, batch_id=batch) for batch in (1, 3))
    back = partial(rollback.plan, local_store, rewind_outputs=False, stopped=True)
    second = rollback.execute(back(first.id), local_store)
    of_second = take(local_store, Location.of(second.checkpoint))
    rollback.execute(back(of_second.id), local_store)
    expire.execute(expire.plan(local_store, RetentionPolicy(keep_last=1)), local_store)
    assert first.id not in [one.id for one in local_store.catalog.all()]

    assert "totals is in order" in page.page(local_store)


def test_a_lost_checkpoint_is_an_answer_and_no_error(local_store: Store) -> None:
    local_store.catalog.add(savepoint(1, query="clicks"))
    begin(local_store, "clicks")

    facts = gather(local_store)

    (found,) = answers(facts)
    (lag,) = (one for one in found.answers if one.question == "Lag")
    assert lag.value == "unknown"
    assert "there is no Spark checkpoint" in lag.note


@pytest.mark.parametrize(
    "path", ["leases/clicks.json", "operations/op-20261121-100000-aaaaaa.json"]
)
def test_trap_a_damaged_lease_or_journal_fails_the_whole_page(
    local_store: Store, path: str
) -> None:
    """Of a lease one knows the query; a journal may be of any, and each refuses to run for it."""
    for number, query in enumerate(("clicks", "orders"), 1):
        local_store.catalog.add(savepoint(number, query=query))
    local_store.root.put(path, b"{}")

    found = {one.query: one.problems for one in answers(gather(local_store, sources=False))}

    told = [query for query, problems in found.items() if any(path in one.text for one in problems)]
    assert sorted(told) == (["clicks"] if "leases" in path else ["clicks", "orders"])
    assert found["clicks"][0].command == "savepoints check"


def test_a_query_comes_with_its_forks_and_nobody_else(local_store: Store) -> None:
    origin = savepoint(1, query="orders")
    for one in (origin, savepoint(2, query="clicks"), savepoint(3, query="fork")):
        local_store.catalog.add(one)
    begin(local_store, "orders")
    begin(local_store, "fork", origin.id)

    assert gather(local_store, query="orders", sources=False).queries == ("fork", "orders")
    assert gather(local_store, query="fork", sources=False).queries == ("fork", "orders")
    assert gather(local_store, sources=False).queries == ("clicks", "fork", "orders")
    with pytest.raises(QueryNotFoundError, match="no query 'nobody'"):
        gather(local_store, query="nobody")


def test_who_works_on_a_query_and_what_is_unfinished_is_read(local_store: Store) -> None:
    local_store.catalog.add(savepoint(1, query="clicks"))
    begun = Operation("op-x", "rollback", "clicks", {"steps": []}, "savepoints rollback x",
                      BEGINNING.isoformat())  # fmt: skip
    Journal.begin(local_store.root, begun)

    with lease.hold(local_store.root, "clicks", "run"):
        facts = gather(local_store, sources=False)

    assert facts.busy == {"clicks": "run"}
    assert [one.command for one in answers(facts)[0].problems] == ["savepoints rollback x"]


def test_trap_an_operation_that_finishes_while_it_is_read_is_not_unfinished(
    local_store: Store,
) -> None:
    """Its journal is moved; the page has it once, as finished."""
    log = Journal.begin(
        local_store.root,
        Operation("op-x", "rollback", "clicks", {"steps": []}, "c", BEGINNING.isoformat()),
    )
    log.finish()
    local_store.catalog.add(savepoint(1, query="clicks"))

    facts = gather(local_store, sources=False)

    assert [one.state for one in facts.operations] == ["finished"]
    assert answers(facts)[0].problems == ()
