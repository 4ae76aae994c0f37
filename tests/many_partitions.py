"""A query with more state partitions than most of its keys need, which reads files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from savepoints.io import Location
from tests.fidelity import harness

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 12
Rows = Sequence[tuple[str, int]]


def give(source: Location, *batches: Rows) -> None:
    """Write what a query reads next, a file each."""
    for rows in batches:
        clients, amounts = zip(*rows, strict=True)
        name = f"{len(source.list())}.parquet"
        source.put(name, b"")
        pq.write_table(
            pa.table({"client": clients, "amount": amounts}), f"/{source.uri.path}/{name}"
        )


def compute(found: DataFrame, _batch_id: int) -> None:
    """Have a batch computed."""
    found.collect()


def run(
    spark: SparkSession, source: Location, checkpoint: Location, store: str, *, by: str = "client"
) -> None:
    """Let a query read all that is there, a file a batch; its key is an expression."""
    from pyspark.sql import functions as F

    own = spark.newSession()
    conf = {**harness.STORES[store].conf, "spark.sql.shuffle.partitions": str(PARTITIONS)}
    for name, value in conf.items():
        own.conf.set(name, value)
    events = (
        own.readStream.schema("client string, amount long")
        .option("maxFilesPerTrigger", 1)
        .parquet(source.uri.hadoop)
    )
    (
        events.groupBy(F.expr(by))
        .agg({"amount": "sum", "*": "count"})
        .writeStream.foreachBatch(compute)
        .outputMode("update")
        .option("checkpointLocation", checkpoint.uri.hadoop)
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
