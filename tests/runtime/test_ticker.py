"""The thread that takes periodic savepoints, with real time in milliseconds."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat

import pytest

from savepoints.config.schedule import merge_schedule, parse_schedule
from savepoints.runtime import ticker
from savepoints.runtime.ticker import Clock, Ticker

SHORT = parse_schedule("20ms")
# Long enough for any machine; nothing waits so long when all is well.
PATIENCE = 30


def test_it_is_called_again_and_again_until_the_end() -> None:
    called, enough = [], threading.Event()

    def call() -> None:
        called.append(threading.current_thread().name)
        if len(called) >= 3:
            enough.set()

    with Ticker(SHORT, call, "savepoints of clicks"):
        assert enough.wait(PATIENCE)
    after = len(called)

    assert set(called) == {"savepoints of clicks"}
    assert after == len(called)


def test_calls_never_overlap_and_missed_ones_do_not_pile_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One call takes ten intervals; after it one follows, not nine at once."""
    slow, running, most = threading.Event(), [0], [0]
    begun: list[int] = []

    def call() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        begun.append(len(begun))
        threading.Event().wait(0.2)  # Ten intervals.
        running[0] -= 1
        if len(begun) == 2:
            slow.set()

    with caplog.at_level(logging.WARNING), Ticker(SHORT, call, "nightly"):
        assert slow.wait(PATIENCE)

    assert most == [1]
    missed = [record.args[1] for record in caplog.records if "skipped" in record.message]  # type: ignore[index]
    assert missed
    assert all(isinstance(one, int) and one >= 5 for one in missed)


def test_a_call_that_fails_is_logged_and_the_next_one_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    called, again = [], threading.Event()

    def call() -> None:
        called.append(1)
        if len(called) == 2:
            again.set()
        raise RuntimeError("the bucket is gone")

    with Ticker(SHORT, call, "failing"):
        assert again.wait(PATIENCE)

    assert "the bucket is gone" in caplog.text


def test_leaving_waits_for_a_call_that_is_under_way() -> None:
    begun, finished = threading.Event(), []

    def call() -> None:
        begun.set()
        threading.Event().wait(0.1)
        finished.append(1)

    with Ticker(SHORT, call, "waited for"):
        assert begun.wait(PATIENCE)

    assert finished


def test_what_is_not_due_yet_is_not_called() -> None:
    called: list[int] = []

    with Ticker(parse_schedule("1h"), lambda: called.append(1), "patient"):
        pass

    assert called == []


def test_trap_a_clock_set_back_does_not_stop_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour back was an hour without a savepoint."""
    hour = timedelta(hours=1)
    times = chain([datetime.now(UTC)], repeat(datetime.now(UTC) - hour))
    monkeypatch.setattr(ticker, "utc_now", lambda: next(times))
    called, enough = [], threading.Event()

    def call() -> None:
        called.append(1)
        if len(called) == 3:
            enough.set()

    with Ticker(SHORT, call, "steady"):
        assert enough.wait(5)


class Leaping(Clock):
    """A clock that does not wait: it leaps to when the wait would be over."""

    def __init__(self, begin: datetime) -> None:
        self.time = begin

    def now(self) -> datetime:
        return self.time

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.time += timedelta(seconds=seconds)
        return event.is_set()


def test_by_a_clock_of_its_own_it_is_called_at_midnight_of_each_day() -> None:
    daily = merge_schedule("daily")
    assert daily is not None
    clock = Leaping(datetime(2026, 11, 20, 23, 30, tzinfo=UTC))
    called: list[datetime] = []
    tickers: list[Ticker] = []

    def call() -> None:
        called.append(clock.time)
        clock.time += timedelta(hours=30 if len(called) == 2 else 1)  # One takes more than a day.
        if len(called) == 4:
            tickers[0].end()

    tickers.append(Ticker(daily, call, "merge", clock))
    tickers[0].start()
    tickers[0]._thread.join(PATIENCE)

    assert [one.isoformat() for one in called] == [
        f"2026-11-{day}T00:00:00+00:00" for day in (21, 22, 24, 25)
    ]


@pytest.mark.parametrize(
    ("minutes_ago", "due_in"),
    [(None, 60), (50, 10), (60, 0), (60 * 24 * 30, 0), (-90, 60)],
    ids=["never", "a while ago", "just due", "a month ago", "by a clock that is ahead"],
)
def test_trap_a_driver_that_never_lives_for_an_interval_would_save_nothing(
    minutes_ago: int | None, due_in: int
) -> None:
    """An interval counts from when it was last done; from then on it is one after another."""
    begin = datetime(2026, 11, 20, 23, 30, tzinfo=UTC)
    since = None if minutes_ago is None else begin - timedelta(minutes=minutes_ago)
    called: list[timedelta] = []
    tickers: list[Ticker] = []
    clock = Leaping(begin)

    def call() -> None:
        called.append(clock.time - begin)
        if len(called) == 2:
            tickers[0].end()

    tickers.append(Ticker(parse_schedule("1h"), call, "restarted", clock, lambda: since))
    tickers[0].start()
    tickers[0]._thread.join(PATIENCE)

    assert called == [timedelta(minutes=due_in), timedelta(minutes=due_in + 60)]
