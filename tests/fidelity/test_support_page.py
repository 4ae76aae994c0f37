"""The page of what is supported is the table that the tests go through."""

from __future__ import annotations

from tests.fidelity.matrix import PAGE, TABLE, render
from tests.fidelity.queries import QUERIES


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text() == render(), "run python -m tests.fidelity.matrix"


def test_the_table_has_a_row_for_each_query() -> None:
    assert list(TABLE) == list(QUERIES)
