"""Replays of some entities of a reader, from the rows of the table that it reads.

The table is the archive of its reader. All rows of the entities are one slice, without a watermark
and in the order of event time; the watermark of the reader's newest batch comes in a second slice
without rows, so that nothing is dropped and what is over is evicted and emitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from savepoints.checkpoint.cut import read_cut
from savepoints.errors import NoCommittedBatchError
from savepoints.io import Location
from savepoints.operations.cascade.readers import Reader
from savepoints.runtime.replay import Live, Replay, ReplayBatch
from savepoints.runtime.scratch_query import REPLAY_BATCH
from savepoints.store import batch_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def replay(
    spark: SparkSession, reader: Reader, cut: Location, place: Location, rows: DataFrame
) -> Replay:
    """Replay rows up to a cut of the reader, from nothing.

    Args:
        cut: Files of the reader laid out at the cut.
        place: An empty directory.
        rows: From `savepoints.sources.tables.events`.

    Returns:
        The replay, with its state and its rows.
    """
    files = read_cut(cut)
    last = batch_log.read_from_checkpoint(cut, files.cut.batch_id)
    if last is None:
        raise NoCommittedBatchError(
            f"the copy of the checkpoint in {cut} has no offsets of batch {files.cut.batch_id}",
            hint="run the command again",
            query=reader.query,
        )
    made = Replay(spark, reader.app, place, Live(cut, files))
    made.write({reader.input: rows.selectExpr("*", f"1 as {REPLAY_BATCH}")})
    made.run(ReplayBatch(0, 0, last.timestamp_ms))
    made.run(ReplayBatch(0, last.watermark_ms, last.timestamp_ms))
    return made
