"""docs/how-to/local-kafka.md: what it starts, and its programs, as a reader types them."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from tests.e2e.marks import NIGHTLY
from tests.e2e.pages import blocks

pytestmark = NIGHTLY

PAGE, APP = "how-to/local-kafka.md", "your-app.md"
PROGRAMS = ("orders.py", "show.py", "shop_v2.py")


def test_what_the_page_starts_is_enough_for_an_app(tmp_path: Path) -> None:
    for name, program in zip(PROGRAMS, blocks(PAGE, "python"), strict=True):
        (tmp_path / name).write_text(program)
    (tmp_path / "shop.py").write_text(blocks(APP, "python")[0])
    (tmp_path / "savepoints.toml").write_text(blocks(APP, "toml")[0])
    _, up, _ = blocks(PAGE, "sh")
    with subprocess.Popen(
        [sys.executable, *up.split()[1:]], stdout=subprocess.PIPE, text=True
    ) as first_terminal:
        assert first_terminal.stdout
        try:
            exported = {}
            for line in first_terminal.stdout:
                if line.startswith("#"):
                    break
                name, _, value = line.removeprefix("export ").partition("=")
                (exported[name],) = shlex.split(value)
            said = ""
            for block in blocks(PAGE, "console"):
                for line in block.splitlines():
                    said = type_in(line[2:], tmp_path, exported)
            first_terminal.send_signal(signal.SIGINT)
            assert first_terminal.wait(60) == 0
        finally:
            first_terminal.kill()
    assert sorted(one.split()[1:] for one in said.splitlines()[1:]) == [
        # Without bob's order of 50 cents, which the second version does not count.
        ["ada", "2", "600"],
        ["bob", "1", "250"],
        ["cy", "1", "900"],
    ]


def type_in(line: str, directory: Path, exported: dict[str, str]) -> str:
    """Type a command into the second terminal; returns what it prints."""
    words = line.split()
    done = subprocess.run(
        [sys.executable, *(["-m", *words] if words[0] == "savepoints" else words[1:])],
        cwd=directory, env={**os.environ, **exported}, capture_output=True, text=True,
        timeout=400, check=False,
    )  # fmt: skip
    differ = words[:2] == ["savepoints", "compare"]
    assert done.returncode == (3 if differ else 0), f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout
