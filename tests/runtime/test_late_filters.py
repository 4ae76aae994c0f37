"""Where programs drop late rows, by Spark's plan of them; what cannot be told is refused.

Nothing is run but the part of a program in front of its operators. That just these rows are missing
from the result is in `tests/fidelity/test_dropped_oracle.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from pyspark.sql import functions as F

from savepoints.errors import IncompatibleError
from savepoints.runtime import late_filters
from savepoints.runtime.late_filters import LateFilter
from savepoints.sources.events.events import RAW_SCHEMA
from savepoints.spark import private_api
from tests.fidelity.merge_cases import decode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Build = Callable[[Sequence["DataFrame"]], "DataFrame"]


def timed(frame: DataFrame, column: str = "t") -> DataFrame:
    return frame.withWatermark(column, "10 seconds")


def windowed(frame: DataFrame) -> DataFrame:
    return frame.groupBy(F.window("t", "10 seconds"), "k").count()


def joined(inputs: Sequence[DataFrame]) -> DataFrame:
    left, right = timed(inputs[0].select("k", "t")), inputs[1].selectExpr("k AS k2", "t AS t2")
    return left.join(timed(right, "t2"), F.expr("k = k2 AND t2 BETWEEN t AND t + INTERVAL 1 HOUR"))


def found(spark: SparkSession, place: Path, build: Build, mode: str = "append") -> list[LateFilter]:
    session = spark.newSession()
    inputs = []
    for number in range(2):
        source = place / f"in{number}"
        source.mkdir()
        inputs.append(decode(session.readStream.schema(RAW_SCHEMA).parquet(str(source))))
    times = {late_filters.column_id(one, "t") for one in inputs}
    return late_filters.find(session, build(inputs), times, mode)


@pytest.mark.parametrize(
    ("build", "mode", "names"),
    [
        (lambda inputs: windowed(timed(inputs[0])), "append", ["operator 0 (aggregation)"]),
        (lambda inputs: windowed(timed(inputs[0])), "update", ["operator 0 (aggregation)"]),
        (lambda inputs: windowed(timed(inputs[0])), "complete", []),
        (lambda inputs: windowed(inputs[0]), "update", []),
        (lambda inputs: timed(inputs[0]).groupBy("k").agg(F.max("t")), "update", []),
        (
            lambda inputs: timed(inputs[0]).dropDuplicates(["k"]),
            "append",
            ["operator 0 (dropDuplicates)"],
        ),
        (
            lambda inputs: timed(inputs[0]).dropDuplicatesWithinWatermark(["k"]).select("k"),
            "append",
            ["operator 0 (dropDuplicatesWithinWatermark)"],
        ),
        (
            joined,
            "append",
            ["operator 0 (left side of a join)", "operator 0 (right side of a join)"],
        ),
        (
            lambda inputs: windowed(timed(inputs[0]).dropDuplicates(["k", "t"])),
            "append",
            ["operator 1 (dropDuplicates)"],
        ),
    ],
    ids=[
        *("append", "update", "complete", "no watermark", "no time in the key", "dedupe"),
        *("within", "join", "chain"),
    ],
)
def test_what_drops_late_rows(
    spark: SparkSession, tmp_path: Path, build: Build, mode: str, names: list[str]
) -> None:
    assert [one.name for one in found(spark, tmp_path, build, mode)] == names


def test_trap_a_time_that_does_not_reach_the_operator_drops_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's optimizer has removed the column that nothing needs; in the program it is there."""

    def build(inputs: Sequence[DataFrame]) -> DataFrame:
        return timed(inputs[0]).dropDuplicates(["k"]).select("k")

    assert found(spark, tmp_path, build) == []


def test_trap_positions_are_found_though_the_program_leaves_them_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    def build(inputs: Sequence[DataFrame]) -> DataFrame:
        few = timed(inputs[0].select("k", "t", F.explode(F.array("v", "v")).alias("v")))
        return few.groupBy(F.window("t", "20 seconds", "10 seconds"), "v").count()

    (one,) = found(spark, tmp_path, build)
    assert one.rows.columns == ["topic", "partition", "offset", "compared"]


def test_trap_a_window_is_late_by_its_end(spark: SparkSession, tmp_path: Path) -> None:
    """By its start, events behind the watermark whose window is open would count as dropped."""
    (one,) = found(spark, tmp_path, lambda inputs: windowed(timed(inputs[0])))
    ends = private_api.analyzed_plan(one.rows).expressions().last()
    assert (str(ends.name()), str(ends.child().name().get())) == ("compared", "end")


def _same(chunks: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    yield from chunks


def _through_pandas(inputs: Sequence[DataFrame]) -> DataFrame:
    return windowed(timed(inputs[0].select("k", "t").mapInPandas(_same, "k string, t timestamp")))


def _by_another_time(inputs: Sequence[DataFrame]) -> DataFrame:
    other = inputs[0].withColumn("t", F.expr("t + INTERVAL 1 HOUR"))
    return windowed(timed(other))


def _union(inputs: Sequence[DataFrame]) -> DataFrame:
    return windowed(timed(inputs[0].select("k", "t")).union(timed(inputs[1].select("k", "t"))))


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (_through_pandas, "the watermark is defined on t, which is not the event time of an input"),
        (
            _by_another_time,
            "the watermark is defined on t, which is not the event time of an input",
        ),
        (_union, "reads through Union"),
    ],
    ids=["pandas", "another time", "union"],
)
def test_what_cannot_be_told_is_refused(
    spark: SparkSession, tmp_path: Path, build: Build, why: str
) -> None:
    with pytest.raises(IncompatibleError, match="cannot determine which rows") as refused:
        found(spark, tmp_path, build)
    assert why in refused.value.message


def test_sessions_that_are_merged_first_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    def build(inputs: Sequence[DataFrame]) -> DataFrame:
        session = F.session_window("t", "6 seconds")
        frame = timed(inputs[0])
        key = "spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition"
        frame.sparkSession.conf.set(key, "true")
        return frame.groupBy(session, "k").count()

    with pytest.raises(IncompatibleError, match="merged before late rows are dropped"):
        found(spark, tmp_path, build)
