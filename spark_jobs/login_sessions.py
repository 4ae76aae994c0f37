"""One row for each login of a user, from events that come out of order.

A user logs in, does things, logs out. The events wait until the watermark has passed them, which is
the grace period in which the ones before them may still come, and are then taken in the order in
which they happened. So a row depends on what happened and not on what came first.

A login ends by a logout, by the next login, or `SILENCE_MS` after its last event. What a user does
without being logged in is a row of its own: no event is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd
from pyspark.sql import functions as F

from savepoints.runtime.app import App, Input, Output
from spark_jobs import json_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

FIELDS = "event_id string, user_id string, kind string"
LOGIN, ACTION, LOGOUT = "login", "action", "logout"
SILENCE_MS = 12 * 3_600_000
GRACE = "15 minutes"

_ROW = "user_id string, began_ms long, ended_ms long, actions long, ended_by string"


class Event(NamedTuple):
    """What a user did; events are ordered by their time, then by their id.

    Attributes:
        at_ms: When, in milliseconds since 1970.
        event_id: Unique.
        kind: `login`, `logout` or `action`.
    """

    at_ms: int
    event_id: str
    kind: str


class Login(NamedTuple):
    """A login that has not ended.

    Attributes:
        began_ms: When, in milliseconds since 1970.
        last_ms: When the user last did something.
        actions: How much they did.
    """

    began_ms: int
    last_ms: int
    actions: int

    @property
    def expires_ms(self) -> int:
        """When it ends if nothing happens."""
        return self.last_ms + SILENCE_MS


class Row(NamedTuple):
    """What is written, with times in milliseconds since 1970.

    Attributes:
        began_ms: When the user logged in, None when they had not.
        ended_ms: When it ended.
        actions: How much they did.
        ended_by: `logout`, `login` (the next one), `silence`; or `no_login`.
    """

    began_ms: int | None
    ended_ms: int
    actions: int
    ended_by: str


def follow(login: Login | None, events: Sequence[Event]) -> tuple[Login | None, list[Row]]:
    """Follow a user through events in their order.

    Args:
        login: The login that they find.
        events: By time and id.

    Returns:
        The login that they leave, and the rows that came of it.
    """
    rows: list[Row] = []
    for event in events:
        if login and login.expires_ms <= event.at_ms:
            rows.append(Row(login.began_ms, login.expires_ms, login.actions, "silence"))
            login = None
        if event.kind == LOGIN:
            if login:
                rows.append(Row(login.began_ms, event.at_ms, login.actions, "login"))
            login = Login(event.at_ms, event.at_ms, 0)
        elif not login:
            rows.append(Row(None, event.at_ms, int(event.kind == ACTION), "no_login"))
        elif event.kind == LOGOUT:
            rows.append(Row(login.began_ms, event.at_ms, login.actions, "logout"))
            login = None
        else:
            login = Login(login.began_ms, event.at_ms, login.actions + 1)
    return login, rows


def settle(
    login: Login | None, events: Iterable[Event], watermark_ms: int
) -> tuple[Login | None, list[Event], list[Row], int | None]:
    """Follow a user up to the watermark.

    Args:
        login: The login as it was.
        events: Those not yet taken, in any order.
        watermark_ms: Nothing that happened before it will come any more.

    Returns:
        The login that has not ended, the events that have to wait, the rows, and the time after
        which there may be more (None for never), in milliseconds since 1970.
    """
    once = {event.event_id: event for event in sorted(events, reverse=True)}
    ordered = sorted(once.values())
    due = [event for event in ordered if event.at_ms < watermark_ms]
    login, rows = follow(login, due)
    if login and login.expires_ms < watermark_ms:
        rows.append(Row(login.began_ms, login.expires_ms, login.actions, "silence"))
        login = None
    waiting = ordered[len(due) :]
    wake = [*([login.expires_ms] if login else []), *(event.at_ms for event in waiting[:1])]
    return login, waiting, rows, min(wake, default=None)


def decode(records: DataFrame) -> DataFrame:
    """Read the events in Kafka records; see `json_records.decode`."""
    return json_records.decode(records, FIELDS)


def encode(events: DataFrame) -> DataFrame:
    """Write events as Kafka records; see `json_records.encode`."""
    return json_records.encode(events, FIELDS, key="user_id")


def _advance(
    key: tuple[str], chunks: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    found, waiting = map(json.loads, state.get) if state.exists else (None, [])
    names = list(Event._fields)
    # Arrow may have cut the events of a user anywhere.
    new = [row for one in chunks for row in one[names].itertuples(index=False, name=None)]
    login, events, rows, wake_ms = settle(
        Login(*found) if found else None,
        [Event(*event) for event in [*waiting, *new]],
        state.getCurrentWatermarkMs(),
    )
    if wake_ms is None:
        state.remove()
    else:
        state.update((json.dumps(login), json.dumps(events)))
        state.setTimeoutTimestamp(wake_ms)
    if rows:
        frame = pd.DataFrame(rows, columns=list(Row._fields))
        # Without it one missing time would make numbers with a point of all.
        frame["began_ms"] = frame["began_ms"].astype("Int64")
        frame.insert(0, "user_id", key[0])
        yield frame


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the query.

    Args:
        inputs: `logins`, decoded.

    Returns:
        user_id, began_at (null without a login), ended_at, actions, ended_by (`logout`, `login`,
        `silence`, `no_login`); for append mode.
    """
    timed = inputs["logins"].withWatermark(json_records.AT, GRACE)
    at_ms = F.unix_millis(json_records.AT).alias("at_ms")
    events = timed.select("user_id", json_records.AT, at_ms, "event_id", "kind")
    found = events.groupBy("user_id").applyInPandasWithState(
        _advance,
        _ROW,
        # As text: workers of Spark 4.2.0 cannot read that a column of state is an array.
        "login string, waiting string",
        "append",
        "EventTimeTimeout",
    )
    return found.select(
        "user_id",
        F.timestamp_millis("began_ms").alias("began_at"),
        F.timestamp_millis("ended_ms").alias("ended_at"),
        "actions",
        "ended_by",
    )


app = App(
    name="login_sessions",
    inputs={
        "logins": Input(
            topic="logins",
            decode=decode,
            entity_key="user_id",
            event_time=json_records.AT,
            event_id=("event_id",),
            encode=encode,
        )
    },
    build=build,
    outputs={"logins": Output(mode="append")},
)
