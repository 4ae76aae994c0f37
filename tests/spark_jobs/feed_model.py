"""Feeds of events by a seed, and what `events_once` must make of the records, in plain Python.

Nothing of the application is used: the model knows all records of a bucket at once, and asks of
each what the newest event before it was, and whether the id was there before.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

DAY_MS = 24 * 60 * 60 * 1000
WEEK_MS = 7 * DAY_MS
BEGIN_MS = 1_795_168_800_000


class Row(NamedTuple):
    """A record as the topic has it."""

    partition: int
    offset: int
    key: str
    value: str


def drawn(chance: random.Random, days: int, of_a_day: int) -> list[list[Any]]:
    """Return the pages of some days: copies, other orders, other contents, old ones, and no events.

    A page may come twice, or before the one that precedes it.
    """
    events: list[dict[str, Any]] = [
        {"event_id": f"e-{day}-{n}", "at_ms": BEGIN_MS + day * DAY_MS + chance.randrange(DAY_MS),
         "amount": chance.randrange(100)}
        for day in range(days) for n in range(of_a_day)
    ]  # fmt: skip
    events.sort(key=lambda one: one["at_ms"] + chance.randrange(DAY_MS))
    sent: list[Any] = []
    for number, one in enumerate(events):
        sent.append(one)
        if chance.random() < 0.3:  # Again, soon or after its time.
            sent.append(events[chance.randrange(max(0, number - 60), number + 1)])
        if chance.random() < 0.05:
            sent.append(events[chance.randrange(number + 1)])
        if chance.random() < 0.02:
            sent.append({**one, "amount": -1})
        if chance.random() < 0.02:
            sent.append(chance.choice([{"at_ms": 5}, {"event_id": 7, "at_ms": 5}, "text", None]))
        if chance.random() < 0.02:
            early = one["at_ms"] - 30 * DAY_MS
            sent.append({"event_id": f"late-{number}", "at_ms": early, "amount": 1})
        if chance.random() < 0.02:
            sent.append({"event_id": f"ahead-{number}", "at_ms": one["at_ms"] + 400 * DAY_MS})
    pages = []
    while sent:
        size = chance.randrange(1, 12)
        page, sent = sent[:size], sent[size:]
        if chance.random() < 0.3:
            chance.shuffle(page)
        pages.append(page)
        if chance.random() < 0.1:
            pages.append(page)
        if chance.random() < 0.1 and len(pages) > 1:
            pages[-1], pages[-2] = pages[-2], pages[-1]
    return pages


class Expected(NamedTuple):
    """What the tables must have: ids with amounts, and records with reasons."""

    events: list[tuple[str, int]]
    refused: list[tuple[str, int, int]]
    copies: int


def expected(records: Iterable[Row]) -> Expected:
    """Return what must come of the records of a topic."""
    buckets: dict[str, list[Row]] = defaultdict(list)
    for one in sorted(records):
        buckets[one.key].append(one)
    events, refused, copies = [], [], 0
    for rows in buckets.values():
        taken: dict[str, dict[str, Any]] = {}
        newest = 0
        for row in rows:
            said = json.loads(row.value)
            event = said["event"]
            why = None
            if not isinstance(event, dict) or not isinstance(event.get("event_id"), str):
                why = "unreadable"
            else:
                before = taken.get(event["event_id"])
                remembered = before is not None and before["at_ms"] >= newest - WEEK_MS
                if remembered and before == event:
                    copies += 1
                    continue
                if remembered:
                    why = "changed"
                elif event["at_ms"] > said["answered_ms"] + 60_000:
                    why = "ahead"
                elif event["at_ms"] < newest - WEEK_MS:
                    why = "expired"
            if why is None:
                assert event["event_id"] not in taken, "nothing is doubled"
                taken[event["event_id"]] = event
                newest = max(newest, event["at_ms"])
                events.append((event["event_id"], event["amount"]))
            else:
                refused.append((why, row.partition, row.offset))
    return Expected(sorted(events), sorted(refused), copies)
