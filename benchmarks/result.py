"""What a measure found: samples of several rounds, taken in turns, and how they are printed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeAlias


@dataclass(frozen=True)
class Sample:
    """One sample of one side.

    Attributes:
        seconds: How long it took.
        bytes: What was written or copied.
        objects: In how many files.
    """

    seconds: float
    bytes: int
    objects: int


@dataclass(frozen=True)
class Result:
    """What a measure found.

    Attributes:
        samples: By what was measured, ours first.
        ratio: The peer's cost divided by ours, from the medians: above 1 is faster or smaller.
            Several, by name, where more than one thing is compared.
        notes: Lines to print below the table.
    """

    samples: Mapping[str, Sequence[Sample]]
    ratio: float | Mapping[str, float]
    notes: tuple[str, ...] = ()


# Does the work once in an empty directory, and returns samples by what was measured.
Side: TypeAlias = Callable[[Path], Mapping[str, Sample]]


def in_turns(directory: Path, rounds: int, *sides: Side) -> dict[str, list[Sample]]:
    """Let the sides do their work in turns.

    The first turn is not counted: in it, code is loaded and compiled. Before each sample, what
    earlier ones wrote is brought to disk, so that nobody pays for the others.

    Args:
        directory: Where each turn gets a directory of its own, removed after it.
        rounds: Turns of each side that count.
        sides: What to do.
    """
    found: dict[str, list[Sample]] = {}
    for turn in range(rounds + 1):
        for side in sides:
            scratch = directory / "scratch"
            scratch.mkdir()
            os.sync()
            samples = side(scratch)
            shutil.rmtree(scratch)
            for what, sample in samples.items():
                found.setdefault(what, []).extend([sample] if turn else [])
    return found


def seconds(samples: Sequence[Sample]) -> float:
    """Return the median of the seconds."""
    return median(sample.seconds for sample in samples)


def timed(words: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[float, str]:
    """Run Python with arguments, and return how many seconds that took and what it said on stderr.

    Raises:
        RuntimeError: If it fails, with what it said.
    """
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, *words],
        cwd=Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return time.monotonic() - begun, done.stderr


def copied(directory: Path) -> tuple[int, int]:
    """Return the bytes and the number of all files below a directory."""
    sizes = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
    return sum(sizes), len(sizes)


def text(name: str, result: Result) -> str:
    """Write a result as a table, its notes and the line `NAME ratio X.XX`.

    Of several ratios, each has its own line, `NAME-WHAT ratio X.XX`.
    """
    width = max(len(what) for what in result.samples)
    lines = [
        f"{name:{width}}  {'seconds':^26}  {'MB':^26}  objects",
        f"{'':{width}}  {_HEAD}  {_HEAD}",
    ]
    for what, samples in result.samples.items():
        took = _three([sample.seconds for sample in samples], 3)
        size = _three([sample.bytes / 1e6 for sample in samples], 2)
        objects = median(sample.objects for sample in samples)
        lines.append(f"{what:{width}}  {took}  {size}  {objects:7.0f}")
    if isinstance(result.ratio, Mapping):
        ratios = {f"{name}-{what}": one for what, one in result.ratio.items()}
    else:
        ratios = {name: result.ratio}
    last = (f"{what} ratio {one:.2f}" for what, one in ratios.items())
    return "\n".join([*lines, *result.notes, *last])


_HEAD = f"{'min':>8} {'median':>8} {'max':>8}"


def _three(values: Sequence[float], digits: int) -> str:
    return " ".join(f"{one:8.{digits}f}" for one in (min(values), median(values), max(values)))
