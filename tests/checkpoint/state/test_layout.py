"""The layout of a state, compared with that of the program that continues with it."""

from __future__ import annotations

import pytest

from savepoints.checkpoint.state import layout
from savepoints.checkpoint.state.layout import Layout
from savepoints.checkpoint.state.schema import StateField, StateSchema
from savepoints.errors import LayoutChangedError

KEY = (StateField("customer", "string"),)
COUNT, SUM = StateField("count", "long"), StateField("sum", "long")
PAIR = {"type": "array", "elementType": {"type": "struct", "fields": []}, "containsNull": True}


def state(*value: StateField, families: int = 1) -> Layout:
    schemas = [StateSchema(f"family {n}", KEY, value) for n in range(families)]
    return {(0, "default"): tuple(schemas)}


def pairs(name: str) -> StateField:
    inner = {"name": name, "type": "long", "nullable": True, "metadata": {}}
    return StateField("buf", {**PAIR, "elementType": {"type": "struct", "fields": [inner]}})


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ((COUNT,), (COUNT, SUM)),
        ((COUNT, SUM), (COUNT,)),
        ((COUNT,), (StateField("count", "double"),)),
        ((COUNT,), (StateField("sum", "double"),)),
    ],
)
def test_trap_run_leaves_it_to_spark_to_find_other_columns_in_the_first_batch(
    was: tuple[StateField, ...], now: tuple[StateField, ...]
) -> None:
    with pytest.raises(LayoutChangedError, match="operator 0, store default, does not") as refused:
        layout.require_types(state(*was), state(*now), "jobs.v2:app", savepoint=lambda: "sp-1")
    assert "savepoints upgrade check --app jobs.v2:app" in refused.value.hint


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (state(COUNT, SUM), state(COUNT, SUM)),
        (state(COUNT), state(SUM)),  # Names are another check.
        (state(pairs("a")), state(pairs("b"))),
        (state(COUNT, families=2), state(COUNT, families=3)),  # Of transformWithState.
        (state(COUNT), {}),
    ],
)
def test_what_spark_accepts_or_finds_itself_is_accepted(was: Layout, now: Layout) -> None:
    layout.require_types(was, now, "jobs.v2:app", savepoint=lambda: "sp-1")
