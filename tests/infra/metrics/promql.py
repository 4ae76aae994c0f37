"""Expressions of PromQL held against what the project exports, and against the real promtool.

`promtool` comes with Prometheus (Debian's package is called `prometheus`, too). Without it the
tests that ask it are skipped, unless `CI_REQUIRES_PROMTOOL` is set; those by names run anywhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from savepoints.observe.metrics import METRICS

INFRA = Path(__file__).parents[3] / "infra" / "metrics"
REQUIRED = "CI_REQUIRES_PROMTOOL"
# Prometheus adds these to what it scrapes.
_ADDED = {"job", "instance"}
# A summary has two series, neither of which has its name.
LABELS = {
    name: {*metric.labels} | _ADDED
    for metric in METRICS
    for name in (
        (f"{metric.name}_sum", f"{metric.name}_count")
        if metric.kind == "summary"
        else (metric.name,)
    )
}


def series(expression: str) -> set[str]:
    """Return the names of all series that an expression reads."""
    return set(re.findall(r"\bsavepoints_\w+", expression))


def unknown(expression: str) -> set[str]:
    """Return the series that nobody exports, and `series{label` where they have no such label."""
    found = {name for name in series(expression) if name not in LABELS}
    for name, selector in re.findall(r"\b(savepoints_\w+)\{([^}]*)\}", expression):
        labels = set(re.findall(r"(\w+)\s*[=!]", selector))
        found |= {f"{name}{{{label}" for label in labels - LABELS.get(name, set())}
    grouped = re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", expression)
    known = set[str]().union(*(LABELS.get(name, set()) for name in series(expression)))
    return found | {label.strip() for names in grouped for label in names.split(",")} - known - {""}


def promtool(*words: str | Path, given: str = "") -> str:
    """Run promtool, fail the test with what it says if it is not content, and return that."""
    program = shutil.which("promtool")
    if program is None:
        if os.environ.get(REQUIRED):
            pytest.fail(f"promtool is not on PATH, and {REQUIRED} is set")
        pytest.skip("promtool is not on PATH: install Prometheus")
    done = subprocess.run(
        [program, *map(str, words)], input=given, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said
