"""Telling what a run without an end does: a batch that takes long, and those that were committed.

The first batch may take minutes, and of a query that keeps up nothing would be seen otherwise.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savepoints.plan import Progress
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# How long a batch may run before a person is told that it does, each time.
LONG_SECONDS = 10.0
# How often a person is told of committed batches: each one of a busy query would be too much.
COMMITTED_SECONDS = 60.0


@dataclass
class Committed:
    """The batches that a run has committed, in figures: it may go on for months.

    Attributes:
        first: The first of them, None when there was none.
        last: The last of them.
        batches: How many.
        rows: What they read.
    """

    first: int | None = None
    last: int | None = None
    batches: int = 0
    rows: int = 0

    def add(self, batch: int, rows: int) -> None:
        """Count one more."""
        self.first = batch if self.first is None else self.first
        self.last = batch
        self.batches += 1
        self.rows += rows


class RunningBatch:
    """The batch of a query that runs now, as far as Spark tells."""

    def __init__(self, progress: Progress) -> None:
        """Count from now on; nothing is asked."""
        self._progress = progress
        self._begun = self._told = time.monotonic()
        self._last: str | None = None
        self._told_batches = self._told_rows = 0
        self._told_committed = -math.inf

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

    def tell_committed(self, committed: Committed) -> None:
        """Tell which batches were committed since it was told last, if it is time to.

        Args:
            committed: All that the run has committed.
        """
        now, records = time.monotonic(), committed.rows - self._told_rows
        if not records or now < self._told_committed + COMMITTED_SECONDS:
            return
        batches = committed.batches - self._told_batches
        self._told_batches, self._told_rows = committed.batches, committed.rows
        self._told_committed = now
        self._progress(
            f"batch {committed.last} committed: {count_text(records, 'record')} in "
            f"{count_text(batches, 'batch')}"
        )
