"""Does a query ever catch up, and when: from its backlog, its throughput and its input.

With a throughput of R and an input of I records a second, a backlog of B records is caught up with
after B / (R - I) seconds, and never when I is R or more. Both are ranges, so the answer is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from savepoints.sources.kafka.topics import TopicRetention
from savepoints.store.tables.events import Event

# Runs that are looked at, the newest.
_RUNS = 20
# Of a run that read less than this part of what the largest read, most of the time is its start.
_SMALLEST_PART = 0.1
# How the messages of runs begin that ended because they had read what they were to read.
_BUSY = ("caught_up", "max_records")


CatchesUp: TypeAlias = Literal["now", "yes", "maybe", "never", "unknown"]


@dataclass(frozen=True)
class InputRate:
    """How many records arrive per second.

    Attributes:
        lowest_records_per_second: The lowest rate that was counted.
        highest_records_per_second: The highest rate that was counted.
        basis: What was counted, in words.
    """

    lowest_records_per_second: float
    highest_records_per_second: float
    basis: str


@dataclass(frozen=True)
class Forecast:
    """Whether and when a query catches up.

    Attributes:
        catches_up: `now` without a backlog, `maybe` when only the better figures allow it,
            `unknown` when something was not measured.
        shortest_seconds: By the better figures; None for never, or when it is not known.
    """

    catches_up: CatchesUp
    reason: str
    shortest_seconds: float | None = None
    longest_seconds: float | None = None


def forecast(
    backlog: int, speed: Throughput | None, arriving: InputRate | None, query: str
) -> Forecast:
    """Judge by the figures; the query's name is for the way out where nothing was measured."""
    if backlog == 0:
        return Forecast("now", "nothing is left to read", 0.0, 0.0)
    measure = f"measure it: savepoints run {query} --until latest"
    if speed is None or arriving is None:
        nothing = f"nothing measured yet; {measure}"
        short = "the topics are too new to measure their input; try again in a minute"
        return Forecast("unknown", nothing if speed is None else short)
    shortest = _seconds(
        backlog, speed.highest_records_per_second, arriving.lowest_records_per_second
    )
    longest = _seconds(
        backlog, speed.lowest_records_per_second, arriving.highest_records_per_second
    )
    verdict: CatchesUp = "never"
    reason = "the input arrives faster than even the fastest past run read it"
    if longest is not None:
        verdict, reason = "yes", "even the slowest past run read faster than the input arrives"
    elif speed.at_least:
        # Such figures can show that it catches up, never that it does not.
        verdict, reason = (
            "unknown",
            f"past runs were stopped and may have waited for input; {measure}",
        )
    elif shortest is not None:
        verdict, reason = "maybe", ("only the faster past runs read faster than the input arrives")
    return Forecast(verdict, reason, shortest, longest)


def _seconds(backlog: int, speed: float, arriving: float) -> float | None:
    gain = speed - arriving
    return backlog / gain if gain > 0 else None


def retention_ends_first(
    found: Forecast, policies: Sequence[TopicRetention | None], *, is_over: bool
) -> bool | None:
    """Return True if Kafka removes records before they are read, if reading begins now.

    The records of the backlog are taken to be spread evenly over the time in which they came: then
    the first to be lost is the very first, if its time is over, or one at the end, if catching up
    takes longer than `retention.ms`. What never catches up loses records in the end, by their age
    or by `retention.bytes`.

    Returns:
        None when it is not known.
    """
    known = [one for one in policies if one is not None]
    removing = [one for one in known if "delete" in one.cleanup]
    limits = [one.retention_ms / 1000 for one in removing if one.retention_ms is not None]
    by_size = any(one.retention_bytes is not None for one in removing)
    unlimited = len(known) == len(policies) and not limits and not by_size
    if found.catches_up == "now" or unlimited:
        return False
    if is_over:
        return True
    if found.catches_up == "unknown" or len(known) < len(policies):
        return None
    longest = found.longest_seconds
    return longest is None or any(longest > limit for limit in limits)


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
