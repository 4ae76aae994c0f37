"""All rows of a query in a table replaced by those of a replay, in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from savepoints.outputs.correct import commit, desired_rows, entity_rows
from savepoints.outputs.correct.commit import Mark
from savepoints.outputs.delta.row_selection import EVERYTHING, RowSelection
from savepoints.outputs.delta.write import Mode
from savepoints.outputs.rewind.planned_rewind import Rewind
from savepoints.spark.session import session_like
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write(
    spark: SparkSession,
    live: Rewind,
    replayed: DataFrame,
    mark: Mark,
    *,
    mode: Mode,
    key: Sequence[str],
    selection: RowSelection = EVERYTHING,
) -> None:
    """Replace them.

    Args:
        live: The live table, and which of its rows are the query's.
        replayed: The program's columns and `replay_slice`: all that the replay wrote.
        mark: What the commit says of itself; how many rows is counted here.
        key: Columns that identify a row, for `upsert`.
        selection: Which part of the program's result the table has.

    Raises:
        IncompatibleError: If the replayed rows are no rows of the table, or two have one key in one
            slice.
    """
    own = session_like(spark)
    table = entity_rows.read_own_rows(own, live, live.newest)
    rows = desired_rows.written(replayed, table, live.output.uri, mode, selection)
    if mode == "upsert":
        desired_rows.refuse_several(rows, key, live.output.uri)
    nothing = table.limit(0)
    # Of the session that has the transaction, whatever the replayed rows are of.
    wanted = nothing.unionByName(desired_rows.content(nothing, rows, mode, key))
    counted = replace(mark, rows_removed=table.count(), rows_added=wanted.count())
    commit.mark_session(own, counted)
    writer = wanted.write.format("delta").mode("overwrite")
    if live.own_rows is not None:
        writer = writer.option("replaceWhere", live.own_rows)
    writer.save(Uri.parse(live.output.uri).hadoop)
