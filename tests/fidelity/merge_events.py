"""Events of queries that late events are merged into, and which of them come too late."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from savepoints.scratch import SLICE

# Batches before the merge, and after it.
BEFORE, AFTER = 5, 2
SECONDS_A_BATCH = 20
ROWS_A_BATCH = 20
# So far apart that only a late event between them makes one session of two.
SESSIONS = (25, 35)
BETWEEN = 30
BEGINNING = dt.datetime(2026, 11, 20, 10, tzinfo=dt.timezone.utc)

_RAW: list[pa.Field[Any]] = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
    pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
]
# Kafka's columns; the same with whose event it is, when it happened, which it is, and its slice.
RAW = pa.schema(_RAW)
EVENT = pa.schema(
    [
        *_RAW,
        pa.field("entity", pa.string()),
        pa.field("event_time", pa.timestamp("us", tz="UTC")),
        pa.field("event_id", pa.string()),
        pa.field(SLICE, pa.int32()),
    ]
)


@dataclass(frozen=True)
class Event:
    """An event of one of the inputs.

    Attributes:
        source: The input, `0` or `1`.
        batch: Number of the batch in which it comes, or would have come.
        offset: Its place in the input; late events have places of their own, below zero.
        k: Its entity.
        v: Some number.
        t: When it happened, in seconds.
        late: It arrives after the live query has run.
    """

    source: int
    batch: int
    offset: int
    k: str
    v: int
    t: float
    late: bool = False

    @property
    def time(self) -> dt.datetime:
        return BEGINNING + dt.timedelta(seconds=self.t)

    def record(self) -> dict[str, Any]:
        value = {"id": f"{self.source}-{self.offset}", "k": self.k, "v": self.v}
        return {
            "key": self.k.encode(),
            "value": json.dumps({**value, "t": self.time.isoformat()}).encode(),
            "topic": f"in{self.source}",
            "partition": -1 if self.late else 0,
            "offset": abs(self.offset),
            "timestamp": self.time,
            "timestampType": 0,
            "headers": None,
        }

    def event(self, number: int) -> dict[str, Any]:
        identity = {"entity": self.k, "event_time": self.time}
        event_id = f"{self.source}-{self.offset}"
        return {**self.record(), **identity, "event_id": event_id, SLICE: number}


def events(sources: int, disorder: float, seed: int) -> list[Event]:
    """Make the events of all batches; those that are late are of a few entities only.

    Some come before the first event of their entity, some are of an entity that nobody has seen,
    some happen at the very time of another one, and some after the watermark.
    """
    chance = random.Random(seed)
    entities = [f"k{number}" for number in range(6)]
    found = []
    for source in range(sources):
        rows = []
        for batch in range(BEFORE + AFTER):
            # The first two entities begin later than the others.
            known = entities if batch > 1 else entities[2:]
            for _ in range(ROWS_A_BATCH):
                back = chance.randrange(100) if chance.random() < disorder else 0
                t = max(0, batch * SECONDS_A_BATCH + chance.randrange(SECONDS_A_BATCH) - back)
                rows.append((batch, chance.choice(known), chance.randrange(6), t))
        rows += [(1, "pair", chance.randrange(6), t) for t in SESSIONS]
        found += [Event(source, row[0], at, *row[1:]) for at, row in enumerate(rows)]
    return found + _late(sources, found, chance)


def _late(sources: int, live: Sequence[Event], chance: random.Random) -> list[Event]:
    late = []
    for source in range(sources):
        clocks = _clocks([one for one in live if one.source == source])
        mine = [one for one in live if one.source == source and one.batch < BEFORE]
        equal = chance.choice([one for one in mine if one.k == "k1"])
        last, newest = clocks[BEFORE - 2], clocks[BEFORE - 1]
        wanted = [
            ("k0", chance.randrange(2 * SECONDS_A_BATCH)),  # Before its first event.
            ("k0", chance.randrange(2 * SECONDS_A_BATCH, last)),
            ("k1", equal.t),
            *(("k2", chance.randrange(last, newest)) for _ in range(2)),
            *(("new", chance.randrange(newest)) for _ in range(2)),
            ("pair", BETWEEN),
        ]
        for number, (k, t) in enumerate(wanted):
            batch = next(one for one, clock in enumerate(clocks) if clock >= t)
            v = equal.v if k == "k1" else chance.randrange(6)
            late.append(Event(source, batch, -1 - number, k, v, t, late=True))
    return late


def _clocks(live: Sequence[Event]) -> list[int]:
    """Return, for each batch, the newest time of everything up to its end."""
    return [
        int(max(one.t for one in live if one.batch <= batch)) for batch in range(BEFORE + AFTER)
    ]
