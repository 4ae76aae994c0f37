"""The forms of the savepoint with which a segment of a run ends."""

from __future__ import annotations

import pytest

from savepoints.handle import Store
from savepoints.model import FORMS, Form
from savepoints.operations.run.program import Order
from savepoints.operations.run.segment import forms_at_the_end
from savepoints.plan import silent


@pytest.mark.parametrize(
    ("until", "forms", "is_paused", "expected"),
    [
        (None, FORMS, True, ("native",)),
        (None, FORMS, False, FORMS),
        ("latest", FORMS, True, FORMS),
        (None, ("canonical",), True, ("canonical",)),
    ],
    ids=["who-paused-waits", "a-signal", "it-ends-instead", "no-files-wanted"],
)
def test_a_pause_does_not_wait_for_rows(
    local_store: Store,
    until: str | None,
    forms: tuple[Form, ...],
    is_paused: bool,
    expected: tuple[Form, ...],
) -> None:
    order = Order(
        store=local_store,
        query="orders",
        app=None,
        every=None,
        until=until,
        max_duration=None,
        max_records=None,
        wait=None,
        forms=forms,
        final_savepoint=True,
        accept_state_names=False,
        progress=silent,
        begun_in=None,
    )
    assert forms_at_the_end(order, is_paused=is_paused) == expected
