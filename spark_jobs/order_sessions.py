"""Sessions of a shop's clients: what they looked at, and the orders that fall into each session.

Page views and orders come in one topic, told apart by `kind`. They are one stream of a client's
activity: an order, too, goes on with a session or begins one. With one topic there is one order of
arrival and one watermark; with two, the slower one would hold back every session, and a broken feed
of orders for ever.

A session ends `GAP_MS` after its last event, and gives its row once the watermark has passed that
end. Until then its events are kept, so that rows and state depend on which events there are and on
the watermark, but not on the order in which they came nor on the batches. An event that comes again
while its session is open counts once; later it is as late as any other, and Spark drops it.

`app` keeps the events by `applyInPandasWithState`, `app_transform` by `transformWithStateInPandas`
in variables of its own, with timers. Both give the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from savepoints.runtime.app import App, Input, Output
from spark_jobs import json_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        ListState,
        MapState,
        StatefulProcessorHandle,
        TimerValues,
        ValueState,
    )

FIELDS = "event_id string, client_id string, kind string, page string, amount_cents long"
VIEW, ORDER = "view", "order"
GAP_MS = 30 * 60_000
LATENESS = "10 minutes"

_ROW = (
    "client_id string, began_ms long, ended_ms long, landing_page string, views long, "
    "orders long, revenue_cents long, order_ids array<string>"
)


class Event(NamedTuple):
    """A page view or an order; events are ordered by their time, then by their id.

    Attributes:
        at_ms: When, in milliseconds since 1970.
        event_id: Unique.
        kind: `view` or `order`; anything else keeps a session open and no more.
        page: What was viewed, None for an order.
        amount_cents: Value of the order, 0 for a page view.
    """

    at_ms: int
    event_id: str
    kind: str
    page: str | None
    amount_cents: int


def settle(
    events: Iterable[Event], watermark_ms: int
) -> tuple[list[list[Event]], list[Event], int | None]:
    """Part a client's events into sessions, and those that are over from those that are not.

    Args:
        events: In any order.
        watermark_ms: Nothing that happened before it will come any more.

    Returns:
        The sessions that are over, the events of the others, and the end of the first of these
        (None when there is none), in milliseconds since 1970.
    """
    once = {event.event_id: event for event in sorted(events, key=_place, reverse=True)}
    sessions = _parted(sorted(once.values(), key=_place))
    over = [one for one in sessions if _end(one) < watermark_ms]
    opened = sessions[len(over) :]
    pending = [event for one in opened for event in one]
    return over, pending, _end(opened[0]) if opened else None


def _place(event: Event) -> tuple[int, str, str, str, int]:
    """Return what events are ordered by; pages may be missing, and None has no order."""
    return event.at_ms, event.event_id, event.kind, event.page or "", event.amount_cents


def _parted(events: Sequence[Event]) -> list[list[Event]]:
    sessions = [[event] for event in events[:1]]
    for before, event in pairwise(events):
        if event.at_ms >= before.at_ms + GAP_MS:
            sessions.append([])
        sessions[-1].append(event)
    return sessions


def _end(session: Sequence[Event]) -> int:
    return session[-1].at_ms + GAP_MS


def rows(client_id: str, sessions: Iterable[Sequence[Event]]) -> pd.DataFrame:
    """Return what is written of sessions: the columns of `build`, with times in milliseconds."""
    found = []
    for session in sessions:
        views = [event for event in session if event.kind == VIEW]
        orders = [event for event in session if event.kind == ORDER]
        found.append(
            (
                client_id,
                session[0].at_ms,
                _end(session),
                views[0].page if views else None,
                len(views),
                len(orders),
                sum(order.amount_cents for order in orders),
                [order.event_id for order in orders],
            )
        )
    return pd.DataFrame(found, columns=[column.split()[0] for column in _ROW.split(", ")])


def decode(records: DataFrame) -> DataFrame:
    """Read the events in Kafka records; see `json_records.decode`."""
    return json_records.decode(records, FIELDS)


def encode(events: DataFrame) -> DataFrame:
    """Write events as Kafka records; see `json_records.encode`."""
    return json_records.encode(events, FIELDS, key="client_id")


def _events(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Take the events with a watermark, without what pandas would make numbers with a point of."""
    timed = inputs["activity"].withWatermark(json_records.AT, LATENESS)
    return timed.select(
        "client_id",
        json_records.AT,
        F.unix_millis(json_records.AT).alias("at_ms"),
        "event_id",
        "kind",
        "page",
        F.coalesce("amount_cents", F.lit(0)).alias("amount_cents"),
    )


def _read(chunks: Iterable[pd.DataFrame]) -> list[Event]:
    """Read the events of a client, which Arrow may have cut anywhere."""
    names = list(Event._fields)
    return [
        Event(*event)
        for chunk in chunks
        for event in chunk[names].itertuples(index=False, name=None)
    ]


def _finished(found: DataFrame) -> DataFrame:
    return found.select(
        "client_id",
        F.timestamp_millis("began_ms").alias("began_at"),
        F.timestamp_millis("ended_ms").alias("ended_at"),
        "landing_page",
        "views",
        "orders",
        "revenue_cents",
        "order_ids",
    )


def _advance(
    key: tuple[str], chunks: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    kept = [Event(*event) for event in json.loads(state.get[0])] if state.exists else []
    over, pending, next_ms = settle([*kept, *_read(chunks)], state.getCurrentWatermarkMs())
    if next_ms is None:
        state.remove()
    else:
        state.update((json.dumps(pending),))
        state.setTimeoutTimestamp(next_ms)
    if over:
        yield rows(key[0], over)


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the query.

    Args:
        inputs: `activity`, decoded.

    Returns:
        client_id, began_at, ended_at (`GAP_MS` after the last event), landing_page (the first
        that was viewed), views, orders, revenue_cents, order_ids (in the order of their time); for
        append mode.
    """
    grouped = _events(inputs).groupBy("client_id")
    return _finished(
        grouped.applyInPandasWithState(
            # As text: workers of Spark 4.2.0 cannot read that a column of state is an array.
            _advance,
            _ROW,
            "events string",
            "append",
            "EventTimeTimeout",
        )
    )


class Sessions(StatefulProcessor):
    """Keeps what is no order in a list, orders in a map by their id, and the time of its timer."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variables."""
        self._handle = handle
        self._views: ListState = handle.getListState(
            "views", "at_ms long, event_id string, kind string, page string"
        )
        self._orders: MapState = handle.getMapState(
            "orders", "event_id string", "at_ms long, amount_cents long"
        )
        self._due: ValueState = handle.getValueState("due", "at_ms long")

    def handleInputRows(  # noqa: N802
        self,
        key: tuple[Any, ...],
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Take events, and write the sessions that are over."""
        yield from self._settle(key, _read(rows), timerValues)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: tuple[Any, ...],
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Write the sessions that are over."""
        self._due.clear()  # Spark removes the timer itself.
        yield from self._settle(key, [], timerValues)

    def _settle(
        self, key: tuple[Any, ...], new: list[Event], clock: TimerValues
    ) -> Iterator[pd.DataFrame]:
        views = [Event(at, one, kind, page, 0) for at, one, kind, page in self._views.get()]
        orders = [
            Event(at, one, ORDER, None, cents) for (one,), (at, cents) in self._orders.iterator()
        ]
        over, pending, next_ms = settle([*views, *orders, *new], clock.getCurrentWatermarkInMs())
        self._keep(pending)
        # A timer fires as soon as the watermark is there; a session is over once it is beyond.
        self._wake_at(None if next_ms is None else next_ms + 1)
        if over:
            yield rows(key[0], over)

    def _keep(self, pending: list[Event]) -> None:
        self._views.clear()
        self._orders.clear()
        views = [one[:4] for one in pending if one.kind != ORDER]
        if views:
            self._views.put(views)
        for order in pending:
            if order.kind == ORDER:
                self._orders.updateValue((order.event_id,), (order.at_ms, order.amount_cents))

    def _wake_at(self, due_ms: int | None) -> None:
        before = self._due.get()
        if before and before[0] == due_ms:
            return
        if before:
            self._handle.deleteTimer(before[0])
            self._due.clear()
        if due_ms is not None:
            self._handle.registerTimer(due_ms)
            self._due.update((due_ms,))

    def close(self) -> None:
        """Nothing is open."""


def build_transform(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the same query with state variables; see `build`."""
    grouped = _events(inputs).groupBy("client_id")
    return _finished(grouped.transformWithStateInPandas(Sessions(), _ROW, "append", "EventTime"))


app = App(
    name="order_sessions",
    inputs={
        "activity": Input(
            topic="activity",
            decode=decode,
            entity_key="client_id",
            event_time=json_records.AT,
            event_id=("event_id",),
            encode=encode,
        )
    },
    build=build,
    outputs={"sessions": Output(mode="append")},
)
app_transform = App(
    name="order_sessions",
    inputs=app.inputs,
    build=build_transform,
    outputs=app.outputs,
)
