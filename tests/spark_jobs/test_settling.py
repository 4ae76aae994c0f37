"""What the applications over JSON events do with a key, without Spark.

Events arrive in any order within the lateness, cut into any batches, and the watermark moves as
Spark's does. Rows are compared with pandas over all events, and what is kept with what is kept by
one that is given all of them at once: a replay cuts batches elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs import accounts, login_sessions, order_sessions, sort_window
from tests.spark_jobs import samples, truths

pytestmark = pytest.mark.drawn(4)

# Of a key: what it keeps, the rows that it gives, and when it wants to be called again.
Step = tuple[Any, list[tuple[Any, ...]], int | None]


@dataclass(frozen=True)
class Case:
    """One application.

    Attributes:
        key: Column of the key.
        lateness: How late an event may be.
        step: From key, what is kept, new events (as dictionaries), and watermark.
        truth: What comes of all events.
    """

    key: str
    lateness: timedelta
    step: Callable[[str, Any, list[dict[str, Any]], int], Step]
    truth: Callable[[pd.DataFrame, pd.Timestamp], truths.Rows]


def _time(ms: int | None) -> pd.Timestamp | None:
    return None if ms is None or pd.isna(ms) else pd.Timestamp(ms, unit="ms", tz="UTC")


def _session(key: str, kept: Any, new: list[dict[str, Any]], watermark_ms: int) -> Step:
    events = [
        order_sessions.Event(
            one["at_ms"],
            one["event_id"],
            one["kind"],
            one["page"],
            0 if pd.isna(one["amount_cents"]) else one["amount_cents"],
        )
        for one in new
    ]
    over, pending, wake_ms = order_sessions.settle([*(kept or []), *events], watermark_ms)
    frame = order_sessions.rows(key, over)
    rows = [
        (row[0], _time(row[1]), _time(row[2]), *row[3:])
        for row in frame.itertuples(index=False, name=None)
    ]
    return pending or None, rows, wake_ms


def _login(key: str, kept: Any, new: list[dict[str, Any]], watermark_ms: int) -> Step:
    login, waiting = kept or (None, [])
    events = [login_sessions.Event(one["at_ms"], one["event_id"], one["kind"]) for one in new]
    login, pending, rows, wake_ms = login_sessions.settle(login, [*waiting, *events], watermark_ms)
    written = [(key, _time(row[0]), _time(row[1]), *row[2:]) for row in rows]
    return (login, pending) if login or pending else None, written, wake_ms


def _reading(key: str, kept: Any, new: list[dict[str, Any]], watermark_ms: int) -> Step:
    written, waiting = kept or (0, [])
    events = [sort_window.Reading(one["at_ms"], one["event_id"], one["reading"]) for one in new]
    rows, pending, wake_ms = sort_window.settle(written, [*waiting, *events], watermark_ms)
    found = [(key, _time(row[0]), row[1], row[2], _time(row[3]), *row[4:]) for row in rows]
    return (written + len(rows), pending), found, wake_ms


def _command(key: str, kept: Any, new: list[dict[str, Any]], watermark_ms: int) -> Step:
    account, waiting = kept or (accounts.Account(), [])
    names = accounts.Command._fields
    commands = [accounts.Command(*(one[name] for name in names)) for one in new]
    account, pending, decisions, wake_ms = accounts.settle(
        account, [*waiting, *commands], watermark_ms
    )
    frame = accounts.frame(key, decisions)
    rows = [
        (row.account_id, row.event_id, _time(row.at_ms), *row[4:]) for row in frame.itertuples()
    ]
    return (account, pending), rows, wake_ms


CASES = {
    "order_sessions": Case("client_id", timedelta(minutes=10), _session, truths.order_sessions),
    "login_sessions": Case("user_id", timedelta(minutes=15), _login, truths.login_sessions),
    "sort_window": Case("device_id", timedelta(seconds=30), _reading, truths.sort_window),
    "accounts": Case("account_id", timedelta(seconds=30), _command, truths.accounts),
}


def replay(
    case: Case, arrived: pd.DataFrame, cuts: Iterable[int]
) -> tuple[dict[str, Any], list[tuple[Any, ...]], int]:
    """Give an application its events in batches, as Spark would.

    Returns:
        What each key keeps, all rows, and the last watermark.
    """
    kept: dict[str, Any] = {}
    wake: dict[str, int | None] = {}
    rows: list[tuple[Any, ...]] = []
    watermark_ms = late_ms = newest_ms = 0
    lateness_ms = int(case.lateness.total_seconds() * 1000)
    ends = [*sorted(cuts), len(arrived), len(arrived)]  # The last one has no events.
    for begin, end in zip([0, *ends], ends, strict=False):
        batch = arrived.iloc[begin:end]
        taken = batch[batch["at_ms"] > late_ms]
        new = {key: part.to_dict("records") for key, part in taken.groupby(case.key)}
        due = [key for key, ms in wake.items() if ms and ms < watermark_ms and key not in new]
        for key in [*new, *due]:
            kept[key], written, wake_ms = case.step(
                key, kept.get(key), new.get(key, []), watermark_ms
            )
            assert wake_ms is None or wake_ms >= watermark_ms, "Spark refuses such a timeout"
            wake[key] = wake_ms
            rows += written
        late_ms = watermark_ms
        newest_ms = max(newest_ms, int(batch["at_ms"].max()) if len(batch) else 0)
        watermark_ms = max(watermark_ms, newest_ms - lateness_ms)
    return {key: one for key, one in kept.items() if one}, sorted(rows, key=str), late_ms


@pytest.mark.parametrize("name", CASES)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 60), max_size=8))
def test_rows_are_those_of_pandas_whatever_the_order_and_the_batches(
    name: str, seed: int, cuts: list[int]
) -> None:
    case = CASES[name]
    events = samples.SAMPLES[name](seed, 60)
    arrived = samples.arriving(events, case.lateness, seed)

    kept, rows, watermark_ms = replay(case, arrived, cuts)

    until = pd.Timestamp(watermark_ms, unit="ms", tz="UTC")
    assert rows == case.truth(events, until)
    in_order = events.sort_values(["at_ms", "event_id"])
    assert kept == replay(case, in_order, [])[0]


@pytest.mark.parametrize("name", CASES)
def test_most_of_the_samples_are_written_and_some_wait(name: str) -> None:
    case = CASES[name]
    events = samples.SAMPLES[name](1, 60)
    kept, rows, _ = replay(case, samples.arriving(events, case.lateness, 1), [20, 40])
    assert kept
    assert len(rows) > 5


@pytest.mark.parametrize("name", CASES)
def test_an_event_that_comes_twice_counts_once(name: str) -> None:
    case = CASES[name]
    events = samples.SAMPLES[name](2, 60)
    arrived = samples.arriving(events, case.lateness, 2)
    twice = arrived.loc[arrived.index.repeat(2)]

    assert replay(case, twice, [31, 77])[:2] == replay(case, arrived, [31, 77])[:2]


@pytest.mark.parametrize("name", CASES)
def test_trap_what_is_later_than_the_lateness_is_lost(name: str) -> None:
    """The reason why there is a `merge`: the rows are not those of all events any more."""
    case = CASES[name]
    events = samples.SAMPLES[name](3, 60)
    late = events.sort_values("at_ms").head(5)
    arrived = pd.concat([samples.arriving(events.drop(late.index), case.lateness, 3), late])

    _, rows, watermark_ms = replay(case, arrived, [30, 55])

    until = pd.Timestamp(watermark_ms, unit="ms", tz="UTC")
    assert rows == case.truth(events.drop(late.index), until)
    assert rows != case.truth(events, until)
