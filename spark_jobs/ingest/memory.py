"""What is remembered of the events of a bucket, and what follows for the next one.

Ids are remembered for `WINDOW_MS` of event time, and at most `MOST` of them. Behind that lies the
mark: an event from before it may be a copy of one that is forgotten. It is neither written, since
that could double it, nor dropped, since that could lose it: it is refused, with the reason.

All of it depends on the order of the records in Kafka alone, and not on where batches end.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable
from typing import NamedTuple

DAY_MS = 86_400_000
# How long an id is remembered, by the newest event of its bucket.
WINDOW_MS = 7 * DAY_MS
# Most ids of a bucket; of more, the oldest are forgotten before their time.
MOST = 50_000
# An event may be so much newer than the answer that brought it: clocks differ.
AHEAD_MS = 60_000
_YEAR_10000_MS = 253_402_300_800_000

EXPIRED, CHANGED, AHEAD, UNREADABLE = "expired", "changed", "ahead", "unreadable"


class Record(NamedTuple):
    """A record of the topic, in the order of the topic.

    Attributes:
        partition: Its partition.
        offset: Its offset there.
        value: As `load.record` wrote it.
    """

    partition: int
    offset: int
    value: str


class Event(NamedTuple):
    """An event that can be read.

    Attributes:
        event_id: The same for all its copies.
        at_ms: When it happened, in milliseconds since 1970; the same for all its copies.
        payload: Its other fields, in JSON.
        answered_ms: When the feed gave it.
    """

    event_id: str
    at_ms: int
    payload: str
    answered_ms: int


class Memory(NamedTuple):
    """What a bucket knows; times are in milliseconds since 1970.

    Attributes:
        mark_ms: Events before it are forgotten.
        newest_ms: The newest event.
        records: How many records there were.
        copies: How many of them were copies.
        seen: By id, the time of an event and what it was, as a hash.
    """

    mark_ms: int = 0
    newest_ms: int = 0
    records: int = 0
    copies: int = 0
    seen: str = "{}"


class Kept(NamedTuple):
    """A record that is written: an event for the first time, or one that is refused.

    Attributes:
        event_id: None for a record that cannot be read.
        at_ms: None for a record that cannot be read.
        payload: None for a record that cannot be read.
        partition: Where the record is.
        offset: Where the record is.
        value: The record.
        reason: Why it is refused; None for an event.
    """

    event_id: str | None
    at_ms: int | None
    payload: str | None
    partition: int
    offset: int
    value: str
    reason: str | None


def read(value: str) -> Event | None:
    """Read a record, None if it is no event."""
    try:
        said = json.loads(value)
        event, answered_ms = said["event"], said["answered_ms"]
        event_id, at_ms = event.pop("event_id"), event.pop("at_ms")
        event_id.encode()  # JSON can have half a character, a table cannot.
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not isinstance(event_id, str) or not _is_time(at_ms) or not _is_time(answered_ms):
        return None
    return Event(event_id, at_ms, json.dumps(event, sort_keys=True), answered_ms)


def advance(memory: Memory, records: Iterable[Record]) -> tuple[Memory, list[Kept]]:
    """Decide records.

    Args:
        records: Of one bucket, in any order; the next ones of the topic.

    Returns:
        The memory afterwards, and what is written: all but the copies.
    """
    seen: dict[str, tuple[int, str]] = json.loads(memory.seen)
    mark_ms, newest_ms, copies = memory.mark_ms, memory.newest_ms, memory.copies
    oldest = [(at_ms, event_id) for event_id, (at_ms, _) in seen.items()]
    heapq.heapify(oldest)
    found, count = [], 0
    for record in sorted(records):
        count += 1
        event = read(record.value)
        reason = UNREADABLE if event is None else _refusal(event, mark_ms, seen)
        if event is not None and reason is None:
            if event.event_id in seen:
                copies += 1
                continue
            seen[event.event_id] = event.at_ms, _hash(event)
            heapq.heappush(oldest, (event.at_ms, event.event_id))
            newest_ms = max(newest_ms, event.at_ms)
            mark_ms = _forget(seen, oldest, max(mark_ms, newest_ms - WINDOW_MS))
        event_id, at_ms, payload = (None, None, None) if event is None else event[:3]
        found.append(Kept(event_id, at_ms, payload, *record, reason))
    after = Memory(mark_ms, newest_ms, memory.records + count, copies, json.dumps(seen))
    return after, found


def _refusal(event: Event, mark_ms: int, seen: dict[str, tuple[int, str]]) -> str | None:
    known = seen.get(event.event_id)
    if known is not None:
        return None if known[1] == _hash(event) else CHANGED
    if event.at_ms > event.answered_ms + AHEAD_MS:
        return AHEAD  # It would make the bucket forget all others.
    return EXPIRED if event.at_ms < mark_ms else None


def _forget(seen: dict[str, tuple[int, str]], oldest: list[tuple[int, str]], mark_ms: int) -> int:
    """Forget what lies before the mark, and what is too much; returns the mark then.

    Args:
        oldest: Heap of the times and ids of `seen`.
    """
    if len(seen) > MOST:
        mark_ms = max(mark_ms, oldest[0][0] + 1)
    while oldest and oldest[0][0] < mark_ms:
        _, event_id = heapq.heappop(oldest)
        del seen[event_id]
    return mark_ms


def _hash(event: Event) -> str:
    text = f"{event.at_ms} {event.payload}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _YEAR_10000_MS
