"""Rows that are written by columns, beside what Spark's own writer and functions make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from savepoints.io import Location
from savepoints.state.storage import canonical_table, new_table, row_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

_PARTITIONS = 3
# A key of each type that can be written by columns, and of a struct, such as a window.
_KEY = """
named_struct(
  'text', IF(id % 5 = 0, NULL, concat('ключ ', id)), 'raw', IF(id % 7 = 0, NULL, unhex(hex(id))),
  'byte', CAST(id % 100 - 50 AS BYTE), 'short', CAST(-id % 30000 AS SHORT), 'int', CAST(id AS INT),
  'long', IF(id % 2 = 0, NULL, id * 10000000000), 'float', CAST(id / 3 AS FLOAT),
  'double', IF(id = 9, DOUBLE('NaN'), id / 7), 'day', DATE '1500-03-01' + CAST(id % 200000 AS INT),
  'at', TIMESTAMP_MICROS(id * 1000001 - 20000000000000000), 'local', CAST(
    TIMESTAMP_MICROS(id) AS TIMESTAMP_NTZ),
  'window', IF(id % 11 = 0, NULL, named_struct(
    'start', IF(id % 3 = 0, NULL, TIMESTAMP_MICROS(id)), 'end', TIMESTAMP_MICROS(id + 1))))
"""


def some(spark: SparkSession, operator_id: int, store: str, key: str, count: int) -> DataFrame:
    """Return rows of one store, each in the state partition that its hash determines."""
    rows = spark.range(0, count, 1, _PARTITIONS).selectExpr(
        f"{operator_id} AS operator_id", f"'{store}' AS store_name",
        "concat('family ', id % 2) AS column_family", "'an operator' AS operator_name",
        "CAST(hash(id) AS INT) AS key_hash", "id AS ord",
        "CAST(concat('key ', id) AS BINARY) AS key_bytes",
        # One value is longer than a page.
        "CAST(CASE WHEN id % 13 = 0 THEN NULL WHEN id = 100 THEN repeat('v', 9000000) "
        "ELSE repeat('v', CAST(id % 50 AS INT)) END AS BINARY) AS value_bytes",
        f"{key} AS key",
    )  # fmt: skip
    return rows.selectExpr("*", f"CAST(pmod(key_hash, {_PARTITIONS}) AS INT) AS partition_id")


def together(spark: SparkSession, count: int) -> DataFrame:
    """Return the rows of two operators with different keys, one of them with two stores."""
    frames = [
        some(spark, 0, "left", "named_struct('op0', " + _KEY + ")", count),
        some(spark, 0, "right", "named_struct('op0', " + _KEY + ")", 200),
        some(spark, 1, "default", "named_struct('op1', named_struct('n', id))", 300),
    ]
    one, *others = frames
    for other in others:
        one = one.unionByName(other, allowMissingColumns=True)
    return one


def counted(rows: DataFrame) -> dict[int, Any]:
    """Sum rows up by Spark's own functions."""
    sums = rows.groupBy("operator_id").agg(*canonical_table._sums()).collect()
    return {row["operator_id"]: canonical_table._contents(row.asDict()) for row in sums}


def hashed(rows: DataFrame) -> list[int]:
    """Return a hash of each row, in order of the hashes."""
    return sorted(row[0] for row in rows.selectExpr("xxhash64(*)").collect())


def test_rows_and_sums_are_the_ones_of_sparks_own_writer_and_functions(
    spark: SparkSession, on_local: Location
) -> None:
    rows = together(spark, 21_000).coalesce(1)  # All in one task, some of them in a second page.
    assert row_files.fits(rows)

    files = row_files.write(rows, on_local / "ours", {0: _PARTITIONS, 1: _PARTITIONS})

    new_table.commit(
        rows.schema,
        on_local / "ours",
        canonical_table.PARTITIONED_BY,
        {one.path: one.rows for one in files},
    )
    new_table.write(rows, on_local / "sparks", canonical_table.PARTITIONED_BY)
    ours = new_table.read(spark, on_local / "ours")
    sparks = new_table.read(spark, on_local / "sparks")
    assert ours.schema == sparks.schema
    assert hashed(ours) == hashed(sparks) == hashed(rows)
    for condition in (
        "operator_id = 0 AND key.op0.int = 150",
        "key.op0.text IS NULL AND value_bytes IS NULL",
        "key.op1.n = 7",
    ):
        # Readers skip what a file says has no such row.
        assert hashed(ours.where(condition)) == hashed(sparks.where(condition)), condition
        assert hashed(ours.where(condition)), condition
    truth = counted(rows)
    for operator_id in (0, 1):
        own = [one for one in files if one.operator_id == operator_id]
        assert sum(one.rows for one in own) == truth[operator_id].rows
        assert sum(one.state_bytes for one in own) == truth[operator_id].state_bytes
        words = (sum(one.hashes[seed] for one in own) % (1 << 64) for seed in (0, 1))
        assert "".join(f"{one:016x}" for one in words) == truth[operator_id].content_hash
        assert not any(one.stray for one in own)


def test_rows_in_another_state_partition_than_their_hash_says_are_counted(
    spark: SparkSession, on_local: Location
) -> None:
    rows = together(spark, 300)
    moved = rows.selectExpr(
        *(name for name in rows.columns if name != "partition_id"),
        f"IF(ord < 7 AND operator_id = 1, (partition_id + 1) % {_PARTITIONS}, partition_id) "
        "AS partition_id",
    )

    files = row_files.write(moved, on_local / "ours", {0: _PARTITIONS, 1: _PARTITIONS})

    assert sum(one.stray for one in files if one.operator_id == 1) == 7
    assert sum(one.stray for one in files if one.operator_id == 0) == 0


def test_a_task_that_fails_leaves_no_file(spark: SparkSession, on_local: Location) -> None:
    rows = together(spark, 300)
    failing = rows.selectExpr(
        *(name for name in rows.columns if name != "ord"),
        "IF(ord = 250, raise_error('the disk is gone'), ord) AS ord",
    )

    with pytest.raises(Exception, match="the disk is gone"):
        row_files.write(failing.coalesce(1), on_local / "ours", {0: _PARTITIONS, 1: _PARTITIONS})

    assert [one.path for one in on_local.list("ours") if one.path.endswith(".parquet")] == []


@pytest.mark.parametrize("key", ["named_struct('b', true)", "named_struct('d', 1.5)", "true"])
def test_keys_of_other_types_are_left_to_spark(spark: SparkSession, key: str) -> None:
    assert not row_files.fits(some(spark, 0, "default", f"named_struct('op0', {key})", 1))
