"""The report of a comparison: one page of HTML, no script, nothing loaded from elsewhere.

Neither query is the old one or the good one, so they have their names, and colours that judge
nothing. What is drawn is how far a query is from the baseline.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from shlex import join
from typing import Any

from savepoints.checkpoint.logs.kafka_position import by_partition
from savepoints.moments import utc_now
from savepoints.operations.fork.verdict import Comparison, MetricDifference, QueryPair, Variant
from savepoints.spark.multiset import RowDifference
from savepoints.state.typed.compare import RowChange
from savepoints.ui.environment import environment
from savepoints.ui.page import write as write_file

_HEADLINES = {
    "same": "No difference",
    "within": "Differences within the thresholds",
    "different": "Different",
}
# Height of a bar with what stands above it, in CSS pixels.
_ROW = 38
# What fits beside a value on a phone.
_LONGEST_LABEL = 28
_MANY = 1000
_NO_COLUMN = "no such column"
# Half of a chart: the baseline is in its middle.
_HALF = 50.0


@dataclass(frozen=True)
class Bar:
    """One bar of a chart, in percent of its width.

    Attributes:
        width: At least a hair for what is not 0; 0 for no bar.
        first: It is the baseline.
    """

    label: str
    value: str
    y: int
    x: float
    width: float
    first: bool


@dataclass(frozen=True)
class Chart:
    """Horizontal bars under each other.

    Attributes:
        height: Of all of it, in CSS pixels.
        zero: Where bars begin that go to both sides, in percent; None when all go to the right.
    """

    title: str
    bars: tuple[Bar, ...]
    height: int
    zero: float | None = None


@dataclass(frozen=True)
class Line:
    """A row that differs, as it is shown.

    Attributes:
        difference: `changed`, or that only one of them has it.
        values: Name, value in the baseline and in the other query; None where there is none.
    """

    difference: str
    row: str
    values: tuple[tuple[str, str | None, str | None], ...]


def write(comparison: Comparison, path: Path, again: str) -> None:
    """Write the page to a file.

    Args:
        again: The command line that repeats the comparison.

    Raises:
        UsageError: If it cannot be written there.
    """
    write_file(render(comparison, utc_now(), again), path)


def command(
    comparison: Comparison,
    *,
    keys: Mapping[str, Sequence[str]],
    metrics: Mapping[str, str],
    state: bool,
    page: Path,
) -> str:
    """Return the command line that repeats a comparison at the same offsets, and its report."""
    first = comparison.variants[0]
    return join(
        [
            "savepoints", "compare", *(one.query for one in comparison.variants),
            "--until", first.savepoint,
            *(word for name, one in keys.items() for word in ("--key", f"{name}={','.join(one)}")),
            *(word for name, sql in metrics.items() for word in ("--metric", f"{name}={sql}")),
            *([] if state else ["--no-state"]),
            "--report", str(page),
            "--yes",
        ]
    )  # fmt: skip


def render(comparison: Comparison, now: datetime, again: str) -> str:
    """Return the page, made at a time in UTC."""
    template = environment().get_template("report.html.j2")
    return template.render(
        made_at=f"{now:%Y-%m-%d %H:%M} UTC",
        again=again,
        headline=_HEADLINES[comparison.verdict],
        headlines=_HEADLINES,
        comparison=comparison,
        baseline=comparison.variants[0],
        metrics=[
            _against_baseline(name, [(one.query, one.metrics[name]) for one in comparison.variants])
            for name in comparison.variants[0].metrics
        ],
        costs=list(_cost_charts(comparison.variants)),
        offsets=[(topic, part, offset) for topic, part, offset in by_partition(comparison.offsets)],
        column_chart=_column_chart,
        lines=lines,
        state_lines=_state_lines,
        number=number,
        percent=_percent,
        change=_change,
        unit=_unit,
    )


def number(value: float | None) -> str:
    """Write a number for people: all its digits before the point, and what matters behind it."""
    if value is None:
        return "-"
    if isinstance(value, int) or value.is_integer():
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= _MANY else f"{value:,.6g}"


def lines(sample: Sequence[RowDifference]) -> list[Line]:
    """Show rows of an output: of those that changed only what did."""
    return [
        Line(
            one.difference,
            _fields(one.key) + (f" (row {one.number} of this key)" if one.number > 1 else ""),
            tuple(_values(one.before, one.after)),
        )
        for one in sample
    ]


def _state_lines(sample: Sequence[RowChange]) -> list[Line]:
    return [
        Line(
            one.difference,
            _fields(dict(_spread(one.row))),
            tuple(_values(*(_spread_or_none(side) for side in (one.before, one.after)))),
        )
        for one in sample
    ]


def _values(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Iterator[tuple[str, str | None, str | None]]:
    for name in dict.fromkeys([*(before or {}), *(after or {})]):
        one, other = _value(before, name), _value(after, name)
        if one != other:
            by = _difference((before or {}).get(name), (after or {}).get(name))
            yield name, one, f"{other}{by}" if by else other


def _difference(before: object, after: object) -> str:
    """Say by how much a number differs; nothing for other values."""
    if isinstance(before, bool) or isinstance(after, bool):
        return ""
    if isinstance(before, int) and isinstance(after, int):
        return f" ({after - before:+,})"
    if isinstance(before, int | float) and isinstance(after, int | float):
        by = after - before
        return f" ({by:+,.6g})" if math.isfinite(by) else ""
    return ""


def _value(row: Mapping[str, Any] | None, name: str) -> str | None:
    """Return a value as text, None where there is no row."""
    if row is None:
        return None
    return _text(row[name]) if name in row else _NO_COLUMN


def _spread(row: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Put the fields of structs side by side: `value.total`."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _spread(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _spread_or_none(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if row is None else dict(_spread(row))


def _fields(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_text(value)}" for name, value in row.items())


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.4g}%"


def _change(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:+.4g}%" if share else "0%"


def _unit(column: str, unit: str | None) -> str:
    """Name a column with its unit, if its differences have one that is no plain number."""
    return f"{column} ({unit})" if unit == "seconds" else column


def _column_chart(pair: QueryPair, at: int) -> Chart:
    """Show in how many rows each column of an output changed."""
    changes = pair.outputs[at].changes
    most = max((one.rows for one in changes), default=0)
    bars = tuple(
        Bar(_shortened(one.column), number(one.rows), nth * _ROW, 0.0,
            _length(one.rows / most * 100 if most else 0.0), first=False)
        for nth, one in enumerate(changes)
    )  # fmt: skip
    return Chart("Rows in which a column differs", bars, _ROW * len(bars))


def _cost_charts(variants: Sequence[Variant]) -> Iterator[Chart]:
    costs = [(one.query, one.cost) for one in variants if one.cost is not None]
    if len(costs) == len(variants):
        yield _against_baseline(
            "Seconds to reach the end offsets", [(query, one.seconds) for query, one in costs]
        )
        yield _against_baseline(
            "Input rows per second", [(query, one.rows_per_second) for query, one in costs]
        )
    if any(one.state_rows is not None for one in variants):
        yield _against_baseline("State rows", [(one.query, one.state_rows) for one in variants])
        sizes = [
            (one.query, None if one.state_bytes is None else one.state_bytes / 1000)
            for one in variants
        ]
        yield _against_baseline("State, kB", sizes)


def _against_baseline(title: str, values: Sequence[tuple[str, float | None]]) -> Chart:
    """Draw how far each value is from the first: to the right what is more, to the left less."""
    first = values[0][1]
    found = [MetricDifference.of(title, first, value) for _, value in values]
    most = max((abs(one.difference) for one in found if one.difference is not None), default=0.0)
    bars = []
    for nth, ((label, value), one) in enumerate(zip(values, found, strict=True)):
        width = _length(abs(one.difference or 0) / most * _HALF if most else 0.0)
        share = f" ({_change(one.relative)})" if nth and one.relative is not None else ""
        left = _HALF - width if (one.difference or 0) < 0 else _HALF
        text = number(value) + share
        bars.append(Bar(_shortened(label), text, nth * _ROW, left, width, first=nth == 0))
    return Chart(title, tuple(bars), _ROW * len(bars), _HALF)


def _length(percent: float) -> float:
    return 0.0 if not percent else max(0.5, round(percent, 1))


def _shortened(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"
