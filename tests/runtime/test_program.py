"""Whether two programs are the same, by their digests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from savepoints.config.settings import KafkaSettings, QuerySettings
from savepoints.runtime import program
from savepoints.runtime.app import App, Output
from savepoints.runtime.inputs import Inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def inputs(output: Output) -> Inputs:
    app = App("counts", {}, lambda _: None, {"counts": output})  # type: ignore[arg-type,return-value]
    bound = QuerySettings(app=f"{__name__}:app", checkpoints="/checkpoints")
    return Inputs(app, bound, KafkaSettings())


def digest(frame: DataFrame, output: Output = Output("append")) -> str:  # noqa: B008
    return program.digest(program.text(frame), frame, inputs(output))


def counted(spark: SparkSession, step: int) -> DataFrame:
    """Return a program whose plan is the same for each step."""

    def count(key: Any, frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        state.update(((state.getOption or (0,))[0] + step * sum(map(len, frames)),))
        yield pd.DataFrame({"value": [key[0]], "n": [state.get[0]]})

    rows = spark.readStream.format("rate").load()
    return rows.groupBy("value").applyInPandasWithState(
        count, "value long, n long", "n long", "append", GroupStateTimeout.NoTimeout
    )


def mapped(spark: SparkSession, step: int) -> DataFrame:
    rows = spark.readStream.format("rate").load()
    one = F.udf(lambda n: n + step, "long")
    return rows.where(one("value") > 3).select(F.abs(one(F.col("value") + 1)).alias("n"))


def lettered(spark: SparkSession, step: int) -> DataFrame:
    """Return a program whose function takes more than a megabyte, which Spark broadcasts."""
    long = f"{step}" * 2_000_000
    rows = spark.readStream.format("rate").load()
    return rows.select(F.udf(lambda n: long[n % len(long)], "string")("value").alias("letter"))


def looked_up(spark: SparkSession, step: int) -> DataFrame:
    """Return a program whose function has a broadcast variable of the user's."""
    known = spark.sparkContext.broadcast({0: "a"})
    rows = spark.readStream.format("rate").load()
    return rows.select(
        F.udf(lambda n: known.value.get(n + step), "string")("value").alias("letter")
    )


@pytest.mark.parametrize("build", [counted, mapped, lettered, looked_up])
def test_trap_plans_have_only_the_names_of_python_functions(
    spark: SparkSession, build: Any
) -> None:
    assert digest(build(spark, 1)) == digest(build(spark, 1))
    assert digest(build(spark, 1)) != digest(build(spark, 2))


def test_outputs_belong_to_a_program(spark: SparkSession) -> None:
    frame = spark.readStream.format("rate").load()
    positive = Output("append", where="value > 0")
    assert digest(frame, positive) == digest(frame, Output("append", where="value > 0"))
    assert digest(frame, positive) != digest(frame)
