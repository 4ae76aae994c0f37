"""The page of a store and the report of a comparison in headless Chromium, at two widths."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from savepoints.ui import page, report
from savepoints.ui.facts import StoreFacts
from tests.browser import DARK, DESKTOP, LIGHT, PHONE, Browser
from tests.comparisons import HOSTILE, comparison, ordinary
from tests.ui import stories

pytestmark = pytest.mark.browser

MEASURE = (Path(__file__).with_name("measure.js")).read_text()
NOW = datetime(2026, 11, 22, 10, 15, tzinfo=UTC)
SCHEMES = {"light": LIGHT, "dark": DARK}
PAGES = ("story", "hostile", "large", "empty", "one", "report")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """Find the browser and write the pages that it looks at."""
    found = Browser.found(tmp_path_factory.mktemp("browser"))
    stores = {
        "story": stories.story(),
        "hostile": stories.hostile(),
        "large": stories.large(),
        "empty": StoreFacts("/srv/store", stories.NOW),
        "one": StoreFacts("/srv/store", stories.hour(2), (stories.saved(1),)),
    }
    pages = {name: page.render(facts) for name, facts in stores.items()}
    pages["report"] = report.render(comparison(), NOW, "savepoints compare tiers_v1 tiers_v2 --yes")
    for name, html in pages.items():
        (found.directory / f"{name}.html").write_text(html, encoding="utf-8")
    return found


def look(browser: Browser, name: str, width: int, scheme: str = "light", **more: Any) -> Any:
    at, _, fragment = name.partition("#")
    file = f"{at}.html" + (f"#{fragment}" if fragment else "")
    return browser.measure(file, MEASURE, width, SCHEMES[scheme], **more)


def fits(found: Any, width: int) -> None:
    """Nothing is wider than the screen, nothing was loaded, nothing was said on the console."""
    assert found["width"] == width
    assert found["scrollWidth"] <= width
    assert found["outside"] == []
    assert found["resources"] == []


def test_the_page_fits_a_phone_and_shows_a_list_there(browser: Browser) -> None:
    found = look(browser, "story", PHONE)

    fits(found, PHONE)
    assert (found["timeline"], found["list"]) == (False, True)
    assert found["text"].index("What to do") < found["text"].index("Last savepoint")


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("name", PAGES)
def test_every_page_fits_and_can_be_read(
    browser: Browser, name: str, width: int, scheme: str
) -> None:
    """In both colour schemes the text has a contrast of 4.5 and more; a picture is kept."""
    found = look(browser, name, width, scheme)

    fits(found, width)
    assert found["texts"] > 5
    assert found["pale"] == []
    assert found["small"] == []
    ground = sum(map(int, re.findall(r"\d+", found["background"])[:3]))
    assert (ground < 150) is (scheme == "dark")
    assert found["title"] != "taken", "a script in the data has run"
    height = min(found["height"], 6000)
    kept = browser.screenshot(f"{name}.html", width, height, f"{name}-{width}-{scheme}",
                              SCHEMES[scheme])  # fmt: skip
    assert kept.stat().st_size > 5000


@pytest.mark.nightly
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("name", PAGES)
def test_a_screen_reader_and_a_keyboard_find_their_way(
    browser: Browser, name: str, width: int
) -> None:
    found = look(browser, name, width)

    assert found["landmarks"] == [1, 0 if name == "report" else 1, 1, 1]
    assert found["headings"][0] == 1
    assert found["headings"].count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(found["headings"]))
    assert (found["unscoped"], found["headless"], found["unnamed"]) == (0, 0, 0)
    assert (found["pictures"], found["unlabelled"], found["doubled"]) == (0, 0, [])
    assert set(found["focusOrder"]) <= {0}, "the order of the page"
    assert found["inPicture"] == 0, "a thousand marks are not a thousand stops"


@pytest.mark.nightly
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_a_link_opens_the_details_of_a_savepoint(browser: Browser, width: int) -> None:
    one = stories.story().savepoints[0].id
    closed, opened = look(browser, "story", width), look(browser, f"story#{one}", width)

    assert (closed["target"], opened["target"]) == (None, True)
    fits(opened, width)
    assert f"savepoints rollback {one} --dry-run" in opened["text"]
    assert f"savepoints rollback {one} --dry-run" not in closed["text"]
    assert opened["pale"] == []
    browser.screenshot(f"story.html#{one}", width, min(opened["height"], 6000), f"details-{width}")


@pytest.mark.nightly
def test_trap_a_link_into_folded_savepoints_unfolds_them(browser: Browser) -> None:
    oldest = stories.large().savepoints[-1].id

    found = look(browser, f"large#{oldest}", DESKTOP)

    assert found["target"] is True
    assert f"savepoints drill {oldest}" in found["text"]


@pytest.mark.nightly
def test_they_say_everything_without_scripts(browser: Browser) -> None:
    for name in ("story", "report"):
        without = look(browser, name, DESKTOP, frame='sandbox="allow-same-origin"')["text"]
        assert without == look(browser, name, DESKTOP)["text"]


@pytest.mark.nightly
def test_the_report_is_readable_on_a_phone(browser: Browser) -> None:
    """What one came for, the values of both queries, is not cut off."""
    found = look(browser, "report", PHONE)

    for expected in ("1,231,870.02", "321 of 50,000 rows differ", HOSTILE, "119.99", "120.00",
                     "sp-20261120-090000-cccccc"):  # fmt: skip
        assert expected in found["text"]
    assert found["flat"] == 0
    assert found["bars"] == 1 + 4 + 3, "of metrics and costs what differs; each column of an output"


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["page", "report"])
def test_pictures_for_the_documents(browser: Browser, name: str, scheme: str) -> None:
    """`docs/img` has these; `make pictures` copies them when page or report look different."""
    command = "savepoints compare tiers_v1 tiers_v2 --yes"
    html = (
        page.render(stories.story()) if name == "page" else report.render(ordinary(), NOW, command)
    )
    (browser.directory / "docs.html").write_text(html, encoding="utf-8")

    kept = browser.screenshot("docs.html", DESKTOP, 1560, f"{name}-{scheme}", SCHEMES[scheme])

    assert kept.stat().st_size > 50_000
