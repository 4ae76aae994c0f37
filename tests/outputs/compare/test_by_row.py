"""A table compared with an output at a version, row by row; the truth is counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from savepoints.model import OutputVersion
from savepoints.outputs.compare import by_row
from savepoints.outputs.compare.by_row import RowDifferences
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = dict[str, Any]
SCHEMA = pa.schema({"a.b": pa.float64(), "tags": pa.map_(pa.string(), pa.int32())})


def test_rows_are_counted_as_often_as_they_occur(spark: SparkSession, tmp_path: Path) -> None:
    """Null, NaN and maps in any order are equal to themselves, and names may have dots."""
    one: Row = {"a.b": 1.5, "tags": [("x", 1), ("y", 2)]}
    turned: Row = {"a.b": 1.5, "tags": [("y", 2), ("x", 1)]}
    nan: Row = {"a.b": float("nan"), "tags": []}
    none: Row = {"a.b": None, "tags": None}
    rows = {"live": [one, one, nan, none, none], "drill": [none, turned, nan, nan, nan]}
    for name, given in rows.items():
        write_deltalake(str(tmp_path / name), pa.Table.from_pylist(given, schema=SCHEMA))
    live = OutputVersion("totals", str(tmp_path / "live"), "", 0, "", None)

    found = by_row.differences(spark, live, Uri.parse(str(tmp_path / "drill")))

    assert found == RowDifferences(missing=2, extra=2)


def test_trap_a_table_whose_columns_were_altered_is_an_error_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One that was dropped was passed over, and one of another type compared after a cast."""
    columns: dict[str, dict[str, Any]] = {
        "live": {"n": pa.array([1], pa.int64()), "new": ["x"], "same": [1]},
        "drill": {"n": pa.array([1], pa.int32()), "old": ["x"], "same": [1]},
    }
    for name, given in columns.items():
        write_deltalake(str(tmp_path / name), pa.table(given))
    live = OutputVersion("totals", str(tmp_path / "live"), "", 0, "", None)

    found = by_row.differences(spark, live, Uri.parse(str(tmp_path / "drill")))

    assert found.columns == (
        "n is int instead of bigint", "new is missing instead of string",
        "old is string instead of missing",
    )  # fmt: skip


def test_trap_rows_of_others_in_a_shared_table_made_a_drill_different(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They had written to the live table since the savepoint."""
    for name, rows in {"live": ["mine", "theirs", "theirs"], "drill": ["mine", "theirs"]}.items():
        write_deltalake(str(tmp_path / name), pa.table({"by": rows}))
    live = OutputVersion("totals", str(tmp_path / "live"), "", 0, "", None)
    drilled = Uri.parse(str(tmp_path / "drill"))

    def found(own_rows: str) -> RowDifferences:
        return by_row.differences(spark, live, drilled, own_rows)

    assert found("by = 'mine'") == RowDifferences(0, 0)
    assert found("by <> 'mine'") == RowDifferences(missing=1, extra=0)
