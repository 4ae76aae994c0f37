"""The page of a comparison: hostile values are text in it, and it needs nothing but itself."""

from __future__ import annotations

import math
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from savepoints.config import secrets
from savepoints.errors import MissingExtraError, UsageError
from savepoints.spark.multiset import RowDifference
from savepoints.ui import environment, report
from tests.comparisons import HOSTILE, comparison
from tests.ui.html_page import HtmlPage

SECRET = "day = 2026-11-01"
AGAIN = "savepoints compare tiers_v1 tiers_v2 --yes"
NOW = datetime(2026, 11, 22, 10, 15, tzinfo=UTC)


@pytest.fixture(scope="module")
def page() -> HtmlPage:
    return HtmlPage(report.render(comparison(), NOW, AGAIN))


def test_values_from_data_are_text_and_nothing_else(page: HtmlPage) -> None:
    """A customer may be called like a script, and a query like a tag."""
    assert page.text.count(HOSTILE) == 4, "its parts in rows of output, as a table and as a list"
    assert not {"script", "img", "b>v3", "iframe", "link", "object"} & set(page.tags)
    assert "tiers_<b>v3" in page.text
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_nothing_is_loaded_from_elsewhere(page: HtmlPage) -> None:
    """No address at all is in it, and a policy forbids what might be."""
    assert not [one for one in page.attributes if one[0] in {"src", "href", "action", "srcset"}]
    html = report.render(comparison(), NOW, AGAIN)
    assert not re.search(r"url\(|@import|https?:", html)
    (policy,) = (value for _, value in page.attributes if value.startswith("default-src"))
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


def test_it_shows_verdicts_numbers_and_what_was_compared(page: HtmlPage) -> None:
    """The figures are those of the comparison, written for people."""
    text = " ".join(page.text.split())
    for expected in (
        "Different", "No difference", "totals: 1,236 of 100,001 rows differ (1.236%, allowed 0%)",
        "1,204,332.18", "+2.287%", "Only tiers_v2 has the output audit.", "18,204.50",
        "customer_id = 4711, day = 2026-11-01", "119.99",
        "state: 321 of 50,000 rows differ (0.642%, allowed 0%)", AGAIN,
        "The state is equal, row by row.", "sp-20261120-090000-cccccc", "240112",
        "shop.tiers_v2:app", "max_offsets_per_trigger of tiers_v2 is 500", "480,000",
    ):  # fmt: skip
        assert expected in text, expected


def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password that came into the data does not leave with the page."""
    secrets.remember([SECRET])
    try:
        assert SECRET not in report.render(comparison(), NOW, AGAIN)
    finally:
        secrets._known.discard(SECRET)


def test_without_jinja_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And a page that cannot be written is an error with a way out."""
    with pytest.raises(UsageError, match="cannot be written"):
        report.write(comparison(), tmp_path / "no" / "report.html", AGAIN)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match="jinja2") as raised:
        environment.require("reports")
    assert "savepoints[report]" in raised.value.hint


def test_trap_a_row_that_lacks_only_a_column_was_shown_without_any_value() -> None:
    """Every row of the state is one, where a version keeps one more aggregate that is null."""
    both = {"count": 2}
    changed = RowDifference("changed", {"k": "d12"}, 1, both, {**both, "max": None})

    (line,) = report.lines([changed])

    assert line.values == (("max", "no such column", "null"),)


def test_numbers_that_changed_have_their_difference() -> None:
    """In a test of two versions, by how much is the question."""
    before = {"cents": 5000, "mean": 12.5, "name": "a", "open": True, "rate": math.nan}
    after = {"cents": 5450, "mean": 12.25, "name": "b", "open": False, "rate": 1.0}

    (line,) = report.lines([RowDifference("changed", {"k": "d12"}, 1, before, after)])

    assert [values[2] for values in line.values] == [
        "5450 (+450)", "12.25 (-0.25)", "b", "false", "1.0",
    ]  # fmt: skip


def test_a_sample_says_how_many_rows_it_leaves_out(page: HtmlPage) -> None:
    assert "3 of 1,236 rows that differ; --sample N shows more." in " ".join(page.text.split())


def test_numbers_for_people() -> None:
    """All digits before the point; behind it what matters."""
    written = [report.number(one) for one in (None, 0, 1234567, 1234.567, 0.000123456789, 1e6)]
    assert written == ["-", "0", "1,234,567", "1,234.57", "0.000123457", "1,000,000"]


def test_bars_show_the_difference_from_the_baseline_to_both_sides() -> None:
    """1,204,332 and 1,231,870 would look the same if bars began at 0."""
    found = report._against_baseline("revenue", [("a", 100.0), ("b", 110.0), ("c", 95.0)])

    assert [(one.x, one.width) for one in found.bars] == [(50, 0), (50, 50), (25, 25)]
    assert [one.value for one in found.bars] == ["100", "110 (+10%)", "95 (-5%)"]


@pytest.mark.parametrize(
    ("values", "widths"),
    [((0.0, 0.0), [0, 0]), ((0.0, 5.0), [0, 50]), ((None, 5.0), [0, 0]), ((5.0, None), [0, 0])],
)
def test_bars_of_a_baseline_that_is_nothing(
    values: tuple[float | None, float | None], widths: list[float]
) -> None:
    found = report._against_baseline("m", list(zip("ab", values, strict=True)))

    assert [one.width for one in found.bars] == widths


def test_neither_query_is_called_before_or_after(page: HtmlPage) -> None:
    """And what is needed to find them again stands at the top."""
    text = " ".join(page.text.split())

    assert not re.search(r"\b(Before|After|before|after)\b", text)
    assert "only in tiers_v1" in text
    top = text[: text.index("Verdict")]
    assert top.count("sp-20261122-100000-") == 3
    assert "MetricQueryBaselineValueDifference%" in text


def test_the_command_repeats_the_comparison_at_its_offsets() -> None:
    again = report.command(
        comparison(),
        keys={"totals": ("a", "b")},
        metrics={"n": "SELECT count(*)"},
        state=False,
        page=Path("report.html"),
    )

    assert again == (
        "savepoints compare tiers_v1 tiers_v2 'tiers_<b>v3' --until sp-20261122-100000-111111 "
        "--key totals=a,b --metric 'n=SELECT count(*)' --no-state --report report.html "
        "--yes"
    )
