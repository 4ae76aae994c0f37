"""The tiers of tests, each as processes of pytest: `python -m tests.tier change`, `… nightly PART`.

`change` is what `make test` runs: stories of whole verbs and of queries that go on, what else needs
a JVM, and what needs none, each in one process, side by side. What `nightly` runs is everything, in
parts that end within an hour each, with two workers.

Whatever was begun runs to its end and is reported, although something failed before; the exit code
is the worst. The output of each process and what each test cost stay in `build/tests/`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from tests import draw

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "build" / "tests"
SLOWEST = 50

JVM = "(spark or kafka or e2e or browser)"


@dataclass(frozen=True)
class Run:
    """A process of pytest.

    Attributes:
        name: What it is called in the output, and its files are.
        arguments: What pytest is told.
        environment: Variables for it alone.
    """

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        name: The run's.
        exit_code: Of its process.
        seconds: How long it took.
        tests: Seconds and name of each test.
        passed: How many passed.
        failed: Name and what was said of each that failed, or broke before or after.
        skipped: How many were skipped.
    """

    name: str
    exit_code: int
    seconds: float
    tests: tuple[tuple[float, str], ...]
    passed: int
    failed: tuple[tuple[str, str], ...]
    skipped: int


# Directories of whole stories, and of whole queries that are restored and go on.
_STORIES = ("e2e", "fidelity")
_MATRIX, _ORACLE = "tests/fidelity/test_matrix.py", "tests/fidelity/test_merge_oracle.py"


def _of_change(name: str, chosen: str, *arguments: str) -> Run:
    return Run(name, ("-m", f"not nightly and {chosen}", *arguments), {draw.TIER: "change"})


def _of_night(name: str, *arguments: str, **environment: str) -> Run:
    workers = ("-n", "2", "--dist", "loadgroup")
    tier = {draw.TIER: "nightly", **environment}
    return Run(name, (*workers, *arguments), tier)


def _sharded(name: str, count: int, *arguments: str) -> list[Run]:
    return [
        _of_night(f"{name}-{number}", *arguments, "--shard", f"{number}/{count}")
        for number in range(1, count + 1)
    ]


def _files_with(*markers: str) -> list[str]:
    """Return the files in which a marker is used: collecting all others takes ten seconds."""
    used = tuple(f"mark.{one}" for one in markers)
    files = ((path, path.read_text()) for path in sorted((ROOT / "tests").rglob("test_*.py")))
    return [
        str(path.relative_to(ROOT))
        for path, text in files
        if any(one in text for one in used) and path.parent.name not in _STORIES
    ]


CHANGE = (
    _of_change("stories", JVM, *(f"tests/{one}" for one in _STORIES)),
    _of_change("jvm", JVM, *_files_with("spark", "kafka", "browser")),
    _of_change("no-jvm", f"not {JVM}", "--ignore=tests/e2e"),
)
# By the ids and names of what runs there; see `tests.second_s3`.
_SECOND_S3 = "second-s3 or second_server"
# Directories that are parts of their own, or `make test-versions`; whatever else needs a JVM is the
# part `spark`.
_OWN = ("tests/clusters", "tests/e2e", "tests/fidelity", "tests/versions")
NIGHTLY = {
    run.name: run
    for run in (
        _of_night("no-jvm", "-m", f"not {JVM}", "-k", f"not ({_SECOND_S3})"),
        _of_night("s3", "-k", _SECOND_S3, "tests/test_io.py", "tests/store", "tests/local",
                  CI_REQUIRES_SECOND_S3="1"),
        _of_night("spark", "-m", JVM, *(f"--ignore={directory}" for directory in _OWN)),
        _of_night("fidelity", "-m", JVM, "tests/fidelity", f"--ignore={_MATRIX}",
                  f"--ignore={_ORACLE}"),
        *_sharded("matrix", 2, _MATRIX),
        *_sharded("oracle", 2, _ORACLE),
        *_sharded("e2e", 4, "-m", JVM, "tests/e2e"),
        # One cluster needs all of the machine.
        Run("clusters", ("tests/clusters",), {draw.TIER: "nightly"}),
    )
}  # fmt: skip


def main() -> int:
    """Run a tier, or parts of one, and return the exit code."""
    given = _parser().parse_args()
    seed = draw.seed()
    # Those of a change run side by side; a part of the night has both processors.
    steps: list[tuple[Run, ...]] = [(NIGHTLY[name],) for name in given.parts or NIGHTLY]
    if given.tier == "change":
        steps = [CHANGE]
    RESULTS.mkdir(parents=True, exist_ok=True)
    print(f"drawn by {draw.SEED}={seed}", flush=True)
    outcomes: list[Outcome] = []
    for runs in steps:
        with ThreadPoolExecutor(len(runs)) as pool:
            outcomes += pool.map(lambda run: _run(run, seed), runs)
    _report(given.tier, outcomes)
    # A process that a signal has ended has a negative one.
    return max(abs(one.exit_code) for one in outcomes)


def _run(run: Run, seed: int) -> Outcome:
    """Run pytest to its end; its output goes to ours, line by line, and into a file."""
    results = RESULTS / f"{run.name}.xml"
    results.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", *run.arguments]
    options = ["--randomly-seed", str(seed), "--junitxml", str(results)]
    begin = time.monotonic()
    with (
        (RESULTS / f"{run.name}.log").open("w") as log,
        subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            env={**os.environ, **run.environment, draw.SEED: str(seed)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        for line in process.stdout or ():
            log.write(line)
            print(f"{run.name:>7} | {line}", end="", flush=True)
    return _outcome(run.name, process.returncode, time.monotonic() - begin, results)


def _outcome(name: str, exit_code: int, seconds: float, results: Path) -> Outcome:
    tests, failed, skipped = [], [], 0
    if results.exists():
        for case in ET.parse(results).getroot().iter("testcase"):
            place = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            tests.append((float(case.get("time", 0)), place))
            broken = [child for child in case if child.tag in ("failure", "error")]
            if broken:
                failed.append((place, "\n".join(child.text or "" for child in broken)))
            skipped += any(child.tag == "skipped" for child in case)
    passed = len(tests) - len(failed) - skipped
    return Outcome(name, exit_code, seconds, tuple(tests), passed, tuple(failed), skipped)


def _report(tier: str, outcomes: Sequence[Outcome]) -> None:
    """Say what each process did and what cost most, and keep it."""
    slowest = sorted((one for run in outcomes for one in run.tests), reverse=True)[:SLOWEST]
    lines = [f"the {len(slowest)} slowest tests, in seconds with what each set up:"]
    lines += [f"{seconds:8.2f} {name}" for seconds, name in slowest]
    lines += ["", "process       minutes  in tests  passed  failed  skipped  exit"]
    lines += [
        f"{one.name:12} {one.seconds / 60:8.1f} {sum(cost for cost, _ in one.tests) / 60:9.1f} "
        f"{one.passed:7} {len(one.failed):7} {one.skipped:8} {one.exit_code:5}"
        for one in outcomes
    ]
    text = "\n".join(lines)
    (RESULTS / f"{tier}.txt").write_text(text + "\n")
    print(f"\n{text}\n")
    # Last, where it is seen in a log of which only the end is kept.
    failed = [one for run in outcomes for one in run.failed]
    for place, said in failed:
        print(f"failed: {place}\n{_end_of(said)}\n")
    passed, skipped = (sum(one.passed for one in outcomes), sum(one.skipped for one in outcomes))
    print(f"{passed} passed, {len(failed)} failed, {skipped} skipped", flush=True)


def _end_of(said: str, count: int = 25) -> str:
    """Return what pytest says went wrong, its lines marked `E`, or else the last lines."""
    lines = said.splitlines()
    marked = [line for line in lines if line.startswith("E ")]
    return "\n".join(f"    {line[:300]}" for line in (marked or lines)[-count:])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.tier", description=__doc__)
    parser.add_argument("tier", choices=["change", "nightly"])
    parser.add_argument("parts", nargs="*", choices=[[], *NIGHTLY], help="of the nightly tier")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
