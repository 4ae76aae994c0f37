"""The state of a few entities put into a checkpoint, beside a query that had it in time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from savepoints.checkpoint.cut import read_cut
from savepoints.io import Location
from savepoints.operations.merge import splice_checkpoint
from savepoints.runtime.replay import Live
from savepoints.state.storage import read
from savepoints.state.storage.row_sources import CheckpointRows
from tests.many_partitions import PARTITIONS, give, run
from tests.state_files import by_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CLIENTS = 60
# Their orders of the first batch come late; the last one has no others.
LATE = ["client-7", "client-31", "client-55"]
# Of events that are removed.
GONE = "client-gone"
FIRST = [(f"client-{one % CLIENTS}", one) for one in range(200)]
MORE = [(f"client-{one}", 1000 * one) for one in range(5, 50)]
AFTER = [(f"client-{one}", 7) for one in range(CLIENTS)]


def state(spark: SparkSession, checkpoint: Location) -> Counter[Any]:
    """Return all rows with their state partition, as Spark's raw reader has them."""
    files = read_cut(checkpoint)
    own = read.reading_session(spark, files.cut.checkpoint_format)
    rows = read.load(own, checkpoint.uri, files.cut.batch_id, 0, "default")
    columns = ("hex(key_bytes)", "hex(value_bytes)", "spark_partition_id()")
    return Counter(rows.selectExpr(*columns).collect())


@pytest.mark.parametrize(
    "store", ["rocksdb_1", pytest.param("rocksdb_2_changelog", marks=pytest.mark.nightly)]
)
def test_state_partitions_in_which_nothing_changes_are_copied(
    store: str, on_local: Location, spark: SparkSession
) -> None:
    in_time = [(GONE, 1), *(one for one in FIRST if one[0] not in LATE)]
    source, live, target = (on_local / one for one in ("in", "live", "target"))
    source_of_truth, other = on_local / "in-truth", on_local / "other"
    give(source, in_time, MORE)
    run(spark, source, live, store)
    give(source_of_truth, FIRST, MORE)
    run(spark, source_of_truth, other, store)
    before, truth = state(spark, live), state(spark, other)

    splice_checkpoint.write(
        spark,
        target,
        Live(live, read_cut(live)),
        CheckpointRows.of(spark, other, read_cut(other)),
        {0: "client"},
        spark.createDataFrame([(one,) for one in (*LATE, GONE)], "entity string"),
        on_local / "scratch",
    )
    target.copy_from(live, "metadata", "metadata")

    assert state(spark, target) == truth
    changed = {row[2] for row in (before - truth) + (truth - before)}
    assert 0 < len(changed) < PARTITIONS
    theirs, ours = by_partition(live), by_partition(target)
    assert {one for one in theirs if theirs[one] != ours[one]} == changed
    # It goes on from files of both kinds.
    for place, checkpoint in ((source, target), (source_of_truth, other)):
        give(place, AFTER)
        run(spark, place, checkpoint, store)
    assert state(spark, target) == state(spark, other)
