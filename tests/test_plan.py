"""A plan as a notebook shows it."""

from __future__ import annotations

import pytest

from savepoints.plan import Plan, Step
from tests.shown import HOSTILE, assert_only_a_table, read


def test_a_notebook_shows_steps_and_notes() -> None:
    steps = (Step("pin", "copy batch 4"), Step("row", "add it to the catalog"))
    plan = Plan("create", "clicks", steps, ("it runs",))

    assert read(plan._repr_html_()).texts == [
        "create clicks", "1", "copy batch 4", "2", "add it to the catalog", "it runs",
    ]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_a_notebook_shows_what_a_plan_says_as_text(text: str) -> None:
    page = Plan("create", text, (Step("pin", text),), (text,))._repr_html_()

    assert_only_a_table(page)
    assert read(page).texts == [f"create {text}".rstrip(), "1", text, text]
