"""Does a query catch up: the arithmetic of `estimate`, against a simulation of its queue."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.operations.inspect import catch_up, throughput
from savepoints.operations.inspect.catch_up import Forecast, InputRate
from savepoints.operations.inspect.throughput import Throughput
from savepoints.sources.kafka.topics import TopicRetention
from savepoints.store.tables.events import Event
from tests.samples import BEGINNING

SPEEDS = st.floats(0, 1e6) | st.just(0.0)
DELETE = TopicRetention(frozenset({"delete"}), 1_000_000, None, "CreateTime")
FOREVER = dataclasses.replace(DELETE, retention_ms=None)


def speed(lowest: float, highest: float, *, at_least: bool = False) -> Throughput:
    return Throughput(2, lowest, highest, at_least, "")


def rate(lowest: float, highest: float) -> InputRate:
    return InputRate(lowest, highest, "")


@given(st.integers(0, 2**62), SPEEDS, SPEEDS, SPEEDS, SPEEDS, st.booleans())
def test_any_figures_have_an_answer(
    backlog: int, slow: float, fast: float, calm: float, busy: float, at_least: bool
) -> None:
    reading = speed(*sorted((slow, fast)), at_least=at_least)
    arriving = rate(*sorted((calm, busy)))

    found = catch_up.forecast(backlog, reading, arriving, "q")

    worst = reading.lowest_records_per_second - arriving.highest_records_per_second
    best = reading.highest_records_per_second - arriving.lowest_records_per_second
    if backlog == 0:
        assert (found.catches_up, found.longest_seconds) == ("now", 0)
        return
    assert (found.longest_seconds is not None) == (worst > 0)
    assert (found.shortest_seconds is not None) == (best > 0)
    if worst > 0:
        assert found.catches_up == "yes"
    elif at_least:
        assert found.catches_up == "unknown"
    else:
        assert found.catches_up == ("maybe" if best > 0 else "never")


@given(st.integers(1, 2_000), st.integers(1, 50), st.integers(0, 50))
def test_the_time_is_that_of_a_queue_that_is_filled_and_emptied(
    backlog: int, reads: int, arrives: int
) -> None:
    found = catch_up.forecast(backlog, speed(reads, reads), rate(arrives, arrives), "q")

    left, ticks = backlog, 0
    while left > 0 and ticks <= 2_000:
        left, ticks = left + arrives - reads, ticks + 1

    if left > 0:
        assert found.catches_up == "never"
        assert found.longest_seconds is None
    else:
        assert found.longest_seconds is not None
        assert ticks - 1 < found.longest_seconds <= ticks


def test_what_was_not_measured_is_unknown_with_the_way_out() -> None:
    unmeasured = catch_up.forecast(5, None, rate(1, 1), "orders")
    young = catch_up.forecast(5, speed(9, 9), None, "orders")
    stopped = catch_up.forecast(5, speed(1, 1, at_least=True), rate(2, 2), "orders")

    assert unmeasured.reason.startswith("nothing measured yet")
    assert {one.catches_up for one in (unmeasured, young, stopped)} == {"unknown"}
    for one in (unmeasured, stopped):
        assert "savepoints run orders --until latest" in one.reason


@pytest.mark.parametrize(
    ("found", "policies", "is_over", "expected"),
    [
        (Forecast("yes", "", 1, 999), [DELETE], False, False),
        (Forecast("yes", "", 1, 1001), [DELETE], False, True),
        (Forecast("yes", "", 1, 1001), [FOREVER, DELETE], False, True),
        (Forecast("yes", "", 1, 1001), [FOREVER], False, False),
        (Forecast("never", ""), [FOREVER], False, False),
        (Forecast("never", ""), [DELETE], False, True),
        (Forecast("never", ""), [dataclasses.replace(FOREVER, retention_bytes=9)], False, True),
        (Forecast("never", ""), [dataclasses.replace(DELETE, cleanup=frozenset({"compact"}))],
         False, False),
        (Forecast("maybe", "", 1), [DELETE], False, True),
        (Forecast("unknown", ""), [DELETE], False, None),
        (Forecast("unknown", ""), [DELETE], True, True),
        (Forecast("yes", "", 1, 2), [None], False, None),
        (Forecast("yes", "", 1, 2), [DELETE], True, True),
        (Forecast("now", "", 0, 0), [DELETE], True, False),
    ],
)  # fmt: skip
def test_retention_ends_first(
    found: Forecast, policies: list[TopicRetention | None], is_over: bool, expected: bool | None
) -> None:
    assert catch_up.retention_ends_first(found, policies, is_over=is_over) is expected


def run(number: int, rows: int | None, seconds: float, message: str, **more: str) -> Event:
    """Describe the event of a run."""
    event = Event(f"op-{number}", BEGINNING - timedelta(hours=number), "run", "me", "done", "q")
    return dataclasses.replace(event, rows=rows, seconds=seconds, message=message, **more)  # type: ignore[arg-type]


def test_throughput_is_that_of_runs_that_read_to_their_end() -> None:
    found = throughput.measured(
        [
            run(1, 1000, 10, "caught_up after 3 batches, 1000 rows"),
            run(2, 900, 3, "max_records after 1 batches, 900 rows"),
            # Waited for input most of its time.
            run(3, 5000, 90_000, "drained after 700 batches, 5000 rows"),
            # Was over before it had begun.
            run(4, 7, 2, "caught_up after 1 batches, 7 rows"),
            run(5, 1000, 1, "caught_up after 3 batches, 1000 rows", query="another"),
            run(6, 1000, 1, "caught_up after 3 batches, 1000 rows", verb="drill"),
            run(7, None, 3, "it failed"),
            run(8, 0, 3, "caught_up after 0 batches, 0 rows"),
            run(9, 5, 0, "caught_up after 1 batches, 5 rows"),
        ],
        "q",
    )

    assert found is not None
    assert (found.runs, found.lowest_records_per_second, found.highest_records_per_second) == (
        2,
        100,
        300,
    )
    assert not found.at_least
    assert found.basis == (
        "past runs that read to the end: 2, of 900 to 1000 records; 1 much smaller ones excluded"
    )


def test_stopped_runs_say_how_fast_a_query_is_at_least() -> None:
    found = throughput.measured([run(1, 500, 100, "drained after 9 batches, 500 rows")], "q")

    assert found is not None
    assert (found.lowest_records_per_second, found.at_least) == (5, True)
    assert "may have waited for input" in found.basis


def test_without_a_run_that_read_anything_nothing_is_measured() -> None:
    assert throughput.measured([], "q") is None
    assert throughput.measured([run(1, 0, 3, "caught_up after 0 batches, 0 rows")], "q") is None
