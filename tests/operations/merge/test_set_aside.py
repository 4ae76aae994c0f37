"""Rows of a batch that are no events, where somebody wants to look at them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

from savepoints.handle import Store
from savepoints.operations.merge import merge
from savepoints.operations.merge.plan import MergePlan
from savepoints.operations.merge.prepare import Prepared
from savepoints.sources.late.batch import LateBatch
from savepoints.store import scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_trap_bad_rows_are_set_aside_although_the_query_has_all_others(
    spark: SparkSession, local_store: Store, tmp_path: Path
) -> None:
    """They were lost: the command said that it set them aside, and had nothing to do."""
    plan = MergePlan(
        verb="merge", query="totals", steps=(), warnings=(), command="", operation_id="op-1",
        input="orders", batch="late.json", quarantine=str(tmp_path / "aside"), set_aside=1,
    )  # fmt: skip
    late = LateBatch(spark.createDataFrame([], "event_id string"), 0, 0, None, None, "", 0)
    work = scratch.place_of(local_store, plan.operation_id)
    (Path(str(work)) / scratch.SET_ASIDE).mkdir(parents=True)
    bad = pa.table({"reason": ["no entity"], "row": ["{}"]})
    parquet.write_table(bad, Path(str(work)) / scratch.SET_ASIDE / "part-0.parquet")

    merge.execute(Prepared(plan, work, late, None, None, None, 0.0), local_store)  # type: ignore[arg-type]

    assert parquet.read_table(tmp_path / "aside" / "op-1").to_pylist() == bad.to_pylist()
    assert work.list() == []
