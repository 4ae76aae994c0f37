"""What a query has to be after batches, merges and resets, by our own count of events.

A state and a table are computed from the events that each batch has counted. Merges change what
the batches have counted; a reset begins again, and what was merged comes where its time belongs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from savepoints.store.tables.merge_ledger import MergePolicy
from tests.e2e.desk import PARTITIONS
from tests.e2e.late_desk import Event

Change = tuple[str, Event]
Offsets = tuple[int, ...]
# A table: how often each row is in it.
Table = Counter[tuple[Any, ...]]
State = dict[str, Table]


@dataclass(frozen=True)
class Batch:
    """What a batch has counted.

    Attributes:
        watermark_ms: The watermark that it ran with.
        clock: Newest time of all that had arrived at its end.
        edit: What somebody added by hand to the sum of a key, after it.
    """

    events: tuple[Event, ...]
    watermark_ms: int
    clock: float
    edit: tuple[str, int] | None = None


@dataclass(frozen=True)
class Program:
    """What an application computes, by our own count.

    Attributes:
        app: Its name in `late_apps`.
        state: From the batches, in their order, to the rows of the state, by variable.
        rows: From what the table had before and the batches, to the table.
        columns: Of the table.
        read: By variable, "" where there is one only: SQL over what `read_state` gives.
        jitter: How many seconds an event may be behind.
        policy: By which merges come to the same, beside the exact one.
    """

    app: str
    state: Callable[[Sequence[Batch]], State]
    rows: Callable[[Table, Sequence[Batch]], Table]
    columns: tuple[str, ...]
    read: Mapping[str, tuple[str, ...]]
    jitter: float
    policy: MergePolicy = "exact"


@dataclass(frozen=True)
class Present:
    """What a query is after a batch.

    Attributes:
        offsets: What it reads next, by partition.
        batches: What its state comes from.
        before: The rows that were in the table when these batches began.
        merged: What merges did that it descends from, in their order, and where it stood then.
        waiting: The late events of merges that are still to come, after a reset.
        replaced: Events that are not read again because a merge replaced or removed them.
    """

    offsets: tuple[int, ...] = (0,) * PARTITIONS
    batches: tuple[Batch, ...] = ()
    before: Table = field(default_factory=Counter)
    merged: tuple[tuple[Change, Offsets], ...] = ()
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
        offsets = (0,) * len(self.offsets)
        return Present(offsets, before=before, merged=self.merged).reading_again(())

    def at(self, offsets: Offsets, log: list[list[Event]]) -> Present:
        """Return it with its state, where it reads some records again, or leaves some out."""
        read = [one for part, end in zip(log, offsets, strict=True) for one in part[:end]]
        return replace(self, offsets=offsets).reading_again(read)

    def reading_again(self, read: Sequence[Event]) -> Present:
        """Return it with the late events that are read again, having read these before it."""
        ahead = [
            change
            for change, stood in self.merged
            if any(one < then for one, then in zip(self.offsets, stood, strict=True))
        ]
        clock = max((one.s for one in read), default=0)
        waiting = [one for one in counting(ahead) if one.s > clock]
        replaced = frozenset(late.place for _, late in ahead)
        return replace(self, waiting=tuple(waiting), replaced=replaced)

    def replayed(self, log: list[list[Event]]) -> Present:
        """Return it after a replay of all there is, in one batch."""
        changes = [change for change, _ in self.merged]
        gone = {late.place for _, late in changes}
        read = [one for part, end in zip(log, self.offsets, strict=True) for one in part[:end]]
        events = [one for one in read if one.place not in gone] + counting(changes)
        clock = max(one.s for one in read)
        one = Batch(tuple(sorted(events, key=lambda one: one.s)), 0, clock)
        return replace(self, batches=(one,), before=Counter())

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
        merged = (*self.merged, *((one, self.offsets) for one in changes))
        return replace(self, batches=tuple(batches), before=before, merged=merged)


def counting(changes: Sequence[Change]) -> list[Event]:
    """Return the late events that count after merges."""
    coming: dict[tuple[str, str], Event] = {}
    for op, late in changes:
        if op == "insert":
            coming.setdefault(late.place, late)
        elif op == "replace":
            coming[late.place] = late
        else:
            coming.pop(late.place, None)
    return [*coming.values()]
