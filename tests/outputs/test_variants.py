"""Columns of type variant: Spark neither compares nor hashes their values.

The truth is what each value was made of.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from savepoints.model import OutputVersion
from savepoints.outputs.compare import by_key
from savepoints.outputs.correct import row_difference

pytestmark = pytest.mark.spark

# By key, the value in both tables; of some, JSON alone says that they are the same.
VALUES = {
    1: ('parse_json(\'{"a": 1, "b": [1, 2]}\')', 'parse_json(\'{"b": [1, 2], "a": 1}\')'),
    2: ("parse_json('{\"a\": 1}')", "parse_json('{\"a\": 2}')"),
    3: ("cast(date'2026-01-01' AS VARIANT)", "cast('2026-01-01' AS VARIANT)"),
    4: ("cast(null AS VARIANT)", "parse_json('null')"),
    5: ("cast(null AS VARIANT)", "cast(null AS VARIANT)"),
}
DIFFERENT = [2, 3, 4]


def sql(side: int) -> str:
    return " UNION ALL ".join(
        f"SELECT {key} AS k, array(named_struct('v', {value[side]})) AS v"
        for key, value in VALUES.items()
    )


def test_trap_tables_with_variants_could_not_be_compared(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It was an error of Spark, when the queries had already run."""
    pinned = []
    for side in (0, 1):
        uri = str(tmp_path / str(side))
        spark.sql(sql(side)).write.format("delta").save(uri)
        pinned.append(OutputVersion("events", uri, "", 0, "", None))

    found = by_key.compare_outputs(spark, *pinned, key=("k",))

    assert [one.key["k"] for one in found.sample] == DIFFERENT
    assert (found.equal, found.changed) == (len(VALUES) - len(DIFFERENT), len(DIFFERENT))


def test_trap_rows_with_variants_could_not_be_corrected(spark: SparkSession) -> None:
    found = row_difference.differing(spark.sql(sql(0)), spark.sql(sql(1)), "k")

    lost, got = found.changes
    assert sorted(row["k"] for row in lost.collect()) == DIFFERENT
    assert sorted((row["k"], str(row["v"])) for row in got.collect()) == sorted(
        (row["k"], str(row["v"])) for row in spark.sql(sql(1)).collect() if row["k"] in DIFFERENT
    )
