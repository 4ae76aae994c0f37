"""What is reached in Spark does what it is reached for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
