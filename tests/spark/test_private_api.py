"""What is reached in Spark does what it is reached for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from savepoints.spark import private_api

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
