"""Find the columns that are one aggregate's buffer, and keep them together.

An average has a sum and a count. A kept sum with a count that starts over is a wrong average, so a
buffer is kept as a whole, dropped as a whole, or unknown.

For a program, Spark tells which columns are one buffer. For a savepoint, they are recognized by the
names and order that Spark gives them. Source: `aggBufferAttributes` of `Average`,
`CentralMomentAgg`, `Covariance`, `First`, `Last`, `MaxMinBy`, `Sum`.
"""

from __future__ import annotations

from collections.abc import Sequence

from savepoints.checkpoint.evolution.column_matching import Pairs
from savepoints.checkpoint.evolution.findings import ColumnFindings, Start
from savepoints.checkpoint.state.schema import StateField

# Prefixes of at least two columns are buffers, too: a deviation has three of five.
_TOGETHER = (
    ("sum", "count"),
    ("sum", "isEmpty"),
    ("sum", "isEmpty", "count"),
    ("n", "avg", "m2", "m3", "m4"),
    ("n", "xAvg", "yAvg", "ck", "xMk", "yMk"),
    ("first", "valueSet"),
    ("last", "valueSet"),
    ("valueWithExtremumOrdering", "extremumOrdering"),
    ("extremumOrdering", "valueWithExtremumOrdering"),
)


def require_whole(
    was: Sequence[StateField],
    now: Sequence[StateField],
    names: tuple[Sequence[str], Sequence[str]],
    starts: Sequence[Start] | None,
    matched: Pairs,
    found: ColumnFindings,
) -> None:
    """Report buffers that mix two aggregates, unless `--map` names each of their columns."""
    names_was, names_now = names
    sources = matched.sources
    for group in _of_program(now, starts):
        if group & matched.unclear_now or group <= matched.said:
            continue
        kept = sorted(group & sources.keys())
        taken = [sources[place] for place in kept]
        is_moved = taken != list(range(taken[0], taken[0] + len(taken))) if taken else False
        is_other = any(was[sources[place]].nullable != now[place].nullable for place in kept)
        if kept and (len(kept) < len(group) or is_moved or is_other):
            columns = ", ".join(names_now[place] for place in sorted(group))
            begun = (f"--map ={names_now[place]}" for place in sorted(group - set(kept)))
            maps = [f"--map {names_was[sources[place]]}={names_now[place]}" for place in kept]
            found.say(
                "unknown",
                f"value columns {columns}",
                "they are the buffer of one aggregate, which would continue with "
                f"{', '.join(names_was[place] for place in taken)} of the savepoint: the "
                "state does not show whether it is the same aggregate",
                f"pass {' '.join([*maps, *begun])} if these values are right for this "
                "aggregate; to start over, pass "
                + " ".join(
                    f"--map {names_was[sources[place]]}= --map ={names_now[place]}"
                    for place in kept
                ),
            )
    known = {*sources.values(), *matched.unclear_was}
    for group in _by_names(was):
        kept_was, gone = group & known, group - known
        if kept_was and gone and not group <= matched.said_was:
            columns = ", ".join(names_was[place] for place in sorted(group))
            now_of = {old: new for new, old in sources.items()}
            maps = [
                f"--map {names_was[place]}={names_now[now_of[place]] if place in now_of else ''}"
                for place in sorted(group)
            ]
            found.say(
                "unknown",
                f"value columns {columns}",
                "they look like the buffer of one aggregate (such as an average), of which "
                f"{', '.join(names_was[place] for place in sorted(gone))} would be dropped: "
                "the state does not show whether the rest is the same aggregate",
                f"pass {' '.join(maps)} if it is",
            )


def _of_program(now: Sequence[StateField], starts: Sequence[Start] | None) -> list[set[int]]:
    if starts is None or any(one.aggregate is None for one in starts):
        return _by_names(now)
    groups: dict[int | None, set[int]] = {}
    for place, one in enumerate(starts, start=len(now) - len(starts)):
        groups.setdefault(one.aggregate, set()).add(place)
    return [group for group in groups.values() if len(group) > 1]


def _by_names(columns: Sequence[StateField]) -> list[set[int]]:
    """Find buffers of several columns, the longest from each place."""
    found: list[set[int]] = []
    place = 0
    while place < len(columns):
        names = [one.name for one in columns[place:]]
        size = max(
            (n for one in _TOGETHER for n in range(2, len(one) + 1) if tuple(names[:n]) == one[:n]),
            default=1,
        )
        if names[1:size] == ["count"] and not _is_average(*columns[place : place + size]):
            size = 1
        if size > 1:
            found.append(set(range(place, place + size)))
        place += size
    return found


def _is_average(total: StateField, count: StateField) -> bool:
    """Return True if a sum and a count can be an average, not a long sum or a plain count."""
    return total.type != "long" and count.nullable
