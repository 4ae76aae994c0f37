"""Writing a batch to a Delta output, idempotent by transaction id.

The id is `<query>/<output>/<generation>`, the version the batch id: a batch that is run again after
a crash is recognised by Delta and written once. A new generation writes under a new id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from savepoints.delta_reader import refuse_unwritable
from savepoints.errors import IncompatibleError
from savepoints.io import storage_options
from savepoints.spark.columns import quoted
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Mode = Literal["append", "upsert", "complete"]


def app_id(query: str, output: str, generation: int) -> str:
    """Return the transaction application id under which a generation writes an output."""
    return f"{query}/{output}/{generation}"


def is_later_generation(app: str, than: str) -> bool:
    """Return True if both are ids of generations of one query, the first of a later one."""
    query, number = _generation(app)
    same, before = _generation(than)
    return bool(query) and query == same and number > before


def is_same_generation(app: str, than: str) -> bool:
    """Return True if both are ids of one generation, which may have called the output otherwise."""
    return bool(_generation(app)[0]) and _generation(app) == _generation(than)


def _generation(app: str) -> tuple[str, int]:
    """Return the query and the number of the generation in an id, "" if it is no such id."""
    query, _, rest = app.partition("/")
    number = rest.rpartition("/")[2]
    return (query, int(number)) if "/" in rest and number.isdecimal() else ("", 0)


def owner_prefix(query: str) -> str:
    """Return what the application ids of all outputs and generations of a query begin with."""
    return f"{query}/"


def require_names(name: str, mode: Mode, columns: Iterable[str]) -> None:
    """Refuse columns that Delta cannot write in a mode, before a batch fails for them.

    A MERGE of all columns puts their names between backticks and does not double those within.
    """
    wrong = [one for one in columns if mode == "upsert" and "`" in one]
    if wrong:
        raise IncompatibleError(
            f"output {name!r} has the column {wrong[0]!r}: Delta cannot upsert into columns with a "
            "backtick in their names",
            hint="give the column another name in the program (alias), or use mode append",
            output=name,
            columns=wrong,
        )


def ensure_table(uri: Uri, schema: str) -> None:
    """Make an empty Delta table if there is none, so that there is a version before any batch.

    Delta writes schemas as Spark does, so deltalake makes it, in a moment and by conditional PUT.

    Args:
        schema: The columns as Spark's JSON of their type.
    """
    from deltalake import DeltaTable, Schema

    refuse_unwritable(uri, "an output")
    DeltaTable.create(
        str(uri), Schema.from_json(schema), mode="ignore", storage_options=storage_options(uri)
    )


def write_batch(
    batch: DataFrame, uri: Uri, *, mode: Mode, key: tuple[str, ...], app: str, batch_id: int
) -> None:
    """Write one batch in one commit.

    Args:
        batch_id: Version of the transaction; a batch that is recorded already writes nothing.
    """
    from delta.tables import DeltaTable

    if mode != "upsert":
        writer = batch.write.format("delta").mode("append" if mode == "append" else "overwrite")
        # All of it is replaced, also where the user's settings say: only partitions with new rows.
        writer = writer.option("partitionOverwriteMode", "static")
        writer.option("txnAppId", app).option("txnVersion", batch_id).save(uri.hadoop)
        return
    # MERGE takes its transaction id from the session, so the session is one of its own.
    spark = batch.sparkSession
    spark.conf.set("spark.databricks.delta.write.txnAppId", app)
    spark.conf.set("spark.databricks.delta.write.txnVersion", str(batch_id))
    try:
        (
            DeltaTable.forPath(spark, uri.hadoop)
            .alias("t")
            .merge(
                batch.alias("s"), " AND ".join(f"t.{one} <=> s.{one}" for one in map(quoted, key))
            )
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll()
            .execute()
        )
    finally:
        spark.conf.unset("spark.databricks.delta.write.txnAppId")
        spark.conf.unset("spark.databricks.delta.write.txnVersion")
