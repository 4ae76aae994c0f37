"""Rows of state as people give them, checked before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from savepoints.checkpoint.state.schema import StateField
from savepoints.errors import SeedRowsError
from savepoints.state.seed import given
from savepoints.state.seed.visible import Visible
from savepoints.state.typed.typed import Variable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TOTALS = Visible(
    Variable(0, "stateStoreSave", "rows"),
    {
        "key": (StateField("a", "string", True), StateField("b", "string", True)),
        "value": (StateField("n", "long", False),),
    },
    {},
)


def rows(
    spark: SparkSession, *found: tuple[tuple[str | None, str | None], int | None]
) -> DataFrame:
    data = [(key, (n,)) for key, n in found]
    return spark.createDataFrame(data, "key struct<a string, b string>, value struct<n long>")


def test_rows_of_one_key_are_counted_beside_other_faults(spark: SparkSession) -> None:
    wrong = rows(spark, (("a", None), 1), (("b", None), None), (("a", None), 2))

    with pytest.raises(SeedRowsError) as refused:
        given.checked(wrong, TOTALS)

    assert "1 of 3 rows have a null in value.n" in refused.value.message
    assert (
        '2 of 3 rows share their key with another row, for example {"key":{"a":"a","b":null}}'
        in (refused.value.message)
    )
