"""Which operators can be combined, and by which function of the application."""

from __future__ import annotations

import pyarrow as pa
import pytest

from savepoints.checkpoint.state.operators import Operator
from savepoints.checkpoint.state.schema import StateField, StateSchema
from savepoints.errors import IncompatibleError
from savepoints.state.merge import combine

SUMS = Operator(0, "stateStoreSave", ("default",), 2)
MORE = Operator(1, "stateStoreSave", ("default",), 2)
JOIN = Operator(
    1,
    "symmetricHashJoin",
    ("left-keyToNumValues", "left-keyWithIndexToValue"),
    2,
)
SCHEMA = StateSchema("default", (StateField("k", "string"),), (StateField("sum", "long"),))
LAYOUT = {(0, "default"): (SCHEMA,), (1, "default"): (SCHEMA,)}


def live(known: pa.RecordBatch, _late: pa.RecordBatch) -> pa.RecordBatch:
    return known


def late(_known: pa.RecordBatch, alone: pa.RecordBatch) -> pa.RecordBatch:
    return alone


def test_the_number_of_an_operator_goes_before_its_name() -> None:
    found = combine.required([SUMS, MORE], LAYOUT, {"stateStoreSave": live, "1": late})
    assert {number: one.function for number, one in found.items()} == {0: live, 1: late}
    assert found[1].where == "operator 1 (stateStoreSave)"


def test_an_operator_without_a_function_is_refused() -> None:
    with pytest.raises(
        IncompatibleError, match=r"how to combine two states of operator 1 "
    ) as said:
        combine.required([SUMS, MORE], LAYOUT, {"0": live})
    assert "MergeFunctions" in said.value.hint


@pytest.mark.parametrize("name", ["symmetricHashJoin", "sessionWindowStateStoreSaveExec"])
def test_trap_several_rows_under_a_key_are_not_combined(name: str) -> None:
    """Two sessions of a client are two rows; which of them a late one belongs to is not known."""
    operator = Operator(1, name, JOIN.stores, 2)
    with pytest.raises(IncompatibleError, match="keeps more than one row per key, which"):
        combine.required([SUMS, operator], LAYOUT, {"0": live, name: live})
