"""Events for the applications over JSON, and the order in which they arrive."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pandas as pd

BEGINNING = datetime(2026, 11, 20, 10, tzinfo=UTC)


def _frame(events: list[dict[str, object]]) -> pd.DataFrame:
    frame = pd.DataFrame(events)
    return frame.assign(at=pd.to_datetime(frame["at_ms"], unit="ms", utc=True))


def _at_ms(chance: random.Random, within: timedelta) -> int:
    """Draw a time, often one that others have too."""
    seconds = chance.randrange(int(within.total_seconds()))
    fraction = chance.choice([0, 0, 1, 999])
    return round(BEGINNING.timestamp() * 1000) + seconds * 1000 + fraction


def activity(seed: int, size: int) -> pd.DataFrame:
    """Views, orders and others of five clients in eight hours, some exactly a gap apart."""
    chance = random.Random(seed)
    events: list[dict[str, object]] = []
    for number in range(size):
        at_ms = _at_ms(chance, timedelta(hours=8))
        event: dict[str, object] = {
            "event_id": f"e-{number:04d}",
            "client_id": f"client-{chance.randrange(5)}",
            "at_ms": at_ms,
            "kind": chance.choice(["order", "view", "view", "scroll"]),
            "page": None,
            "amount_cents": None,
        }
        if event["kind"] == "order":
            # More than a floating-point number holds exactly.
            event["amount_cents"] = 2**53 + chance.randrange(10_000)
        else:
            event["page"] = f"/{chance.randrange(9)}"
        events.append(event)
        if chance.random() < 0.1:
            exactly = at_ms + 30 * 60_000 - chance.randrange(2)
            events.append({**event, "event_id": f"e-{number:04d}-next", "at_ms": exactly})
    frame = _frame(events)
    return frame.assign(amount_cents=frame["amount_cents"].astype("Int64"))


def logins(seed: int, size: int) -> pd.DataFrame:
    """Logins, actions and logouts of five users in five days, in no order that makes sense."""
    chance = random.Random(seed)
    kinds = ["login", "login", "action", "action", "action", "logout"]
    return _frame(
        [
            {
                "event_id": f"e-{number:04d}",
                "user_id": f"user-{chance.randrange(5)}",
                "at_ms": _at_ms(chance, timedelta(days=5)),
                "kind": chance.choice(kinds),
            }
            for number in range(size)
        ]
    )


def readings(seed: int, size: int) -> pd.DataFrame:
    """Readings of three devices in ten minutes."""
    chance = random.Random(seed)
    return _frame(
        [
            {
                "event_id": f"e-{number:04d}",
                "device_id": f"device-{chance.randrange(3)}",
                "at_ms": _at_ms(chance, timedelta(minutes=10)),
                "reading": chance.randrange(100),
            }
            for number in range(size)
        ]
    )


def commands(seed: int, size: int) -> pd.DataFrame:
    """Commands for three accounts in ten minutes, by writers of which some read old versions."""
    chance = random.Random(seed)
    sent = sorted(
        (_at_ms(chance, timedelta(minutes=10)), f"e-{number:04d}") for number in range(size)
    )
    versions, cents = [0, 0, 0], [0, 0, 0]
    found: list[dict[str, object]] = []
    for at_ms, event_id in sent:
        account, amount = chance.randrange(3), chance.randrange(-400, 400)
        expected = max(0, versions[account] - chance.choice([0, 0, 0, 0, 1, 2, -1]))
        found.append(
            {
                "event_id": event_id,
                "account_id": f"account-{account}",
                "at_ms": at_ms,
                "expected_version": expected,
                "amount_cents": amount,
            }
        )
        if expected == versions[account] and cents[account] + amount >= 0:
            versions[account] += 1
            cents[account] += amount
    chance.shuffle(found)
    return _frame(found)


def arriving(events: pd.DataFrame, lateness: timedelta, seed: int) -> pd.DataFrame:
    """Return events in an order in which none is later than that."""
    chance = random.Random(seed)
    most_ms = int(lateness.total_seconds() * 1000)
    delayed = [at + chance.randrange(most_ms) for at in events["at_ms"]]
    return (
        events.assign(arrives=delayed).sort_values(["arrives", "event_id"]).drop(columns="arrives")
    )


SAMPLES: dict[str, Callable[[int, int], pd.DataFrame]] = {
    "order_sessions": activity,
    "login_sessions": logins,
    "sort_window": readings,
    "accounts": commands,
}
