"""The time axis of a drawing: where a moment lies, and which moments are named."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from savepoints.moments import EPOCH

_STEPS = tuple(
    timedelta(minutes=one)
    for one in (
        1, 2, 5, 10, 30, 60, 120, 180, 360, 720, 1440, 2880, 5760, 10080, 20160, 43200, 86400,
        172800, 525600,
    )
)  # fmt: skip
_DAY = timedelta(days=1)
_LEAST = timedelta(minutes=1)


@dataclass(frozen=True)
class Tick:
    """A moment that is named on the axis."""

    x: float
    label: str


@dataclass(frozen=True)
class Axis:
    """Time from the left to the right.

    Attributes:
        left: In the drawing's units.
        right: Likewise.
    """

    first: datetime
    last: datetime
    left: float
    right: float

    @classmethod
    def between(cls, first: datetime, last: datetime, left: float, right: float) -> Axis:
        """Return an axis of at least a minute."""
        return cls(first, max(last, first + _LEAST), left, right)

    def x(self, moment: datetime) -> float:
        """Return where a moment lies; what is outside lies at the edge."""
        share = (moment - self.first) / (self.last - self.first)
        return round(self.left + min(1.0, max(0.0, share)) * (self.right - self.left), 1)

    def ticks(self, most: int = 8) -> tuple[Tick, ...]:
        """Name round moments, in UTC, at most so many and the year where it begins."""
        span = self.last - self.first
        step = next((one for one in _STEPS if span / one <= most), span / most)
        at = EPOCH + -(-(self.first - EPOCH) // step) * step
        found: list[Tick] = []
        while at <= self.last and len(found) <= most:
            found.append(Tick(self.x(at), _label(at, step)))
            at += step
        return tuple(found)


def _label(at: datetime, step: timedelta) -> str:
    if step >= _DAY:
        return f"{at:%b} {at.day}"
    midnight = at.hour == at.minute == 0
    return f"{at:%b} {at.day}" if midnight else f"{at:%H:%M}"
