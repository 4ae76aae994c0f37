"""State of a few entities is read from few partitions, beside all of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.state.files import partition_of
from savepoints.io import Location
from savepoints.state.merge import touched_partitions
from savepoints.state.storage.row_sources import CheckpointRows, SavedRows
from tests.many_partitions import PARTITIONS, give, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SOME = ["client-7", "client-31", "client-none"]


def entities(spark: SparkSession, names: Sequence[str]) -> DataFrame:
    return spark.createDataFrame([(one,) for one in names], "entity string")


def rows_of(saved: SavedRows, names: Sequence[str]) -> Counter[Any]:
    from pyspark.sql import functions as F

    found = saved.rows(0, "default").where(F.col("key.client").isin([*names]))
    return Counter(found.selectExpr("hex(key_bytes)", "hex(value_bytes)", "key_hash").collect())


@pytest.mark.parametrize(
    "store", ["rocksdb_1", pytest.param("rocksdb_2_changelog", marks=pytest.mark.nightly)]
)
def test_few_entities_are_read_from_their_partitions(
    store: str, on_local: Location, spark: SparkSession
) -> None:
    source, checkpoint, place = (on_local / one for one in ("in", "live", "some"))
    give(source, [(f"client-{one}", one) for one in range(60)])
    run(spark, source, checkpoint, store)
    whole = CheckpointRows.of(spark, checkpoint, read_cut(checkpoint))

    few = touched_partitions.narrowed(whole, entities(spark, SOME), place)

    assert rows_of(few, SOME) == rows_of(whole, SOME)
    assert sum(rows_of(few, SOME).values()) == 2
    assert 0 < len({partition_of(one.path) for one in place.list("state/0")}) <= len(SOME) + 1
    assert few.rows(0, "default").count() < 60
    many = entities(spark, [f"client-{one}" for one in range(PARTITIONS)])
    assert touched_partitions.narrowed(whole, many, on_local / "many") is whole


@pytest.mark.parametrize("store", ["hdfs", "rocksdb_1"])
def test_what_its_keys_do_not_place_is_read_as_a_whole(
    store: str, on_local: Location, spark: SparkSession
) -> None:
    """Files of the default provider are read by other code; a double's text is not its value."""
    source, checkpoint = on_local / "in", on_local / "live"
    give(source, [(f"client-{one}", one) for one in range(60)])
    by = "client" if store == "hdfs" else "amount / 2"
    run(spark, source, checkpoint, store, by=by)
    whole = CheckpointRows.of(spark, checkpoint, read_cut(checkpoint))

    given = touched_partitions.narrowed(whole, entities(spark, ["1.5"]), on_local / "some")

    assert given is whole
