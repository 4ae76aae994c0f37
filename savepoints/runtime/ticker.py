"""A thread that does something whenever a schedule says so, one at a time."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Self, final

from savepoints.config.schedule import Schedule
from savepoints.moments import utc_now

_LOG = logging.getLogger(__name__)


# Finds out when something was last done, from which an interval counts; None for never. A cron
# expression counts from nothing, so nobody is asked.
Since = Callable[[], datetime | None]


def never() -> None:
    """Say that something was never done."""


class Clock:
    """The time, and how to wait; a test gives another one."""

    def now(self) -> datetime:
        """Return the time."""
        return utc_now()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for an event, but no longer than some seconds; returns whether it has come."""
        return event.wait(seconds)


class SteadyClock(Clock):
    """The time since it was made, added to the time then: nobody sets it back or ahead."""

    def __init__(self) -> None:
        """Begin with the time."""
        self._begun, self._counted_from = utc_now(), time.monotonic()

    def now(self) -> datetime:
        """Return the time as counted."""
        return self._begun + timedelta(seconds=time.monotonic() - self._counted_from)


def clock_of(schedule: Schedule) -> Clock:
    """Return what a schedule goes by: a cron expression the machine's clock, an interval none."""
    return SteadyClock() if schedule.interval else Clock()


def first_due(schedule: Schedule, now: datetime, since: Since) -> datetime:
    """Return when something is due first in a process that begins now."""
    due = schedule.next_after(now)
    if schedule.interval is None or (last := since()) is None:
        return due
    # No later than without it: the clock of who did it last may be ahead.
    return max(now, min(due, schedule.next_after(last)))


class Background(ABC):
    """Works in a thread of its own for as long as the context is entered."""

    _thread: threading.Thread

    def start(self) -> None:
        """Begin, for those who cannot enter the context."""
        self._thread.start()

    def join(self) -> None:
        """End, and wait for what is under way."""
        self.end()
        self._thread.join()

    @abstractmethod
    def end(self) -> None:
        """Begin nothing else; does not wait for what is under way."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join()


@final
class Ticker(Background):
    """Calls a function on a schedule for as long as the context is entered.

    Times that pass while the function still runs are left out, not made up for. Whatever it raises
    is logged and changes nothing: what goes on beside it is more important. Leaving the context
    waits for a call that is under way.
    """

    def __init__(
        self,
        schedule: Schedule,
        call: Callable[[], object],
        name: str,
        clock: Clock | None = None,
        since: Since = never,
    ) -> None:
        """Keep what to do.

        Args:
            clock: By default that of `clock_of`.
            since: By default an interval counts from the start.
        """
        self._schedule = schedule
        self._call = call
        self._clock = clock or clock_of(schedule)
        self._due = first_due(schedule, self._clock.now(), since)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def active(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Begin no other call."""
        self._ended.set()

    def _run(self) -> None:
        clock = self._clock
        due = self._due
        while not clock.wait(self._ended, max(0.0, (due - clock.now()).total_seconds())):
            try:
                self._call()
            except Exception:  # noqa: BLE001  (the next one is tried all the same)
                _LOG.exception(
                    "%s failed and will be retried at the next due time", self._thread.name
                )
            missed = -1
            while due <= clock.now():
                due, missed = self._schedule.next_after(due), missed + 1
            if missed > 0:
                _LOG.warning(
                    "%s took longer than the interval; %d skipped", self._thread.name, missed
                )
