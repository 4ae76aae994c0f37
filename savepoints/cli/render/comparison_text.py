"""A comparison as text for people."""

from __future__ import annotations

from collections.abc import Sequence

from savepoints.cli.output import Terminal
from savepoints.cli.render import row_text
from savepoints.operations.fork.verdict import Comparison, MetricDifference, QueryPair, Variant
from savepoints.outputs.compare.by_key import OutputDifference
from savepoints.texts import bytes_text, or_dash
from savepoints.ui.report import Line, lines, number

_VERDICTS = {
    "same": "same: no difference",
    "within": "within: all differences are within the thresholds",
    "different": "different",
}
_COST = ("batches run", "rows read", "seconds", "rows/s")


def show(output: Terminal, found: Comparison) -> None:
    """Print a comparison: the verdict first, then each query against the baseline."""
    output.line(_VERDICTS[found.verdict])
    for note in found.notes:
        output.line(f"  note: {note}")
    # What running them cost is known only of those that this comparison ran.
    cost = any(one.cost for one in found.variants)
    output.table(
        ("query", "batch", "state rows", "state size", *(_COST if cost else ())),
        ((*_variant(one), *(_cost(one) if cost else ())) for one in found.variants),
    )
    for pair in found.pairs:
        output.line(f"{pair.after} against {pair.before}: {pair.verdict}")
        for reason in pair.reasons:
            output.line(f"  {reason}")
        show_metrics(output, pair.metrics, pair.before, pair.after)
        _outputs(output, pair)
        _state(output, pair)


def _variant(one: Variant) -> tuple[object, ...]:
    size = "-" if one.state_bytes is None else bytes_text(one.state_bytes)
    return (one.query, one.batch_id, or_dash(one.state_rows), size)


def _cost(one: Variant) -> tuple[object, ...]:
    cost = one.cost
    if cost is None:
        return ("-",) * len(_COST)
    rate = "-" if cost.rows_per_second is None else f"{cost.rows_per_second:.0f}"
    return (cost.batches, cost.input_rows, f"{cost.seconds:.1f}", rate)


def show_metrics(
    output: Terminal, metrics: Sequence[MetricDifference], before: str, after: str
) -> None:
    """Print metrics of two sides, a line each; nothing if there are none."""
    if not metrics:
        return
    output.table(
        ("metric", before, after, "difference", "relative"),
        (
            (
                one.name,
                number(one.before),
                number(one.after),
                number(one.difference),
                "-" if one.relative is None else f"{one.relative:+.4%}",
            )
            for one in metrics
        ),
    )


def _outputs(output: Terminal, pair: QueryPair) -> None:
    if pair.outputs:
        output.table(
            ("output", "compared by", "equal", "changed", "missing", "extra"),
            (
                (
                    one.name,
                    ", ".join(one.key) or "whole rows",
                    one.equal,
                    one.changed,
                    one.missing,
                    one.extra,
                )
                for one in pair.outputs
            ),
        )
    for one in pair.outputs:
        _columns(output, one)
        if one.sample:
            output.line(row_text.rows_title(one.name, one.different_rows, len(one.sample)))
            output.table(("", "row", pair.before, pair.after), map(_row, lines(one.sample)))


def _columns(output: Terminal, one: OutputDifference) -> None:
    for label, names in (("added", one.columns_added), ("dropped", one.columns_dropped)):
        if names:
            output.line(f"columns of {one.name} that were {label}: {', '.join(names)}")
    for name, types in one.types.items():
        output.line(
            f"the type of column {name} of {one.name} changed from {types.before} to {types.after}"
        )
    if one.changes:
        output.line(f"Columns of {one.name} that changed")
        output.table(
            ("column", "rows", "sum of changes", "mean", "largest", "unit"),
            (
                (
                    change.column,
                    change.rows,
                    number(change.sum),
                    number(change.mean),
                    number(change.max),
                    change.unit or "-",
                )
                for change in one.changes
            ),
        )


def _row(line: Line) -> tuple[str, ...]:
    before = (f"{name}={value}" for name, value, _ in line.values if value is not None)
    after = (f"{name}={value}" for name, _, value in line.values if value is not None)
    return (line.difference, line.row, " ".join(before), " ".join(after))


def _state(output: Terminal, pair: QueryPair) -> None:
    if pair.state is None:
        output.line("the state was not compared")
        return
    if pair.state.equal:
        output.line("the state is identical")
        return
    diff = pair.state.diff
    only = ((pair.before, diff.operators_removed), (pair.after, diff.operators_added))
    for query, operators in only:
        for operator in operators:
            output.line(
                f"only {query} has operator {operator.operator_id} ({operator.operator_name})"
            )
    output.table(
        ("state", "changed", "removed", "added"),
        (
            (one.variable, one.rows.changed, one.rows.removed, one.rows.added)
            for one in diff.variables
            if not one.rows.equal
        ),
    )
    output.line(f"show the rows: savepoints diff {diff.savepoints.before} {diff.savepoints.after}")
