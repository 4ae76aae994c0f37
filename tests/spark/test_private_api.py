"""What is reached in Spark does what it is reached for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import functions as F

from savepoints.spark import private_api

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def test_first_words_are_in_the_order_of_the_bytes(spark: SparkSession) -> None:
    """As RocksDB compares them: without a sign, so `ä` comes after `z`."""
    texts = ["ä", "z", "apples", "apple", "", "apples and pears", "\x00", "🍏"]
    found = spark.createDataFrame([(one.encode(),) for one in texts], "bytes binary")

    words = found.select("bytes", private_api.first_word(found, "bytes").alias("word"))

    by_word = [bytes(row["bytes"]) for row in words.sort("word", "bytes").collect()]
    assert by_word == sorted(one.encode() for one in texts)


def test_trap_spark_leaves_out_what_is_long_of_the_text_of_a_plan(spark: SparkSession) -> None:
    """Only what is numbered anew each time is left out: the same program has the same text."""

    def text(*order: int) -> str:
        rows = spark.readStream.format("rate").load().withWatermark("timestamp", "1 minute")
        sums = [F.sum(F.col("value") + number).alias(f"s{number}") for number in order]
        hours = F.window("timestamp", "1 hour")
        return private_api.plan_text(rows.groupBy(hours).agg(*sums))

    numbers = range(40)
    assert text(*numbers) == text(*numbers)
    assert text(*numbers[:38], 39, 38) != text(*numbers)


def test_tables_beside_the_streams_are_found(spark: SparkSession, tmp_path: Path) -> None:
    """In subqueries, too; not where one version is read, nor rows that the program has itself."""
    table = str(tmp_path / "prices")
    write_deltalake(table, pa.table({"value": [1], "price": [2]}))
    newest = spark.read.format("delta").load(table)
    newest.write.parquet(f"{tmp_path}/files")
    newest.createOrReplaceTempView("prices_beside")
    rate = spark.readStream.format("rate").load()
    given = spark.createDataFrame([(1, 2)], "value long, price long")
    pinned = spark.read.format("delta").option("versionAsOf", 0).load(table)

    def beside(other: DataFrame) -> list[str]:
        return private_api.tables_beside(rate.join(other, "value"))

    assert private_api.tables_beside(rate) == beside(given) == beside(pinned) == []
    assert beside(newest) == [f"file:{table}"]
    assert beside(spark.read.parquet(f"{tmp_path}/files")) == [f"file:{tmp_path}/files"]
    rate.createOrReplaceTempView("rate_beside")
    within = "value IN (SELECT value FROM prices_beside)"
    filtered = spark.sql(f"SELECT * FROM rate_beside WHERE {within}")
    assert private_api.tables_beside(filtered) == [f"file:{table}"]
