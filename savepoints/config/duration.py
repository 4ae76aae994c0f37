"""Durations as people write them: `90s`, `15m`, `36h`, `7d`, `PT15M`."""

from __future__ import annotations

import re
from datetime import timedelta

from savepoints.errors import UsageError

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIMPLE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII)
# What is shorter is written as 0, or is none: a schedule of it would be due for ever.
_SHORTEST_SECONDS = 0.001
_LONGEST_SECONDS = timedelta(days=36500).total_seconds()


def parse_duration(text: str) -> timedelta:
    """Read a duration such as `90s`, `15m`, `36h`, `7d` or `PT15M`.

    Raises:
        UsageError: If it is not a duration, is shorter than a millisecond, or is longer than a
            hundred years.
    """
    if match := _SIMPLE.fullmatch(text):
        seconds = float(match.group(1)) * _UNITS[match.group(2)]
    elif (match := _ISO.fullmatch(text)) and any(match.groups()):
        days, hours, minutes, rest = (float(part or 0) for part in match.groups())
        seconds = days * 86400 + hours * 3600 + minutes * 60 + rest
    else:
        seconds = 0.0
    if not _SHORTEST_SECONDS <= seconds <= _LONGEST_SECONDS:
        raise UsageError(
            f"{text!r} is not a valid duration",
            hint="write a positive duration of at most 36500d, such as 90s, 15m, 36h, 7d or PT15M",
        )
    return timedelta(seconds=seconds)


def duration_text(duration: timedelta) -> str:
    """Write a duration as `parse_duration` reads it, in the largest unit that divides it."""
    milliseconds = round(duration / timedelta(milliseconds=1))
    for unit in ("d", "h", "m", "s"):
        if milliseconds % (size := _UNITS[unit] * 1000) == 0:
            return f"{milliseconds // int(size)}{unit}"
    return f"{milliseconds}ms"
