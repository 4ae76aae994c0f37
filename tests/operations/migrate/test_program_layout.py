"""What running a program on empty inputs shows of it, and what it says of one that fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from savepoints.errors import SavepointsError
from savepoints.io import Location
from savepoints.runtime import scratch_query
from savepoints.runtime.app import App, Input, Output
from savepoints.runtime.runner import run_on_nothing

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def raw(frame: DataFrame) -> DataFrame:
    """Give raw columns, which two inputs have in common."""
    return frame.select("key", "value")


def joined(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Read the second input first."""
    orders, clicks = inputs["orders"], inputs["clicks"]
    found = clicks.join(orders, clicks["key"] == orders["key"])
    return found.select(clicks["value"], F.length(orders["value"]).alias("n"))


def test_each_input_is_a_source_of_its_own_in_sparks_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs = {name: Input(name, raw, "key", "timestamp") for name in ("orders", "clicks")}
    app = App("q", inputs, joined, {"out": Output("append")})
    scratch = Location.of(str(tmp_path))

    run_on_nothing(spark, app, scratch)

    assert scratch_query.inputs_in_order(scratch / "checkpoint") == ["clicks", "orders"]


def test_a_program_that_spark_does_not_understand_is_said_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    app = App(
        "q",
        {"orders": Input("orders", lambda frame: frame.select("nothing"), "key", "timestamp")},
        lambda inputs: inputs["orders"],
        {"out": Output("append")},
    )

    with pytest.raises(SavepointsError, match="the program q fails on empty inputs") as caught:
        run_on_nothing(spark, app, Location.of(str(tmp_path)))

    assert "nothing" in caught.value.message
