"""A `foreachBatch` function that merges each batch once, as docs/your-driver.md has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def into(table: str, key: str) -> Callable[[DataFrame, int], None]:
    """Return one that merges into a table, which it makes, under Spark's id of the query."""

    def merge(batch: DataFrame, batch_id: int) -> None:
        from delta.tables import DeltaTable

        spark = batch.sparkSession
        query_id = str(spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
        batch.persist().count()
        spark.conf.set("spark.databricks.delta.write.txnAppId", query_id)
        spark.conf.set("spark.databricks.delta.write.txnVersion", batch_id)
        try:
            made = DeltaTable.createIfNotExists(spark).location(table)
            target = made.addColumns(batch.schema).execute().alias("t")
            merged = target.merge(batch.alias("s"), f"t.{key} = s.{key}")
            merged.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        finally:
            spark.conf.unset("spark.databricks.delta.write.txnAppId")
            spark.conf.unset("spark.databricks.delta.write.txnVersion")
            batch.unpersist()

    return merge
