"""Durations: what is read, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from savepoints.config.duration import duration_text, parse_duration
from savepoints.errors import UsageError

UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}


@given(st.integers(1, 36_500), st.sampled_from(sorted(UNITS)))
def test_a_number_with_a_unit_is_that_much(number: int, unit: str) -> None:
    assert parse_duration(f"{number}{unit}") == number * UNITS[unit]


@given(st.integers(0, 400), st.integers(0, 30), st.integers(0, 90), st.integers(0, 90))
@example(0, 0, 15, 0)
def test_iso_durations_are_read(days: int, hours: int, minutes: int, seconds: int) -> None:
    expected = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    full = f"P{days}DT{hours}H{minutes}M{seconds}S"
    parts = [f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if n]
    short = "P" + (f"{days}D" if days else "") + (f"T{''.join(parts)}" if parts else "")

    for text in (full, short):
        if expected:
            assert parse_duration(text) == expected
        else:
            with pytest.raises(UsageError):
                parse_duration(text)


@given(st.floats(0.001, 1000).map(lambda value: f"{value:.3f}"))
def test_fractions_are_read(number: str) -> None:
    expected = timedelta(seconds=float(number))

    assert parse_duration(f"{number}s") == expected
    assert parse_duration(f"PT{number}S") == expected


@given(st.integers(1, 10**9))
def test_a_duration_is_written_as_it_is_read(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)

    assert parse_duration(duration_text(duration)) == duration


@pytest.mark.parametrize("text", ["7d", "36h", "15m", "90s", "1500ms"])
def test_a_duration_is_written_in_the_largest_unit(text: str) -> None:
    assert duration_text(parse_duration(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "m", "-5m", "0s", "0ms", "PT0S", "P", "PT", "5 m", "5w", "1h30m", "P1M", "PT1D"),
        *("+5m", "5M", "1e3s", "0.5ms", "0.0001ms", "PT0.0001S", "nan", "infs", ".5s"),
        *("9s\n", "9999999999d", "36501d"),
    ],
)
def test_what_is_no_duration_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError, match="not a valid duration") as refused:
        parse_duration(text)

    assert "15m" in refused.value.hint
