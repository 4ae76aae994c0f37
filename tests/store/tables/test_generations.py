"""Generations: one current checkpoint a query, and where each came from."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from savepoints.errors import QueryNotFoundError, StalePlanError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Origin
from tests import samples


def at(store: Store, name: str) -> Location:
    return store.root / "checkpoints" / name


def test_a_new_generation_ends_the_one_before(store: Store) -> None:
    generations = store.generations
    first = generations.begin("orders", 1, at(store, "1"), by="run")
    generations.begin("clicks", 1, at(store, "c"), by="run")

    second = generations.begin("orders", 2, at(store, "2"), by="rollback", begun_from="sp-1")

    assert generations.current("orders") == second
    assert (second.status, second.begun_from, second.begun_by) == ("current", "sp-1", "rollback")
    ended = generations.all("orders")[1]
    assert (ended.generation, ended.status, ended.ended_why) == (
        1,
        "ended",
        "superseded by generation 2 (rollback)",
    )
    assert (ended.ended_at, ended.begun_at) == (second.begun_at, first.begun_at)
    assert generations.current("clicks").status == "current"


def test_beginning_again_changes_nothing(local_store: Store) -> None:
    generations = local_store.generations
    first = generations.begin("orders", 1, at(local_store, "1"), by="run")

    assert generations.begin("orders", 1, at(local_store, "1"), by="rollback") == first
    with pytest.raises(
        StalePlanError, match=r"\(run\) already has the checkpoint .*checkpoints/1, not"
    ):
        generations.begin("orders", 1, at(local_store, "other"), by="rollback")
    assert generations.all() == [first]


def test_numbers_count_up_within_a_query(local_store: Store) -> None:
    generations = local_store.generations
    assert generations.next_number("orders") == 1

    for number in (1, 2):
        generations.begin("orders", number, at(local_store, str(number)), by="run")

    assert generations.next_number("orders") == 3
    assert generations.next_number("clicks") == 1


def test_an_unknown_query_is_not_found_and_the_known_are_named(local_store: Store) -> None:
    with pytest.raises(QueryNotFoundError) as empty:
        local_store.generations.current("orders")
    assert "savepoints create orders --checkpoint URI" in empty.value.hint

    local_store.generations.begin("clicks", 1, at(local_store, "c"), by="run")
    with pytest.raises(QueryNotFoundError) as refused:
        local_store.generations.current("orders")
    assert refused.value.details == {"query": "orders", "known": ["clicks"]}
    assert local_store.generations.find_current("orders") is None


def test_a_generation_is_found_by_its_checkpoint(store: Store) -> None:
    begun = store.generations.begin("orders", 1, at(store, "1"), by="run")
    hadoop = Location.of(at(store, "1").uri.hadoop)

    assert store.generations.of_checkpoint(hadoop) == begun
    assert store.generations.of_checkpoint(at(store, "2")) is None


@pytest.mark.nightly
def test_queries_that_begin_at_once_are_all_kept(on_s3: Location) -> None:
    store = Store.at(str(on_s3)).make()
    store.generations.begin("first", 1, at(store, "first"), by="run")

    def begin(number: int) -> None:
        store.generations.begin(f"q{number}", 1, at(store, str(number)), by="run")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(begin, range(8)))

    assert {one.query for one in store.generations.all()} == {
        "first",
        *(f"q{number}" for number in range(8)),
    }


def test_of_many_that_begin_the_same_generation_one_does(on_s3: Location) -> None:
    store = Store.at(str(on_s3)).make()
    store.generations.begin("first", 1, at(store, "first"), by="run")

    def begin(number: int) -> str | None:
        try:
            return store.generations.begin("q", 1, at(store, str(number)), by="create").checkpoint
        except StalePlanError:
            return None

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(begin, range(4)))

    assert [one for one in told if one] == [store.generations.current("q").checkpoint]


def test_trap_what_a_generation_began_from_is_known_when_the_savepoint_is_gone(
    local_store: Store,
) -> None:
    """Retention removes savepoints, and whoever follows a line back must not stop there."""
    generations, one = local_store.generations, samples.savepoint(3)
    local_store.catalog.add(one)
    generations.begin("orders", 1, at(local_store, "1"), by="run")
    savepoints = local_store.catalog.all()

    for query in ("orders", "fork"):
        generations.begin(
            query, 2, at(local_store, query), by="x", begun_from=one.id, savepoints=savepoints
        )

    local_store.catalog.remove([one.id])
    begun, fork = generations.current("orders"), generations.current("fork")
    origin = Origin(one.query, one.generation, one.cut.batch_id, is_edited=False)
    assert begun.origin == fork.origin == origin
    assert begun.origin_among({}) == origin
    assert begun.origin_among({one.id: replace(one, query="renamed")}) == replace(
        origin, query="renamed"
    )
    generations.rename(one.query, "renamed")
    assert generations.current("fork").origin == replace(origin, query="renamed")


def test_a_table_of_an_older_version_gets_the_column(local_store: Store) -> None:
    generations, one = local_store.generations, samples.savepoint(3)
    table = generations._table
    of_before = [column for column in table.schema if column.name != "origin"]
    row = {"query": "orders", "generation": 1, "checkpoint": "/ck/1", "status": "current"}
    replace(table, schema=pa.schema(of_before)).append(
        [{**row, "begun_at": one.created_at, "begun_by": "run", "begun_from": "sp-0"}]
    )
    assert generations.current("orders").origin is None

    begun = generations.begin(
        "orders", 2, at(local_store, "2"), by="rollback", begun_from=one.id, savepoints=[one]
    )

    assert begun.origin == Origin.of(one)
    assert [known.origin for known in generations.all()] == [begun.origin, None]
