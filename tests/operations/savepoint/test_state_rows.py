"""State rows of savepoints that have only native files, for all that rewrites state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from savepoints.errors import NotAlignedError, PlacementError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.state.change.edit import StateEdit
from tests.draw import some
from tests.edited_rows import edit_rows
from tests.samples import files_of, take, unpack, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]

REWRITES: dict[str, Callable[[Store, Savepoint, str], object]] = {
    "export": lambda store, one, _: store.savepoint(one.id).export().execute(),
    "restore": lambda store, one, to: store.savepoint(one.id).restore(to, partitions=3).execute(),
    "edit": lambda store, one, _: (
        store.savepoint(one.id).edit(StateEdit("true", ("sum = 0",)), reason="x").execute()
    ),
}


@pytest.mark.parametrize("verb", some(2, REWRITES, "rewrites"))
@pytest.mark.parametrize("sample", ["hdfs", "rocksdb"])
def test_trap_rows_in_a_partition_that_spark_does_not_look_in_are_not_rewritten(
    sample: str, verb: str, on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    """As if its state had been moved by hand: the partitions have each other's files."""
    other = {"0": "1", "1": "0"}
    files = {
        path.replace(f"state/0/{path[8]}/", f"state/0/{other[path[8]]}/")
        if path.startswith(("state/0/0/", "state/0/1/")) and "_metadata" not in path
        else path: data
        for path, data in files_of(sample).items()
    }
    write(on_local / "checkpoint", files)
    taken = take(local_store, on_local / "checkpoint")
    target = on_local / "target"

    with pytest.raises(PlacementError, match="operator 0 found in a state partition other"):
        REWRITES[verb](local_store, taken, str(target))

    assert [one.id for one in local_store.catalog.all()] == [taken.id]
    assert local_store.catalog.find(taken.id).forms == ("native",)
    assert "metadata" not in {info.path for info in target.list()}
    assert not (local_store.root / "scratch").list()


# Each by another writer: files that are loaded, Spark's own for RocksDB, and ours.
@pytest.mark.parametrize("sample", some(1, ["format_2", "session", "hdfs"], "lost"))
@pytest.mark.parametrize("how", [{"form": "canonical"}, {"partitions": 3}], ids=str)
def test_trap_a_row_that_gets_lost_on_the_way_is_missing_in_a_restored_checkpoint(
    sample: str, how: dict[str, Any], on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    taken = take(local_store, unpack(sample, on_local / "checkpoint"))
    (operator,) = local_store.savepoint(taken.id).export().execute().operators
    edit_rows(local_store, taken.id, lambda rows: rows.slice(1))
    target = on_local / "target"

    assert operator.rows
    lost = f"wrote {operator.rows - 1} rows of state of operator 0 .* has {operator.rows}\n"
    with pytest.raises(NotAlignedError, match=lost):
        local_store.savepoint(taken.id).restore(str(target), **how).execute()

    assert not target.exists("metadata")


def test_rows_are_written_with_zstandard(
    on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    taken = take(local_store, unpack("rocksdb", on_local / "checkpoint"))

    local_store.savepoint(taken.id).export().execute()

    rows = [
        file.stored_at
        for file in local_store.manifest(taken.id).canonical
        if file.path.endswith(".parquet")
    ]
    codecs = {
        pq.ParquetFile(f"{local_store.root}/{path}").metadata.row_group(0).column(0).compression
        for path in rows
    }
    assert codecs == {"ZSTD"}


def test_trap_an_export_is_one_job_and_no_transaction_of_spark(
    on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    """Delta's own commit runs a second job, as long as all the rest where there are few rows."""
    taken = take(local_store, unpack("rocksdb", on_local / "checkpoint"))
    context = spark.sparkContext
    context.setJobGroup(taken.id, "export")
    try:
        local_store.savepoint(taken.id).export().execute()
    finally:
        context.setJobGroup("", "")

    assert len(context.statusTracker().getJobIdsForGroup(taken.id)) == 1
    files = [file.path for file in local_store.manifest(taken.id).canonical]
    assert [path for path in files if not path.endswith(".parquet")] == [
        "_delta_log/00000000000000000000.json"
    ]
