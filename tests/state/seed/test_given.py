"""Rows of state as people give them, checked before anything is written."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, cast

import pytest

from savepoints.checkpoint.state.schema import SparkType, StateField
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

    assert "rows that have a null in value.n: 1 of 3" in refused.value.message
    assert (
        'rows that share their key with another row: 2 of 3, for example {"key":{"a":"a","b":null}}'
        in (refused.value.message)
    )


def test_a_null_is_found_where_no_key_is_doubled(spark: SparkSession) -> None:
    with pytest.raises(SeedRowsError, match=r"rows that have a null in value\.n: 1 of 2"):
        given.checked(rows(spark, (("a", None), 1), (("b", None), None)), TOTALS)


def test_trap_different_keys_may_have_the_same_hash(spark: SparkSession) -> None:
    """Spark's hash passes over nulls, wherever they are."""
    alike = rows(spark, (("a", None), 1), ((None, "a"), 2), (("b", "c"), 3))
    assert alike.selectExpr("xxhash64(key, 0)").distinct().count() == 2

    assert given.checked(alike, TOTALS) == 3


def test_rows_of_one_key_are_found_wherever_they_are(spark: SparkSession) -> None:
    keys = [(str(n), "x") for n in range(500)]
    doubled = rows(spark, *((key, 1) for key in [*keys, keys[77]])).repartition(7)

    with pytest.raises(SeedRowsError, match="rows that share their key with another row: 2 of 501"):
        given.checked(doubled, TOTALS)


def test_a_side_of_a_join_may_have_several_rows_of_a_key(spark: SparkSession) -> None:
    side = dataclasses.replace(TOTALS, variable=Variable(0, "symmetricHashJoin", "side", "left"))
    found = rows(spark, (("a", None), 1), (("a", None), 1))

    assert given.checked(found, side) == 2
    with pytest.raises(SeedRowsError, match=r"rows that have a null in value\.n: 1 of 3"):
        given.checked(found.union(rows(spark, (("a", None), None))), side)


def test_state_without_a_key_is_one_row(spark: SparkSession) -> None:
    total = dataclasses.replace(TOTALS, structs={"value": TOTALS.structs["value"]})
    one = rows(spark, (("a", None), 1)).select("value")

    assert given.checked(one, total) == 1
    with pytest.raises(SeedRowsError, match="rows that share their state with another row: 2 of 2"):
        given.checked(one.union(one), total)


def _type(text: str) -> object:
    """Return a type in which nothing may be null, as Spark's JSON."""
    from pyspark.sql.types import _parse_datatype_string

    found = _parse_datatype_string(text).jsonValue()
    return json.loads(json.dumps(found).replace(": true", ": false"))


@pytest.mark.parametrize(
    ("kind", "value", "place"),
    [
        ("struct<a:bigint>", "named_struct('a', {})", "key.s.a"),
        ("array<bigint>", "array(7, {})", "key.s.element"),
        ("array<struct<b:array<bigint>>>", "array(named_struct('b', array({})))",
         "key.s.element.b.element"),
        ("map<string,bigint>", "map('x', {})", "key.s.value"),
    ],
)  # fmt: skip
def test_trap_a_null_inside_of_a_value_is_read_as_a_number(
    kind: str, value: str, place: str, spark: SparkSession
) -> None:
    """Files say of everything that it may be null, and so must rows without any be taken."""
    state = Visible(
        Variable(0, "applyInPandasWithState", "side"),
        {
            "key": (StateField("s", cast("SparkType", _type(kind))),),
            "value": (StateField("n", "long"),),
        },
        {},
    )
    some = value.format("IF(id < 2, NULL, id)")
    found = spark.range(5).selectExpr(f"IF(id = 4, NULL, {some}) AS s", "id AS n")

    assert given.checked(given.bound(found.where("n > 1"), state), state) == 3
    with pytest.raises(SeedRowsError, match=f"rows that have a null in {place}: 2 of 5"):
        given.checked(given.bound(found, state), state)
