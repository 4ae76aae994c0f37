"""The page of a comparison: hostile values are text in it, and it needs nothing but itself."""

from __future__ import annotations

import re
import sys
from datetime import datetime, timezone
from html.parser import HTMLParser
from pathlib import Path

import pytest

from savepoints.config import secrets
from savepoints.errors import MissingExtraError, UsageError
from savepoints.operations.fork import report
from tests.comparisons import HOSTILE, comparison

SECRET = "day = 2026-11-01"
NOW = datetime(2026, 11, 22, 10, 15, tzinfo=timezone.utc)


class Page(HTMLParser):
    """Tags with their attributes, and the text, as a browser would see them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(report.render(comparison(), NOW))


def test_values_from_data_are_text_and_nothing_else(page: Page) -> None:
    """A customer may be called like a script, and a query like a tag."""
    assert page.text.count(HOSTILE) == 2, "its parts in rows of output"
    assert not {"script", "img", "b>v3", "iframe", "link", "object"} & set(page.tags)
    assert "tiers_<b>v3" in page.text
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_nothing_is_loaded_from_elsewhere(page: Page) -> None:
    """No address at all is in it, and a policy forbids what might be."""
    assert not [one for one in page.attributes if one[0] in {"src", "href", "action", "srcset"}]
    html = report.render(comparison(), NOW)
    assert not re.search(r"url\(|@import|https?:", html)
    policy = dict(page.attributes)["content"] and [
        value for name, value in page.attributes if value.startswith("default-src")
    ]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_it_shows_verdicts_numbers_and_what_was_compared(page: Page) -> None:
    """The figures are those of the comparison, written for people."""
    text = " ".join(page.text.split())
    for expected in (
        "Different", "No difference", "totals: 1,236 of 100,001 rows differ (1.236%; at most 0%)",
        "1,204,332.18", "+2.287%", "Only tiers_v2 has the output audit.", "18,204.50",
        "customer_id = 4711, day = 2026-11-01", "119.99", "321 rows differ (0.642%)",
        "The state is equal, row by row.", "sp-20261120-090000-cccccc", "240112",
        "shop.tiers_v2:app", "max_offsets_per_trigger of tiers_v2 is 500", "480,000",
    ):  # fmt: skip
        assert expected in text, expected


def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password that came into the data does not leave with the page."""
    secrets.remember([SECRET])
    try:
        assert SECRET not in report.render(comparison(), NOW)
    finally:
        secrets._known.discard(SECRET)


def test_without_jinja_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And a page that cannot be written is an error with a way out."""
    with pytest.raises(UsageError, match="cannot be written"):
        report.write(comparison(), tmp_path / "no" / "report.html")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match="jinja2") as raised:
        report.require()
    assert "savepoints[report]" in raised.value.hint


def test_numbers_for_people() -> None:
    """All digits before the point; behind it what matters."""
    written = [report.number(one) for one in (None, 0, 1234567, 1234.567, 0.000123456789, 1e6)]
    assert written == ["-", "0", "1,234,567", "1,234.57", "0.000123457", "1,000,000"]
