"""The processors of the queries: arbitrary state by key, with `transformWithState` of Spark 4.

Spark's interfaces fix the names of methods and arguments, and have no types for rows.
"""
# ruff: noqa: N802, N803

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tests.fidelity.pandas_state import HOURS_MS

OUTPUT = "k string, what string, n long"


class Variables(StatefulProcessor):
    """Keeps a value, a list and a map, and gives what they have after each batch."""

    ttl_ms: int | None = None

    def init(self, handle: Any) -> None:
        """Declare the state variables."""
        self.handle = handle
        self.total: Any = handle.getValueState("total", "s long", self.ttl_ms)
        self.seen: Any = handle.getListState("seen", "v long, at timestamp", self.ttl_ms)
        self.counts: Any = handle.getMapState("counts", "v long", "n long", self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        """Add the rows to the three variables."""
        total = self.total.get()[0] if self.total.exists() else 0
        for row in rows:
            total += row.v
            self.seen.appendValue((row.v, row.t))
            count = self.counts.getValue((row.v,))[0] if self.counts.containsKey((row.v,)) else 0
            self.counts.updateValue((row.v,), (count + 1,))
        self.total.update((total,))
        yield Row(k=key[0], what="total", n=total)
        for value, at in self.seen.get():
            yield Row(k=key[0], what=f"seen {at}", n=value)
        for (value,), (count,) in self.counts.iterator():
            yield Row(k=key[0], what=f"count {value}", n=count)

    def close(self) -> None:
        """Nothing is open."""


class FromTotals(Variables):
    """Begins with totals that are given."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Take the total of a key."""
        self.total.update((initialState.s,))


class RunningTotals(StatefulProcessor):
    """Gives the total so far for each row, with the time of the row."""

    def init(self, handle: Any) -> None:
        """Declare the state variable."""
        self.total: Any = handle.getValueState("total", "s long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        """Add row by row, in the order of their times."""
        total = self.total.get()[0] if self.total.exists() else 0
        for row in sorted(rows, key=lambda one: (one.t, one.v)):
            total += row.v
            yield Row(k=key[0], at=row.t, n=total)
        self.total.update((total,))

    def close(self) -> None:
        """Nothing is open."""


class ShortAndLongLived(Variables):
    """Keeps the variables for a day, and one that is gone in the next batch."""

    ttl_ms = HOURS_MS

    def init(self, handle: Any) -> None:
        """Declare the state variables."""
        super().init(handle)
        self.brief: Any = handle.getValueState("brief", "s long", 1)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        """Add the rows, and say whether the brief variable is still there."""
        yield Row(k=key[0], what="brief", n=int(self.brief.exists()))
        self.brief.update((1,))
        yield from super().handleInputRows(key, rows, timerValues)


class EventTimers(Variables):
    """Sets timers by the time of the rows; one that fires empties the variables."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        """Add the rows, with a timer for each."""
        rows = list(rows)
        yield from super().handleInputRows(key, iter(rows), timerValues)
        for row in rows:
            self.handle.registerTimer(int(row.t.timestamp() * 1000) + 20_000)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        """Give the timer's time, and forget."""
        timers = len(list(self.handle.listTimers()))
        yield Row(k=key[0], what=f"expired, {timers} left", n=expiredTimerInfo.getExpiryTimeInMs())
        self.total.clear()
        self.seen.clear()


class ProcessingTimers(Variables):
    """Sets a timer that fires in the next batch, or one that never does."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        """Add the rows and set a timer."""
        yield from super().handleInputRows(key, rows, timerValues)
        wait = 1 if self.total.get()[0] % 2 else HOURS_MS
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + wait)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        """Say that it fired, and forget."""
        yield Row(k=key[0], what="expired", n=len(list(self.handle.listTimers())))
        self.total.clear()
        self.seen.clear()


class PandasVariables(EventTimers):
    """The same, given frames instead of rows."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        """Add the rows of the frames."""
        flat = [Row(v=int(v), t=t) for pdf in rows for v, t in zip(pdf["v"], pdf["t"], strict=True)]
        yield pd.DataFrame(
            [row.asDict() for row in super().handleInputRows(key, flat, timerValues)]
        )

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        """Give the timer as a frame."""
        for row in super().handleExpiredTimer(key, timerValues, expiredTimerInfo):
            yield pd.DataFrame([row.asDict()])
