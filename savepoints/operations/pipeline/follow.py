"""A reader behind what was taken back: brought to the cut, then past it.

Restored to its savepoint and simply started, a Delta source would read what was taken back, or fail
at the commit that did it. So what it has not read up to the cut is read by one planned batch, and
then its position is set behind that commit, in the newest two files of the offset log alike: on a
start Spark asks the source again for the range between them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from savepoints.checkpoint import position
from savepoints.checkpoint.logs import offset_log, planned_batch, table_position
from savepoints.checkpoint.position import CheckpointPosition
from savepoints.config.settings import Settings
from savepoints.errors import NotAlignedError, SavepointsError, UsageError, message_of
from savepoints.io import Location
from savepoints.moments import utc_now
from savepoints.operations.pipeline.table_reads import TableRead
from savepoints.operations.pipeline.topic_reads import TopicRead
from savepoints.plan import Progress
from savepoints.runtime.failure import cause, report
from savepoints.runtime.runner import run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# What builds a query, as users name it.
WriterFunction = Callable[["SparkSession"], "DataStreamWriter"]


def load_writer(query: str, reference: str) -> WriterFunction:
    """Import the function that builds a query, by `package.module:function`."""
    module, _, name = reference.partition(":")
    hint = (
        f"correct --writer {query}=MODULE:FUNCTION: the function takes the SparkSession and "
        "returns the query's DataStreamWriter without starting it"
    )
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # It is whatever the program raises.
        raise UsageError(
            f"the writer of {query}, {reference}, cannot be imported: {type(error).__name__}: "
            f"{message_of(error)}",
            hint=hint,
            query=query,
        ) from error
    if not callable(found):
        raise UsageError(
            f"the writer of {query}, {reference}, has type {type(found).__name__}, but must be a "
            "function",
            hint=hint,
            query=query,
        )
    return found  # type: ignore[no-any-return]


def catch_up(
    query: str,
    checkpoint: Location,
    reads: Sequence[TableRead],
    run: Callable[[], None],
    progress: Progress,
    topic_reads: Sequence[TopicRead] = (),
) -> None:
    """Read by one planned batch exactly what is missing to the cut; killed, it is run again.

    Args:
        checkpoint: The restored one, whose generation has not begun.
        run: Runs the batch that is planned in the checkpoint, if anything is missing.

    Raises:
        NotAlignedError: If the batch did not end where it was planned to.
    """
    now = position.read(checkpoint)
    wanted = _at_the_cut(now, reads, topic_reads)
    if wanted == now.positions:
        return
    assert now.committed is not None
    batch = now.committed + 1
    if now.begun is None:
        data = planned_batch.next_batch(
            checkpoint.get(f"offsets/{now.committed}"),
            now.committed,
            wanted,
            now.next_watermark_ms,
            utc_now(),
        )
        checkpoint.put(f"offsets/{batch}", data)
    progress(f"running batch {batch} of {query}, up to the end of what is not rolled back")
    run()
    reached = position.read(checkpoint)
    if reached.committed != batch or reached.positions != wanted:
        raise NotAlignedError(
            f"{query} should have stopped after batch {batch}, at {_listed(wanted)}, but its last "
            f"batch is {reached.committed}, at {_listed(reached.positions)}",
            hint="find the ID of the rollback with savepoints operations list, undo it with "
            "savepoints operations undo ID, and try again",
            query=query,
        )


def skip_rewinds(
    checkpoint: Location,
    reads: Sequence[TableRead],
    made: Mapping[str, int],
    topic_reads: Sequence[TopicRead],
    ended: Mapping[str, Sequence[int]],
) -> None:
    """Set a reader that is at the cut behind what was taken back.

    Args:
        made: By URI of a table, the version that its rewind made.
        ended: By topic, where it ended when its writer stood still.
    """
    going_on = {
        read.source: table_position.after(read.table_id, made[read.table_uri]).text
        for read in reads
    }
    now = position.read(checkpoint).positions
    for one in topic_reads:
        # A source may read several topics.
        at = going_on.get(one.source, now[one.source])
        going_on[one.source] = one.past(str(at), ended[one.topic])
    go_on_at(checkpoint, going_on)


def go_on_at(checkpoint: Location, positions: Mapping[int, str]) -> None:
    """Set sources of a checkpoint, by their numbers, to where they go on; run again, the same.

    Args:
        positions: As Spark's JSON; other sources stay where they are.
    """
    newest = position.read(checkpoint).committed
    assert newest is not None
    # In this order: killed between the two, the newest is at the cut still, and both are written.
    for name in (f"offsets/{batch}" for batch in (newest - 1, newest) if batch >= 0):
        try:
            data = checkpoint.get(name)
        except FileNotFoundError:
            continue  # Of the first batch of a checkpoint nothing is before it.
        before = offset_log.parse(data, name).sources
        after = [positions.get(number, one) for number, one in enumerate(before)]
        checkpoint.put(name, offset_log.with_batch(data, name, positions=after))
        # Hadoop's, on a local file system.
        checkpoint.delete([name.replace("/", "/.") + ".crc"])


def _at_the_cut(
    now: CheckpointPosition, reads: Sequence[TableRead], topic_reads: Sequence[TopicRead]
) -> tuple[str | None, ...]:
    """Return where each source is at the cut; those that are there or beyond it stay."""
    wanted = list(now.positions)
    for read in reads:
        at = table_position.parse(wanted[read.source])
        if at is None or at.table_id != read.table_id:
            continue  # It goes on in another table already.
        if read.behind and read.end.is_beyond(at):
            wanted[read.source] = read.end.text
    for one in topic_reads:
        if one.behind:
            wanted[one.source] = one.at_the_cut(str(wanted[one.source]))
    return tuple(wanted)


def run_writer(query: str, checkpoint: Location, build: WriterFunction, settings: Settings) -> None:
    """Run the planned batch of a query that a function of the user builds."""
    from savepoints.spark.session import session

    spark = session(settings, f"savepoints pipeline rollback {query}")
    # The trigger once keeps to a batch that was planned.
    ran = run_once(build(spark), checkpoint)
    if (error := ran.exception()) is not None:
        raise SavepointsError(
            f"{query} failed while catching up to the point that the other queries are being "
            f"rolled back to: {cause(report(error))}",
            hint="fix the cause and run the command again; or find the operation (savepoints "
            "operations list) and undo it: savepoints operations undo ID",
            query=query,
        )


def _listed(positions: Sequence[str | None]) -> str:
    return "; ".join(one or "none" for one in positions)
