"""Processes of a walk: a driver and commands, which are killed in the midst of what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from savepoints.io import Location
from tests.fidelity import driver_job
from tests.fidelity.driver_job import Job
from tests.spark_session import wait_until

_ROOT = Path(__file__).parents[2]
_SECONDS = 240


@dataclass
class Changes:
    """How many files came or went at a place since it was looked at first."""

    place: Location
    _seen: set[str] = field(init=False)
    _count: int = 0

    def __post_init__(self) -> None:
        self._seen = self._files()

    def count(self) -> int:
        now = self._files()
        self._count += len(now ^ self._seen)
        self._seen = now
        return self._count

    def _files(self) -> set[str]:
        if self.place.uri.scheme != "file":
            return {info.path for info in self.place.list()}
        tree = os.walk(str(self.place))
        return {f"{top}/{one}" for top, _, files in tree for one in files}


@dataclass
class Running:
    """A process in a group of its own, with its JVM.

    Attributes:
        place: Where it works.
        said: What it has written.
    """

    place: Location
    process: subprocess.Popen[bytes]
    said: Path

    @classmethod
    def begin(cls, words: Sequence[str], place: Location, said: Path) -> Running:
        """Start it."""
        with said.open("wb") as file:
            process = subprocess.Popen(
                words, cwd=_ROOT, stdout=file, stderr=file, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
            )  # fmt: skip
        return cls(place, process, said)

    @property
    def text(self) -> str:
        return self.said.read_text()

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def end(self) -> int:
        """Wait for its end, and return its exit code."""
        return self.process.wait(_SECONDS)

    def killed_after(self, changes: int, *, python_alone: bool = False) -> bool:
        """Kill it after so many changes of files; False if it has ended before."""
        seen = Changes(self.place)
        wait_until(lambda: not self.runs or seen.count() >= changes, f"{changes} changes")
        if not self.runs:
            return False
        self.kill(python_alone=python_alone)
        return True

    def kill(self, *, python_alone: bool = False) -> None:
        """Kill it with its JVM, or its Python alone, whose JVM then ends itself in a moment."""
        if python_alone:
            self.process.kill()
        else:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def await_jvm(self) -> None:
        """Wait until nothing of it is left."""
        wait_until(self._is_gone, "its JVM has ended")

    def _is_gone(self) -> bool:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, 0)
            return False
        return True


@dataclass
class Processes:
    """What a walk starts.

    Attributes:
        directory: Where is written what they say.
        place: Where they work.
    """

    directory: Path
    place: Location
    started: list[Running] = field(default_factory=list)

    def driver(self, job: Job) -> Running:
        """Start a driver."""
        return self._begin(driver_job.words(job))

    def command(self, *words: str) -> Running:
        """Start a command."""
        store = str(self.place / "store")
        return self._begin([sys.executable, "-m", "savepoints", *words, "--store", store])

    def _begin(self, words: Sequence[str]) -> Running:
        said = self.directory / f"said-{len(self.started)}.txt"
        self.started.append(Running.begin(words, self.place, said))
        return self.started[-1]

    def end_all(self) -> None:
        """Kill what still runs."""
        for one in self.started:
            if one.runs:
                one.kill()
