"""Growth of a query: state, new bytes and duration of its savepoints, as small line charts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from savepoints.model import Savepoint
from savepoints.texts import bytes_text, count_text, moment_text, span_text
from savepoints.ui.axis import Axis
from savepoints.ui.facts import StoreFacts

WIDTH, HEIGHT = 340, 96
_LEFT, _RIGHT, _TOP, _BOTTOM = 6, 334, 10, 84
# A line needs two points, and one of two says nothing.
_FEWEST = 3
_SECOND = 1.0


@dataclass(frozen=True)
class Growth:
    """A line chart from 0 to `most`.

    Attributes:
        points: As SVG writes them.
        end: Where the line ends, and the newest value stands.
        change: By how much it changed from the first on.
        most: The greatest value, at the top.
    """

    title: str
    points: str
    end: tuple[float, float]
    newest: str
    change: str
    most: str
    first_at: str
    last_at: str


def growth(facts: StoreFacts, query: str) -> tuple[Growth, ...]:
    """Draw the growth of a query; empty where there are too few savepoints."""
    mine = [
        one
        for one in reversed(facts.savepoints)
        if one.query == query and one.edit is None and facts.shows(one.created_at)
    ]
    if not mine:
        return ()
    # One in the native form alone, as many verbs take before they act, costs much less than others.
    usual = statistics.mode(one.forms for one in mine)
    alike = [one for one in mine if one.forms == usual]
    of_form = f"({' and '.join(usual)})"
    return (
        *_chart(
            "State rows", mine, lambda one: one.rows, lambda value: count_text(round(value), "row")
        ),
        *_chart(
            f"New bytes per savepoint {of_form}",
            alike,
            _bytes,
            lambda value: bytes_text(round(value)),
        ),
        *_chart(
            f"Duration of a savepoint {of_form}", alike, lambda one: one.cost.seconds, _seconds
        ),
    )


def _bytes(one: Savepoint) -> float:
    return one.cost.bytes_copied + one.cost.export_bytes


def _seconds(value: float) -> str:
    return f"{value:.2g} s" if value < 10 * _SECOND else span_text(timedelta(seconds=value))


def _chart(
    title: str,
    savepoints: Sequence[Savepoint],
    of: Callable[[Savepoint], float | None],
    text: Callable[[float], str],
) -> Iterator[Growth]:
    values = [(one.created_at, value) for one in savepoints if (value := of(one)) is not None]
    if len(values) < _FEWEST:
        return
    axis = Axis.between(values[0][0], values[-1][0], _LEFT, _RIGHT)
    most = max(value for _, value in values)
    places = [
        (axis.x(at), round(_BOTTOM - (value / most if most else 0.0) * (_BOTTOM - _TOP), 1))
        for at, value in values
    ]
    first, last = values[0][1], values[-1][1]
    yield Growth(
        title,
        " ".join(f"{x},{y}" for x, y in places),
        places[-1],
        text(last),
        f"{(last - first) / first:+.0%}" if first else "",
        text(most),
        moment_text(values[0][0]),
        moment_text(values[-1][0]),
    )
