"""Comparing state row by row; the truth is computed with dictionaries."""

from __future__ import annotations

import math
import random
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from savepoints.state.typed.compare import RowChange, VariableDifference, compare_variables
from savepoints.state.typed.typed import VariableKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.drawn(8)]

PLACE = ", partition_id int"


def frame(spark: SparkSession, rows: list[Any], schema: str) -> DataFrame:
    """A frame whose rows lie in any order and partition."""
    shuffled = random.sample(rows, len(rows))
    placed = [(*row, random.randrange(5)) for row in shuffled]
    return spark.createDataFrame(placed, schema + PLACE).repartition(random.randrange(1, 4))


def differences(frames: list[DataFrame], kind: VariableKind, sample: int) -> VariableDifference:
    before, after = frames
    return compare_variables(before, after, kind, sample)


def counts(found: VariableDifference) -> tuple[int, int, int]:
    return found.added, found.removed, found.changed


def test_random_states_differ_as_dictionaries_do(spark: SparkSession) -> None:
    schema = "key struct<a:string,b:int>, value struct<n:long,m:map<string,double>>"
    for _ in range(2):
        before, after = (
            {
                (random.choice([None, "x", "y"]), random.randrange(40)): (
                    random.choice([None, 1, 2]),
                    random.choice([None, {}, {"p": 0.5, "q": float("nan")}]),
                )
                for _ in range(60)
            }
            for _ in range(2)
        )
        frames = [frame(spark, list(one.items()), schema) for one in (before, after)]

        found = differences(frames, "rows", 1000)

        common = before.keys() & after.keys()
        assert counts(found) == (
            len(after.keys() - before.keys()),
            len(before.keys() - after.keys()),
            sum(repr(before[key]) != repr(after[key]) for key in common),
        )
        assert len(found.sample) == sum(counts(found))
        assert counts(compare_variables(frames[0], frames[0], "rows", 1)) == (0, 0, 0)


def test_maps_are_equal_in_any_order_and_lists_are_not(spark: SparkSession) -> None:
    maps = [
        spark.sql(f"SELECT struct(1 AS k) AS key, struct({text} AS m) AS value")
        for text in (
            "map('a', map(1, 1, 2, 2), 'b', map())",
            "map('b', map(), 'a', map(2, 2, 1, 1))",
            "map('b', map(), 'a', map(2, 1, 1, 1))",
        )
    ]
    lists = [
        frame(spark, [((1,), value)], "key struct<k:int>, value array<struct<v:int>>")
        for value in ([(1,), (2,)], [(2,), (1,)])
    ]

    assert differences(maps[:2], "rows", 1).equal
    assert counts(differences(maps[1:], "rows", 1)) == (0, 0, 1)
    assert counts(differences(lists, "list", 1)) == (0, 0, 1)


def test_trap_intervals_that_spark_cannot_order_are_compared(spark: SparkSession) -> None:
    """Those of months, days and time; `diff` ended with what Spark says of its own operator."""
    intervals = [
        spark.sql(
            f"SELECT struct(1 AS k) AS key, struct(i AS i, array(i) AS a) AS value "
            f"FROM (SELECT make_interval({text}) AS i)"
        )
        for text in ("1, 2, 0, 3", "0, 14, 0, 3", "1, 2, 0, 2, 24")
    ]

    assert differences([intervals[0], intervals[1]], "rows", 1).equal
    # A day need not have 24 hours.
    found = differences([intervals[0], intervals[2]], "rows", 1)
    assert counts(found) == (0, 0, 1)
    assert found.sample[0].before == {
        "value": {"i": "1 years 2 months 3 days", "a": ["1 years 2 months 3 days"]}
    }


@pytest.mark.nightly
def test_zeros_and_nans_are_each_one_in_keys_and_values(spark: SparkSession) -> None:
    """As to Spark, which groups and joins them as one; the next number is another."""
    schema = "key struct<d:double,f:float>, value struct<d:double,a:array<double>,m:map<int,float>>"
    other_nan = struct.unpack("<d", struct.pack("<q", -1))[0]
    same = [
        [((zero, zero), (zero, [zero, nan], {1: zero})), ((nan, nan), (nan, [nan], {1: nan}))]
        for zero, nan in ((0.0, math.nan), (-0.0, other_nan))
    ]
    before, after = (frame(spark, rows, schema) for rows in same)

    assert differences([before, after], "rows", 1).equal
    tiny = [((5e-324, 0.0), (0.0, [0.0, math.nan], {1: 0.0})), same[0][1]]
    assert counts(differences([before, frame(spark, tiny, schema)], "rows", 1)) == (1, 1, 0)
    tiny = [((0.0, 0.0), (5e-324, [0.0, math.nan], {1: 0.0})), same[0][1]]
    assert counts(differences([before, frame(spark, tiny, schema)], "rows", 1)) == (0, 0, 1)


def test_the_sample_has_the_first_rows_of_each_difference(spark: SparkSession) -> None:
    schema = "key struct<k:int>, value struct<n:int>"
    before = frame(spark, [((k,), (0,)) for k in range(12)], schema)
    after = frame(spark, [((k,), (k // 20,)) for k in range(8, 30)], schema)
    changed = frame(spark, [((k,), (1 - k % 2,)) for k in range(12)], schema)

    found = compare_variables(before, after, "rows", 2)

    assert counts(found) == (18, 8, 0)
    assert found.sample == (
        RowChange("added", {"key": {"k": 12}}, None, {"value": {"n": 0}}),
        RowChange("added", {"key": {"k": 13}}, None, {"value": {"n": 0}}),
        RowChange("removed", {"key": {"k": 0}}, {"value": {"n": 0}}, None),
        RowChange("removed", {"key": {"k": 1}}, {"value": {"n": 0}}, None),
    )
    found = compare_variables(before, changed, "rows", 1)
    assert found.sample == (
        RowChange("changed", {"key": {"k": 0}}, {"value": {"n": 0}}, {"value": {"n": 1}}),
    )
    assert counts(found) == (0, 0, 6)
    assert compare_variables(before, changed, "rows", 0).sample == ()


def test_entries_of_maps_and_timers_are_rows_of_their_own(spark: SparkSession) -> None:
    schema = "key struct<k:int>, map_key struct<m:int>, value struct<n:int>, expires_at_ms long"
    maps = [
        frame(spark, [((1,), (m,), (n,), expires) for m, n, expires in rows], schema)
        for rows in ([(1, 1, 5), (2, 2, 5), (3, 3, 5)], [(2, 2, 6), (3, 3, 5), (4, 4, 5)])
    ]
    timers = [
        frame(spark, [((k,), at) for k, at in rows], "key struct<k:int>, fires_at_ms long")
        for rows in ([(1, 5), (2, 5)], [(1, 5), (1, 6), (2, 6)])
    ]

    found = differences(maps, "map", 1)
    assert counts(found) == (1, 1, 1)
    assert found.sample[0].row == {"key": {"k": 1}, "map_key": {"m": 4}}
    assert found.sample[1].before == {"value": {"n": 2}, "expires_at_ms": 5}
    found = differences(timers, "timers", 1)
    assert counts(found) == (2, 1, 0)
    assert found.sample[0] == RowChange("added", {"key": {"k": 1}, "fires_at_ms": 6}, None, {})


JOINED = "key struct<field0:int>, value struct<k:int,v:int,matched:boolean>"


def test_buffered_rows_are_a_bag_and_become_matched(spark: SparkSession) -> None:
    """A row that is there several times is compared as often, matched ones with matched ones."""
    for seed in range(3):
        chance = random.Random(seed)
        bags = [
            {(v, matched): chance.randrange(5) for v in range(6) for matched in (True, False)}
            for _ in range(2)
        ]
        added = removed = changed = 0
        for v in range(6):
            (matched, rest), (matched_now, rest_now) = (
                (one[v, True], one[v, False]) for one in bags
            )
            kept = min(matched + rest, matched_now + rest_now)
            added += matched_now + rest_now - kept
            removed += matched + rest - kept
            changed += abs(min(matched, kept) - min(matched_now, kept))
        frames = [
            frame(spark, [((1,), (1, *row)) for row in Counter(one).elements()], JOINED)
            for one in bags
        ]

        assert counts(differences(frames, "side", 100)) == (added, removed, changed)


def test_a_row_that_became_matched_has_changed(spark: SparkSession) -> None:
    before = frame(spark, [((1,), (1, 7, False)), ((1,), (1, 7, True))], JOINED)
    after = frame(
        spark, [((1,), (1, 7, True)), ((1,), (1, 7, True)), ((2,), (2, 9, False))], JOINED
    )

    found = compare_variables(before, after, "side", 5)

    assert found.sample == (
        RowChange(
            "added", {"key": {"field0": 2}, "value": {"k": 2, "v": 9}}, None, {"matched": False}
        ),
        RowChange(
            "changed",
            {"key": {"field0": 1}, "value": {"k": 1, "v": 7}, "number": 2},
            {"matched": False},
            {"matched": True},
        ),
    )


@pytest.mark.parametrize(
    ("kind", "schema", "rows", "found"),
    [
        ("rows", "value struct<n:int>", [[((1,),)], [((2,),)]], (0, 0, 1)),
        ("rows", "value struct<n:int>", [[], [((2,),)]], (1, 0, 0)),
        ("rows", "key struct<k:int>", [[((1,),), ((2,),)], [((2,),)]], (0, 1, 0)),
        ("rows", "key struct<k:int>", [[], []], (0, 0, 0)),
    ],
)
def test_rows_without_key_or_without_value(
    kind: VariableKind,
    schema: str,
    rows: list[Any],
    found: tuple[int, int, int],
    spark: SparkSession,
) -> None:
    frames = [frame(spark, one, schema) for one in rows]

    assert counts(differences(frames, kind, 1)) == found


def test_other_names_are_a_layout_and_no_difference(spark: SparkSession) -> None:
    before = frame(spark, [((1,), (2,))], "key struct<k:int>, value struct<n:int>")
    after = frame(spark, [((1,), (2,))], "key struct<customer:int>, value struct<count:int>")

    found = compare_variables(before, after, "rows", 1)

    assert found.equal
    assert found.layout is not None
    assert "customer" in found.layout.after


def test_trap_what_may_be_null_inside_of_a_value_is_no_difference(spark: SparkSession) -> None:
    """Spark refuses to take a value that may have a null inside for one that may have none."""
    named = "named_struct('k', named_struct('a', {0}), 'l', array({0})) AS key"
    never, maybe = (
        spark.range(first, first + 3).selectExpr(
            named.format(one), f"named_struct('n', {one}) AS value"
        )
        for first, one in ((0, "id"), (1, "nullif(id, 77)"))
    )

    for before, after in ((never, maybe), (maybe, never)):
        found = compare_variables(before, after, "rows", 0)
        assert counts(found) == (1, 1, 0)
        assert found.layout is None


def test_other_types_are_compared_as_json(spark: SparkSession) -> None:
    before = frame(spark, [((1,), (2,)), ((2,), (3,))], "key struct<k:int>, value struct<n:int>")
    after = frame(
        spark,
        [((1,), (2, None)), ((3,), (3, 1))],
        "key struct<k:long>, value struct<n:long,most:int>",
    )

    found = compare_variables(before, after, "rows", 1)

    assert counts(found) == (1, 1, 1)
    assert found.sample[1] == RowChange(
        "changed", {"key": {"k": 1}}, {"value": {"n": 2}}, {"value": {"n": 2, "most": None}}
    )


def test_a_variable_that_only_one_has_is_added_or_removed(spark: SparkSession) -> None:
    one = frame(spark, [((1,), (2,)), ((2,), (3,))], "key struct<k:int>, value struct<n:int>")

    assert counts(compare_variables(None, one, "value", 1)) == (2, 0, 0)
    assert counts(compare_variables(one, None, "value", 1)) == (0, 2, 0)
