"""When periodic savepoints are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from savepoints.config.schedule import parse_schedule
from savepoints.errors import UsageError

NOON = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("10m", "2026-11-21T12:10:30+00:00"),
        ("PT1H", "2026-11-21T13:00:30+00:00"),
        ("*/10 * * * *", "2026-11-21T12:10:00+00:00"),
        ("0 3 * * *", "2026-11-22T03:00:00+00:00"),
        ("0 3 * * 1", "2026-11-23T03:00:00+00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00:00+00:00"),
    ],
)
def test_the_next_time_after_a_moment(text: str, due: str) -> None:
    assert parse_schedule(text).next_after(NOON).isoformat() == due


def test_cron_is_in_utc_wherever_the_moment_comes_from() -> None:
    tokyo = NOON.astimezone(timezone(timedelta(hours=9)))

    assert parse_schedule("0 13 * * *").next_after(tokyo) == NOON.replace(hour=13, second=0)


@pytest.mark.parametrize("text", ["", "10", "* * * *", "61 * * * *", "every day", "0 25 * * *"])
def test_what_is_neither_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_schedule(text)

    assert "10m" in refused.value.hint or "15m" in refused.value.hint


@pytest.mark.parametrize("every", [10, timedelta(minutes=10), None])
def test_trap_a_number_of_minutes_had_no_attribute_split(every: Any) -> None:
    """From a program without types: `attach(…, every=10)`."""
    with pytest.raises(UsageError, match=r"^every is .*, but must be text") as refused:
        parse_schedule(every)
    assert "every='10m'" in refused.value.hint
