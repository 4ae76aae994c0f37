"""What the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from savepoints.checkpoint.logs.offset_log import PROVIDER_KEY
from savepoints.checkpoint.state.operators import PROVIDERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def hdfs(spark: SparkSession) -> Iterator[None]:
    """Let queries keep their state in Spark's default store."""
    before = spark.conf.get(PROVIDER_KEY)
    spark.conf.set(PROVIDER_KEY, PROVIDERS["hdfs"])
    yield
    spark.conf.set(PROVIDER_KEY, str(before))
