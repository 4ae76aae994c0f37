"""Controls in an output: they come out as live has them, or it is said how they do not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from savepoints.errors import IncompatibleError
from savepoints.outputs.correct import controls
from savepoints.outputs.correct.controls import OutputControls
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta.row_selection import EVERYTHING, RowSelection
from tests import draw
from tests.outputs.tables import recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.drawn(4)

LIVE = "shop/sums/1"
Row = tuple[str, int, float]
# Base, and what came after it.
EARLY: list[Row] = [("a", 1, 0.5), ("b", 1, 0.5), ("k", 1, 0.5)]
LATER: list[Row] = [("a", 2, 0.1), ("a", 2, 0.1), ("b", 2, 0.3), ("k", 2, 7.0)]


def compared(
    spark: SparkSession,
    uri: Path,
    replayed: Sequence[Row],
    tolerance: float = 0.0,
    selection: RowSelection = EVERYTHING,
) -> OutputControls:
    """Compare the controls a and b; k is touched by the late batch."""
    names = ("client", "day", "total")
    for number, rows in enumerate((EARLY, LATER)):
        data = {name: [one[n] for one in rows] for n, name in enumerate(names)}
        write_deltalake(
            str(uri), pa.table(data), mode="append", commit_properties=recorded(LIVE, number)
        )
    base, live = (batch_version.version_of_batch("sums", str(uri), [LIVE], n) for n in (0, 1))
    written = [(*one, 0) for one in replayed]
    return controls.compare_rows(
        spark,
        live,
        spark.createDataFrame(
            [("a", base.version), ("b", base.version)], "entity string, version bigint"
        ),
        spark.createDataFrame(written, "client string, day bigint, total double, replay_slice int"),
        mode="append",
        key=(),
        entity="client",
        everybody=spark.createDataFrame([("a",), ("b",), ("k",)], "entity string"),
        tolerance=tolerance,
        selection=selection,
    )


@pytest.mark.spark
def test_controls_that_come_out_the_same_have_no_difference(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Touched entities come out otherwise, which is what a merge is for."""
    found = compared(spark, tmp_path / "sums", [*LATER[:3], ("k", 2, 8.0)])

    assert found == OutputControls("sums", 0, 0, 0, ())


@pytest.mark.spark
def test_rows_that_differ_are_counted_and_shown(spark: SparkSession, tmp_path: Path) -> None:
    """A row once instead of twice differs, too."""
    found = compared(spark, tmp_path / "sums", [("a", 2, 0.1), ("b", 2, 0.25)])

    assert (found.entities, found.missing, found.extra) == (2, 2, 1)
    assert found.sample == (
        {"difference": "missing", "row": {"client": "a", "day": 2, "total": 0.1}},
        {"difference": "extra", "row": {"client": "b", "day": 2, "total": 0.25}},
        {"difference": "missing", "row": {"client": "b", "day": 2, "total": 0.3}},
    )


@pytest.mark.spark
@draw.taking_turns("another predicate", "not a number")
def test_trap_a_program_with_another_predicate_of_its_output_is_found_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    """No column and no row of state differs; the table was written with the predicate before."""
    found = compared(spark, tmp_path / "sums", LATER, selection=RowSelection("total < 0.2"))

    assert (found.entities, found.missing, found.extra) == (1, 1, 0)


@pytest.mark.spark
def test_numbers_may_differ_by_the_share_that_was_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    replayed = [("a", 2, 0.1), ("a", 2, 0.1), ("b", 2, 0.1 + 0.2)]
    assert replayed[2] != LATER[2], "the last bits depend on the order of additions"

    strict = compared(spark, tmp_path / "strict", replayed)
    close = compared(spark, tmp_path / "close", replayed, tolerance=1e-9)
    far = compared(spark, tmp_path / "far", [*replayed[:2], ("b", 2, 0.31)], tolerance=1e-9)

    assert [one.entities for one in (strict, close, far)] == [1, 0, 1]
    assert (far.missing, far.extra) == (1, 1)


@pytest.mark.spark
@draw.taking_turns("not a number", "another predicate")
@pytest.mark.parametrize("total", draw.some(1, [math.nan, math.inf], "total"))
def test_trap_spark_takes_nan_and_infinity_for_close_to_any_number(
    total: float, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark orders NaN above all numbers, and the distance to infinity is a share of it."""
    replayed = [*LATER[:2], ("b", 2, total)]

    found = compared(spark, tmp_path / "sums", replayed, tolerance=0.5)

    assert (found.missing, found.extra) == (1, 1)


@pytest.mark.spark
def test_rows_of_entities_that_were_not_replayed_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The output calls them otherwise, so none would be found, and nothing would seem to differ."""
    with pytest.raises(IncompatibleError, match="client = 'A'"):
        compared(spark, tmp_path / "sums", [("A", 2, 0.1)])
