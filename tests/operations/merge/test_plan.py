"""What the plan of a merge says to people."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from savepoints.cli.output import Terminal
from savepoints.config.settings import KafkaSettings, QuerySettings
from savepoints.moments import rfc3339
from savepoints.operations.merge import plan_steps
from savepoints.operations.merge.plan import MergePlan
from savepoints.plan import Step
from savepoints.runtime.app import App, Input
from savepoints.runtime.inputs import Inputs
from savepoints.sources.late.batch import LateBatch, Rejected
from savepoints.store.tables.merge_ledger import DROPPED


def plan(**fields: Any) -> MergePlan:
    given: dict[str, Any] = {"steps": (), "warnings": (), **fields}
    return MergePlan(
        verb="merge", query="totals", command="", operation_id="op", input="orders", batch="b.csv",
        **given,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"known": 1204}, "all 1,204 events have already been seen"),
        ({"known": 1}, "its only event has already been seen"),
        (
            {"known": 3, "merged_by": "mg-1"},
            "this batch has already been merged by mg-1",
        ),
        ({}, "the batch has no events"),
    ],
)
def test_with_nothing_to_do_it_says_why(fields: dict[str, Any], said: str) -> None:
    assert str(plan(**fields)) == f"merge totals: nothing to merge: {said}"
    noted = plan(**fields, warnings=("one row was set aside",))
    assert str(noted) == f"merge totals: nothing to merge: {said}\n  note: one row was set aside"


def test_trap_a_late_event_reaches_only_one_of_two_inputs_of_its_topic() -> None:
    """A record in the topic would have reached both, so a join of the two lacked pairs."""
    names = ("orders", "returns", "payments")
    program = App(
        "totals",
        {name: Input(name, lambda records: records, "id", "timestamp") for name in names},
        lambda inputs: inputs["orders"],
        {},
    )
    bound = QuerySettings(app="x:y", checkpoints="c", topics={"orders": "t", "returns": "t"})
    inputs = Inputs(program, bound, KafkaSettings())

    (said,) = plan_steps.not_given(inputs, plan())

    assert "also reads topic t through its input returns" in said
    assert said.endswith(": --input returns")
    assert plan_steps.not_given(inputs, plan(policy="append")) == ()
    assert plan_steps.not_given(inputs, replace(plan(), batch=DROPPED)) == ()
    assert plan_steps.not_given(inputs, replace(plan(), input="payments")) == ()


def test_trap_a_column_op_that_is_misspelt_is_passed_over_without_a_word() -> None:
    """So removals were merged as events; what else of a batch does not count is said, too."""
    late = LateBatch(
        events=None,  # type: ignore[arg-type]  # Nothing is read.
        rows=0, removed=0, first_event_time=None, last_event_time=None,
        content_hash="", doubled=1, left_out=2, ignored=("operation", "note"),
        rejected=(Rejected("no entity", 2, ()), Rejected("no event id", 1, ())),
    )  # fmt: skip

    until = datetime(2026, 11, 20, tzinfo=UTC)

    assert plan_steps.of_batch(late, until) == (
        "the batch has columns that are not used: operation, note",
        "counted once, because the batch repeats them: 1 row",
        f"--until excludes 2 rows of the batch, whose event time is not before {rfc3339(until)}",
        "set aside, because they are no events: 3 rows of the batch",
    )


def test_the_command_line_shows_the_plan_as_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    step = Step("replay", "replay 2 events")
    for one in (plan(known=3, warnings=("one row was set aside",)), plan(rows=2, steps=(step,))):
        Terminal().plan(one)

        assert capsys.readouterr().err.rstrip() == str(one)


def test_with_something_to_do_it_lists_the_steps() -> None:
    todo = plan(rows=2, known=1, steps=(Step("replay", "replay 2 events"),))
    assert str(todo) == "merge totals:\n  1. replay 2 events"
