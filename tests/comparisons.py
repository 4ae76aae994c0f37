"""A comparison made by hand, with everything in it that a page can show."""

from __future__ import annotations

from savepoints.config.settings import ThresholdSettings
from savepoints.model import OutputVersion
from savepoints.operations.fork.verdict import (
    Comparison,
    MetricDifference,
    QueryPair,
    RunCost,
    StateDifference,
    Variant,
    worst,
)
from savepoints.operations.inspect.diff import Diff, ValueChange, VariableDiff
from savepoints.outputs.compare.by_key import (
    ColumnChange,
    OutputDifference,
)
from savepoints.spark.multiset import RowDifference, TypeChange
from savepoints.state.typed.compare import RowChange, VariableDifference
from savepoints.state.typed.typed import Variable

HOSTILE = '<script>document.title = "taken"</script><img src=x onerror=alert(1)>"\'&{{ 7 * 7 }}'
LONG = "a-column-whose-name-is-much-longer-than-the-width-of-any-phone-could-possibly-be"
NO_DIFFERENCE = OutputDifference(
    "totals", ("customer_id",), OutputVersion("totals", "/a/totals", "1", 7, "a", 4),
    OutputVersion("totals", "/b/totals", "2", 9, "b", 4), 100_000, 100_000, 100_000, 0, 0, 0,
    (), (), (), {}, (),
)  # fmt: skip


def output(
    *, missing: int = 0, extra: int = 0, changed: int = 0, text: str = HOSTILE, column: str = LONG
) -> OutputDifference:
    """Make the difference of an output of 100,000 rows."""
    rows = 100_000
    return OutputDifference(
        "totals", ("customer_id", "day"), NO_DIFFERENCE.before, NO_DIFFERENCE.after,
        rows, rows - missing + extra, rows - missing - changed, missing, extra, changed,
        (
            ColumnChange("total", changed, "number", changed, 18_204.5, 14.75, 312.0),
            ColumnChange(column, 3, None, 0, None, None, None),
            ColumnChange("last_ordered_at", 2, "seconds", 2, 7200.0, 3600.0, 5400.0),
        ),
        ("score",), ("legacy_tier",), {"tier": TypeChange("string", "int")},
        (
            RowDifference(
                "changed", {"customer_id": 4711, "day": "2026-11-01"}, 1,
                {"total": "120.00", "name": text, "same": 1},
                {"total": "119.99", "name": None, "same": 1},
            ),
            RowDifference("missing", {"customer_id": 8, "day": text}, 1, {"total": "3.1"}, None),
            RowDifference("extra", {"customer_id": 9, "day": "today"}, 2, None, {"total": "NaN"}),
        ),
    )  # fmt: skip


def state(*, changed: int) -> StateDifference:
    """Make the difference of a state of 50,000 rows."""
    sample = RowChange(
        "changed",
        {"key": {"customer_id": 4711}},
        {"value": {"sum": 12_000, "name": HOSTILE}},
        {"value": {"sum": 11_999, "name": HOSTILE}},
    )
    rows = VariableDifference(0, 0, changed, None, (sample,) if changed else ())
    diff = Diff(
        ValueChange("sp-20261122-100000-aaaaaa", "sp-20261122-100000-bbbbbb"),
        ValueChange(14, 14), ValueChange(0, 0), (), {}, (), (), (),
        (VariableDiff(Variable(0, "stateStoreSave", "rows"), rows),),
    )  # fmt: skip
    return StateDifference(changed, changed / 50_000, changed == 0, diff)


def variant(query: str, revenue: float, seconds: float | None) -> Variant:
    """Make a query that read 480,000 rows."""
    cost = None if seconds is None else RunCost(12, 480_000, seconds, 480_000 / seconds)
    return Variant(
        query, 1, f"shop.{query}:app", "sp-20261120-090000-cccccc",
        f"sp-20261122-100000-{query[-1] * 6}", 14, 1_763_800_000_000, 50_000, 4_200_000,
        {"revenue": revenue, "conversion": 0.0312}, cost,
    )  # fmt: skip


def ordinary() -> Comparison:
    """Make one of two queries as people compare them, for the picture in the documents."""
    first, second = variant("tiers_v1", 1_204_332.18, 41.2), variant("tiers_v2", 1_231_870.02, 47.9)
    changed = QueryPair(
        first.query, second.query,
        (output(missing=1, extra=1, changed=1234, text="2026-11-02", column="tier"),), (), (),
        state(changed=321),
        (MetricDifference.of("revenue", first.metrics["revenue"], second.metrics["revenue"]),
         MetricDifference.of("conversion", 0.0312, 0.0312)),
        47.9 / 41.2,
    ).judged(ThresholdSettings())  # fmt: skip
    ends = {"orders": {0: 240_112, 1: 239_888}}
    return Comparison(worst([changed.verdict]), ends, True, (), (first, second), (changed,))


def comparison(thresholds: ThresholdSettings | None = None) -> Comparison:
    """Make one of three queries: one is the same as the baseline, one is not."""
    first, second = variant("tiers_v1", 1_204_332.18, 41.2), variant("tiers_v2", 1_231_870.02, 47.9)
    third = variant("tiers_<b>v3", 1_204_332.18, 40.4)
    metrics = (
        MetricDifference.of("revenue", first.metrics["revenue"], second.metrics["revenue"]),
        MetricDifference.of("conversion", 0.0312, 0.0312),
    )
    different = QueryPair(
        first.query, second.query, (output(missing=1, extra=1, changed=1234),), ("audit",), (),
        state(changed=321), metrics, 47.9 / 41.2,
    ).judged(thresholds or ThresholdSettings())  # fmt: skip
    same = QueryPair(
        first.query, third.query, (NO_DIFFERENCE,), (), (), state(changed=0),
        (MetricDifference.of("revenue", 1.5, 1.5),), 40.4 / 41.2,
    ).judged(ThresholdSettings())  # fmt: skip
    pairs = (different, same)
    return Comparison(
        worst(one.verdict for one in pairs),
        {"orders": {0: 240_112, 1: 239_888}},
        True,
        (
            (
                f"max_offsets_per_trigger of {second.query} is 500; for the comparison, all "
                "queries use that of the first"
            ),
        ),
        (first, second, third),
        pairs,
    )
