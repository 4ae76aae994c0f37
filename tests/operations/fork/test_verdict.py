"""`same`, `within` or `different`: thresholds at their edges, with numbers worked out by hand."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

import pytest

from savepoints.config.settings import ThresholdSettings
from savepoints.operations.fork.verdict import (
    ComparisonVerdict,
    MetricDifference,
    QueryPair,
    worst,
)
from savepoints.operations.inspect.diff import OperatorChange
from tests.comparisons import NO_DIFFERENCE, comparison, output, state


def pair(**facts: Any) -> QueryPair:
    """Make a pair without any difference but these."""
    same = QueryPair("a", "b", (NO_DIFFERENCE,), (), (), state(changed=0), (), None)
    return dataclasses.replace(same, **facts)


def judged(of: QueryPair, **thresholds: Any) -> ComparisonVerdict:
    return of.judged(ThresholdSettings(**thresholds)).verdict


def rows(**facts: Any) -> QueryPair:
    """Make a pair whose output has the same columns and other rows."""
    plain = dataclasses.replace(output(**facts), columns_added=(), columns_dropped=(), types={})
    return pair(outputs=(plain,))


@pytest.mark.parametrize(
    "different",
    [
        rows(missing=1), rows(extra=1), rows(changed=1),
        pair(outputs=(dataclasses.replace(NO_DIFFERENCE, columns_added=("new",)),)),
        pair(outputs_added=("audit",)), pair(outputs_dropped=("audit",)),
        pair(state=state(changed=1)),
        pair(metrics=(MetricDifference.of("m", Decimal("0.10"), Decimal("0.11")),)),
        pair(metrics=(MetricDifference.of("m", None, 0),)),
        pair(metrics=(MetricDifference.of("m", 2**60, 2**60 + 1),)),
    ],
)  # fmt: skip
def test_without_thresholds_one_difference_is_one_too_many(different: QueryPair) -> None:
    """One row in 100,000, one column, one cent: each is found and said."""
    found = different.judged(ThresholdSettings())
    assert found.verdict == "different"
    assert len(found.reasons) == 1


def test_nothing_different_is_the_same_whatever_it_cost() -> None:
    """Cost alone is no difference unless a threshold makes it one."""
    slow = pair(
        seconds_ratio=10.0,
        metrics=(MetricDifference.of("m", 0.1 + 0.2, 0.1 + 0.2), MetricDifference.of("n", 0, 0)),
    )
    assert judged(slow) == "same"
    assert judged(slow, seconds=10.0) == "same"
    assert judged(slow, seconds=9.99) == "different"


def test_thresholds_hold_up_to_their_edge() -> None:
    """250 of 100,000 rows are 0.0025; 50 of 50,000 state rows are 0.001; 3 columns are 3."""
    some = rows(missing=50, changed=200)
    assert judged(some, rows=0.0025) == "within"
    assert judged(some, rows=0.00249) == "different"
    assert judged(pair(state=state(changed=50)), state_rows=0.001) == "within"
    assert judged(pair(state=state(changed=51)), state_rows=0.001) == "different"
    columns = pair(outputs=(output(),))
    assert judged(columns, columns=3) == "within"
    assert judged(columns, columns=2) == "different"


def test_extra_rows_count_as_part_of_all_rows_of_both() -> None:
    """100,000 rows and 25,000 extra ones: a fifth of what is there."""
    assert rows(extra=25_000).outputs[0].share == 0.2
    assert judged(rows(extra=25_000), rows=0.2) == "within"


def test_each_metric_has_its_own_threshold() -> None:
    """Relative to the baseline, in both directions; from nothing every change is too much."""
    up = MetricDifference.of("revenue", Decimal(200), Decimal(203))
    assert (up.difference, up.relative) == (3.0, 0.015)
    down = MetricDifference.of("revenue", -200, -203)
    assert (down.difference, down.relative) == (-3.0, -0.015)
    for one in (up, down):
        assert judged(pair(metrics=(one,)), metrics={"revenue": 0.015}) == "within"
        assert judged(pair(metrics=(one,)), metrics={"revenue": 0.0149}) == "different"
        assert judged(pair(metrics=(one,)), metrics={"other": 1.0}) == "different"
    from_nothing = MetricDifference.of("revenue", 0, 1)
    assert (from_nothing.difference, from_nothing.relative) == (1.0, None)
    assert judged(pair(metrics=(from_nothing,)), metrics={"revenue": 1e9}) == "different"


def test_state_of_unknown_size_is_never_within() -> None:
    """Without the canonical form nobody knows what part 1 row is; equal state stays equal."""
    unknown = dataclasses.replace(state(changed=1), share=None)
    assert judged(pair(state=unknown), state_rows=1) == "different"
    assert judged(pair(state=dataclasses.replace(state(changed=0), share=None))) == "same"
    empty = dataclasses.replace(
        state(changed=0),
        equal=False,
        diff=dataclasses.replace(
            state(changed=0).diff, operators_added=(OperatorChange(1, "dedupe"),)
        ),
    )
    assert judged(pair(state=empty)) == "different", "an operator without rows is a difference"
    assert judged(pair(state=empty), state_rows=0.001) == "within"


def test_the_worst_pair_decides() -> None:
    """And the reasons that exceed come first."""
    found = comparison()
    assert [one.verdict for one in found.pairs] == ["different", "same"]
    assert found.verdict == "different"
    assert (worst(one.verdict for one in found.pairs[1:]), worst(())) == ("same", "same")
    lenient = ThresholdSettings(rows=1, columns=9, state_rows=1, metrics={"revenue": 1})
    first = comparison(lenient).pairs[0]
    assert (first.verdict, first.reasons[0]) == ("different", "only tiers_v2 has the output audit")
