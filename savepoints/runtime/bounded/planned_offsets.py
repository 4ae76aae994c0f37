"""A planned batch, written into the checkpoint of a query that stands still."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from savepoints.checkpoint import position as checkpoint_position
from savepoints.checkpoint.logs import planned_batch
from savepoints.checkpoint.position import CheckpointPosition
from savepoints.checkpoint.state import files
from savepoints.errors import NotAlignedError
from savepoints.io import Location
from savepoints.moments import utc_now
from savepoints.runtime.runner import Runner


def write(
    checkpoint: Location,
    now: CheckpointPosition,
    first: bytes,
    positions: Sequence[str],
    begins: Mapping[int, str],
) -> None:
    """Write the next batch into the offset log, in place of one that was begun.

    Args:
        first: An `offsets/0` that Spark wrote for the same program, before the first batch.
        positions: Where each source is to be after it, as Spark's JSON.
        begins: By number, where a Kafka source begins that has read nothing.
    """
    number, before = now.next_batch, now.committed
    if before is None:
        data = planned_batch.first_batch(first, positions, utc_now())
        _fix_beginning(checkpoint, now, begins)
    else:
        data = planned_batch.next_batch(
            checkpoint.get(f"offsets/{before}"),
            before,
            positions,
            now.next_watermark_ms,
            utc_now(),
        )
    if now.begun is not None:
        left = (info.path for info in checkpoint.list("state"))
        checkpoint.delete(files.of_version(left, number + 1))
        checkpoint.delete([f"offsets/.{number}.crc"])  # Hadoop's, on a local file system.
    checkpoint.put(f"offsets/{number}", data)


def run(runner: Runner, batch: int, check: Callable[[], None]) -> CheckpointPosition:
    """Run the batch that was written, and return where the query is then.

    Its watermark is that of one query that runs all batches, which each batch here is not: one in
    which an input has no events does not hold it back if an earlier one had some.

    Args:
        check: Called all the time; raises when the run must not continue.

    Raises:
        NotAlignedError: If Spark has not committed it.
    """
    runner.run_planned(check)
    now = checkpoint_position.read(runner.checkpoint)
    if now.committed != batch:
        raise NotAlignedError(
            f"Spark stopped without an error but did not commit batch {batch} of {runner.query} "
            f"(newest committed: {'none' if now.committed is None else now.committed})",
            hint="run the command again",
            query=runner.query,
            batch_id=batch,
        )
    reached = max(now.next_watermark_ms, runner.watermark_ms)
    moved = now.watermark_moved or reached > now.next_watermark_ms
    return replace(now, next_watermark_ms=reached, watermark_moved=moved)


def _fix_beginning(
    checkpoint: Location, now: CheckpointPosition, begins: Mapping[int, str]
) -> None:
    """Write what Spark writes before a first batch, but for its offsets.

    Killed in between, the query has still run nothing. Kafka's retention can no longer move where
    it begins.
    """
    for number, position in begins.items():
        if now.initial.get(number) != position:
            checkpoint.put(f"sources/{number}/0", planned_batch.initial_position(position))
    if not checkpoint.exists("metadata"):
        checkpoint.put("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
