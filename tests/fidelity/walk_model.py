"""What a query has to be after batches, merges and resets, by our own count of events.

A state and a table are computed from the events that each batch has counted. Merges change what
the batches have counted; a reset begins again, and what was merged comes where its time belongs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.e2e.desk import PARTITIONS
from tests.e2e.late_apps import WINDOW_S
from tests.e2e.late_desk import Event

Change = tuple[str, Event]
# A table: how often each row is in it.
Table = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Batch:
    """What a batch has counted.

    Attributes:
        watermark_ms: The watermark that it ran with.
        clock: Newest time of all that had arrived at its end.
    """

    events: tuple[Event, ...]
    watermark_ms: int
    clock: float


@dataclass(frozen=True)
class Program:
    """What an application computes, by our own count.

    Attributes:
        app: Its name in `late_apps`.
        state: From the batches, in their order, to what the state has by key.
        rows: From what the table had before and the batches, to the table.
        columns: Of the table.
        key: Of the state, in SQL over what `read_state` gives.
        jitter: How many seconds an event may be behind.
    """

    app: str
    state: Callable[[Sequence[Batch]], dict[Any, Any]]
    rows: Callable[[Table, Sequence[Batch]], Table]
    columns: tuple[str, ...]
    key: tuple[str, ...]
    jitter: float


def _totals(batches: Sequence[Batch]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for one in (event for batch in batches for event in batch.events):
        count, total, newest = found.get((one.k,), (0, 0, one.s))
        found[(one.k,)] = count + 1, total + one.n, max(newest, one.s)
    return found


def _upserted(before: Table, batches: Sequence[Batch]) -> Table:
    state = _totals(batches)
    rows = [row for row in before if row[:1] not in state]
    return Counter([*rows, *((*key, *value) for key, value in state.items())])


def _windows(batches: Sequence[Batch]) -> tuple[dict[Any, Any], Table]:
    sums: Counter[Any] = Counter()
    written: Table = Counter()
    before = 0
    for batch in batches:
        for one in batch.events:
            start = int(one.s // WINDOW_S) * WINDOW_S * 1000
            if start + WINDOW_S * 1000 > before:
                sums[start, one.k] += one.n
        over = [key for key in sums if key[0] + WINDOW_S * 1000 <= batch.watermark_ms]
        for key in over:
            row = (*key, sums.pop(key))
            written[row] += 1
        before = batch.watermark_ms
    return {key: (total,) for key, total in sums.items()}, written


TOTALS = Program(
    app="running",
    state=_totals,
    rows=_upserted,
    columns=("k", "count", "total", "newest"),
    key=("key.k",),
    jitter=0,
)
WINDOWS = Program(
    app="windowed",
    state=lambda batches: _windows(batches)[0],
    rows=lambda before, batches: before + _windows(batches)[1],
    columns=("start_ms", "k", "total"),
    key=("unix_millis(key.window.start)", "key.k"),
    jitter=30,
)


@dataclass(frozen=True)
class Present:
    """What a query is after a batch.

    Attributes:
        offsets: What it reads next, by partition.
        batches: What its state comes from.
        before: The rows that were in the table when these batches began.
        merged: What merges did that it descends from, in their order.
        waiting: The late events of merges that are still to come, after a reset.
        replaced: Events that are not read again because a merge replaced or removed them.
    """

    offsets: tuple[int, ...] = (0,) * PARTITIONS
    batches: tuple[Batch, ...] = ()
    before: Table = field(default_factory=Counter)
    merged: tuple[Change, ...] = ()
    waiting: tuple[Event, ...] = ()
    replaced: frozenset[tuple[str, str]] = frozenset()

    @property
    def events(self) -> list[Event]:
        return [one for batch in self.batches for one in batch.events]

    def reading(self, log: list[list[Event]], to: tuple[int, ...], watermark_ms: int) -> Present:
        """Return it after a batch up to these offsets."""
        new = [
            one
            for part, begin, end in zip(log, self.offsets, to, strict=True)
            for one in part[begin:end]
            if one.place not in self.replaced
        ]
        arrived = [one.s for part, end in zip(log, to, strict=True) for one in part[:end]]
        clock = max(arrived, default=0)
        come = [one for one in self.waiting if one.s <= clock]
        batch = Batch((*new, *come), watermark_ms, clock)
        waiting = tuple(one for one in self.waiting if one not in come)
        return replace(self, offsets=to, waiting=waiting, batches=(*self.batches, batch))

    def from_the_beginning(self, before: Table) -> Present:
        """Return it without any state, at the first records."""
        coming: dict[tuple[str, str], Event] = {}
        for op, late in self.merged:
            if op == "insert":
                coming.setdefault(late.place, late)
            elif op == "replace":
                coming[late.place] = late
            else:
                coming.pop(late.place, None)
        replaced = frozenset(late.place for _, late in self.merged)
        return Present(
            before=before, merged=self.merged, waiting=tuple(coming.values()), replaced=replaced
        )

    def merging(self, changes: list[Change]) -> Present:
        """Return it after late events were merged."""
        known = {one.place for one in self.events}
        changes = [(op, one) for op, one in changes if op != "insert" or one.place not in known]
        gone = {late.place for _, late in changes}
        come = sorted((late for op, late in changes if op != "remove"), key=lambda one: one.s)
        batches = []
        for batch in self.batches:
            events = [one for one in batch.events if one.place not in gone]
            while come and come[0].s <= batch.clock:
                events.append(come.pop(0))
            batches.append(replace(batch, events=tuple(events)))
        assert not come
        keys = {late.k for _, late in changes}
        before = Counter({row: n for row, n in self.before.items() if not keys & {*row}})
        return replace(self, batches=tuple(batches), before=before, merged=(*self.merged, *changes))
