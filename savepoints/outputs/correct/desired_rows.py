"""What an output should hold of entities whose events were replayed.

The rows of each entity at the version of its base savepoint, then the replayed rows as the query
would have written them: added (`append`), by key with the last write winning (`upsert`), or the
last result alone (`complete`). Rows that were written after the base, and not by the replay,
disappear: they belong to a session, say, that is another one with the late events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from savepoints.errors import IncompatibleError, SeveralRowsError
from savepoints.outputs.delta.batch_version import refuse_lacking
from savepoints.outputs.delta.row_selection import RowSelection
from savepoints.outputs.delta.write import Mode
from savepoints.spark.columns import quoted
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Beside the output's columns: the number of the slice in which the replay wrote a row.
REPLAY_BATCH = "replay_slice"
_BASE = -1
_NUMBER = "__number"
_NEWEST = "__newest"


def content(base: DataFrame, replayed: DataFrame, mode: Mode, key: Sequence[str]) -> DataFrame:
    """Return what an output should hold of some entities.

    Args:
        base: Their rows at their bases, in the table's columns.
        replayed: What the replay wrote of them, in the same columns and `REPLAY_BATCH`; with
            `complete` only of the last batch in which it wrote anything at all.
        key: Columns that identify a row, for `upsert`.

    Returns:
        The table's columns.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    names = [quoted(name) for name in base.columns]
    if mode == "complete":
        return replayed.select(*names)
    if mode == "append":
        return base.unionByName(replayed.select(*names))
    every = base.withColumn(REPLAY_BATCH, F.lit(_BASE)).unionByName(replayed)
    latest = Window.partitionBy(*map(quoted, key)).orderBy(F.col(REPLAY_BATCH).desc())
    numbered = every.withColumn(_NUMBER, F.row_number().over(latest))
    return numbered.where(F.col(_NUMBER) == 1).select(*names)


def last_result(rows: DataFrame) -> DataFrame:
    """Return the rows of the last slice in which anything was written, as `complete` leaves it."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    newest = F.max(REPLAY_BATCH).over(Window.partitionBy())
    return (
        rows.withColumn(_NEWEST, newest).where(F.col(REPLAY_BATCH) == F.col(_NEWEST)).drop(_NEWEST)
    )


def written(
    replayed: DataFrame, table: DataFrame, uri: str, mode: Mode, selection: RowSelection
) -> DataFrame:
    """Return the replayed rows that a table has, in its columns and types, and `REPLAY_BATCH`."""
    # First the last result, of which the table may have no row, then its part.
    rows = last_result(replayed) if mode == "complete" else replayed
    return as_stored(selection.of(rows, beside=(REPLAY_BATCH,)), table, uri)


def refuse_several(rows: DataFrame, key: Sequence[str], uri: str) -> None:
    """Refuse rows of which two have one key in one slice."""
    alike = rows.groupBy(*map(quoted, key), REPLAY_BATCH).count().where("count > 1")
    if doubled := alike.count():
        raise SeveralRowsError(
            f"the replay wrote several rows with the same key to {uri} in one batch, so it is "
            f"unknown which of them is the last ({count_text(doubled, 'key')} affected)",
            hint="give the output a key that is unique for each row",
            uri=uri,
            key=list(key),
        )


def as_stored(rows: DataFrame, table: DataFrame, uri: str) -> DataFrame:
    """Return replayed rows in the columns and types of the table that they belong to.

    Args:
        rows: The program's columns and `REPLAY_BATCH`.
    """
    from pyspark.sql import functions as F

    there = {name.casefold(): name for name in rows.columns}
    wanted = {name.casefold() for name in table.columns}
    refuse_lacking(uri, table.columns, rows.drop(REPLAY_BATCH).schema)
    if more := sorted(wanted - there.keys()):
        raise IncompatibleError(
            f"{uri} has columns that the program does not write: {', '.join(more)}; their values "
            "in corrected rows would be unknown",
            hint="drop these columns from the table, or change the program to write them",
            uri=uri,
            columns=more,
        )
    return rows.select(
        *(
            F.col(quoted(there[one.name.casefold()])).cast(one.dataType).alias(one.name)
            for one in table.schema
        ),
        F.col(REPLAY_BATCH).cast("long").alias(REPLAY_BATCH),
    )
