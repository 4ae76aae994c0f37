"""The demo comes out right, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.shop import environment

pytestmark = [pytest.mark.nightly, pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("story", "typed", "checks"),
    [
        ("rollback", "$ savepoints rollback @", 10),
        ("ab", "$ savepoints promote tiers_v2 --yes", 10),
        ("late", "$ savepoints merge order_totals", 8),
        ("pipeline", "$ savepoints merge bronze", 12),
    ],
)
def test_the_demo_comes_out_right(tmp_path: Path, story: str, typed: str, checks: int) -> None:
    """Exit code 0, every check ok, the commands shown as a user would type them."""
    done = subprocess.run(
        [sys.executable, "-m", "savepoints", "demo", story],
        cwd=tmp_path,
        env={**environment(), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "WRONG" not in done.stdout
    assert done.stdout.count(" ok") >= checks
    assert typed in done.stdout
    assert not list(tmp_path.glob("savepoints-demo-*")), "nothing is left"
