"""Pages in a real browser: headless Chromium, which is looked for on PATH."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PHONE, DESKTOP = 390, 1280
LIGHT, DARK = "--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"
REQUIRED = "CI_REQUIRES_BROWSER"
# What is looked at after a test; CI keeps it.
SCREENSHOTS = Path(__file__).parents[1] / "build" / "screenshots"
# The frame is as wide as the screen would be: Chromium's own windows are never so narrow.
_FRAME = """<!doctype html><title>frame</title><style>body {{ margin: 0 }}</style>
<iframe id="frame" src="{page}" style="width: {width}px; height: {height}px; border: 0" {more}>
</iframe>"""
_MEASURE = """<pre id="found"></pre>
<script>
window.onload = () => {{
  const page = document.getElementById("frame").contentWindow;
  const found = ({measure})(page, page.document);
  document.getElementById("found").textContent = JSON.stringify(found);
}};
</script>"""


@dataclass(frozen=True)
class Browser:
    """Headless Chromium with a profile of its own.

    Attributes:
        program: Where it is.
        directory: Where profile and pages lie.
    """

    program: str
    directory: Path

    @classmethod
    def found(cls, directory: Path) -> Browser:
        """Find it, or skip the test; fail where the environment says that it must be there."""
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if program is None:
            if os.environ.get(REQUIRED):
                pytest.fail(f"there is no chromium on PATH, and {REQUIRED} is set")
            pytest.skip("there is no chromium on PATH: apt-get install chromium")
        return cls(program, directory)

    def measure(
        self, page: str, measure: str, width: int, *options: str, frame: str = "", height: int = 844
    ) -> Any:
        """Open a page as wide as a screen, and return what a function of JavaScript says of it.

        Args:
            page: File in the directory, maybe with a fragment.
            measure: A function of window and document.
            frame: More attributes of the frame, such as a sandbox.
        """
        outer = _FRAME.format(page=page, width=width, height=height, more=frame)
        file = self.directory / "measure.html"
        file.write_text(outer + _MEASURE.format(measure=measure))
        done = self._run(*options, "--enable-logging=stderr", "--dump-dom", file.as_uri())
        assert "CONSOLE" not in done.stderr, done.stderr
        found = re.search(r'<pre id="found">(.+?)</pre>', done.stdout)
        assert found, done.stdout[:2000]
        return json.loads(html.unescape(found[1]))

    def screenshot(self, page: str, width: int, height: int, name: str, *options: str) -> Path:
        """Keep a picture of a page in `build/screenshots`."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        file = self.directory / "frame.html"
        file.write_text(_FRAME.format(page=page, width=width, height=height, more=""))
        out = SCREENSHOTS / f"{name}.png"
        # Chromium's windows are not narrower than this; the rest of the picture is white.
        self._run(
            *options, "--hide-scrollbars", f"--window-size={width},{height}",
            f"--screenshot={out}", file.as_uri(),
        )  # fmt: skip
        return out

    def _run(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                self.program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
                "--no-first-run", "--disable-background-networking", "--disable-component-update",
                "--disable-sync", "--disable-dev-shm-usage", "--allow-file-access-from-files",
                f"--user-data-dir={self.directory / 'profile'}", *options,
            ],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
