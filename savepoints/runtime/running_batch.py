"""Telling of a batch that takes long, again and again: the first one may take minutes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from savepoints.plan import Progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# How long a batch may run before a person is told that it does, each time.
LONG_SECONDS = 10.0


class RunningBatch:
    """The batch of a query that runs now, as far as Spark tells."""

    def __init__(self, progress: Progress) -> None:
        """Count from now on; nothing is asked."""
        self._progress = progress
        self._begun = self._told = time.monotonic()
        self._last: str | None = None

    def look(self, query: StreamingQuery) -> None:
        """Tell how long it has been running, if it is time to."""
        now = time.monotonic()
        if now < self._told + LONG_SECONDS:
            return
        self._told = now
        progress: Any = query.lastProgress
        # Not the batch: a trigger without data already has the number of the next one.
        last = None if progress is None else str(progress["timestamp"])
        status = query.status
        # A trigger is also active while it asks the sources whether there is anything.
        runs = status["isTriggerActive"] and status["isDataAvailable"]
        if last != self._last or not runs:
            self._last, self._begun = last, now
            return
        self._progress(f"the current batch has been running for {now - self._begun:.0f} s")
