"""Figures and times as people read them, on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from savepoints.moments import LAST, moment_or_last


def offsets_text(offsets: Sequence[int]) -> str:
    """Return offsets by partition: `0:12 1:7`."""
    return " ".join(f"{part}:{offset}" for part, offset in enumerate(offsets))


def count_text(count: int, noun: str) -> str:
    """Write a count for people: `1 row`, `7,846 rows`."""
    return f"{count:,} {noun if count == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("y"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"


def or_dash(value: object) -> object:
    """Return a cell of a table, with `-` for what is not known."""
    return "-" if value is None else value


def bytes_text(size: int) -> str:
    """Write a size for people: `1.5 MB`."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:  # noqa: PLR2004  (decimal units)
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def moment_text(moment: datetime) -> str:
    """Write a moment for people, in UTC to the second."""
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"


def span_text(span: timedelta) -> str:
    """Write how long something takes or is ago, in its two largest units: `4 min`, `2 d 3 h`."""
    seconds = max(0, round(span.total_seconds()))
    for size, unit, smaller, name in (
        (86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"),
    ):  # fmt: skip
        if seconds >= size:
            # Seconds matter up to ten minutes.
            rest = seconds % size // smaller if size > 60 or seconds < 600 else 0  # noqa: PLR2004
            return f"{seconds // size} {unit}" + (f" {rest} {name}" if rest else "")
    return f"{seconds} s"


def watermark_text(milliseconds: int | None) -> str:
    """Write a watermark for people; a query that has none has Spark's own, which is 0."""
    if not milliseconds:
        return "none"
    moment = moment_or_last(milliseconds * 1000)
    if moment == LAST:
        return f"after the year 9999 ({milliseconds} ms since 1970)"
    return moment_text(moment)
