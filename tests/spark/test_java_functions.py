"""Java of ours, compiled and sent to the executors once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from savepoints.spark import java_functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from savepoints.spark.java_trees import JavaObject

pytestmark = pytest.mark.spark


def test_trap_two_queries_of_a_driver_write_their_first_rows_at_the_same_time(
    spark: SparkSession,
) -> None:
    """Both sent a jar; Spark took no second one, and put a trace of it into the driver's log."""
    together = Barrier(2)

    def load() -> JavaObject:
        together.wait()
        return java_functions.load(spark, "AtTheSameTime", ["public class AtTheSameTime {}"])

    with ThreadPoolExecutor(2) as pool:
        first, second = (one.result() for one in [pool.submit(load), pool.submit(load)])

    assert first is second
