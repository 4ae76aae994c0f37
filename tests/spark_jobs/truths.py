"""What the applications over JSON events must come to, by pandas over all events at once.

Nothing of the applications is used: lengths and gaps are written out, and where they follow one
event after the other, this compares each event with the one before it.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

HALF_HOUR, TWELVE_HOURS = pd.Timedelta(minutes=30), pd.Timedelta(hours=12)
MINUTE = pd.Timedelta(minutes=1)
Rows = list[tuple[Any, ...]]


def order_sessions(events: pd.DataFrame, watermark: pd.Timestamp) -> Rows:
    """Return the sessions that are over.

    Args:
        events: event_id, client_id, kind, page, amount_cents, at; in any order.
        watermark: Sessions that ended before it are over.

    Returns:
        client_id, began_at, ended_at, landing_page, views, orders, revenue_cents, order_ids.
    """
    events = events.drop_duplicates("event_id").sort_values(["client_id", "at", "event_id"])
    gap = events.groupby("client_id")["at"].diff()
    found = []
    for _, session in events.groupby((gap.isna() | (gap >= HALF_HOUR)).cumsum()):
        views, orders = session[session["kind"] == "view"], session[session["kind"] == "order"]
        end = session["at"].max() + HALF_HOUR
        if end < watermark:
            found.append(
                (
                    session["client_id"].iloc[0],
                    session["at"].min(),
                    end,
                    views["page"].iloc[0] if len(views) else None,
                    len(views),
                    len(orders),
                    int(orders["amount_cents"].sum()),
                    list(orders["event_id"]),
                )
            )
    return sorted(found, key=str)


def login_sessions(events: pd.DataFrame, watermark: pd.Timestamp) -> Rows:
    """Return the logins that have ended, and what users did without one.

    Args:
        events: event_id, user_id, kind, at; in any order.
        watermark: What happened before it is known.

    Returns:
        user_id, began_at, ended_at, actions, ended_by.
    """
    events = events.drop_duplicates("event_id").sort_values(["user_id", "at", "event_id"])
    of_user = events.groupby("user_id")
    before = of_user["kind"].shift()
    gap = of_user["at"].diff()
    begins = before.isna() | (events["kind"] == "login") | (before == "logout")
    begins |= gap >= TWELVE_HOURS
    following = events.assign(next_at=of_user["at"].shift(-1))
    found: Rows = []
    for _, part in following.groupby(begins.cumsum()):
        user = part["user_id"].iloc[0]
        last = part.iloc[-1]
        if part["kind"].iloc[0] != "login":
            found += [
                (user, None, at, int(kind == "action"), "no_login")
                for kind, at in zip(part["kind"], part["at"], strict=True)
                if at < watermark
            ]
            continue
        silent = last["at"] + TWELVE_HOURS
        if last["kind"] == "logout":
            end, by = last["at"], "logout"
        elif last["next_at"] < silent:
            end, by = last["next_at"], "login"
        else:
            end, by = silent, "silence"
        if end < watermark:
            actions = int((part["kind"] == "action").sum())
            found.append((user, part["at"].iloc[0], end, actions, by))
    return sorted(found, key=str)


def sort_window(events: pd.DataFrame, watermark: pd.Timestamp) -> Rows:
    """Return the readings of the windows that are over.

    Args:
        events: event_id, device_id, reading, at; in any order.
        watermark: Windows that ended before it are over.

    Returns:
        device_id, window_at, place, number, at, event_id, reading.
    """
    events = events.drop_duplicates("event_id").sort_values(["device_id", "at", "event_id"])
    window = events["at"].dt.floor("min")
    numbered = events.assign(
        window_at=window,
        place=events.groupby(["device_id", window]).cumcount() + 1,
        number=events.groupby("device_id").cumcount() + 1,
    )
    over = numbered[numbered["window_at"] + MINUTE < watermark]
    columns = ["device_id", "window_at", "place", "number", "at", "event_id", "reading"]
    return sorted(over[columns].itertuples(index=False, name=None), key=str)


def accounts(events: pd.DataFrame, watermark: pd.Timestamp) -> Rows:
    """Return what came of the commands that are decided, with a ledger of all that were accepted.

    Args:
        events: event_id, account_id, expected_version, amount_cents, at; in any order.
        watermark: Commands that were sent before it are decided.

    Returns:
        account_id, event_id, at, expected_version, amount_cents, version, balance_cents, rejected.
    """
    events = events.drop_duplicates("event_id").sort_values(["at", "event_id"])
    ledgers: dict[str, list[int]] = {}
    found: Rows = []
    for one in events[events["at"] < watermark].itertuples():
        ledger = ledgers.setdefault(str(one.account_id), [])
        amount = int(one.amount_cents)
        if one.expected_version != len(ledger):
            rejected = "conflict"
        elif sum(ledger, amount) < 0:
            rejected = "overdrawn"
        else:
            rejected = None
            ledger.append(amount)
        after = (len(ledger), sum(ledger), rejected)
        found.append((one.account_id, one.event_id, one.at, one.expected_version, amount, *after))
    return sorted(found, key=str)
