"""What an application has to say so that late events are combined and not replayed."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from savepoints.errors import IncompatibleError
from savepoints.operations.merge import functions as merge_functions
from savepoints.runtime.app import MergeFunctions, RowCombination
from spark_jobs.order_totals import add_rows, app


def test_an_application_without_functions_is_refused() -> None:
    with pytest.raises(IncompatibleError, match="order_totals does not define how") as said:
        merge_functions.required(replace(app, merge=None))
    assert "without --policy" in said.value.hint


def test_each_output_needs_one() -> None:
    functions = MergeFunctions({}, {"other": RowCombination(("customer_id",), add_rows)})
    with pytest.raises(IncompatibleError, match="how rows of output totals combine"):
        merge_functions.required(replace(app, merge=functions))


def test_the_totals_of_both_count_and_the_tier_is_that_of_the_sum() -> None:
    """Silver and silver are gold; the older time is not the last one."""

    def rows(orders: int, cents: int, day: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [
                pa.array([7], pa.int64()),
                pa.array([orders], pa.int64()),
                pa.array([cents], pa.int64()),
                pa.array([day * 86_400_000_000], pa.timestamp("us", "UTC")),
                pa.array(["silver"]),
            ],
            ["customer_id", "orders", "amount_cents", "last_ordered_at", "tier"],
        )

    both = add_rows(rows(3, 300_00, 20), rows(1, 200_00, 10))

    (found,) = both.to_pylist()
    assert (found["orders"], found["amount_cents"], found["tier"]) == (4, 500_00, "gold")
    assert found["last_ordered_at"].day == 21
    assert both.schema.field("last_ordered_at").type == pa.timestamp("us", "UTC")
