"""The schedule of periodic savepoints: an interval such as `10m`, or a cron expression in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

from savepoints.config.duration import parse_duration
from savepoints.errors import UsageError

# When rows of periodic savepoints are written, besides a schedule.
EXPORTS = ("newest", "each", "never")
NEVER = "never"
_DAILY = "0 0 * * *"


@dataclass(frozen=True)
class Schedule:
    """An interval or a cron expression.

    Attributes:
        interval: None for a cron expression.
    """

    text: str
    interval: timedelta | None

    def next_after(self, moment: datetime) -> datetime:
        """Return when a savepoint is due after a moment.

        Called again after each savepoint, so intervals that passed meanwhile are skipped.
        """
        if self.interval is not None:
            return moment + self.interval
        return next(CronSim(self.text, moment.astimezone(UTC)))

    def __str__(self) -> str:
        """Write it as it was given."""
        return self.text


def parse_schedule(text: str) -> Schedule:
    """Read an interval (`90s`, `10m`, `PT1H`) or a cron expression (`*/10 * * * *`)."""
    _require_text(text)
    if len(text.split()) == 1:
        return Schedule(text, parse_duration(text))
    try:
        CronSim(text, datetime.now(UTC))
    except CronSimError as error:
        raise UsageError(
            f"{text!r} is not a cron expression: {error}",
            hint="write five fields, for example '*/10 * * * *', or an interval such as 10m",
        ) from None
    return Schedule(text, None)


def _require_text(given: object) -> None:
    """Refuse the number or the timedelta that a program without types may give to `attach`."""
    if not isinstance(given, str):
        raise UsageError(
            f"every is {given!r}, but must be text",
            hint="write an interval such as every='10m', or a cron expression in UTC such as "
            "every='*/10 * * * *'",
        )


def export_schedule(text: str) -> Schedule | None:
    """Read when rows of periodic savepoints are written: `daily`, or as `parse_schedule` reads it.

    Returns:
        None for the words that are no schedule.
    """
    return _one_of(EXPORTS, text)


def merge_schedule(text: str) -> Schedule | None:
    """Read when `run` merges what was dropped: `daily`, or as `parse_schedule` reads it.

    Returns:
        None for `never`.
    """
    return _one_of((NEVER,), text)


def _one_of(words: tuple[str, ...], text: str) -> Schedule | None:
    if text in words:
        return None
    try:
        return parse_schedule(_DAILY if text == "daily" else text)
    except UsageError as error:
        raise UsageError(
            error.message, hint=f"write {', '.join(words)}, daily, 6h or '0 3 * * *'"
        ) from None
