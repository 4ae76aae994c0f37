"""Rows of a table as the events of its reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from savepoints.errors import IncompatibleError
from savepoints.sources.events.events import Decoding
from savepoints.sources.tables import events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

COLUMNS = ["n", "at"]


def decode(rows: DataFrame) -> DataFrame:
    return rows.where("n <> 3").selectExpr("*", "n % 2 AS odd")


DECODING = Decoding(decode, "odd", "at", ("n",))


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "SELECT n, timestamp_seconds(n) AS at, 'more' AS more FROM VALUES (1), (2), (3), (4), (2) "
        "AS t(n)"
    )


def numbers(frame: DataFrame) -> list[tuple[int, str]]:
    return sorted((row["n"], row["entity"]) for row in frame.collect())


def test_each_row_has_its_entity_and_what_decode_leaves_out_is_no_event(rows: DataFrame) -> None:
    found = events.events(rows, COLUMNS, DECODING)
    assert found.columns == [*COLUMNS, "entity", "event_time", "event_id"]
    assert numbers(found) == [(1, "1"), (2, "0"), (2, "0"), (4, "0")]


def test_rows_are_taken_away_and_added_as_often_as_they_are_there(
    spark: SparkSession, rows: DataFrame
) -> None:
    every = events.events(rows, COLUMNS, DECODING)
    even = events.of_entities(every, spark.createDataFrame([("0",)], "entity string"))
    assert numbers(even) == [(2, "0"), (2, "0"), (4, "0")]
    removed, added = even.where("n = 2").limit(1), even.where("n = 4")
    assert numbers(events.corrected(even, removed, added)) == [(2, "0"), (4, "0"), (4, "0")]


def test_a_decode_that_drops_what_it_does_not_know_is_refused(rows: DataFrame) -> None:
    only = Decoding(lambda found: found.select("n", "at"), "n", "at", ("n",))
    with pytest.raises(IncompatibleError, match="an event cannot be matched to its row"):
        events.events(rows, COLUMNS, only)


def test_trap_rows_that_belong_to_nobody_are_refused(rows: DataFrame) -> None:
    """No entity equals nothing: they would be left out of the replay."""
    nobody = Decoding(
        lambda found: found.selectExpr("*", "nullif(n, 4) AS who"), "who", "at", ("n",)
    )
    found = events.events(rows, COLUMNS, nobody)
    with pytest.raises(IncompatibleError, match="1 changed row without a value in entity_key"):
        events.require_entities(found)
    events.require_entities(found.where("n < 4"))
