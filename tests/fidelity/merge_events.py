"""Events of queries that late events are merged into: what a test writes, and what it replays."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from savepoints.runtime.scratch_query import REPLAY_BATCH

BEGINNING = dt.datetime(2026, 11, 20, 10, tzinfo=dt.UTC)

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
_EVENT: list[pa.Field[Any]] = [
    *_RAW,
    pa.field("entity", pa.string()),
    pa.field("event_time", pa.timestamp("us", tz="UTC")),
    pa.field("event_id", pa.string()),
]
# Kafka's columns; the same with whose event it is, when it happened, which it is, and its slice.
RAW = pa.schema(_RAW)
EVENT = pa.schema([*_EVENT, pa.field(REPLAY_BATCH, pa.int32())])
# As they stand in the archive, or in a late batch.
ARCHIVED = pa.schema([*_EVENT, pa.field("merge_id", pa.string()), pa.field("op", pa.string())])


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
        merge: Number of the late batch that brings it; 0 for what comes in time.
        of: Which event it is, where that is not its place.
        gone: It takes away the event that it is.
    """

    source: int
    batch: int
    offset: int
    k: str
    v: int
    t: float
    merge: int = 0
    of: str = ""
    gone: bool = False

    @property
    def time(self) -> dt.datetime:
        return BEGINNING + dt.timedelta(seconds=self.t)

    @property
    def id(self) -> str:
        return self.of or f"{self.source}-{self.offset}"

    def record(self) -> dict[str, Any]:
        """Return it as Kafka would have it, as `order_sessions` and the other programs read it."""
        order = self.v % 2
        value = {
            "id": self.id,
            "k": self.k,
            "v": self.v,
            "t": self.time.isoformat(),
            "event_id": self.id,
            "client_id": self.k,
            "kind": "order" if order else "view",
            "page": None if order else f"p{self.v}",
            "amount_cents": self.v * 100,
            "at_ms": int(self.time.timestamp() * 1000),
        }
        return {
            "key": self.k.encode(),
            "value": json.dumps(value).encode(),
            "topic": f"in{self.source}",
            "partition": -1 if self.merge else 0,
            "offset": abs(self.offset),
            "timestamp": self.time,
            "timestampType": 0,
            "headers": None,
        }

    def event(self, number: int) -> dict[str, Any]:
        """Return it as a replay reads it, in a slice."""
        return {**self._decoded(), REPLAY_BATCH: number}

    def archived(self, op: str | None = None) -> dict[str, Any]:
        """Return it as it stands in the archive, or in a late batch."""
        op = "remove" if self.gone else op
        return {
            **self._decoded(),
            "merge_id": f"m{self.merge}" if self.merge else None,
            "op": op,
        }

    def _decoded(self) -> dict[str, Any]:
        return {**self.record(), "entity": self.k, "event_time": self.time, "event_id": self.id}
