"""`disturbance`: a busy query, left alone, and while a savepoint is taken every ten seconds.

Each turn continues from a copy of one checkpoint and reads the same files, one in each batch, each
with records of other 1 % of the keys. What is compared is the throughput; the notes have the
longest batch, as a multiple of the median of the same turn. With `attach` as it is by default, the
rows of the newest savepoint are written beside the query, too; the third side is without that.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

import savepoints
from benchmarks import state
from benchmarks.result import Result, Sample, in_turns, seconds

EVERY = "10s"
_BATCHES = 40
_ALONE, _NATIVE, _EXPORTED = "alone", "with savepoints", "with savepoints and their rows"


@dataclass
class _Busy:
    """The query, and how long its batches took.

    Attributes:
        checkpoint: Where each turn continues.
        source: Files that it reads.
        longest: The longest batch of each turn, as a multiple of the median.
        taken: How many savepoints of each turn are complete.
    """

    checkpoint: Path
    source: Path
    longest: dict[str, list[float]] = field(default_factory=dict)
    taken: dict[str, list[int]] = field(default_factory=dict)

    def run(
        self, what: str, export: Literal["never", "newest"] | None, place: Path
    ) -> Mapping[str, Sample]:
        """Run all batches in a copy of the checkpoint, and time them.

        Args:
            export: None to take no savepoints.
            place: An empty directory.
        """
        shutil.copytree(self.checkpoint, place / "checkpoint")
        begun = time.monotonic()
        query = state.start_query(place / "checkpoint", self.source, files_per_batch=1)
        attached = None
        if export is not None:
            (place / "store").mkdir()
            known = state.settings()
            periodic = known.periodic.model_copy(update={"export": export})
            attached = savepoints.attach(
                state.start(),
                query,
                every=EVERY,
                store=str(place / "store"),
                outputs={},
                settings=known.model_copy(
                    update={"store": str(place / "store"), "periodic": periodic}
                ),
            )
        query.processAllAvailable()
        took = time.monotonic() - begun
        batches = [
            one.durationMs["triggerExecution"] for one in query.recentProgress if one.numInputRows
        ]
        if attached is not None:
            attached.detach()
        query.stop()
        self.longest.setdefault(what, []).append(max(batches[1:]) / median(batches[1:]))
        done = (
            0 if attached is None else sum(one.savepoint is not None for one in attached.attempts)
        )
        self.taken.setdefault(what, []).append(done)
        return {what: Sample(took / len(batches), 0, len(batches))}


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Run the query alone and with savepoints, in turns; a sample is the time of one batch."""
    checkpoint = state.built(directory, keys)
    source = checkpoint.parent / "input"
    for nth in range(_BATCHES):
        state.write_change(source, keys, nth)
    busy = _Busy(checkpoint, source)
    samples = in_turns(
        directory,
        rounds,
        lambda place: busy.run(_NATIVE, "never", place),
        lambda place: busy.run(_EXPORTED, "newest", place),
        lambda place: busy.run(_ALONE, None, place),
    )
    notes = tuple(
        f"{what}: longest batch {max(busy.longest[what][1:]):.2f} times the median, "
        f"{median(busy.taken[what][1:]):.0f} savepoints a turn"
        for what in samples
    )
    alone = seconds(samples[_ALONE])
    ratio = {
        "native": alone / seconds(samples[_NATIVE]),
        "exported": alone / seconds(samples[_EXPORTED]),
    }
    return Result(samples, ratio, notes)
