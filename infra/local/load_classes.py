# A script that Python runs by its path.
# ruff: noqa: INP001
"""Load what a small streaming query of Spark needs, to archive its classes; see `classes.py`.

Arguments: the archive to be, and the jars beside PySpark's own.
"""

import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

archive, jars = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    .config(
        "spark.driver.extraJavaOptions",
        f"-XX:ArchiveClassesAtExit={archive} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    )
    .getOrCreate()
)
with tempfile.TemporaryDirectory() as place:
    (Path(place) / "in").mkdir()
    (Path(place) / "in" / "1.json").write_text('{"key": 1, "value": 2}\n')
    read = spark.readStream.schema("key long, value long").json(f"{place}/in")
    totals = read.groupBy("key").agg({"value": "sum"}).toDF("key", "total")
    query = (
        totals.writeStream.format("delta")
        .outputMode("complete")
        .option("checkpointLocation", f"{place}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{place}/out")
    )
    query.awaitTermination()
    rows = spark.read.format("delta").load(f"{place}/out")
    rows.join(rows, "key").groupBy("key").count().write.parquet(f"{place}/parquet")
    spark.createDataFrame([(1, "a")], "key long, text string").collect()
gateway = SparkContext._gateway
spark.stop()
# The archive is written when the JVM ends, which it does when nobody speaks to it any more.
gateway.proc.stdin.close()
gateway.proc.wait()
