"""Figures and times as people read them."""

from __future__ import annotations

import pytest

from savepoints.texts import watermark_text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "none"),
        (0, "none"),
        (1_792_891_800_999, "2026-10-25 01:30:00Z"),
        (-1, "1969-12-31 23:59:59Z"),
        (253_402_300_799_999, "9999-12-31 23:59:59Z"),
        (253_402_300_800_000, "after the year 9999 (253402300800000 ms since 1970)"),
        (1_792_891_800_000_000, "after the year 9999 (1792891800000000 ms since 1970)"),
    ],
)
def test_trap_a_watermark_after_the_year_9999(milliseconds: int | None, text: str) -> None:
    """Milliseconds taken for seconds: show, topology and the page were unexpected errors."""
    assert watermark_text(milliseconds) == text
