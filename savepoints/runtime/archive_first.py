"""A run without an end of a query for which Kafka alone is not enough: first the archive.

What Kafka no longer has, and what merges brought, is read by planned batches; then Spark goes on by
itself from exactly there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from savepoints.checkpoint import position as checkpoint_position
from savepoints.checkpoint.logs.kafka_position import by_partition, kafka_offsets
from savepoints.checkpoint.position import CheckpointPosition
from savepoints.io import Location
from savepoints.plan import Progress, silent
from savepoints.runtime.archive_batches import ArchivedInputs
from savepoints.runtime.bounded import bounded_run
from savepoints.runtime.bounded.bounded_run import KafkaEnd, Limits
from savepoints.runtime.runner import Ran, Runner


def run_on(
    runner: Runner,
    *,
    scratch: Location,
    limits: Limits,
    check: Callable[[], None] = lambda: None,
    until_caught_up: bool = False,
    progress: Progress = silent,
) -> Ran:
    """Run a query until it is asked to stop or its time is over, from the archive on where needed.

    Args:
        until_caught_up: Until everything that its sources have now is read.

    Raises:
        NotAlignedError: If the archive does not go as far as merges that are read again.
    """
    started = time.monotonic()
    while runner.archived is not None and not runner.stopping:
        now = checkpoint_position.read(runner.checkpoint)
        if (end := _first(runner.archived, now)) is None:
            break
        progress("reading the archive, because Kafka no longer has the next records")
        ran = end.run(runner, scratch=scratch, limits=limits, check=check, progress=progress)
        if not ran.caught_up:
            return replace(ran, remaining_records=None)
    ran = bounded_run.run_on(runner, limits, check=check, until_caught_up=until_caught_up)
    return replace(ran, seconds=time.monotonic() - started)


def _first(archived: ArchivedInputs, now: CheckpointPosition) -> KafkaEnd | None:
    """Return up to where planned batches go first, and what there is; None if Kafka has it all."""
    ranges = archived.inputs.ranges()
    ends = archived.until(now.offsets, ranges)
    if ends is None:
        return None
    # A batch that was begun is finished as it is, also where it goes beyond the archive.
    for position in now.begun_positions:
        for topic, part, offset in by_partition(kafka_offsets(position) or {}):
            known = ends.setdefault(topic, {})
            known[part] = max(offset, known.get(part, offset))
    return KafkaEnd(ends, ranges)
