"""Does a query ever catch up, and when: from its backlog, its throughput and its input.

With a throughput of R and an input of I records a second, a backlog of B records is caught up with
after B / (R - I) seconds, and never when I is R or more. Both are ranges, so the answer is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from savepoints.operations.inspect.throughput import Throughput
from savepoints.sources.kafka.topics import TopicRetention

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
