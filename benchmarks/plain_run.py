"""The peer of `bounded-run`, `order_totals` as a plain job: `python -m benchmarks.plain_run`."""

from __future__ import annotations

import os
import sys

from benchmarks import state
from savepoints.outputs.delta import write
from savepoints.uri import Uri
from spark_jobs.order_totals import app


def main(topic: str, directory: str) -> None:
    """Read the topic up to its end, and end.

    Args:
        topic: What to read.
        directory: Where checkpoint and table go.
    """
    table = Uri.parse(f"{directory}/totals")
    spark = state.start()
    spark.conf.set("spark.sql.shuffle.partitions", str(state.PARTITIONS))
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS"])
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    result = app.build({"orders": app.inputs["orders"].decode(source)})
    write.ensure_table(table, result.schema.json())
    (
        result.writeStream.outputMode("update")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .foreachBatch(
            lambda batch, number: write.write_batch(
                batch, table, mode="upsert", key=("customer_id",), app="plain", batch_id=number
            )
        )
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
