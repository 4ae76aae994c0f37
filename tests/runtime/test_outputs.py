"""What an output may say of itself; no JVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from savepoints.errors import UsageError
from savepoints.runtime.app import Input, Output, TableInput


@pytest.mark.parametrize("mode", ["update", "bogus"])
def test_a_mode_that_does_not_exist_is_refused_with_those_that_do(mode: Any) -> None:
    with pytest.raises(UsageError, match=mode) as refused:
        Output(mode=mode)

    assert "append, upsert, complete" in refused.value.hint


@pytest.mark.parametrize(
    ("mode", "key", "problem"),
    [("upsert", (), "upsert needs a key"), ("append", ("k",), "append cannot have key=")],
)
def test_a_key_belongs_to_an_upsert(mode: Any, key: tuple[str, ...], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Output(mode=mode, key=key)


def test_trap_an_upsert_of_some_rows_would_keep_one_that_no_longer_matches() -> None:
    with pytest.raises(UsageError, match="no longer matches") as refused:
        Output(mode="upsert", key=("k",), where="n > 1")

    assert "view" in refused.value.hint


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda text: Output(mode="upsert", key=text), "key"),
        (lambda text: Output(mode="append", columns=text), "columns"),
        (lambda text: Input("orders", lambda rows: rows, "id", "at", event_id=text), "event_id"),
        (
            lambda text: TableInput(columns="", entity_key="", event_time="", event_id=text),
            "event_id",
        ),
    ],
)
def test_trap_a_comma_that_is_missing_makes_a_column_of_each_letter(
    make: Callable[[Any], object], name: str
) -> None:
    """`key=("ab")` is a text, and a table with the columns a and b took it."""
    with pytest.raises(UsageError, match=f"{name} is the text 'ab', but must be a list"):
        make("ab")


def test_the_key_is_among_the_columns() -> None:
    with pytest.raises(UsageError, match="key column 'k' is not among the columns"):
        Output(mode="upsert", key=("k",), columns=("n",))
