"""Comparing the state of controls: by bytes, by place in a list, by key in the buffer of a join."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from savepoints.checkpoint.state.layout import Layout
from savepoints.checkpoint.state.operators import Operator
from savepoints.checkpoint.state.schema import StateField, StateSchema
from savepoints.state.merge import controls
from savepoints.state.merge.controls import StateControls
from tests.state.given_rows import GivenRow, GivenRows, number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def layout_of(*values: tuple[str, str]) -> Layout:
    """Return a layout with value columns: names and types."""
    fields = tuple(StateField(name, kind) for name, kind in values)
    return {(0, "default"): (StateSchema("default", (StateField("k", "string"),), fields),)}


LAYOUT = layout_of(("total", "double"))


def compared(
    spark: SparkSession,
    live: Sequence[GivenRow],
    replayed: Sequence[GivenRow],
    *,
    families: bool = False,
    tolerance: float = 0.0,
    layout: Layout = LAYOUT,
) -> StateControls:
    """Compare the rows of the controls `a` and `b`."""
    operator = Operator(0, "some", ("default",), 2, has_column_families=families)
    return controls.compare_states(
        GivenRows(spark, "k string", live),
        GivenRows(spark, "k string", replayed),
        [operator],
        {0: "k"},
        spark.createDataFrame([("a",), ("b",)], "entity string"),
        layout=layout,
        tolerance=tolerance,
    )


def row(k: str, value: float, *, family: str = "default", at: int = 0, key: str = "") -> GivenRow:
    """Return a row of an entity."""
    return family, (k,), at, (key or k).encode(), number(value)


def test_equal_rows_are_equal_and_counted(spark: SparkSession) -> None:
    """In whatever order; those of others are not looked at."""
    live = [row("a", 1), row("b", 2), row("other", 3)]
    found = compared(spark, live, [row("b", 2, at=7), row("a", 1), row("other", 4)])
    assert found == StateControls(2, 0, 0, ())
    assert found.equal


def test_differences_are_named(spark: SparkSession) -> None:
    """Another value, a row that is missing and one too many, decoded where the schema is known."""
    found = compared(spark, [row("a", 1), row("b", 2)], [row("a", 5), row("a", 7, key="a2")])
    assert not found.equal
    assert found.different == 4
    assert [(one.entity, one.live, one.replayed) for one in found.sample] == [
        ("a", "{'total': 1.0}", "{'total': 5.0}"),
        ("a", None, "{'total': 7.0}"),
        ("b", "{'total': 2.0}", None),
    ]


def test_the_order_of_a_list_counts(spark: SparkSession) -> None:
    """Its elements are rows of one key."""
    live = [row("a", 1, at=3), row("a", 2, at=9)]
    same, swapped = [row("a", 1, at=0), row("a", 2, at=1)], [row("a", 2, at=0), row("a", 1, at=1)]
    assert compared(spark, live, same, families=True).equal
    assert compared(spark, live, swapped, families=True).different == 4


def test_trap_the_index_of_a_row_in_a_join_does_not_count(spark: SparkSession) -> None:
    """It depends on the order in which rows came; how often a row is there does."""
    family = "left-keyWithIndexToValue"
    live = [row("a", v, family=family, key=f"a{at}") for at, v in enumerate((1, 2, 2))]
    other = [row("a", v, family=family, key=f"a{at}") for at, v in enumerate((2, 1, 2))]
    assert compared(spark, live, other, families=True).equal
    assert compared(spark, live, [*other[:2], other[1]], families=True).different == 2


def test_trap_sums_of_floating_point_numbers_depend_on_their_order(spark: SparkSession) -> None:
    """They differ in the last bit, which has to be allowed."""
    live, replayed = [row("a", 0.1 + 0.2 + 0.3)], [row("a", 0.3 + 0.2 + 0.1)]
    assert compared(spark, live, replayed).different == 2
    allowed = compared(spark, live, replayed, tolerance=1e-9)
    assert allowed.equal
    assert allowed.tolerated == 2
    assert not compared(spark, live, [row("a", 0.61)], tolerance=1e-9).equal


def test_trap_of_columns_of_one_name_only_the_last_was_compared_where_some_tolerance_is(
    spark: SparkSession,
) -> None:
    """As of two sums: any difference of the first was tolerated, and shown by two equal texts."""
    sums = layout_of(("sum", "double"), ("sum", "double"))

    def both(first: float, second: float) -> list[GivenRow]:
        return [("default", ("a",), 0, b"a", struct.pack("<qdd", 0, first, second))]

    found = compared(spark, both(1, 0.6), both(2, 0.6), layout=sums, tolerance=1e-9)
    assert [(one.live, one.replayed) for one in found.sample] == [
        ("{'sum': 1.0, 'sum_2': 0.6}", "{'sum': 2.0, 'sum_2': 0.6}")
    ]
    last = both(1, 0.1 + 0.2 + 0.3), both(1, 0.3 + 0.2 + 0.1)
    assert compared(spark, *last, layout=sums, tolerance=1e-9).tolerated == 2


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_trap_a_time_after_the_year_9999_is_none_of_pythons(spark: SparkSession, kind: str) -> None:
    """Milliseconds taken for seconds are such times; it was an unexpected error."""

    def at(moment: int) -> list[GivenRow]:
        word = struct.pack("<ii", moment, 0) if kind == "date" else struct.pack("<q", moment)
        return [("default", ("a",), 0, b"a", bytes(8) + word)]

    far = 20_000_000 if kind == "date" else 1_792_891_800_000 * 1_000_000
    found = compared(spark, at(far), at(0), layout=layout_of(("max", kind)))
    assert found.different == 2


def test_trap_a_side_without_state_makes_spark_forget_what_it_observed(spark: SparkSession) -> None:
    """Controls may have none, live or replayed; with an adapted plan nothing was observed then."""
    adapting = spark.newSession()
    adapting.conf.set("spark.sql.adaptive.enabled", "true")
    assert compared(adapting, [row("other", 1)], []) == StateControls(0, 0, 0, ())
    assert compared(adapting, [], [row("a", 1)]).different == 1
