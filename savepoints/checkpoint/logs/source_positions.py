"""Where the sources of a restored query continue; they may differ from the savepoint's.

The offset log has a line for each source, in the order in which Spark counts them, and
`sources/<number>/` what a source keeps for itself. A start describes one source of the program:

- `keep:0`: it is source 0 of the savepoint and continues where that was;
- a position as Spark's JSON, such as `{"orders": {"0": 120}}`: it continues exactly there. Of the
savepoint's source with its number it keeps where that began, if both read the same topics: the
state comes from there;
- `new`: it starts by the options of its reader, as if it had never run; Spark writes `-`.

All three keep the state. A position or `new` goes into `offsets/N-1` and `offsets/N` alike: Spark
looks at both when it starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from savepoints.checkpoint.logs.kafka_position import kafka_offsets, lowest_offsets
from savepoints.errors import IncompatibleError, UsageError

_T = TypeVar("_T")

# One start for each source of the program, as texts.
Starts: TypeAlias = tuple[str, ...]

_NEW = "new"
_KEPT = re.compile(r"^keep:(\d+)$", re.ASCII)
_OWN_FILE = re.compile(r"^sources/([^/]+)/(.+)$")


@dataclass(frozen=True)
class SourceMap:
    """Where each source of a program continues.

    Attributes:
        names: Directories below `sources/` of the savepoint's sources, in order: their numbers, or
            in offset log v2 their names.
        positions: Where the savepoint's sources are, in order, as Spark's JSON; empty if no start
            is a position of Kafka.
    """

    starts: Starts
    names: tuple[str, ...]
    positions: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        kept = [one for one in map(_kept, self.starts) if one is not None]
        if beyond := [one for one in kept if one >= len(self.names)]:
            raise _beyond(beyond[0], len(self.names))
        if len(set(kept)) < len(kept):
            raise UsageError(
                "two --source options name the same source of the savepoint",
                hint="change one of them to new, or to a position such as "
                '\'{"orders": {"0": 120}}\'',
            )
        moves = any(self.starts[at] != f"keep:{at}" for at in range(len(self.starts)))
        is_named = self.names != tuple(str(at) for at in range(len(self.names)))
        if is_named and (
            len(self.starts) != len(self.names)
            or (moves and any(_kept(one) not in (None, at) for at, one in enumerate(self.starts)))
        ):
            raise IncompatibleError(
                f"the sources of this checkpoint have names ({', '.join(self.names)}), so they "
                "are matched by name, not by order",
                hint="omit --source, and give the sources these names in the program",
            )

    def lines(self, before: Sequence[str]) -> list[str]:
        """Return the lines of a file of the offset log, from those that it has (format v1)."""
        found = []
        for start in self.starts:
            kept = _kept(start)
            found.append(before[kept] if kept is not None else "-" if start == _NEW else start)
        return found

    def place(self, path: str) -> str | None:
        """Return where a file of the checkpoint belongs; None for one of a source that is gone."""
        match = _OWN_FILE.match(path)
        if match is None:
            return path
        name, rest = match.groups()
        for at, start in enumerate(self.starts):
            kept = _kept(start)
            if kept is not None and self.names[kept] == name:
                own = self.names[at] if self.names[kept] != str(kept) else str(at)
                return f"sources/{own}/{rest}"
        # Where a source of Kafka began.
        return path if rest == "0" and self._reads_on(name) else None

    def _reads_on(self, name: str) -> bool:
        """Say whether a source of Kafka continues at another position of the same topics."""
        for known, start, before in zip(self.names, self.starts, self.positions, strict=False):
            if known == name:
                now, was = kafka_offsets(start), kafka_offsets(before)
                return now is not None and was is not None and now.keys() == was.keys()
        return False


def checked(text: str) -> str:
    """Return a start in its stored form: a position as Spark writes it."""
    if text == _NEW or _KEPT.match(text):
        return text
    try:
        position = json.loads(text)
    except ValueError:
        position = None
    if not isinstance(position, dict) or not position:
        raise UsageError(
            f"{text!r} is not a source position",
            hint='write keep:0, new, or a position such as \'{"orders": {"0": 120}}\'',
        )
    return json.dumps(position, separators=(",", ":"))


def is_start(word: str) -> bool:
    """Say whether a word, of several, is a start in its stored form, or begins one."""
    return word == _NEW or _KEPT.match(word) is not None or word.startswith("{")


def going_on(starts: Starts, offsets: Sequence[str | None]) -> tuple[str | None, ...]:
    """Return each source's position; None for one that starts by the options of its reader.

    Args:
        starts: See the module; in the form of `checked`.
    """
    found: list[str | None] = []
    for start in starts:
        kept = _kept(start)
        if kept is not None and kept >= len(offsets):
            raise _beyond(kept, len(offsets))
        found.append(offsets[kept] if kept is not None else None if start == _NEW else start)
    return tuple(found)


def unreplayable(positions: Mapping[str, str | None], paths: Iterable[str]) -> tuple[str, ...]:
    """Return the sources that only count what they read and keep none of it.

    Spark's socket and memory sources have a bare number as their position (`LongOffset`) and no
    file below `sources/`. Its rate source has a bare number as well, of seconds, and keeps when it
    began: it makes the same rows again.

    Args:
        positions: By directory below `sources/`.
    """
    with_files = {match.group(1) for path in paths if (match := _OWN_FILE.match(path))}
    return tuple(
        name
        for name, position in positions.items()
        if position is not None and position.isdigit() and name not in with_files
    )


def kept(starts: Starts, names: Sequence[str]) -> tuple[str, ...]:
    """Return which of the savepoint's sources, by their names, the program continues."""
    numbers = {number for one in starts if (number := _kept(one)) is not None}
    return tuple(name for number, name in enumerate(names) if number in numbers)


def topics_kept(
    starts: Starts, offsets: Sequence[str | None], topics: Mapping[str, _T]
) -> dict[str, _T]:
    """Return what is known of the topics in which the program goes on where the savepoint was.

    Args:
        offsets: Where its sources are.
        topics: What is known of each.
    """
    numbers = (_kept(one) for one in starts)
    there = lowest_offsets(offsets[one] for one in numbers if one is not None)
    return {topic: known for topic, known in topics.items() if topic in there}


def _beyond(source: int, known: int) -> UsageError:
    return UsageError(
        f"--source names source {source}, but the savepoint has only {known}",
        hint="number the sources from 0; to see their numbers: savepoints show NAME",
    )


def _kept(start: str) -> int | None:
    match = _KEPT.match(start)
    return int(match.group(1)) if match else None
