"""The one commit of a correction: rows, transaction id and mark together.

Two ways lead there, of one content. Few rows are named in the condition of an overwrite, which
Delta finds in one pass over the table; with deletion vectors that took a third to half of the time
of a MERGE. Many rows, and those of an upserted table whose changes somebody follows, go through a
MERGE, which tells rows that were updated from those that were removed and added.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from savepoints.delta_reader import CHANGE_FEED
from savepoints.outputs.correct.entity_rows import EntityRows
from savepoints.outputs.correct.row_difference import (
    HASH,
    Counts,
    Differing,
    row_hash,
    row_hash_sql,
)
from savepoints.outputs.delta import batch_version
from savepoints.spark.columns import literal, quoted, text_sql
from savepoints.uri import Uri

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import Column, SparkSession

# In the `userMetadata` of the commit, a JSON object with this one field.
FIELD = "savepoints_correction"
# The condition of an overwrite stands in the commit; so many hashes are 200 KB there.
NAMED_GROUPS = 10_000
_ROWS_OF_A_FILE = 500_000
_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_CONSTRAINT_CHECK = "spark.databricks.delta.replaceWhere.constraintCheck.enabled"


@dataclass(frozen=True)
class Mark:
    """What the commit of a correction says of itself.

    Attributes:
        app_id: Application id under which the next generation writes the table.
    """

    merge_id: str
    output: str
    app_id: str
    batch_id: int
    rows_removed: int
    rows_added: int
    entities: int

    def __str__(self) -> str:
        """Write it as it stands in the commit."""
        return json.dumps({FIELD: asdict(self)}, separators=(",", ":"))


def write(
    table: DeltaTable, rows: EntityRows, found: Differing, counts: Counts, mark: Mark
) -> None:
    """Replace the rows that differ; where none does, only the id is committed."""
    mark_session(rows.spark, mark)
    rows.spark.conf.set(_CONSTRAINT_CHECK, "false")
    rows.spark.conf.set("spark.sql.parser.escapedStringLiterals", "false")
    followed = table.metadata().configuration.get(CHANGE_FEED) == "true"
    if counts.groups > NAMED_GROUPS or (rows.mode == "upsert" and followed):
        merge(rows, found)
    else:
        overwrite(rows, found, counts)


def mark_session(spark: SparkSession, mark: Mark) -> None:
    """Let the next commits of a session be a correction.

    Args:
        spark: A session of its own: MERGE takes them from there alone, and nobody else may.
    """
    spark.conf.set(_TXN_APP, mark.app_id)
    spark.conf.set(_TXN_VERSION, str(mark.batch_id))
    spark.conf.set(_USER_METADATA, str(mark))


def overwrite(rows: EntityRows, found: Differing, counts: Counts) -> None:
    """Replace rows by one overwrite, conditional on the entities and hashes of the old ones."""
    # Few files, which everybody has to read.
    files = 1 + counts.rows_added // _ROWS_OF_A_FILE
    writer = found.added.coalesce(files).write.format("delta")
    if counts.groups:
        writer = writer.mode("overwrite").option("replaceWhere", _named(rows, found))
    else:
        writer = writer.mode("append")
    writer.save(Uri.parse(rows.live.output.uri).hadoop)


def merge(rows: EntityRows, found: Differing) -> None:
    """Replace rows by a MERGE that finds the old ones by entity and hash."""
    from delta.tables import DeltaTable
    from pyspark.sql import functions as F

    schema = rows.table.schema
    paired = found.paired(rows.key)
    source = paired.select(
        F.col("old").alias("__old"),
        F.col(f"old.{quoted(rows.entity)}").alias("__entity"),
        F.col("old_hash").alias("__hash"),
        F.col("new").alias("__new"),
    )
    same = (F.col(f"t.{quoted(rows.entity)}") == F.col("s.__entity")) & (
        row_hash(schema, "t.") == F.col("s.__hash")
    )
    if rows.live.own_rows is not None:
        same = same & F.expr(rows.live.own_rows)
    values: dict[str, str | Column] = {
        quoted(one.name): F.col(f"s.__new.{quoted(one.name)}") for one in schema
    }
    (
        DeltaTable.forPath(rows.spark, Uri.parse(rows.live.output.uri).hadoop)
        .alias("t")
        .merge(source.alias("s"), same)
        .whenMatchedUpdate("s.__new IS NOT NULL", values)
        .whenMatchedDelete()
        .whenNotMatchedInsert("s.__hash IS NULL", values)
        .execute()
    )


def find_correction(uri: str, app_id: str, batch_id: int) -> tuple[int, Mark | None]:
    """Find the commit that recorded a batch, and what it says of a correction.

    Returns:
        Its version, and its mark; None when it is no correction.
    """
    found = batch_version.commit_of_batch(uri, app_id, batch_id)
    return found.version, mark(found.user_metadata)


def mark(user_metadata: str | None) -> Mark | None:
    """Read what a commit says of itself, None when that is no correction."""
    try:
        said = json.loads(user_metadata or "")
    except ValueError:
        return None
    return Mark(**said[FIELD]) if isinstance(said, dict) and FIELD in said else None


def _named(rows: EntityRows, found: Differing) -> str:
    """Return the condition of the rows to take out."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import IntegralType, StringType

    schema = rows.table.schema
    kind = schema[rows.entity].dataType
    column, text = quoted(rows.entity), F.expr(text_sql("entity"))
    named = [(one[0], int(one[1])) for one in found.removed.select(text, HASH).collect()]
    entities = sorted({entity for entity, _ in named})
    if isinstance(kind, IntegralType):
        values = entities
    else:
        values = [literal(one) for one in entities]
        # Only of its own type is the column compared with the statistics of a file.
        column = column if isinstance(kind, StringType) else text_sql(column)
    hashes = ", ".join(str(one) for one in sorted({number for _, number in named}))
    condition = f"{column} IN ({', '.join(values)}) AND {row_hash_sql(schema)} IN ({hashes})"
    own = rows.live.own_rows
    return condition if own is None else f"{condition} AND ({own})"
