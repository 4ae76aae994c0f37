"""The page of a comparison in a real browser: headless Chromium, which is looked for on PATH."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from savepoints.operations.fork import report
from tests.comparisons import HOSTILE, comparison

pytestmark = [pytest.mark.browser, pytest.mark.drawn(2)]

PHONE, DESKTOP = 390, 1280
REQUIRED = "CI_REQUIRES_BROWSER"
# The frame is as wide as the screen would be: Chromium's own windows are never so narrow.
MEASURE = """<!doctype html><title>measure</title>
<iframe id="frame" src="report.html" style="width: %dpx; height: 844px; border: 0" %s></iframe>
<pre id="found"></pre>
<script>
window.onload = () => {
  const page = document.getElementById("frame").contentWindow;
  const root = page.document.documentElement;
  const seen = (one) => one.getBoundingClientRect();
  document.getElementById("found").textContent = JSON.stringify({
    width: page.innerWidth,
    scrollWidth: root.scrollWidth,
    resources: page.performance.getEntriesByType("resource").map((one) => one.name),
    title: page.document.title,
    text: page.document.body.innerText,
    background: page.getComputedStyle(page.document.body).backgroundColor,
    color: page.getComputedStyle(page.document.body).color,
    bars: page.document.querySelectorAll("svg .bar").length,
    flat: [...page.document.querySelectorAll("svg .bar")].filter((one) => !seen(one).width).length,
    outside: [...page.document.querySelectorAll("body *")]
      .filter((one) => !one.closest(".scroll") && seen(one).right > page.innerWidth + 0.5)
      .map((one) => one.outerHTML.slice(0, 80)),
  });
};
</script>"""
LIGHT, DARK = "--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"


@dataclass(frozen=True)
class Browser:
    """Headless Chromium with a profile of its own.

    Attributes:
        program: Where it is.
        directory: Where profile and pages lie.
    """

    program: str
    directory: Path

    def measure(self, width: int, *options: str, frame: str = "") -> Any:
        """Open the report as wide as a screen, and say what became of it."""
        page = self.directory / "measure.html"
        page.write_text(MEASURE % (width, frame))
        done = subprocess.run(
            [
                self.program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
                "--no-first-run", "--disable-background-networking", "--disable-component-update",
                "--disable-sync", "--disable-dev-shm-usage", "--allow-file-access-from-files",
                "--enable-logging=stderr", f"--user-data-dir={self.directory / 'profile'}",
                *options, "--dump-dom", page.as_uri(),
            ],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        assert "CONSOLE" not in done.stderr, done.stderr
        found = re.search(r'<pre id="found">(.+?)</pre>', done.stdout)
        assert found, done.stdout[:2000]
        return json.loads(html.unescape(found[1]))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """Find the browser and write the report beside the pages that look at it."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get(REQUIRED):
            pytest.fail(f"there is no chromium on PATH, and {REQUIRED} is set")
        pytest.skip("there is no chromium on PATH: apt-get install chromium")
    directory = tmp_path_factory.mktemp("browser")
    now = datetime(2026, 11, 22, 10, 15, tzinfo=timezone.utc)
    (directory / "report.html").write_text(report.render(comparison(), now), encoding="utf-8")
    return Browser(program, directory)


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_it_fits_the_screen_and_loads_nothing(browser: Browser, width: int) -> None:
    """No console message, no request, no scrolling sideways; wide tables scroll in their boxes."""
    found = browser.measure(width)
    assert found["width"] == width
    assert found["scrollWidth"] <= width
    assert found["outside"] == []
    assert found["resources"] == []
    assert found["title"].startswith("Different: tiers_v1 / "), "a script in the data has run"
    assert (found["bars"], found["flat"]) == (6 + 3 + 12, 0)


def test_it_is_light_or_dark_as_the_reader_likes(browser: Browser) -> None:
    """The text is far from the background in both."""
    for scheme, dark in ((LIGHT, False), (DARK, True)):
        found = browser.measure(PHONE, scheme)
        ground, ink = (
            sum(map(int, re.findall(r"\d+", found[name])[:3])) for name in ("background", "color")
        )
        assert (ground < 150) is dark
        assert abs(ground - ink) > 450


def test_it_says_everything_without_scripts(browser: Browser) -> None:
    """Where scripts are switched off the same text is there."""
    without = browser.measure(DESKTOP, frame='sandbox="allow-same-origin"')["text"]
    assert without == browser.measure(DESKTOP)["text"]
    for expected in ("1,231,870.02", "321 rows differ", "sp-20261120-090000-cccccc", HOSTILE):
        assert expected in without
