"""What a driver's query has to be after a batch, by our own count of events.

A source is a list of what arrived in it, piece by piece: a file, a version of a table, a record.
How many pieces a batch had read is in Spark's own logs, and from the pieces follows the rest.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from savepoints.io import Location

# A key and a number.
Event = tuple[str, int]
_LOGGED = re.compile(r"/\d+(\.compact)?$")
Log = list[list[list[Event]]]
# How often each row is in it.
Rows = Counter[tuple[Any, ...]]
State = Mapping[str, Rows]


@dataclass(frozen=True)
class Present:
    """What a query is after a batch.

    Attributes:
        ends: How many pieces of each source it has read.
        state: Rows by state variable.
        table: Rows of its output.
    """

    ends: tuple[int, ...]
    state: State = field(default_factory=dict)
    table: Rows = field(default_factory=Counter)


@dataclass(frozen=True)
class Model:
    """What a program computes, by our own count.

    Attributes:
        read: From a checkpoint and a batch to how many pieces of each source it had read.
        after: From what a query was, and the new events of each source, to what it is.
        state: SQL over what `read_state` gives, by state variable; "" where there is none.
        columns: Of the table.
    """

    read: Callable[[Location, int], tuple[int, ...]]
    after: Callable[[Present, Sequence[Sequence[Event]]], Present]
    state: Mapping[str, tuple[str, ...]]
    columns: tuple[str, ...]

    def next(self, present: Present, log: Log, ends: tuple[int, ...]) -> Present:
        """Return what a query is when it has read up to there."""
        new = [
            [event for piece in pieces[begin:end] for event in piece]
            for pieces, begin, end in zip(log, present.ends, ends, strict=True)
        ]
        return replace(self.after(present, new), ends=ends)


def _positions(checkpoint: Location, batch: int) -> list[Any]:
    return [json.loads(one) for one in checkpoint.get(f"offsets/{batch}").decode().split("\n")[2:]]


def _files_and_versions(checkpoint: Location, batch: int) -> tuple[int, ...]:
    files, table = _positions(checkpoint, batch)
    # Beside it is what is read next, in versions of one file each.
    assert table["index"] < 0, table
    entries = {
        entry["path"]
        for info in checkpoint.list("sources/0")
        if _LOGGED.search(info.path)
        for entry in map(json.loads, checkpoint.get(info.path).decode().splitlines()[1:])
        if entry["batchId"] <= files["logOffset"]
    }
    return len(entries), table["reservoirVersion"]


def _records(checkpoint: Location, batch: int) -> tuple[int, ...]:
    (topics,) = _positions(checkpoint, batch)
    (offsets,) = topics.values()
    return tuple(offsets[one] for one in sorted(offsets))


def _paired(present: Present, new: Sequence[Sequence[Event]]) -> Present:
    """Each event of one side with each of the other that has its key."""
    sides = [
        present.state.get(name, Counter()) + Counter(events)
        for name, events in zip(("left", "right"), new, strict=True)
    ]
    pairs: Rows = Counter()
    seen = [present.state.get(name, Counter()) for name in ("left", "right")]
    for (key, left), n in sides[0].items():
        for (other, right), m in sides[1].items():
            if key == other:
                before = seen[0][key, left] * seen[1][key, right]
                pairs[key, left, right] += n * m - before
    table = present.table + pairs
    return replace(present, state={"left": sides[0], "right": sides[1]}, table=table)


def _once(present: Present, new: Sequence[Sequence[Event]]) -> Present:
    """Each event once."""
    seen = present.state.get("", Counter())
    come = Counter({event for events in new for event in events if event not in seen})
    return replace(present, state={"": seen + come}, table=present.table + come)


def _summed(present: Present, new: Sequence[Sequence[Event]]) -> Present:
    """The sum of each key, which replaces the key's row."""
    sums: dict[str, int] = dict(present.state.get("total", Counter()).elements())
    touched = set()
    for key, n in (event for events in new for event in events):
        sums[key] = sums.get(key, 0) + n
        touched.add(key)
    kept = [row for row in present.table.elements() if row[0] not in touched]
    table = Counter([*kept, *((key, sums[key]) for key in touched)])
    return replace(present, state={"total": Counter(sums.items())}, table=table)


MODELS = {
    "pairs": Model(
        read=_files_and_versions,
        after=_paired,
        state={"left": ("key.field0", "value.n"), "right": ("key.field0", "value.m")},
        columns=("k", "n", "m"),
    ),
    "once": Model(
        read=_files_and_versions,
        after=_once,
        state={"": ("key.k", "key.n")},
        columns=("k", "n"),
    ),
    "sums": Model(
        read=_records,
        after=_summed,
        state={"total": ("key.k", "value.s")},
        columns=("k", "s"),
    ),
}
