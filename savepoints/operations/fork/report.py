"""A comparison as one page of HTML that stands by itself: no script, nothing loaded from elsewhere.

Everything that comes from data is escaped by the template engine, and secrets are masked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from savepoints.config import secrets
from savepoints.errors import MissingExtraError, UsageError
from savepoints.model import utc_now
from savepoints.operations.fork.verdict import Comparison, QueryPair, Variant
from savepoints.spark.multiset import RowDifference
from savepoints.state.typed.compare import RowChange

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATE = Path(__file__).with_name("report.html.j2")
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


@dataclass(frozen=True)
class Bar:
    """One bar of a chart.

    Attributes:
        percent: Its length as a part of the longest, at least a hair for what is not 0.
    """

    label: str
    value: str
    y: int
    percent: float
    first: bool


@dataclass(frozen=True)
class Chart:
    """Horizontal bars under each other.

    Attributes:
        height: Of all of it, in CSS pixels.
    """

    title: str
    bars: tuple[Bar, ...]
    height: int


@dataclass(frozen=True)
class Line:
    """A row that differs, as it is shown.

    Attributes:
        values: Name, value before and value after; None where there is none.
    """

    difference: str
    row: str
    values: tuple[tuple[str, str | None, str | None], ...]


def require() -> None:
    """Check that reports can be made, before anything is run for one."""
    try:
        import jinja2  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "reports need jinja2, which is not installed",
            hint="pip install 'savepoints[report]', or omit --report",
        ) from None


def write(comparison: Comparison, path: Path) -> None:
    """Write the page."""
    page = render(comparison, utc_now())
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the report cannot be written: {error}", hint="choose another path for --report"
        ) from None


def render(comparison: Comparison, now: datetime) -> str:
    """Return the page, made at a time in UTC."""
    require()
    template = _environment().from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        made_at=f"{now:%Y-%m-%d %H:%M} UTC",
        headline=_HEADLINES[comparison.verdict],
        headlines=_HEADLINES,
        comparison=comparison,
        baseline=comparison.variants[0],
        metrics=[_metric_chart(comparison, name) for name in comparison.variants[0].metrics],
        costs=list(_cost_charts(comparison.variants)),
        offsets=[
            (topic, part, offset)
            for topic, parts in sorted(comparison.offsets.items())
            for part, offset in sorted(parts.items())
        ],
    )


def _environment() -> Environment:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=lambda one: secrets.mask_data(one) if isinstance(one, str) else one,
    )
    environment.filters |= {"number": number, "percent": _percent, "change": _change}
    environment.globals |= {
        "column_chart": _column_chart,
        "lines": lines,
        "state_lines": _state_lines,
    }
    return environment


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
            _fields(one.key) + (f" (no. {one.number})" if one.number > 1 else ""),
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
        if before is None or after is None or before.get(name) != after.get(name):
            yield (
                name,
                None if before is None else _text(before.get(name)),
                None if after is None else _text(after.get(name)),
            )


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


def _metric_chart(comparison: Comparison, name: str) -> Chart:
    found = [(one.query, one.metrics[name]) for one in comparison.variants]
    return _chart(name, found)


def _column_chart(pair: QueryPair, at: int) -> Chart:
    """Show in how many rows each column of an output changed."""
    changes = [(one.column, float(one.rows)) for one in pair.outputs[at].changes]
    return _chart("Rows in which a column changed", changes, baseline=False)


def _cost_charts(variants: Sequence[Variant]) -> Iterator[Chart]:
    costs = [(one.query, one.cost) for one in variants if one.cost is not None]
    if len(costs) == len(variants):
        yield _chart("Seconds to the common end", [(query, one.seconds) for query, one in costs])
        yield _chart(
            "Input rows per second", [(query, one.rows_per_second) for query, one in costs]
        )
    if any(one.state_rows is not None for one in variants):
        yield _chart("State rows", [(one.query, one.state_rows) for one in variants])
        yield _chart("State, kB", [(one.query, _kilobytes(one.state_bytes)) for one in variants])


def _kilobytes(size: int | None) -> float | None:
    return None if size is None else size / 1000


def _chart(
    title: str, values: Sequence[tuple[str, float | None]], *, baseline: bool = True
) -> Chart:
    most = max((abs(value) for _, value in values if value is not None), default=0.0)
    bars = tuple(
        Bar(
            _shortened(label),
            number(value),
            at * _ROW,
            0.0 if not value else max(0.5, round(100 * abs(value) / most, 1)),
            baseline and at == 0,
        )
        for at, (label, value) in enumerate(values)
    )
    return Chart(title, bars, _ROW * len(bars))


def _shortened(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"
