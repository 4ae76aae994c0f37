"""The first batch of a new query: appended where that is what a MERGE would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.outputs.delta.batch_version import open_table
from savepoints.outputs.delta.write import ensure_table, write_batch
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

APP = "query/totals/1"


def written(spark: SparkSession, table: Path, values: str, batch_id: int = 0) -> list[str]:
    """Write rows as a batch that is upserted; return the operations of the table's history."""
    batch = spark.sql(f"SELECT * FROM VALUES {values} AS t(k, v)")
    uri = Uri.parse(str(table))
    write_batch(batch, uri, mode="upsert", key=("k",), app=APP, batch_id=batch_id)
    return [one["operation"] for one in open_table(str(table)).history()]


def rows(table: Path) -> list[tuple[object, object]]:
    found = open_table(str(table)).to_pyarrow_table().to_pylist()
    return sorted(((one["k"], one["v"]) for one in found), key=repr)


def test_the_first_batch_of_a_new_table_is_appended_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Batch 0 again writes nothing; the next one is merged by key."""
    table = tmp_path / "table"
    first = "(1, 'a'), (2, 'b'), (CAST(NULL AS INT), 'c')"
    schema = spark.sql(f"SELECT * FROM VALUES {first} AS t(k, v)").schema
    ensure_table(Uri.parse(str(table)), schema.json())

    assert written(spark, table, first)[0] == "WRITE"
    assert rows(table) == [(1, "a"), (2, "b"), (None, "c")]
    assert written(spark, table, first.replace("'a'", "'again'")) == ["WRITE", "CREATE TABLE"]
    assert rows(table) == [(1, "a"), (2, "b"), (None, "c")]

    changes = "(2, 'new'), (CAST(NULL AS INT), 'new'), (3, 'd')"
    assert written(spark, table, changes, batch_id=1)[0] == "MERGE"
    assert rows(table) == [(1, "a"), (2, "new"), (3, "d"), (None, "new")]
    assert open_table(str(table)).transaction_version(APP) == 1


def test_trap_the_first_batch_is_merged_into_a_table_with_rows_or_other_types(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Appended, the row of a key that is there would be doubled, and narrower types refused."""
    filled, wider = tmp_path / "filled", tmp_path / "wider"
    spark.sql(f"CREATE TABLE delta.`{filled}` (k INT, v STRING) USING delta")
    spark.sql(f"INSERT INTO delta.`{filled}` VALUES (1, 'before'), (9, 'before')")
    spark.sql(f"CREATE TABLE delta.`{wider}` (k BIGINT, v STRING) USING delta")

    assert written(spark, filled, "(1, 'a')")[0] == "MERGE"
    assert rows(filled) == [(1, "a"), (9, "before")]
    assert written(spark, wider, "(1, 'a')")[0] == "MERGE"
    assert rows(wider) == [(1, "a")]
