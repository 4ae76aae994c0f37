"""The page of what is supported is the table that the tests go through."""

from __future__ import annotations

import pytest

from tests.fidelity.matrix import EXACT, PAGE, TABLE, WAYS, cases, cell, chosen, render
from tests.fidelity.queries import QUERIES


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text() == render(), "run python -m tests.fidelity.matrix"


def test_the_table_has_a_row_for_each_query() -> None:
    assert list(TABLE) == list(QUERIES)


def test_each_chosen_test_is_a_cell() -> None:
    assert chosen() <= set(cases())


@pytest.mark.parametrize("query", QUERIES)
def test_make_test_restores_each_query(query: str) -> None:
    exact = {one for one in cases() if one.query == query}
    exact = {one for one in exact if cell(one.query, one.store, one.way) == EXACT}
    assert not exact or chosen() & exact


@pytest.mark.parametrize("kind", sorted({one.kind for one in QUERIES.values()}))
def test_make_test_shows_each_store_and_each_way_to_each_kind_of_query(kind: str) -> None:
    possible = [one for one in cases() if QUERIES[one.query].kind == kind]
    exact = {one for one in possible if cell(one.query, one.store, one.way) == EXACT}
    taken = chosen() & exact

    assert {one.store for one in taken} == {one.store for one in exact}
    assert {one.way for one in taken} == {one.way for one in exact}
    assert set(WAYS) == {one.way for one in chosen() & set(possible)}
