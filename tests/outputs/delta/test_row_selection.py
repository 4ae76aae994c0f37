"""Parts of a result: which are refused, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from savepoints.errors import UsageError
from savepoints.outputs.delta.row_selection import RowSelection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture
def result(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], "k string, n bigint, at timestamp")


@pytest.mark.parametrize(
    ("where", "beside"),
    [
        ("rand() < 0.5", "chance"),
        ("k = uuid()", "chance"),
        ("at < current_timestamp()", "the clock"),
        ("date(at) = current_date()", "the clock"),
        ("n > (SELECT 1)", "other rows"),
        ("n IN (SELECT 1)", "other rows"),
    ],
)
def test_trap_a_predicate_that_is_not_of_the_row_alone_is_refused(
    result: DataFrame, where: str, beside: str
) -> None:
    """A batch that is run again after a kill would choose other rows."""
    with pytest.raises(UsageError, match=f"depends on {beside}") as refused:
        RowSelection(where).checked(result, "some")

    assert "'some'" in str(refused.value)


@pytest.mark.parametrize(
    ("selection", "named"),
    [
        (RowSelection("m > 1"), "`m`"),
        (RowSelection("n + 1"), "BIGINT"),
        (RowSelection("n >"), "Syntax error"),
        (RowSelection(columns=("k", "m")), "`m`"),
    ],
)
def test_a_part_that_the_result_does_not_have_is_refused_with_the_columns(
    result: DataFrame, selection: RowSelection, named: str
) -> None:
    with pytest.raises(UsageError, match=named) as refused:
        selection.checked(result, "some")

    assert "k, n, at" in refused.value.hint


def test_of_a_part_the_columns_are_in_the_order_of_the_table(result: DataFrame) -> None:
    """The predicate may name a column that the table does not have."""
    part = RowSelection("at > timestamp '2026-11-25' AND n > 1", ("n", "k"))

    assert part.checked(result, "some").columns == ["n", "k"]
