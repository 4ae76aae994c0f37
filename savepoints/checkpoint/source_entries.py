"""Entries of the logs that sources keep themselves: which a batch has used, and which it lacks.

The file source numbers its entries by its own `logOffset`, which is not the batch id as soon as
there was a batch without data: one entry too many changes the later batches. Spark looks there for
what it has read: without the last ones it reads their files once more.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from savepoints.checkpoint.logs import file_log
from savepoints.checkpoint.logs.offset_log import OffsetLogEntry

# The position of each source, by the directory of its log below `sources/`.
Positions: TypeAlias = "Mapping[str, str | None]"


def used(paths: Iterable[str], offsets: OffsetLogEntry) -> list[str]:
    """Choose the entries of the sources' own logs that a batch has already used."""
    entries = [path for path in paths if file_log.NAME.match(path)]
    return _used(entries, positions(entries, offsets))


def missing(paths: Iterable[str], offsets: OffsetLogEntry) -> list[str]:
    """Name the entries of file sources' own logs that a batch has used and that are not there.

    A compact entry has what those before it had.
    """
    entries = [path for path in paths if file_log.NAME.match(path)]
    return _missing(entries, positions(entries, offsets))


def positions(entries: Collection[str], offsets: OffsetLogEntry) -> Positions:
    """Return the position of each source.

    A plan may have a source several times, such as a stream that is joined with itself. Spark then
    writes its position as often, and its log once, and the sources behind it have logs of lower
    numbers than the places of their positions (`MicroBatchExecution.logicalPlan`). The logs tell
    which positions are of one source.

    Args:
        entries: All entries of the sources' logs.

    Returns:
        A source for each position if that fits the logs, or if nothing else surely does.
    """
    alone = offsets.positions
    numbers = tuple(map(str, range(len(alone))))
    if offsets.names != numbers or not _missing(entries, alone):
        return alone
    logs = {match[1] for match in map(file_log.NAME.match, entries) if match}
    ways = [dict(zip(numbers, way, strict=False)) for way in _ways(offsets.sources)]
    fitting = [one for one in ways if logs <= one.keys() and not _missing(entries, one)]
    return fitting[0] if len({tuple(_used(entries, one)) for one in fitting}) == 1 else alone


def _ways(found: Sequence[str | None]) -> list[tuple[str | None, ...]]:
    """Return the positions of sources, in order, for each choice of equal ones as one source's."""
    ways: set[tuple[str | None, ...]] = {()}
    for one in found:
        ways = {(*way, one) for way in ways} | {way for way in ways if one in way}
    return sorted(ways, key=repr)


def _used(entries: Iterable[str], by_log: Positions) -> list[str]:
    limits = {
        name: _log_offset(position)
        for name, position in by_log.items()
        if position is not None  # Otherwise the source had not started.
    }
    found = []
    for path in entries:
        match = file_log.NAME.match(path)
        if match and match.group(1) in limits:
            limit = limits[match.group(1)]
            if limit is None or int(match.group(2)) <= limit:
                found.append(path)
    return found


def _missing(entries: Iterable[str], by_log: Positions) -> list[str]:
    there = _used(entries, by_log)
    found = []
    for name, position in by_log.items():
        last = None if position is None else _log_offset(position)
        if last is not None:
            own = file_log.in_force(there, name)
            known = {int(match[2]) for match in map(file_log.NAME.match, own) if match}
            first = min(known) if own and own[0].endswith(".compact") else 0
            found += [f"sources/{name}/{at}" for at in range(first, last + 1) if at not in known]
    return found


def _log_offset(position: str) -> int | None:
    parsed = json.loads(position)
    return parsed.get("logOffset") if isinstance(parsed, dict) else None
