"""How fast a query has read: measured on its past runs, which the store's events tell of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from savepoints.store.tables.events import Event

# Runs that are looked at, the newest.
_RUNS = 20
# Of a run that read less than this part of what the largest read, most of the time is its start.
_SMALLEST_PART = 0.1
# How the messages of runs begin that ended because they had read what they were to read.
_BUSY = ("caught_up", "max_records")


@dataclass(frozen=True)
class Throughput:
    """How many records a query read per second.

    Attributes:
        runs: Past runs that were measured.
        lowest_records_per_second: Rate of the slowest run.
        highest_records_per_second: Rate of the fastest run.
        at_least: These runs also waited for input, so that the query may be faster than this.
        basis: What was measured, in words.
    """

    runs: int
    lowest_records_per_second: float
    highest_records_per_second: float
    at_least: bool
    basis: str


def measured(events: Sequence[Event], query: str) -> Throughput | None:
    """Measure the throughput of a query on its past runs; None when none has read anything.

    Runs that ended because they had read what they were to read did nothing else. A run that was
    stopped may have waited for input most of the time; such runs count only when there are no
    others, and then say how fast the query is at least.
    """
    runs = [
        (one.rows, one.seconds, one.message.startswith(_BUSY))
        for one in events
        if one.verb == "run" and one.query == query and one.rows and one.seconds > 0
    ]
    busy = [(rows, seconds) for rows, seconds, busy_all_the_time in runs if busy_all_the_time][
        :_RUNS
    ]
    chosen = busy or [(rows, seconds) for rows, seconds, _ in runs][:_RUNS]
    if not chosen:
        return None
    largest = max(rows for rows, _ in chosen)
    counted = [(rows, seconds) for rows, seconds in chosen if rows >= largest * _SMALLEST_PART]
    speeds = [rows / seconds for rows, seconds in counted]
    least, most = min(rows for rows, _ in counted), max(rows for rows, _ in counted)
    which = "that read to the end" if busy else "that were stopped, and may have waited for input"
    left_out = len(chosen) - len(counted)
    small = f"; {left_out} much smaller ones excluded" if left_out else ""
    return Throughput(
        runs=len(speeds),
        lowest_records_per_second=min(speeds),
        highest_records_per_second=max(speeds),
        at_least=not busy,
        basis=f"past runs {which}: {len(speeds)}, of {least} to {most} records{small}",
    )
