"""Generations: one current checkpoint a query, and where each came from."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from savepoints.errors import QueryNotFoundError, StalePlanError
from savepoints.handle import Store
from savepoints.io import Location


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
